/* torch_files.c - a checkpoint as model.pt and optim.pt */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "format/torch_files.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "format/state.h"
#include "format/torch_write.h"
#include "format/zip_write.h"

/* One archive a section of the tree. Its pickle stays in memory with the view
 * and is given in slices; all else is made from where records begin. */

#define SLICE     (64u << 10)
#define BLOCK     512u
#define NBEFORE   (1 + OFS_ZIP_NBEFORE) /* records before the first storage */
#define MAX_FILES 3u

struct archive {
	char prefix[16], name[16];
	struct ofs_buf head; /* up to the first storage's header */
	struct ofs_zip_new pickle;
	uint64_t id;
	uint32_t *tensor; /* by storage */
	uint64_t *header; /* of each storage, and behind them */
	uint32_t n;
	uint64_t nrecords, directory, directory_len;
};

struct torch_files {
	struct ofs_files files;
	const struct ofs_catalog *cat;
	struct ofs_layout to;
	struct archive archive[MAX_FILES];
};

enum part { PART_HEAD, PART_DATA, PART_AFTER, PART_CENTRAL, PART_END };
#define REF(part, i)  ((uint64_t)(part) << 56 | (i))
#define REF_PART(ref) ((enum part)((ref) >> 56))
#define REF_I(ref)    ((ref) & ((UINT64_C(1) << 56) - 1))

static const struct torch_files *torch_files(const struct ofs_files *f)
{
	return (const struct torch_files *)f;
}

/* Text that a record's struct borrows. */
struct named {
	struct ofs_zip_new r;
	struct ofs_zip_small small;
	char name[32];
};

static void data_record(const struct torch_files *f, const struct archive *a,
    uint64_t i, struct named *out)
{
	snprintf(out->name, sizeof(out->name), "data/%" PRIu64, i);
	out->r = (struct ofs_zip_new){
		.prefix = a->prefix,
		.name = out->name,
		.header = a->header[i],
		.size = ofs_render_bytes(f->cat, &f->to,
		    &f->cat->tensors[a->tensor[i]]),
	};
}

static void small_record(const struct archive *a, uint64_t header,
    struct named *out)
{
	out->r = (struct ofs_zip_new){
		.prefix = a->prefix,
		.name = out->small.name,
		.header = header,
		.size = out->small.len,
		.crc = (uint32_t)crc32_z(0, (const Bytef *)out->small.bytes,
		    out->small.len),
	};
}

/* Record i of the directory's order. */
static void record(const struct torch_files *f, const struct archive *a,
    uint64_t i, struct named *out)
{
	uint64_t at;

	if (i == 0) {
		out->r = a->pickle;
		return;
	}
	if (i >= NBEFORE && i - NBEFORE < a->n) {
		data_record(f, a, i - NBEFORE, out);
		return;
	}
	at = i < NBEFORE ? ofs_zip_next(&a->pickle) : a->header[a->n];
	for (uint64_t k = i < NBEFORE ? 1 : NBEFORE + a->n;; k++) {
		if (k < NBEFORE)
			ofs_zip_before((unsigned)k - 1, &out->small);
		else
			ofs_zip_after((unsigned)(k - NBEFORE - a->n), a->id,
			    &out->small);
		small_record(a, at, out);
		if (k == i)
			return;
		at = ofs_zip_next(&out->r);
	}
}

static void put_record(struct ofs_buf *b, const struct named *n,
    const void *bytes)
{
	ofs_zip_put_local(b, &n->r);
	ofs_buf_put(b, bytes, n->r.size);
	ofs_zip_put_descriptor(b, &n->r);
}

/* Where every record begins. */
static int lay(const struct torch_files *f, struct archive *a,
    struct ofs_buf *pickle, struct optimfs_error *err)
{
	struct named n;

