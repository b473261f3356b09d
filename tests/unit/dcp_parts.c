/* dcp_parts.c - DCP values with parts, safetensors items, indexes of single
 * ranks */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#ifdef HAVE_ZSTD
# include <zstd.h>
#endif

#include "format/dcp/dcp.h"
#include "support/dcp_writer.h"
#include "support/pickle_writer.h"
#include "support/reader.h"
#include "tap.h"

static const struct optimfs_options defaults;

static void write_index(const char *dir, const char *name,
    const struct mk_index *index)
{
	struct ofs_buf pk = { 0 };

	mk_write_index(&pk, index);
	mk_file(dir, name, pk.data, pk.len);
	ofs_buf_fini(&pk);
}

static int open_dir(struct reader *r, const char *dir,
    struct optimfs_error *err)
{
	return reader_open(r, dir, "", &ofs_format_dcp, &defaults, err);
}

/* Values that become several files. */

/* [{'lr': 0.5, 'params': ['w']}] */
static void put_groups(struct ofs_buf *b)
{
	pw_list_open(b);
	pw_dict_open(b);
	pw_str(b, "lr");
	pw_float(b, 0.5);
	pw_str(b, "params");
	pw_list_open(b);
	pw_str(b, "w");
	pw_list_close(b);
	pw_dict_close(b);
	pw_list_close(b);
}

static void put_group(struct ofs_buf *b)
{
	pw_dict_open(b);
	pw_str(b, "lr");
	pw_float(b, 0.5);
	pw_dict_close(b);
}

static void put_optimizer(struct ofs_buf *b)
{
	pw_dict_open(b);
	pw_str(b, "state");
	pw_dict_open(b);
	pw_int(b, 0);
	pw_dict_open(b);
	pw_str(b, "step");
	pw_int(b, 9);
	pw_dict_close(b);
	pw_dict_close(b);
	pw_str(b, "param_groups");
	put_groups(b);
	pw_dict_close(b);
}

static void put_none_value(struct ofs_buf *b)
{
	pw_none(b);
}

struct part_case {
	const char *name;
	const char *path[MK_DIMS]; /* where planner_data puts the value */
	void (*put)(struct ofs_buf *b);
	const char *leaves[4]; /* files that must exist */
	bool whole;            /* and must be one file each */
	bool no_planner;
	const char *transform;
};

static const struct part_case part_cases[] = {
	{ "list of groups", { "optim", "param_groups" }, put_groups,
	    { "optim/param_groups/0/lr", "optim/param_groups/0/params" }, false,
	    false, NULL },
	{ "one group with an integer key", { "optim", "param_groups", "#1" },
	    put_group, { "optim/param_groups/1/lr" }, false, false, NULL },
	{ "one group with a string key",
	    { "app", "optim", "param_groups", "1" }, put_group,
	    { "app/optim/param_groups/1/lr" }, false, false, NULL },
	{ "whole optimizer", { "optimizer" }, put_optimizer,
	    { "optimizer/state/0/step", "optimizer/param_groups/0/lr" }, false,
	    false, NULL },
	{ "one of several optimizers", { "state", "optimizers", "AdamW" },
	    put_optimizer, { "state/optimizers/AdamW/state/0/step" }, false,
	    false, NULL },
	{ "state of an optimizer", { "optimizer_0", "state" }, put_group,
	    { "optimizer_0/state/lr" }, false, false, NULL },
	{ "state of one parameter", { "optim", "state", "l.weight" }, put_group,
	    { "optim/state/l.weight/lr" }, false, false, NULL },
	{ "option of a group", { "optim", "param_groups", "#0", "betas" },
	    put_group, { "optim/param_groups/0/betas" }, true, false, NULL },
	{ "state of another object", { "dataloader", "state" }, put_group,
	    { "dataloader/state" }, true, false, NULL },
	{ "dict without planner_data", { "a.b" }, put_group, { "a.b/lr" },
	    false, true, NULL },
	{ "plain value without planner_data", { "a.b" }, put_none_value,
	    { "a.b" }, false, true, NULL },
#ifdef HAVE_ZSTD
	{ "compressed list of groups", { "optim", "param_groups" }, put_groups,
	    { "optim/param_groups/0/lr" }, false, false, "stream.zstd/1" },
#endif
};

static void make_item(const struct part_case *c, struct ofs_buf *file)
{
	struct ofs_buf pk = { 0 };

	pw_begin(&pk);
	c->put(&pk);
	pw_end(&pk);
	mk_write_object(file, pk.data, pk.len);
	ofs_buf_fini(&pk);
#ifdef HAVE_ZSTD
	if (c->transform != NULL) {
		size_t max = ZSTD_compressBound(file->len), n;
		uint8_t *out = malloc(max);

		n = out == NULL
		    ? 0
		    : ZSTD_compress(out, max, file->data, file->len, 3);
		if (n == 0 || ZSTD_isError(n))
			bail_out("zstd");
		file->len = 0;
		ofs_buf_put(file, out, n);
		free(out);
	}
#endif
}

