/* update_move.c - items with changed bytes, laid out in new data files */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/str.h"
#include "format/dcp/dcp.h"
#include "format/dcp/update.h"

/* A number N above those of the files "__R_N.distcp" of rank R. */
static int next_number(struct ofs_dcp_commit *d, int rank, uint64_t *next,
    struct optimfs_error *err)
{
	struct ofs_names names;
	char prefix[24];
	int ret = 0;

	if (ofs_dir_list_sub(&d->c->cat->dir, d->part->rel, &names, err) == -1)
		return -1;
	snprintf(prefix, sizeof(prefix), "__%d_", rank);
	*next = 0;
	for (size_t i = 0; i < names.n && ret == 0; i++) {
		struct ofs_str s = ofs_str_of(names.name[i]);
		uint64_t n;

		if (!ofs_str_take(&s, prefix) || !ofs_str_take_number(&s, &n) ||
		    !ofs_str_is(s, ".distcp") || n < *next)
			continue;
		*next = n + 1;
		if (*next > INT64_MAX)
			ret = optimfs_fail(err, EINVAL,
			    "OFS826 %s: no number is left for another file",
			    names.name[i]);
	}
	ofs_names_free(&names);
	for (size_t i = 0; i < d->nout; i++)
		*next += d->out[i].rank == rank;
	return ret;
}

/* The next data file of a rank; *out is its index. */
static int new_out(struct ofs_dcp_commit *d, int rank, uint32_t *out,
    struct optimfs_error *err)
{
	struct ofs_dcp_out o = { .rank = rank < 0 ? 0 : rank };
	uint64_t number;

	if (next_number(d, o.rank, &number, err) == -1 ||
	    ofs_grow(d->out, d->nout, d->out_cap, err) == -1)
		return -1;
	if (asprintf(&o.path, "__%d_%" PRIu64 ".distcp", o.rank, number) == -1)
		return ofs_no_memory(err);
	*out = (uint32_t)d->nout;
	d->out[d->nout++] = o;
	return 0;
}

/* The path of a new file in the checkpoint; the caller's. */
static char *path_of(const struct ofs_dcp_commit *d, uint32_t out,
    struct optimfs_error *err)
{
	char *path = ofs_path_join(d->part->rel, d->out[out].path);

	if (path == NULL)
		ofs_no_memory(err);
	return path;
}

static void note_length(void *ctx, uint64_t ref, uint64_t len)
{
	struct ofs_dcp_commit *d = ctx;

	d->coded[ref].len = len;
}

int ofs_dcp_commit_out(struct ofs_dcp_commit *d, int rank, bool coded,
    const char *like, uint32_t *out, struct optimfs_error *err)
{
	struct ofs_commit_file *f;
	char *path;

	if (rank < 0)
		rank = 0;
	for (size_t i = 0; i < d->nout; i++)
		if (d->out[i].rank == rank && d->out[i].coded == coded &&
		    d->out[i].file != NULL) {
			*out = (uint32_t)i;
			return 0;
		}
	if (new_out(d, rank, out, err) == -1)
		return -1;
	path = path_of(d, *out, err);
	f = path == NULL ? NULL : ofs_commit_file(d->c, path, like, err);
	free(path);
	if (f == NULL)
		return -1;
	f->stored = note_length;
	f->ctx = d;
	d->out[*out].file = f;
	d->out[*out].coded = coded;
	return 0;
}

struct ofs_composition *ofs_dcp_commit_to(const struct ofs_dcp_commit *d,
    uint32_t out)
{
	return &d->out[out].file->comp;
}

int ofs_dcp_commit_note(struct ofs_dcp_commit *d,
    const struct ofs_dcp_placed *item, struct optimfs_error *err)
{
	if (ofs_grow(d->item, d->nitems, d->item_cap, err) == -1)
		return -1;
	d->moved[item->item] = (uint32_t)d->nitems;
	d->item[d->nitems++] = *item;
	d->gone[item->item] = true;
	return 0;
}

int ofs_dcp_commit_note_all(struct ofs_dcp_commit *d, uint32_t first,
    uint32_t n, uint32_t out, uint64_t off, uint64_t len, bool plain,
    struct optimfs_error *err)
{
	for (uint32_t i = first; i < first + n; i++) {
		struct ofs_dcp_placed item = { .item = d->by_place[i],
			.out = out,
			.off = off,
			.len = len,
			.plain = plain };

		if (d->moved[item.item] == OFS_NONE &&
		    ofs_dcp_commit_note(d, &item, err) == -1)
			return -1;
	}
	return 0;
}

/* Items. */

const struct ofs_object *ofs_dcp_commit_object(const struct ofs_dcp_commit *d,
    uint32_t object)
{
	return &d->c->cat->objects[object];
}

/* Lay out an item with what is staged over it. */
static int lay_item(struct ofs_dcp_commit *d, const struct ofs_extent *at,
    uint64_t len, uint32_t out, struct optimfs_error *err)
{
	struct ofs_zip_sums sums = { 0 };
	int ret = ofs_commit_sums(d->c, at, NULL, &sums, err);

	if (ret == 0)
		ret = ofs_commit_stored(ofs_dcp_commit_to(d, out), at, 0, len,
		    &sums, err);
	free(sums.v);
	if (ret == 0)
		ofs_commit_placed(d->c, at);
	return ret;
}