	a->header = calloc((size_t)a->n + 1, sizeof(*a->header));
	if (a->header == NULL)
		return optimfs_fail(err, ENOMEM, "%u storages", a->n);
	a->id = ofs_torch_id(pickle->data, pickle->len);
	a->pickle = (struct ofs_zip_new){
		.prefix = a->prefix,
		.name = "data.pkl",
		.size = pickle->len,
		.crc = (uint32_t)crc32_z(0, pickle->data, pickle->len),
	};
	n.r = a->pickle;
	put_record(&a->head, &n, pickle->data);
	for (unsigned i = 1; i < NBEFORE; i++) {
		record(f, a, i, &n);
		put_record(&a->head, &n, n.small.bytes);
	}
	if (a->head.bad)
		return optimfs_fail(err, ENOMEM, "pickle of a view");
	a->header[0] = a->head.len;
	for (uint32_t i = 0; i < a->n; i++) {
		data_record(f, a, i, &n);
		a->header[i + 1] = ofs_zip_next(&n.r);
	}
	a->nrecords = (uint64_t)NBEFORE + a->n + OFS_ZIP_NAFTER;
	for (uint64_t i = 0; i < a->nrecords; i++) {
		record(f, a, i, &n);
		a->directory_len += ofs_zip_central_len(&n.r);
	}
	a->directory = ofs_zip_next(&n.r);
	return 0;
}

static int fill(struct torch_files *f, struct archive *a,
    const struct ofs_render *from, const struct ofs_layout *to,
    const struct ofs_state *state, struct optimfs_error *err)
{
	struct ofs_state_tensors tensors = { 0 };
	struct ofs_buf pickle = { 0 };
	int ret = ofs_state_pickle(state, from, to, &pickle, &tensors, err);

	a->tensor = tensors.v;
	a->n = (uint32_t)tensors.n;
	if (ret == 0)
		ret = lay(f, a, &pickle, err);
	ofs_buf_fini(&pickle);
	return ret;
}

static void file_name(const struct ofs_files *files, uint32_t file,
    char name[OFS_FILE_NAME])
{
	snprintf(name, OFS_FILE_NAME, "%s",
	    torch_files(files)->archive[file].name);
}

static int spans(const struct ofs_files *files, uint32_t file,
    struct ofs_spans *out, struct optimfs_error *err)
{
	const struct torch_files *f = torch_files(files);
	const struct archive *a = &f->archive[file];
	struct named n;

	for (uint64_t i = 0; i < a->head.len; i += SLICE)
		if (ofs_spans_add(out,
			a->head.len - i < SLICE ? a->head.len - i : SLICE,
			REF(PART_HEAD, i), 0, err) == -1)
			return -1;
	for (uint32_t i = 0; i < a->n; i++)
		if (ofs_spans_add(out, a->header[i + 1] - a->header[i],
			REF(PART_DATA, i), 0, err) == -1)
			return -1;
	if (ofs_spans_add(out, a->directory - a->header[a->n],
		REF(PART_AFTER, 0), 0, err) == -1)
		return -1;
	for (uint64_t i = 0; i < a->nrecords; i += BLOCK) {
		uint64_t len = 0;

		for (uint64_t k = i; k < a->nrecords && k - i < BLOCK; k++) {
			record(f, a, k, &n);
			len += ofs_zip_central_len(&n.r);
		}
		if (ofs_spans_add(out, len, REF(PART_CENTRAL, i), 0, err) == -1)
			return -1;
	}
	return ofs_spans_add(out, OFS_ZIP_TRAILER_LEN, REF(PART_END, 0), 0,
	    err);
}

/* Bytes of b, in whose place from at on a checksum comes that is known only
 * when the storage is read. */
static int give(const struct torch_files *f, struct ofs_buf *b, uint64_t at,
    const struct ofs_zip_new *r, struct ofs_composition *c,
    struct optimfs_error *err)
{
	int ret;

	if (b->bad)
		return optimfs_fail(err, ENOMEM, "a part of an archive");
	if (r == NULL || !f->to.crc || r->size == 0)
		ret = ofs_composition_bytes(c, b->data, b->len, err);
	else {
		ret = ofs_composition_bytes(c, b->data, at, err);
		if (ret == 0)
			ret = ofs_composition_crc(c,
			    r->header + ofs_zip_local_len(r), r->size, err);
		if (ret == 0)
			ret = ofs_composition_bytes(c, b->data + at + 4,
			    b->len - at - 4, err);
	}
	b->len = 0;
	return ret;
}

static int make_data(const struct torch_files *f, const struct archive *a,
    uint64_t i, struct ofs_buf *b, struct ofs_composition *c,
    struct optimfs_error *err)
{
	struct named n;

