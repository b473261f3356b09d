/* dcp_writer.c - .metadata of any version, valid or not, and small archives */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "support/dcp_writer.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <zlib.h>

#include "support/pickle_writer.h"
#include "tap.h"

/* The modules of the classes, which differ by generation. */
struct modules {
	const char *metadata, *storage, *properties, *format;
};

static struct modules modules_of(enum mk_generation g)
{
	static const char meta[] = "torch.distributed.checkpoint.metadata";
	static const char old[] =
	    "torch.distributed._shard.sharded_tensor.metadata";
	struct modules m = { meta, "torch.distributed.checkpoint.filesystem",
		meta, "_MEM_FORMAT_ENCODING" };

	if (g == MK_TORCH_1_13) {
		m.metadata = "torch.distributed._shard.checkpoint.metadata";
		m.storage = "torch.distributed._shard.checkpoint.filesystem";
	}
	if (g == MK_TORCH_1_13 || g == MK_TORCH_2_0) {
		m.properties = old;
		m.format = "MEM_FORMAT_ENCODING";
	}
	if (g == MK_OLMO)
		m.storage = "olmo_core.distributed.checkpoint.filesystem";
	return m;
}

static void dims(struct ofs_buf *b, const struct mk_dims *d)
{
	pw_size(b, d->v, (size_t)d->n);
}

static void reduce(struct ofs_buf *b)
{
	pw_op(b, 'R');
}

static void properties(struct ofs_buf *b, const struct mk_index *index,
    const struct mk_tensor *t)
{
	struct modules m = modules_of(index->generation);

	pw_global(b, m.properties, "TensorProperties");
	pw_op(b, ')');
	pw_op(b, 0x81);
	pw_tuple_open(b);
	pw_global(b, "torch", t->dtype);
	pw_global(b, "torch.serialization", "_get_layout");
	pw_tuple_open(b);
	pw_str(b, t->layout == NULL ? "torch.strided" : t->layout);
	pw_tuple_close(b);
	reduce(b);
	pw_bool(b, 0);
	if (index->generation == MK_GETATTR) {
		pw_global(b, "builtins", "getattr");
		pw_tuple_open(b);
		pw_global(b, m.properties, m.format);
		pw_str(b, "TORCH_CONTIGUOUS_FORMAT");
		pw_tuple_close(b);
	} else {
		pw_global(b, m.properties, m.format);
		pw_tuple_open(b);
		pw_int(b, t->format);
		pw_tuple_close(b);
	}
	reduce(b);
	pw_bool(b, 0);
	pw_tuple_close(b);
	pw_op(b, 'b');
}

static void chunk(struct ofs_buf *b, const struct modules *m,
    const struct mk_chunk *c)
{
	pw_object_open(b, m->metadata, "ChunkStorageMetadata");
	pw_str(b, "offsets");
	dims(b, &c->off);
	pw_str(b, "sizes");
	dims(b, &c->size);
	pw_object_close(b);
}

static void tensor(struct ofs_buf *b, const struct mk_index *index, int i)
{
	const struct mk_tensor *t = &index->tensor[i];
	struct modules m = modules_of(index->generation);

	pw_str(b, t->key);
	if (i == 0 && index->meta != NULL) {
		index->meta(b);
		return;
	}
	pw_object_open(b, m.metadata, "TensorStorageMetadata");
	pw_str(b, "properties");
	properties(b, index, t);
	pw_str(b, "size");
	if (i == 0 && index->size != NULL)
		index->size(b);
	else
		dims(b, &t->size);
	pw_str(b, "chunks");
	pw_list_open(b);
	for (int k = 0; k < t->nchunks; k++)
		chunk(b, &m, &t->chunk[k]);
	if (t->repeated > 0)
		ofs_buf_put(b, "q\377", 2);
	for (int k = 0; k < t->repeated; k++)
		ofs_buf_put(b, "h\377", 2);
	pw_list_close(b);
	pw_object_close(b);
}

static void keys(struct ofs_buf *b, const struct mk_index *index)
{
	struct modules m = modules_of(index->generation);

	pw_str(b, "state_dict_metadata");
	pw_dict_open(b);
	for (int i = 0; i < index->ntensors; i++)
		tensor(b, index, i);
	if (index->twice_meta)
		tensor(b, index, 0);
	for (int i = 0; i < index->nvalues; i++) {
		pw_str(b, index->value[i].key);
		pw_global(b, m.metadata, "BytesStorageMetadata");
		pw_op(b, ')');
		pw_op(b, 0x81);
	}
	pw_dict_close(b);
}