/* Lay out the file of a blob, with a new name. */
static int move_blob(struct ofs_dcp_commit *d, uint32_t object,
    struct optimfs_error *err)
{
	const struct ofs_object *o = ofs_dcp_commit_object(d, object);
	struct ofs_dcp_placed item = { .same = true };
	char *path;
	int ret;

	if (new_out(d, o->rank, &item.out, err) == -1)
		return -1;
	path = path_of(d, item.out, err);
	ret = path == NULL ? -1 : ofs_commit_whole(d->c, object, path, err);
	free(path);
	for (uint32_t i = 0; i < d->index.nitems && ret == 0; i++) {
		item.item = i;
		if (d->object[i] == object && d->moved[i] == OFS_NONE)
			ret = ofs_dcp_commit_note(d, &item, err);
	}
	return ret;
}

/* An encoded item; its place is known when it is written. */
static int lay_coded(struct ofs_dcp_commit *d, const struct ofs_extent *at,
    struct optimfs_error *err)
{
	const struct ofs_object *o = ofs_dcp_commit_object(d, at->object);
	struct ofs_dcp_coded *x;
	uint32_t first, n;
	uint64_t len;

	if (ofs_grow(d->coded, d->ncoded, d->coded_cap, err) == -1)
		return -1;
	x = &d->coded[d->ncoded];
	*x = (struct ofs_dcp_coded){ .at = *at };
	if (ofs_dcp_commit_out(d, o->rank, true, o->path, &x->out, err) == -1 ||
	    ofs_transport_length(d->c->reader->transport, at, &len, err) == -1)
		return -1;
	if (at->encoding == OFS_TORCH_ITEM) {
		if (lay_item(d, at, len, x->out, err) == -1)
			return -1;
	} else {
		if (ofs_composition_stored(ofs_dcp_commit_to(d, x->out), at, 0,
			len, err) == -1)
			return -1;
		ofs_commit_placed(d->c, at);
	}
	ofs_dcp_commit_at(d, at->object, at->off, &first, &n);
	if (ofs_dcp_commit_note_all(d, first, n, x->out, 0, 0, false, err) ==
	    -1)
		return -1;
	return ofs_spans_add(&d->out[x->out].file->items, len, d->ncoded++, 0,
	    err);
}

int ofs_dcp_commit_coded(struct ofs_dcp_commit *d, struct optimfs_error *err)
{
	uint64_t *end = ofs_alloc(d->nout + 1, sizeof(*end), err);

	if (end == NULL)
		return -1;
	for (size_t i = 0; i < d->ncoded; i++) {
		const struct ofs_dcp_coded *x = &d->coded[i];
		uint32_t first, n;

		ofs_dcp_commit_at(d, x->at.object, x->at.off, &first, &n);
		for (uint32_t k = first; k < first + n; k++) {
			struct ofs_dcp_placed *m =
			    &d->item[d->moved[d->by_place[k]]];

			if (m->out != x->out)
				continue;
			m->off = end[x->out];
			m->len = x->len;
		}
		end[x->out] += x->len;
	}
	free(end);
	return 0;
}

/* Is this a file of the index? */
static bool is_item_file(const struct ofs_dcp_commit *d, uint32_t object)
{
	for (uint32_t i = 0; i < d->index.nitems; i++)
		if (d->object[i] == object)
			return true;
	return false;
}

/* Lay out an extent that is an item or inside one. */
static int move_extent(struct ofs_dcp_commit *d, const struct ofs_extent *at,
    struct optimfs_error *err)
{
	uint32_t around = ofs_dcp_commit_around(d, at->object, at->off);
	const struct ofs_object *o = ofs_dcp_commit_object(d, at->object);
	struct ofs_extent all = { .object = at->object };
	uint32_t first, n, out;
	uint64_t to;

	if (around == OFS_NONE && !is_item_file(d, at->object))
		return 0; /* it belongs to another part */
	if (at->codec != OFS_PLAIN)
		return lay_coded(d, at, err);
	/* tensors in a blob are not at the offset in the index */
	if (around == OFS_NONE || at->encoding == OFS_RAW)
		return move_blob(d, at->object, err);
	all.off = d->index.item[around].off;
	all.len = d->index.item[around].len;
	if (ofs_dcp_commit_out(d, o->rank, false, o->path, &out, err) == -1)
		return -1;
	to = ofs_dcp_commit_to(d, out)->size;
	if (lay_item(d, &all, all.len, out, err) == -1)
		return -1;
	ofs_dcp_commit_at(d, all.object, all.off, &first, &n);
	return ofs_dcp_commit_note_all(d, first, n, out, to, all.len, false,
	    err);
}

int ofs_dcp_commit_move(struct ofs_dcp_commit *d, struct optimfs_error *err)
{
	for (size_t i = 0; i < d->c->nchanged; i++) {
		const struct ofs_changed *x = &d->c->changed[i];

		if (!x->placed && move_extent(d, &x->at, err) == -1)
			return -1;
	}
	return 0;
}