static void part(const struct part_case *c)
{
	struct mk_index index = { .nvalues = 1 };
	struct optimfs_error err = { 0 };
	struct ofs_buf file = { 0 };
	struct reader r;
	char dir[64];

	mk_dir(dir);
	make_item(c, &file);
	index.value[0].key = c->no_planner ? c->path[0] : "key";
	index.value[0].at = (struct mk_place){ .file = "__0_0.distcp",
		.len = (int64_t)file.len,
		.transform = c->transform };
	memcpy(index.value[0].path, c->path, sizeof(c->path));
	index.planner = c->no_planner ? MK_NO_PLANNER : MK_PLANNER;
	write_index(dir, ".metadata", &index);
	mk_file(dir, "__0_0.distcp", file.data, file.len);
	if (ok(open_dir(&r, dir, &err) == 0, "%s: the checkpoint is read",
		c->name))
		for (int i = 0; i < 4 && c->leaves[i] != NULL; i++) {
			const struct ofs_entry *e =
			    reader_find(&r, c->leaves[i], "/");

			ok(e != NULL &&
				e->kind ==
				    (c->whole ? OFS_ENTRY_ITEM
					      : OFS_ENTRY_VALUE),
			    "%s: '%s' is a file of the expected kind", c->name,
			    c->leaves[i]);
		}
	else
		diag("%s", err.text);
	reader_close(&r);
	ofs_buf_fini(&file);
	mk_remove(dir);
}

/* A damaged value stays one file, and reading it fails. */
static void damaged_part(void)
{
	struct mk_index index = { .nvalues = 1 };
	struct optimfs_error err = { 0 };
	const struct ofs_entry *e;
	struct reader r;
	char dir[64];

	mk_dir(dir);
	index.value[0] = (struct mk_value){ .key = "optim",
		.at = { .file = "__0_0.distcp", .len = 300 } };
	write_index(dir, ".metadata", &index);
	mk_file(dir, "__0_0.distcp", "PK\3\4 and no more", 16);
	if (!ok(open_dir(&r, dir, &err) == 0,
		"a checkpoint with a damaged value is read")) {
		mk_remove(dir);
		return;
	}
	e = reader_find(&r, "optim", "/");
	ok(e != NULL && e->kind == OFS_ENTRY_ITEM,
	    "a damaged value stays one file");
	if (e != NULL) {
		ok(ofs_locate_item(&r.r, &r.cat->items[e->ref], &err) == NULL,
		    "reading a damaged value fails");
		is_int(err.code, EIO, "reading a damaged value fails with EIO");
	}
	reader_close(&r);
	mk_remove(dir);
}

/* Items in the safetensors format. */

#define HEADER_W \
 "{\"w\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}"

static void put_blob(const char *dir, const char *header, const void *data,
    size_t n)
{
	struct ofs_buf b = { 0 };
	uint64_t len = strlen(header);

	ofs_buf_puts(&b, "an item before");
	for (int i = 0; i < 8; i++)
		ofs_buf_putc(&b, (int)(len >> (8 * i) & 0xff));
	ofs_buf_puts(&b, header);
	ofs_buf_put(&b, data, n);
	mk_file(dir, "__0_0.distcp", b.data, b.len);
	ofs_buf_fini(&b);
}

static void blob_index(struct mk_index *index, int nchunks)
{
	struct mk_tensor *t = &index->tensor[0];

	memset(index, 0, sizeof(*index));
	index->ntensors = 1;
	*t = (struct mk_tensor){ .key = "w",
		.dtype = "float32",
		.size = { 1, { 2 * nchunks } },
		.nchunks = nchunks };
	for (int i = 0; i < nchunks; i++)
		t->chunk[i] = (struct mk_chunk){ .off = { 1, { 2 * i } },
			.size = { 1, { 2 } },
			.at = { .file = "__0_0.distcp", .off = 14, .len = 8 } };
}

static void blob(const char *name, const char *header, int nchunks, int code,
    const char *text)
{
	static const float data[4] = { 1.5f, -2, 0, 0 };
	struct optimfs_error err = { 0 };
	const struct ofs_entry *e;
	struct mk_index index;
	struct reader r;
	uint8_t *bytes;
	char dir[64];

	mk_dir(dir);
	blob_index(&index, nchunks);
	write_index(dir, ".metadata", &index);
	put_blob(dir, header, data, 8);
	if (ok(open_dir(&r, dir, &err) == 0, "%s: the checkpoint is read",
		name)) {
		e = reader_find(&r, "w", "/");
		bytes = reader_tensor(&r, &r.cat->tensors[e->ref], &err);
		if (code == 0) {
			ok(bytes != NULL && memcmp(bytes, data, 8) == 0,
			    "%s: the tensor has the right bytes", name);
		} else {
			ok(bytes == NULL, "%s: reading the tensor fails", name);
			is_error(err, code, text,
			    "%s: the tensor fails with the expected error",
			    name);
		}
		free(bytes);
	}
	reader_close(&r);
	mk_remove(dir);
}

