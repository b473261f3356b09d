/* metadata.c - the index of a DCP checkpoint */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "metadata.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pk4.h"
#include "sink.h"

/* Classes and attributes as PyTorch 2.11 pickles them. */
static const char M[] = "torch.distributed.checkpoint.metadata";
static const char F[] = "torch.distributed.checkpoint.filesystem";
static const char TORCH[] = "torch", SERIALIZATION[] = "torch.serialization";
static const char PATHLIB[] = "pathlib", POSIX_PATH[] = "PosixPath";
static const char SIZE[] = "Size", GET_LAYOUT[] = "_get_layout";
static const char STRIDED[] = "torch.strided";
static const char METADATA[] = "Metadata", CHUNK[] = "ChunkStorageMetadata";
static const char TENSOR[] = "TensorStorageMetadata";
static const char BYTES[] = "BytesStorageMetadata";
static const char PROPERTIES_CLASS[] = "TensorProperties";
static const char MEM_FORMAT[] = "_MEM_FORMAT_ENCODING";
static const char INDEX_CLASS[] = "MetadataIndex", INFO[] = "_StorageInfo";
static const char STORAGE_META_CLASS[] = "StorageMeta";
static const char STATE_DICT_METADATA[] = "state_dict_metadata";
static const char PLANNER_DATA[] = "planner_data";
static const char STORAGE_DATA[] = "storage_data";
static const char STORAGE_META[] = "storage_meta", VERSION_ATTR[] = "version";
static const char PROPERTIES[] = "properties", SIZE_ATTR[] = "size";
static const char CHUNKS[] = "chunks", OFFSETS[] = "offsets";
static const char SIZES[] = "sizes", FQN[] = "fqn", INDEX[] = "index";
static const char OFFSET[] = "offset", LENGTH[] = "length";
static const char RELATIVE_PATH[] = "relative_path";
static const char TRANSFORMS[] = "transform_descriptors";
static const char ZSTD[] = "stream.zstd/1";
static const char CHECKPOINT_ID[] = "checkpoint_id", SAVE_ID[] = "save_id";
static const char OPTIM[] = "optim", PARAM_GROUPS[] = "param_groups";
static const char LOAD_ID[] = "load_id", MODULES[] = "modules";

struct writer {
	struct pk4 p;
	const struct checkpoint *c;
	const char *dtype;       /* of the tensors */
	uint32_t *key;           /* memo numbers by tensor, then by object */
	uint32_t layout, format; /* memo numbers, once known is set */
	bool known;
	char fqn[NAME_SIZE]; /* last in a path */
	uint32_t fqn_memo;
	struct {
		uint32_t memo, rank, file;
		bool set;
	} * path; /* memo of the file names, by rank and file */
};

static void put_size(struct writer *w, const uint64_t *v, size_t n)
{
	pk4_global(&w->p, TORCH, SIZE);
	pk4_tuple_open(&w->p, n);
	for (size_t i = 0; i < n; i++)
		pk4_int(&w->p, v[i]);
	pk4_tuple(&w->p, n);
	pk4_tuple(&w->p, 1);
	pk4_op_memo(&w->p, 'R');
}

/* dtype, layout, requires_grad, memory_format, pin_memory. */
static void put_properties(struct writer *w, const char *dtype)
{
	struct pk4 *p = &w->p;

	pk4_global(p, M, PROPERTIES_CLASS);
	pk4_op(p, ')');
	pk4_op_memo(p, '\x81');
	pk4_tuple_open(p, 5);
	pk4_global(p, TORCH, dtype);
	if (w->known) {
		pk4_get(p, w->layout);
	} else {
		pk4_global(p, SERIALIZATION, GET_LAYOUT);
		pk4_str(p, STRIDED);
		pk4_tuple(p, 1);
		w->layout = pk4_op_memo(p, 'R');
	}
	pk4_op(p, '\x89');
	if (w->known) {
		pk4_get(p, w->format);
	} else {
		pk4_global(p, M, MEM_FORMAT);
		pk4_int(p, 0);
		pk4_tuple(p, 1);
		w->format = pk4_op_memo(p, 'R');
	}
	w->known = true;
	pk4_op(p, '\x89');
	pk4_tuple(p, 5);
	pk4_op(p, 'b');
}

static void put_chunk(struct writer *w, const struct box *b)
{
	pk4_object(&w->p, M, CHUNK);
	pk4_known(&w->p, OFFSETS);
	put_size(w, b->offset, b->ndim);
	pk4_known(&w->p, SIZES);
	put_size(w, b->size, b->ndim);
	pk4_object_end(&w->p);
}

