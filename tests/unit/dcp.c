/* format/dcp/read.c - checkpoints that PyTorch wrote, compared byte by byte */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "format/dcp/dcp.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/format.h"
#include "read/locate.h"
#include "base/sha256.h"
#include "support/reader.h"
#include "support/truth.h"
#include "tap.h"

/* A checkpoint that is compared with its ground truth. */
struct subject {
	struct reader r;
	struct truth *truth;
	size_t ntruth, tensors, values, bad;
};

static void complain(struct subject *s, const char *path, const char *what)
{
	if (s->bad++ < 10)
		diag("%s: %s", path, what);
}

static bool is_shape(const struct ofs_catalog *cat, const struct ofs_tensor *t,
    const char *want)
{
	struct ofs_buf b = { 0 };
	bool same;

	for (unsigned i = 0; i < t->ndim; i++)
		ofs_buf_printf(&b, "%s%" PRIu64, i == 0 ? "" : ",",
		    ofs_tensor_shape(cat, t)[i]);
	ofs_buf_putc(&b, '\0');
	same = strcmp((char *)b.data, want) == 0;
	ofs_buf_fini(&b);
	return same;
}

static void check_tensor(struct subject *s, const struct ofs_tensor *t,
    const struct truth *want, const char *path)
{
	struct optimfs_error err = { 0 };
	uint8_t *bytes;
	char hex[65];

	s->tensors++;
	if (t->error != OFS_NONE) {
		complain(s, path, s->r.cat->notes[t->error].text);
		return;
	}
	if (want->shape == NULL) {
		complain(s, path, "is a tensor, but should be a value");
		return;
	}
	if (strcmp(ofs_dtype_name(t->dtype), want->dtype) != 0)
		complain(s, path, "dtype differs");
	if (!is_shape(s->r.cat, t, want->shape))
		complain(s, path, "shape differs");
	if (ofs_tensor_bytes(s->r.cat, t) != want->bytes) {
		complain(s, path, "size differs");
		return;
	}
	bytes = reader_tensor(&s->r, t, &err);
	if (bytes == NULL) {
		complain(s, path, err.text);
		return;
	}
	ofs_sha256_of(bytes, want->bytes, hex);
	if (strcmp(hex, want->sha256) != 0)
		complain(s, path, "bytes differ");
	free(bytes);
}

/* Compares numbers, None and strings. text/text.c is tested elsewhere. */
static void check_value(struct subject *s, const struct ofs_pickle *doc,
    uint32_t node, const struct truth *want, const char *path)
{
	struct ofs_str str = ofs_pk_str(doc, node);
	bool same = true;
	int64_t i;

	s->values++;
	if (want->value == NULL) {
		complain(s, path, "is a value, but should be a tensor");
		return;
	}
	switch (ofs_pk_kind(doc, node)) {
	case OFS_PK_NONE:
		same = strcmp(want->value, "null") == 0 ||
		    strcmp(want->value, "None") == 0;
		break;
	case OFS_PK_BOOL:
		same = strcmp(want->value,
			   ofs_pk_bool(doc, node) ? "true" : "false") == 0;
		break;
	case OFS_PK_INT:
		same = ofs_pk_int(doc, node, &i) && atoll(want->value) == i;
		break;
	case OFS_PK_FLOAT:
		same = strtod(want->value, NULL) == ofs_pk_float(doc, node);
		break;
	case OFS_PK_STR:
		same = !want->literal && strlen(want->value) == str.len &&
		    memcmp(want->value, str.p, str.len) == 0;
		break;
	default:
		same = !want->literal;
	}
	if (!same)
		complain(s, path, "value differs");
}

static void check_item(struct subject *s, const struct ofs_item *item,
    const struct truth *want, const char *path)
{
	struct optimfs_error err = { 0 };
	struct ofs_pickle *doc;

	if (item->error != OFS_NONE) {
		complain(s, path, s->r.cat->notes[item->error].text);
		return;
	}
	doc = ofs_locate_item(&s->r.r, item, &err);
	if (doc == NULL)
		complain(s, path, err.text);
	else
		check_value(s, doc, ofs_pickle_root(doc), want, path);
	ofs_pickle_free(doc);
}