	data_record(f, a, i, &n);
	ofs_zip_put_local(b, &n.r);
	if (give(f, b, 0, NULL, c, err) == -1 ||
	    ofs_composition_box(c, f->cat, a->tensor[i], NULL, err) == -1)
		return -1;
	ofs_zip_put_descriptor(b, &n.r);
	return give(f, b, OFS_ZIP_DESCRIPTOR_CRC, &n.r, c, err);
}

static int make_central(const struct torch_files *f, const struct archive *a,
    uint64_t i, struct ofs_buf *b, struct ofs_composition *c,
    struct optimfs_error *err)
{
	struct named n;

	for (uint64_t k = i; k < a->nrecords && k - i < BLOCK; k++) {
		bool data = k >= NBEFORE && k - NBEFORE < a->n;

		record(f, a, k, &n);
		if (!data || !f->to.crc) {
			ofs_zip_put_central(b, &n.r);
			continue;
		}
		if (give(f, b, 0, NULL, c, err) == -1)
			return -1;
		ofs_zip_put_central(b, &n.r);
		if (give(f, b, OFS_ZIP_CENTRAL_CRC, &n.r, c, err) == -1)
			return -1;
	}
	return give(f, b, 0, NULL, c, err);
}

static int make_part(const struct torch_files *f, const struct archive *a,
    uint64_t ref, uint64_t len, struct ofs_buf *b, struct ofs_composition *c,
    struct optimfs_error *err)
{
	struct named n;

	switch (REF_PART(ref)) {
	case PART_HEAD:
		return ofs_composition_bytes(c, a->head.data + REF_I(ref), len,
		    err);
	case PART_DATA:
		return make_data(f, a, REF_I(ref), b, c, err);
	case PART_CENTRAL:
		return make_central(f, a, REF_I(ref), b, c, err);
	case PART_AFTER:
		for (unsigned i = 0; i < OFS_ZIP_NAFTER; i++) {
			record(f, a, (uint64_t)NBEFORE + a->n + i, &n);
			put_record(b, &n, n.small.bytes);
		}
		return give(f, b, 0, NULL, c, err);
	case PART_END:
		ofs_zip_put_end(b, a->nrecords, a->directory, a->directory_len);
	}
	return give(f, b, 0, NULL, c, err);
}

static int make(const struct ofs_files *files, uint32_t file,
    const struct ofs_span *span, uint64_t at, struct ofs_composition *c,
    struct optimfs_error *err)
{
	const struct torch_files *f = torch_files(files);
	struct ofs_buf b = { 0 };
	int ret = make_part(f, &f->archive[file], span->ref, span->end - at, &b,
	    c, err);

	ofs_buf_fini(&b);
	return ret;
}

static void files_free(struct ofs_files *files)
{
	struct torch_files *f = (struct torch_files *)files;

	for (unsigned i = 0; i < MAX_FILES; i++) {
		ofs_buf_fini(&f->archive[i].head);
		free(f->archive[i].tensor);
		free(f->archive[i].header);
	}
	free(f);
}

static const struct ofs_files_ops ops = {
	.name = file_name,
	.spans = spans,
	.make = make,
	.free = files_free,
};

/* A file for a section that has something in it. */
static int add_section(struct torch_files *f, const struct ofs_render *from,
    const struct ofs_layout *to, const char *section, struct optimfs_error *err)
{
	struct archive *a = &f->archive[f->files.n];
	struct ofs_state state;
	int ret = ofs_state_build(&state, from, to, section, err);

	if (ret == -1)
		return -1;
	if (state.n > 1) {
		f->files.n++;
		snprintf(a->prefix, sizeof(a->prefix), "%s/", section);
		snprintf(a->name, sizeof(a->name), "%s.pt", section);
		ret = fill(f, a, from, to, &state, err);
	}
	ofs_state_fini(&state);
	return ret;
}

int ofs_torch_render(const struct ofs_render *from, const struct ofs_layout *to,
    struct ofs_files **out, struct optimfs_error *err)
{
	static const char *const sections[MAX_FILES] = { "extra", "model",
		"optim" };
	struct torch_files *f = calloc(1, sizeof(*f));

	if (f == NULL)
		return optimfs_fail(err, ENOMEM, "a view");
	f->files.ops = &ops;
	f->cat = from->cat;
	f->to = *to;
	for (unsigned i = 0; i < MAX_FILES; i++)
		if (add_section(f, from, to, sections[i], err) == -1) {
			files_free(&f->files);
			return -1;
		}
	*out = &f->files;
	return 0;
}