static bool is_scalar(const struct writer *w, uint64_t t)
{
	return checkpoint_is_step(w->c, t);
}

static void put_tensor(struct writer *w, uint64_t t)
{
	const struct checkpoint *c = w->c;
	bool scalar = is_scalar(w, t);
	uint64_t n = scalar ? 1 : c->nparts;
	struct pk4_batch chunks;
	struct box b = { 0 };

	pk4_object(&w->p, M, TENSOR);
	pk4_known(&w->p, PROPERTIES);
	put_properties(w, scalar ? "float32" : w->dtype);
	pk4_known(&w->p, SIZE_ATTR);
	put_size(w, c->shape, scalar ? 0 : c->ndim);
	pk4_known(&w->p, CHUNKS);
	chunks = pk4_list(&w->p, n);
	for (uint64_t k = 0; k < n; k++) {
		pk4_next(&w->p, &chunks);
		if (!scalar)
			checkpoint_box(c, k, &b);
		put_chunk(w, &b);
	}
	pk4_end(&w->p, &chunks);
	pk4_object_end(&w->p);
}

static void option_key(size_t i, char key[NAME_SIZE])
{
	snprintf(key, NAME_SIZE, "optim.param_groups.0.%s",
	    checkpoint_option(i));
}

static void put_state_dict_metadata(struct writer *w)
{
	const struct checkpoint *c = w->c;
	size_t nobjects = checkpoint_nobjects(c);
	struct pk4_batch entries;
	char key[NAME_SIZE];

	pk4_known(&w->p, STATE_DICT_METADATA);
	entries = pk4_dict(&w->p, c->ntensors + nobjects);
	for (uint64_t t = 0; t < c->ntensors; t++) {
		pk4_next(&w->p, &entries);
		checkpoint_key(c, t, key);
		w->key[t] = pk4_str(&w->p, key);
		put_tensor(w, t);
	}
	for (size_t i = 0; i < nobjects; i++) {
		pk4_next(&w->p, &entries);
		option_key(i, key);
		w->key[c->ntensors + i] = pk4_str(&w->p, key);
		pk4_global(&w->p, M, BYTES);
		pk4_op(&w->p, ')');
		pk4_op_memo(&w->p, '\x81');
	}
	pk4_end(&w->p, &entries);
}

/* A path of strings. Those of one parameter's state share its name. */
static void put_path(struct writer *w, uint64_t t)
{
	char fqn[NAME_SIZE];
	const char *part[4];
	size_t n = checkpoint_path(w->c, t, fqn, part);

	pk4_tuple_open(&w->p, n);
	for (size_t i = 0; i < n; i++) {
		if (part[i] != fqn)
			pk4_known(&w->p, part[i]);
		else if (n == 4 && strcmp(w->fqn, fqn) == 0)
			pk4_get(&w->p, w->fqn_memo);
		else {
			w->fqn_memo = pk4_str(&w->p, fqn);
			strcpy(w->fqn, fqn);
		}
	}
	pk4_tuple(&w->p, n);
}

/* How flat keys nest. */
static void put_planner_data(struct writer *w)
{
	const struct checkpoint *c = w->c;
	size_t nobjects = checkpoint_nobjects(c);
	struct pk4_batch entries;

	pk4_known(&w->p, PLANNER_DATA);
	entries = pk4_dict(&w->p, c->ntensors + nobjects);
	for (uint64_t t = 0; t < c->ntensors; t++) {
		pk4_next(&w->p, &entries);
		pk4_get(&w->p, w->key[t]);
		put_path(w, t);
	}
	for (size_t i = 0; i < nobjects; i++) {
		pk4_next(&w->p, &entries);
		pk4_get(&w->p, w->key[c->ntensors + i]);
		pk4_tuple_open(&w->p, 4);
		pk4_known(&w->p, OPTIM);
		pk4_known(&w->p, PARAM_GROUPS);
		pk4_int(&w->p, 0);
		pk4_str(&w->p, checkpoint_option(i));
		pk4_tuple(&w->p, 4);
	}
	pk4_end(&w->p, &entries);
}

/* Names of files are written once for each, when there are few. */
static void put_file(struct writer *w, const struct place *at)
{
	size_t slot = (size_t)at->rank * w->c->files + at->file;
	char name[64];
	uint32_t memo;

	if (!w->c->file_an_item && w->path[slot].set) {
		pk4_get(&w->p, w->path[slot].memo);
		return;
	}
	snprintf(name, sizeof(name), "__%u_%u.distcp", at->rank, at->file);
	memo = pk4_str(&w->p, name);
	if (w->c->file_an_item)
		return;
	w->path[slot].memo = memo;
	w->path[slot].set = true;
}

