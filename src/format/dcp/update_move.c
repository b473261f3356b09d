/* update_move.c - items with changed bytes, laid out in new data files */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

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
	struct ofs_dcp_out o = { .rank = rank };
	uint64_t number;

	if (next_number(d, rank, &number, err) == -1 ||
	    ofs_grow(d->out, d->nout, d->out_cap, err) == -1)
		return -1;
	if (asprintf(&o.path, "__%d_%" PRIu64 ".distcp", rank, number) == -1)
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

	d->place[ref].len = len;
}

/* Find or add the data file for items of a rank. */
static int find_out(struct ofs_dcp_commit *d, int rank, bool coded,
    const char *like, uint32_t *out, struct optimfs_error *err)
{
	struct ofs_commit_file *f;
	char *path;

	for (*out = 0; *out < d->nout; ++*out)
		if (d->out[*out].rank == rank && d->out[*out].coded == coded &&
		    d->out[*out].file != NULL)
			return 0;
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

/* Add a place in a new data file. */
static int new_place(struct ofs_dcp_commit *d, uint32_t out, uint64_t off,
    uint64_t len, uint32_t *place, struct optimfs_error *err)
{
	if (ofs_grow(d->place, d->nplaces, d->place_cap, err) == -1)
		return -1;
	*place = (uint32_t)d->nplaces;
	d->place[d->nplaces++] = (struct ofs_dcp_new){ out, off, len };
	return 0;
}

struct ofs_composition *ofs_dcp_commit_begin(struct ofs_dcp_commit *d, int rank,
    bool coded, const char *like, uint32_t *place, struct optimfs_error *err)
{
	uint32_t out;

	if (find_out(d, rank < 0 ? 0 : rank, coded, like, &out, err) == -1 ||
	    new_place(d, out, 0, 0, place, err) == -1)
		return NULL;
	return &d->out[out].file->comp;
}

void ofs_dcp_commit_end(struct ofs_dcp_commit *d, uint32_t place)
{
	struct ofs_dcp_new *p = &d->place[place];
	struct ofs_dcp_out *out = &d->out[p->out];

	if (!out->coded)
		p->len = out->file->comp.size - out->end;
	p->off = ofs_dcp_place(&out->end, p->len);
}

void ofs_dcp_commit_end_coded(struct ofs_dcp_commit *d)
{
	for (uint32_t i = 0; i < d->nplaces; i++)
		if (d->out[d->place[i].out].coded)
			ofs_dcp_commit_end(d, i);
}

void ofs_dcp_commit_note(struct ofs_dcp_commit *d, uint32_t item,
    uint32_t place)
{
	d->moved[item] = place;
	d->gone[item] = true;
}

void ofs_dcp_commit_note_all(struct ofs_dcp_commit *d, uint32_t first,
    uint32_t n, uint32_t place)
{
	for (uint32_t i = first; i < first + n; i++)
		if (d->moved[d->by_place[i]] == OFS_NONE)
			ofs_dcp_commit_note(d, d->by_place[i], place);
}

/* Items. */

const struct ofs_object *ofs_dcp_commit_object(const struct ofs_dcp_commit *d,
    uint32_t object)
{
	return &d->c->cat->objects[object];
}

/* Lay out an item with what is staged over it. */
static int lay_item(struct ofs_dcp_commit *d, const struct ofs_extent *at,
    uint64_t len, struct ofs_composition *to, struct optimfs_error *err)
{
	struct ofs_zip_sums sums = { 0 };
	int ret = ofs_commit_sums(d->c, at, NULL, &sums, err);

	if (ret == 0)
		ret = ofs_commit_stored(to, at, 0, len, &sums, err);
	free(sums.v);
	if (ret == 0)
		ofs_commit_placed(d->c, at);
	return ret;
}

/* Lay out the file of a blob, with a new name, in which all keep their places. */
static int move_blob(struct ofs_dcp_commit *d, uint32_t object,
    struct optimfs_error *err)
{
	const struct ofs_object *o = ofs_dcp_commit_object(d, object);
	uint32_t out, place;
	char *path;
	int ret;

	if (new_out(d, o->rank < 0 ? 0 : o->rank, &out, err) == -1)
		return -1;
	path = path_of(d, out, err);
	ret = path == NULL ? -1 : ofs_commit_whole(d->c, object, path, err);
	free(path);
	for (uint32_t i = 0; i < d->index.nitems && ret == 0; i++) {
		if (d->object[i] != object || d->moved[i] != OFS_NONE)
			continue;
		ret = new_place(d, out, d->index.item[i].off,
		    d->index.item[i].len, &place, err);
		if (ret == 0)
			ofs_dcp_commit_note(d, i, place);
	}
	return ret;
}

/* An encoded item; its place is known when it is written. */
static int lay_coded(struct ofs_dcp_commit *d, const struct ofs_extent *at,
    struct optimfs_error *err)
{
	const struct ofs_object *o = ofs_dcp_commit_object(d, at->object);
	struct ofs_composition *to;
	uint32_t place, first, n;
	uint64_t len;

	to = ofs_dcp_commit_begin(d, o->rank, true, o->path, &place, err);
	if (to == NULL ||
	    ofs_transport_length(d->c->reader->transport, at, &len, err) == -1)
		return -1;
	d->coded = true;
	if (at->encoding == OFS_TORCH_ITEM) {
		if (lay_item(d, at, len, to, err) == -1)
			return -1;
	} else {
		if (ofs_composition_stored(to, at, 0, len, err) == -1)
			return -1;
		ofs_commit_placed(d->c, at);
	}
	ofs_dcp_commit_at(d, at->object, at->off, &first, &n);
	ofs_dcp_commit_note_all(d, first, n, place);
	return ofs_spans_add(&d->out[d->place[place].out].file->items, len,
	    place, 0, err);
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
	struct ofs_composition *to;
	uint32_t first, n, place;

	if (around == OFS_NONE && !is_item_file(d, at->object))
		return 0; /* it belongs to another part */
	if (at->codec != OFS_PLAIN)
		return lay_coded(d, at, err);
	/* tensors in a blob are not at the offset in the index */
	if (around == OFS_NONE || at->encoding == OFS_RAW)
		return move_blob(d, at->object, err);
	all.off = d->index.item[around].off;
	all.len = d->index.item[around].len;
	to = ofs_dcp_commit_begin(d, o->rank, false, o->path, &place, err);
	if (to == NULL || lay_item(d, &all, all.len, to, err) == -1)
		return -1;
	ofs_dcp_commit_end(d, place);
	ofs_dcp_commit_at(d, all.object, all.off, &first, &n);
	ofs_dcp_commit_note_all(d, first, n, place);
	return 0;
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