static void item(struct ofs_buf *b, const struct mk_index *index,
    const char *key, const struct mk_dims *off, const struct mk_place *at,
    void (*write_off)(struct ofs_buf *b))
{
	struct modules m = modules_of(index->generation);

	pw_object_open(b, m.metadata, "MetadataIndex");
	pw_str(b, "fqn");
	pw_str(b, key);
	pw_str(b, "index");
	pw_none(b);
	if (off != NULL) {
		pw_str(b, "offset");
		dims(b, off);
	}
	pw_object_close(b);
	pw_object_open(b, m.storage, "_StorageInfo");
	pw_str(b, "relative_path");
	pw_strn(b, at->file,
	    at->file_len == 0 ? strlen(at->file) : at->file_len);
	pw_str(b, "offset");
	if (write_off != NULL)
		write_off(b);
	else
		pw_int(b, at->off);
	pw_str(b, "length");
	pw_int(b, at->len);
	if (at->transform != NULL) {
		pw_str(b, "transform_descriptors");
		pw_list_open(b);
		pw_str(b, at->transform);
		if (at->transform2 != NULL)
			pw_str(b, at->transform2);
		pw_list_close(b);
	}
	pw_object_close(b);
}

static void tensor_items(struct ofs_buf *b, const struct mk_index *index, int i)
{
	const struct mk_tensor *t = &index->tensor[i];

	for (int k = 0; k < t->nchunks; k++) {
		const struct mk_chunk *c = &t->chunk[k];

		if (c->at.file != NULL)
			item(b, index, t->key,
			    c->stored_off == NULL ? &c->off : c->stored_off,
			    &c->at, i == 0 && k == 0 ? index->offset : NULL);
	}
}

static void storage(struct ofs_buf *b, const struct mk_index *index)
{
	static const struct mk_place stray = { .file = "__0_0.distcp",
		.len = 10 };

	pw_str(b, "storage_data");
	if (index->no_storage) {
		pw_none(b);
		return;
	}
	pw_dict_open(b);
	for (int i = 0; i < index->ntensors; i++)
		tensor_items(b, index, i);
	if (index->twice_storage)
		tensor_items(b, index, 0);
	for (int i = 0; i < index->nvalues; i++)
		if (index->value[i].at.file != NULL)
			item(b, index, index->value[i].key, NULL,
			    &index->value[i].at, NULL);
	if (index->stray_item != NULL)
		item(b, index, index->stray_item, NULL, &stray, NULL);
	pw_dict_close(b);
}

static void path(struct ofs_buf *b, const char *key,
    const char *const path[MK_DIMS])
{
	pw_str(b, key);
	pw_tuple_open(b);
	if (path[0] == NULL)
		pw_str(b, key);
	for (int i = 0; i < MK_DIMS && path[i] != NULL; i++)
		if (path[i][0] == '#')
			pw_int(b, atoi(path[i] + 1));
		else
			pw_str(b, path[i]);
	pw_tuple_close(b);
}

static void planner(struct ofs_buf *b, const struct mk_index *index)
{
	static const char *const none[MK_DIMS];

	pw_str(b, "planner_data");
	if (index->planner == MK_NO_PLANNER) {
		pw_none(b);
		return;
	}
	if (index->planner == MK_ODD_PLANNER) {
		pw_str(b, "not a dict");
		return;
	}
	pw_dict_open(b);
	for (int i = 0; i < index->ntensors; i++) {
		const struct mk_tensor *t = &index->tensor[i];

		if (index->planner == MK_BAD_PATHS) {
			pw_str(b, t->key);
			pw_float(b, 1.5);
		} else if (!t->no_path) {
			path(b, t->key, t->path);
		}
	}
	for (int i = 0; i < index->nvalues; i++)
		path(b, index->value[i].key, index->value[i].path);
	if (index->stray_key != NULL)
		path(b, index->stray_key, none);
	pw_dict_close(b);
}

static void storage_meta(struct ofs_buf *b, const struct modules *m)
{
	pw_str(b, "storage_meta");
	pw_object_open(b, m->metadata, "StorageMeta");
	pw_str(b, "checkpoint_id");
	pw_global(b, "pathlib", "PosixPath");
	pw_tuple_open(b);
	pw_str(b, "/");
	pw_str(b, "ckpt");
	pw_tuple_close(b);
	reduce(b);
	pw_str(b, "save_id");
	pw_str(b, "0");
	pw_object_close(b);
}

void mk_write_index(struct ofs_buf *b, const struct mk_index *index)
{
	struct modules m = modules_of(index->generation);

	pw_begin(b);
	if (index->generation == MK_MEGATRON)
		pw_object_open(b,
		    "megatron.core.dist_checkpointing.strategies.torch",
		    "MCoreMetadata");
	else
		pw_object_open(b, m.metadata, "Metadata");
	keys(b, index);
	planner(b, index);
	storage(b, index);
	if (index->generation <= MK_TORCH_2_3 ||
	    index->generation >= MK_GETATTR)
		storage_meta(b, &m);
	if (index->generation == MK_TORCH_2_11 ||
	    index->generation == MK_GETATTR) {
		pw_str(b, "version");
		pw_str(b, "1.0.0");
	}
	pw_object_close(b);
	pw_end(b);
}

/* Archives, as small as torch.load accepts them: no zip64, no alignment. */

struct record {
	const char *name;
	uint32_t crc, size, header;
};

static void le(struct ofs_buf *b, uint32_t v, int n)
{
	for (int i = 0; i < n; i++)
		ofs_buf_putc(b, (int)(v >> (8 * i) & 0xff));
}