static void put_info(struct writer *w, const struct place *at)
{
	pk4_object(&w->p, F, INFO);
	pk4_known(&w->p, RELATIVE_PATH);
	put_file(w, at);
	pk4_known(&w->p, OFFSET);
	pk4_int(&w->p, at->off);
	pk4_known(&w->p, LENGTH);
	pk4_int(&w->p, at->len);
	if (w->c->level != 0) {
		struct pk4_batch one;

		pk4_known(&w->p, TRANSFORMS);
		one = pk4_list(&w->p, 1);
		pk4_next(&w->p, &one);
		pk4_known(&w->p, ZSTD);
		pk4_end(&w->p, &one);
	}
	pk4_object_end(&w->p);
}

static void put_index(struct writer *w, uint32_t key, uint64_t part,
    const struct box *b)
{
	pk4_object(&w->p, M, INDEX_CLASS);
	pk4_known(&w->p, FQN);
	pk4_get(&w->p, key);
	pk4_known(&w->p, INDEX);
	if (b == NULL) {
		pk4_op(&w->p, 'N');
	} else {
		pk4_int(&w->p, part);
		pk4_known(&w->p, OFFSET);
		put_size(w, b->offset, b->ndim);
	}
	pk4_object_end(&w->p);
}

/* In the order of each file: objects, then tensors. */
static void put_storage_data(struct writer *w)
{
	const struct checkpoint *c = w->c;
	size_t nobjects = checkpoint_nobjects(c);
	struct pk4_batch entries;

	pk4_known(&w->p, STORAGE_DATA);
	entries = pk4_dict(&w->p, checkpoint_nitems(c));
	for (size_t i = 0; i < nobjects; i++) {
		pk4_next(&w->p, &entries);
		put_index(w, w->key[c->ntensors + i], 0, NULL);
		put_info(w, &c->place[checkpoint_item(c, c->ntensors, i)]);
	}
	for (uint64_t t = 0; t < c->ntensors; t++) {
		uint64_t n = is_scalar(w, t) ? 1 : c->nparts;

		for (uint64_t k = 0; k < n; k++) {
			struct box b = { 0 };

			if (!is_scalar(w, t))
				checkpoint_box(c, k, &b);
			pk4_next(&w->p, &entries);
			put_index(w, w->key[t], k, &b);
			put_info(w, &c->place[checkpoint_item(c, t, k)]);
		}
	}
	pk4_end(&w->p, &entries);
}

static void put_storage_meta(struct writer *w)
{
	struct pk4 *p = &w->p;
	char id[64];

	pk4_known(p, STORAGE_META);
	pk4_object(p, M, STORAGE_META_CLASS);
	pk4_known(p, CHECKPOINT_ID);
	pk4_global(p, PATHLIB, POSIX_PATH);
	pk4_str(p, "checkpoint");
	pk4_tuple(p, 1);
	pk4_op_memo(p, 'R');
	pk4_known(p, SAVE_ID);
	snprintf(id, sizeof(id), "00000000-0000-4000-8000-%012" PRIx64,
	    w->c->content.seed & UINT64_C(0xffffffffffff));
	pk4_str(p, id);
	pk4_known(p, LOAD_ID);
	pk4_op(p, 'N');
	pk4_known(p, MODULES);
	pk4_op_memo(p, ']');
	pk4_object_end(p);
}

void metadata_write(const struct checkpoint *c)
{
	struct writer w = { .c = c, .dtype = c->content.dtype->name };
	char path[PATH_SIZE], tmp[PATH_SIZE];

	snprintf(path, sizeof(path), "%s/.metadata", c->dir);
	snprintf(tmp, sizeof(tmp), "%s/.metadata.tmp", c->dir);
	w.key =
	    must_alloc((c->ntensors + checkpoint_nobjects(c)) * sizeof(*w.key));
	w.path = must_alloc((size_t)c->ranks * c->files * sizeof(*w.path));
	pk4_open(&w.p, tmp);
	pk4_object(&w.p, M, METADATA);
	put_state_dict_metadata(&w);
	put_planner_data(&w);
	put_storage_data(&w);
	put_storage_meta(&w);
	pk4_known(&w.p, VERSION_ATTR);
	pk4_str(&w.p, "1.0.0");
	pk4_object_end(&w.p);
	pk4_close(&w.p);
	free(w.key);
	free(w.path);
	if (rename(tmp, path) == -1)
		die("%s: %s", path, strerror(errno));
}
