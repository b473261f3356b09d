/* fuzz_torch.c - arbitrary torch.save files: no element may lie outside its storage */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "archive/torch.h"
#include "base/checked.h"
#include "format/globals.h"
#include "format/torch_file/legacy.h"
#include "format/torch_file/walk.h"

struct bytes {
	const uint8_t *p;
	size_t n;
};

static int read_bytes(void *ctx, uint64_t off, uint64_t len, void *buf,
    struct optimfs_error *err)
{
	const struct bytes *b = ctx;

	if (off > b->n || len > b->n - off)
		return optimfs_fail(err, EIO, "OFS603 short file");
	if (len > 0)
		memcpy(buf, b->p + off, len);
	return 0;
}

static void check(int good)
{
	if (!good)
		abort();
}

/* The last element of a shard must lie inside its extent. */
static void check_shard(const struct ofs_catalog *cat,
    const struct ofs_tensor *t, const struct ofs_shard *s)
{
	const uint64_t *shape = ofs_tensor_shape(cat, t);
	uint64_t item = ofs_dtype_size(t->dtype), last;
	const struct ofs_view *v;

	if (s->view == OFS_NONE) {
		check(ofs_tensor_bytes(cat, t) == s->at.len);
		return;
	}
	v = &cat->views[s->view];
	last = v->offset;
	for (unsigned i = 0; i < t->ndim; i++) {
		int64_t stride = (int64_t)cat->dims[v->stride + i];
		uint64_t step;

		check(stride >= 0);
		check(ofs_mul_u64(shape[i] - 1, (uint64_t)stride, &step));
		check(ofs_add_u64(last, step, &last));
	}
	check(last < v->numel && v->numel <= s->at.len / item);
}

static void check_catalog(const struct ofs_catalog *cat, struct bytes *b)
{
	struct optimfs_error err;

	for (uint32_t i = 0; i < cat->ntensors; i++) {
		const struct ofs_tensor *t = &cat->tensors[i];
		const struct ofs_shard *s;
		uint64_t off;

		check(ofs_dtype_size(t->dtype) > 0);
		if (t->error != OFS_NONE || t->nshards == 0)
			continue;
		s = &cat->shards[t->shard];
		if (s->at.encoding == OFS_DERIVED)
			continue;
		off = s->at.off;
		check_shard(cat, t, s);
		if (s->at.encoding == OFS_TORCH_RECORD &&
		    ofs_zip_data_at(&s->at, read_bytes, b, b->n, &off, &err) ==
			-1)
			continue;
		check(off <= b->n && s->at.len <= b->n - off);
	}
	for (uint32_t i = 0; i < cat->nentries; i++)
		check(cat->entries[i].path < cat->npaths);
}

/* Frees doc. */
static void add(struct ofs_catalog *cat, struct ofs_pickle *doc,
    struct ofs_torch_archive *at, struct bytes *b)
{
	struct optimfs_error err = { 0 };

	at->at = (struct ofs_extent){ .len = b->n };
	ofs_note_globals(cat, doc, "f", &err);
	if (ofs_torch_add(cat, doc, ofs_pickle_root(doc), at, NULL, 0, &err) ==
	    0)
		check_catalog(cat, b);
	else
		check(err.code == E2BIG || err.code == ENOMEM);
	ofs_pickle_free(doc);
}

static void add_archive(struct ofs_catalog *cat, struct bytes *b)
{
	struct ofs_torch_archive at = { 0 };
	struct optimfs_error err = { 0 };
	struct ofs_pickle *doc;
	struct ofs_zip zip;

	doc = ofs_torch_open(b->n, NULL, read_bytes, b, &zip, &err);
	if (doc == NULL) {
		check(strncmp(err.text, "OFS", 3) == 0);
		return;
	}
	at.zip = &zip;
	add(cat, doc, &at, b);
	ofs_zip_fini(&zip);
}

static void add_legacy(struct ofs_catalog *cat, struct bytes *b)
{
	struct ofs_torch_archive at = { 0 };
	struct optimfs_error err = { 0 };
	struct ofs_legacy l;

	if (ofs_legacy_open(&l, b->n, NULL, read_bytes, b, &err) == -1) {
		check(strncmp(err.text, "OFS", 3) == 0);
		return;
	}
	at.storage = l.storage;
	at.nstorage = l.n;
	add(cat, l.doc, &at, b);
	l.doc = NULL;
	ofs_legacy_fini(&l);
}

/* A bare pickle gets four storages: the bytes of the input itself, cut to sizes
 * that tensors in the corpus have. */
static void add_pickle(struct ofs_catalog *cat, struct bytes *b)
{
	struct ofs_torch_storage s[4];
	struct ofs_torch_archive at = { .storage = s, .nstorage = 4 };
	static const uint64_t size[4] = { 4, 12, 24, 60 };
	struct optimfs_error err = { 0 };
	struct ofs_pickle *doc;

	for (int i = 0; i < 4; i++) {
		s[i].key = (struct ofs_str){ &"0123"[i], 1 };
		s[i].off = 0;
		s[i].len = size[i] < b->n ? size[i] : b->n;
	}
	doc = ofs_pickle_parse(b->p, b->n, false, NULL, NULL, &err);
	if (doc != NULL)
		add(cat, doc, &at, b);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	struct ofs_dir dir = { .fd = -1 };
	struct bytes b = { p, n };
	struct optimfs_error err;
	struct ofs_catalog *cat;

	cat = ofs_catalog_new(&dir, &err);
	if (cat == NULL || ofs_catalog_object(cat, "f", -1, &err) == OFS_NONE)
		abort();
	switch (ofs_torch_magic(p, n)) {
	case OFS_TORCH_ZIP:
		add_archive(cat, &b);
		break;
	case OFS_TORCH_STREAM:
		add_legacy(cat, &b);
		break;
	case OFS_TORCH_PICKLE:
		add_pickle(cat, &b);
		break;
	default:
		break;
	}
	ofs_catalog_free(cat);
	return 0;
}