static void header(struct ofs_buf *b, const struct record *r)
{
	le(b, 0, 2);
	le(b, 0, 2);
	le(b, 0, 4);
	le(b, r->crc, 4);
	le(b, r->size, 4);
	le(b, r->size, 4);
	le(b, (uint32_t)strlen(r->name), 2);
	le(b, 0, 2);
}

static void add_record(struct ofs_buf *b, size_t base, struct record *r,
    const char *name, const void *p, size_t n)
{
	r->name = name;
	r->crc = (uint32_t)crc32(0, p, (uInt)n);
	r->size = (uint32_t)n;
	r->header = (uint32_t)(b->len - base);
	ofs_buf_put(b, "PK\3\4", 4);
	le(b, 0, 2);
	header(b, r);
	ofs_buf_puts(b, name);
	ofs_buf_put(b, p, n);
}

static size_t end_archive(struct ofs_buf *b, size_t base,
    const struct record *r, unsigned n)
{
	uint32_t at = (uint32_t)(b->len - base), size;

	for (unsigned i = 0; i < n; i++) {
		ofs_buf_put(b, "PK\1\2", 4);
		le(b, 0, 2);
		le(b, 0, 2);
		header(b, &r[i]);
		le(b, 0, 2);
		le(b, 0, 2);
		le(b, 0, 2);
		le(b, 0, 4);
		le(b, r[i].header, 4);
		ofs_buf_puts(b, r[i].name);
	}
	size = (uint32_t)(b->len - base) - at;
	ofs_buf_put(b, "PK\5\6", 4);
	le(b, 0, 4);
	le(b, n, 2);
	le(b, n, 2);
	le(b, size, 4);
	le(b, at, 4);
	le(b, 0, 2);
	return b->len - base;
}

size_t mk_write_object(struct ofs_buf *b, const void *pickle, size_t n)
{
	struct record r[2];
	size_t base = b->len;

	add_record(b, base, &r[0], "archive/data.pkl", pickle, n);
	add_record(b, base, &r[1], "archive/version", "3\n", 2);
	return end_archive(b, base, r, 2);
}

static void strides(struct ofs_buf *b, const struct mk_dims *size)
{
	pw_tuple_open(b);
	for (int i = 0; i < size->n; i++) {
		int64_t stride = 1;

		for (int k = i + 1; k < size->n; k++)
			stride *= size->v[k];
		pw_int(b, stride);
	}
	pw_tuple_close(b);
}

size_t mk_write_tensor(struct ofs_buf *b, const char *storage_class,
    const struct mk_dims *size, const void *bytes, size_t n)
{
	struct ofs_buf pk = { 0 };
	struct record r[3];
	size_t base = b->len;
	int64_t numel = 1;

	for (int i = 0; i < size->n; i++)
		numel *= size->v[i];
	pw_begin(&pk);
	pw_global(&pk, "torch._utils", "_rebuild_tensor_v2");
	pw_tuple_open(&pk);
	pw_tuple_open(&pk);
	pw_str(&pk, "storage");
	pw_global(&pk, "torch", storage_class);
	pw_str(&pk, "0");
	pw_str(&pk, "cpu");
	pw_int(&pk, numel);
	pw_tuple_close(&pk);
	pw_op(&pk, 'Q');
	pw_int(&pk, 0);
	pw_tuple_open(&pk);
	for (int i = 0; i < size->n; i++)
		pw_int(&pk, size->v[i]);
	pw_tuple_close(&pk);
	strides(&pk, size);
	pw_bool(&pk, 0);
	pw_global(&pk, "collections", "OrderedDict");
	pw_op(&pk, ')');
	reduce(&pk);
	pw_tuple_close(&pk);
	reduce(&pk);
	pw_end(&pk);
	add_record(b, base, &r[0], "archive/data.pkl", pk.data, pk.len);
	add_record(b, base, &r[1], "archive/data/0", bytes, n);
	add_record(b, base, &r[2], "archive/version", "3\n", 2);
	ofs_buf_fini(&pk);
	return end_archive(b, base, r, 3);
}

void mk_dir(char dir[64])
{
	snprintf(dir, 64, "%s/dcp.XXXXXX", tap_tmpdir());
	if (mkdtemp(dir) == NULL)
		bail_out("%s: %m", dir);
}

void mk_file(const char *dir, const char *name, const void *p, size_t n)
{
	char *path, *slash;
	FILE *f;

	if (asprintf(&path, "%s/%s", dir, name) == -1)
		bail_out("out of memory");
	for (slash = path + strlen(dir) + 1;
	     (slash = strchr(slash, '/')) != NULL; slash++) {
		*slash = '\0';
		mkdir(path, 0755);
		*slash = '/';
	}
	f = fopen(path, "w");
	if (f == NULL || (n > 0 && fwrite(p, 1, n, f) != n) || fclose(f) != 0)
		bail_out("%s: %m", path);
	free(path);
}

static int remove_one(const char *path, const struct stat *st, int flag,
    struct FTW *ftw)
{
	(void)st;
	(void)flag;
	(void)ftw;
	return remove(path);
}

void mk_remove(const char *dir)
{
	if (nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS) == -1)
		bail_out("%s: %m", dir);
}