static void blobs(void)
{
	blob("sound safetensors item", HEADER_W, 1, 0, NULL);
	blob("safetensors item without the tensor",
	    "{\"v\":{\"dtype\":\"F32\",\"shape\":[2],"
	    "\"data_offsets\":[0,8]}}",
	    1, EUCLEAN, "OFS615 w: the safetensors blob lacks it");
	blob("safetensors item with another dtype",
	    "{\"w\":{\"dtype\":\"I32\",\"shape\":[2],"
	    "\"data_offsets\":[0,8]}}",
	    1, EUCLEAN, "OFS615 w: dtype");
	blob("safetensors item with another shape",
	    "{\"w\":{\"dtype\":\"F32\",\"shape\":[1,2],"
	    "\"data_offsets\":[0,8]}}",
	    1, EUCLEAN, "OFS615 w: dtype or shape");
	blob("safetensors item with a malformed header", "[]", 1, EUCLEAN,
	    "OFS653 w: JSON");
	blob("two chunks in one safetensors item", HEADER_W, 2, EIO,
	    "OFS626 w:");
}

/* Indexes that hold the metadata of one rank each. */

static void rank_index(struct mk_index *index, int rank, const char *file)
{
	memset(index, 0, sizeof(*index));
	index->ntensors = 1;
	index->nvalues = 1;
	index->tensor[0] = (struct mk_tensor){ .key = "w",
		.dtype = "float32",
		.size = { 1, { 8 } },
		.nchunks = 1 };
	index->tensor[0].chunk[0] =
	    (struct mk_chunk){ .off = { 1, { 2 * rank } },
		    .size = { 1, { 2 } },
		    .at = { .file = file, .len = 1000 } };
	index->value[0].key = "v";
	index->value[0].at =
	    (struct mk_place){ .file = file, .off = 1000, .len = 400 };
}

static void rank_local(void)
{
	struct optimfs_error err = { 0 };
	const struct ofs_entry *e;
	struct mk_index index;
	struct reader r;
	char dir[64];

	mk_dir(dir);
	rank_index(&index, 0, "__0_0.distcp");
	write_index(dir, "__0.metadata", &index);
	rank_index(&index, 3, "__3_0.distcp");
	write_index(dir, "__3.metadata", &index);
	if (ok(open_dir(&r, dir, &err) == 0,
		"indexes of ranks 0 and 3 are read")) {
		is_int(r.cat->world_size, 4,
		    "the highest rank with an index gives the world size");
		ok(reader_note(&r, "OFS180 no index of ranks 1 to 2") != NULL,
		    "ranks without an index are noted");
		ok(reader_note(&r, "OFS627 1 value was saved") != NULL,
		    "a value that two ranks saved is noted");
		ok(reader_note(&r, "OFS613") == NULL,
		    "a value that two ranks saved is not noted a second time");
		e = reader_find(&r, "w", "/");
		is_u64(r.cat->tensors[e->ref].nshards, 2,
		    "the tensor has the chunks of both ranks");
	}
	reader_close(&r);

	rank_index(&index, 1, "__1_0.distcp");
	index.tensor[0].size.v[0] = 9;
	write_index(dir, "__1.metadata", &index);
	if (ok(open_dir(&r, dir, &err) == 0,
		"indexes of ranks that disagree are read")) {
		e = reader_find(&r, "w", "/");
		ok(reader_tensor(&r, &r.cat->tensors[e->ref], &err) == NULL,
		    "a tensor on which ranks disagree fails");
		is_error(err, EPROTO, "OFS674 w: rank 1",
		    "a tensor on which ranks disagree fails with OFS674");
	}
	reader_close(&r);

	rank_index(&index, 0, "__0_0.distcp");
	index.tensor[0].key = "whole";
	write_index(dir, ".metadata", &index);
	if (ok(open_dir(&r, dir, &err) == 0,
		".metadata beside indexes of ranks is read"))
		ok(reader_find(&r, "whole", "/") != NULL &&
			reader_find(&r, "w", "/") == NULL,
		    "indexes of ranks beside .metadata are ignored");
	reader_close(&r);
	mk_remove(dir);
}

int main(void)
{
	for (size_t i = 0; i < sizeof(part_cases) / sizeof(part_cases[0]); i++)
		part(&part_cases[i]);
	damaged_part();
	blobs();
	rank_local();
	return done_testing();
}