static void check_entry(struct subject *s, const struct ofs_entry *e)
{
	char *path = reader_path(&s->r, e->path, TRUTH_SEP);
	const struct truth *want = truth_find(s->truth, s->ntruth, path);

	if (want == NULL)
		complain(s, path, "is not in the manifest");
	else if (e->kind == OFS_ENTRY_TENSOR)
		check_tensor(s, &s->r.cat->tensors[e->ref], want, path);
	else if (e->kind == OFS_ENTRY_ITEM)
		check_item(s, &s->r.cat->items[e->ref], want, path);
	else
		check_value(s, s->r.cat->values[e->ref].doc,
		    s->r.cat->values[e->ref].node, want, path);
	free(path);
}

static void compare(const char *name, const char *rel, int world)
{
	static const struct optimfs_options opt;
	struct subject s = { 0 };
	struct optimfs_error err = { 0 };
	char path[256];

	snprintf(path, sizeof(path), "pytorch/%s/ckpt", name);
	if (!ok(reader_open(&s.r, data_path(path), rel, &ofs_format_dcp, &opt,
		    &err) == 0,
		"%s: the checkpoint is read", name)) {
		diag("%s", err.text);
		return;
	}
	snprintf(path, sizeof(path), "pytorch/%s", name);
	s.truth = truth_read(path, &s.ntruth);
	for (uint32_t i = 0; i < s.r.cat->nentries; i++)
		check_entry(&s, &s.r.cat->entries[i]);
	is_u64(s.r.cat->nentries, s.ntruth,
	    "%s: the catalog has all entries of the ground truth", name);
	is_u64(s.bad, 0,
	    "%s: %zu tensors and %zu values equal the ground truth", name,
	    s.tensors, s.values);
	is_int(s.r.cat->world_size, world, "%s: world size", name);
	for (uint32_t i = 0; i < s.r.cat->nnotes; i++)
		if (s.r.cat->notes[i].kind != OFS_NOTE_GLOBAL)
			diag("note: %s", s.r.cat->notes[i].text);
	truth_free(s.truth, s.ntruth);
	reader_close(&s.r);
}

int main(void)
{
	static const struct {
		const char *name, *rel;
		int world;
	} cases[] = {
		{ "dcp_3d_w8", "", 8 },
		{ "dcp_async_w2", "", 2 },
		{ "dcp_by_id_w2", "", 2 },
		{ "dcp_ddp_w2", "", 2 },
		{ "dcp_dtensor_shapes_w4", "", 4 },
		{ "dcp_dtypes", "", 1 },
		{ "dcp_fsdp2_flatosd_w4", "", 4 },
		{ "dcp_fsdp2_multifile_w2", "", 2 },
		{ "dcp_fsdp2_safetensors_w2", "", 2 },
		{ "dcp_fsdp2_w1", "", 1 },
		{ "dcp_fsdp2_w2", "", 2 },
		{ "dcp_fsdp2_w3", "", 3 },
		{ "dcp_fsdp2_w4", "", 4 },
#ifdef HAVE_ZSTD
		{ "dcp_fsdp2_zstd_w2", "", 2 },
#endif
		{ "dcp_hsdp_w4", "", 4 },
		{ "dcp_names", "", 1 },
		{ "dcp_opt_adagrad_w2", "", 2 },
		{ "dcp_opt_amsgrad_w2", "", 2 },
		{ "dcp_opt_sgd_w2", "", 2 },
		{ "dcp_pp_w2", "", 2 },
		{ "dcp_torch113", "", 1 },
		{ "dcp_tp_fsdp_w4", "", 4 },
		{ "fsdp1_sharded_flat_fullshard_w3", "", 3 },
		{ "fsdp1_sharded_orig_fullshard_w2", "", 2 },
		{ "fsdp1_sharded_orig_hybridshard_w4", "", 4 },
		{ "fsdp1_sharded_orig_noshard_w2", "", 2 },
		{ "named_optimizer_w2", "", 2 },
		{ "torchtitan_like_w2", "step-3", 2 },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		compare(cases[i].name, cases[i].rel, cases[i].world);
	return done_testing();
}
