/* update_move.c - items with changed bytes, copied to new data files */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/copy.h"
#include "base/memory.h"
#include "base/str.h"
#include "base/temp.h"
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

/* Create a data file for rank; *out is its index. It gets the mode of like, a
 * file of the checkpoint. */
static int new_out(struct ofs_dcp_commit *d, int rank, const char *like,
    uint32_t *out, struct optimfs_error *err)
{
	struct ofs_dcp_out o = { .rank = rank < 0 ? 0 : rank };
	char *path = NULL;
	uint64_t number;
	int ret = -1;

	if (next_number(d, o.rank, &number, err) == -1)
		return -1;
	if (asprintf(&o.path, "__%d_%" PRIu64 ".distcp", o.rank, number) == -1)
		return ofs_no_memory(err);
	path = ofs_path_join(d->part->rel, o.path);
	if (path == NULL || ofs_grow(d->out, d->nout, d->out_cap, err) == -1)
		ofs_no_memory(err);
	else
		ret = like == NULL
		    ? 0
		    : ofs_commit_make(d->c, path, like, &o.fd, err);
	free(path);
	if (ret == -1) {
		free(o.path);
		return -1;
	}
	*out = (uint32_t)d->nout;
	d->out[d->nout++] = o;
	return 0;
}

int ofs_dcp_commit_out(struct ofs_dcp_commit *d, int rank, const char *like,
    uint32_t *out, struct optimfs_error *err)
{
	if (rank < 0)
		rank = 0;
	for (size_t i = 0; i < d->nout; i++)
		if (d->out[i].rank == rank && d->out[i].fd != -1) {
			*out = (uint32_t)i;
			return 0;
		}
	return new_out(d, rank, like, out, err);
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

/* Moving bytes. */

const struct ofs_object *ofs_dcp_commit_object(const struct ofs_dcp_commit *d,
    uint32_t object)
{
	return &d->c->cat->objects[object];
}

/* Copy the item at [off, off + len) of an object. */
static int copy_item(struct ofs_dcp_commit *d, uint32_t object, uint64_t off,
    uint64_t len, uint32_t *out, uint64_t *to, struct optimfs_error *err)
{
	const struct ofs_object *o = ofs_dcp_commit_object(d, object);
	int in, ret;

	if (ofs_dcp_commit_out(d, o->rank, o->path, out, err) == -1 ||
	    ofs_commit_open(d->c, object, &in, err) == -1)
		return -1;
	*to = d->out[*out].at;
	ret = ofs_copy_range(in, off, d->out[*out].fd, *to, len, err);
	close(in);
	d->out[*out].at += len;
	return ret;
}

/* Copy the file of a blob, with a new name. */
static int move_blob(struct ofs_dcp_commit *d, uint32_t object,
    struct optimfs_error *err)
{
	const struct ofs_object *o = ofs_dcp_commit_object(d, object);
	struct ofs_dcp_placed item = { .same = true };
	char *path;
	int ret;

	if (new_out(d, o->rank, NULL, &item.out, err) == -1)
		return -1;
	d->out[item.out].fd = -1; /* no other item may be added */
	path = ofs_path_join(d->part->rel, d->out[item.out].path);
	ret = path == NULL ? ofs_no_memory(err)
			   : ofs_commit_whole(d->c, object, path, err);
	free(path);
	for (uint32_t i = 0; i < d->index.nitems && ret == 0; i++) {
		item.item = i;
		if (d->object[i] == object && d->moved[i] == OFS_NONE)
			ret = ofs_dcp_commit_note(d, &item, err);
	}
	return ret;
}

/* Decode the extent to an unlinked file. */
static int decode(struct ofs_dcp_commit *d, size_t moved,
    struct optimfs_error *err)
{
	struct ofs_commit *c = d->c;
	struct ofs_moved *m = &c->moved[moved];
	struct ofs_extent at = { .object = m->object,
		.off = m->off,
		.len = m->len,
		.codec = m->codec };
	struct ofs_dcp_coded *x;

	if (ofs_grow(d->coded, d->ncoded, d->coded_cap, err) == -1)
		return -1;
	x = &d->coded[d->ncoded];
	*x = (struct ofs_dcp_coded){ .moved = moved };
	x->fd = ofs_temp_open(ofs_publish_new(c->publish), ".");
	if (x->fd == -1)
		return optimfs_fail(err, errno, "OFS821 temporary file: %m");
	d->ncoded++;
	if (ofs_transport_length(c->reader->transport, &at, &x->len, err) ==
		-1 ||
	    ofs_commit_decode(c, &at, 0, x->len, x->fd, 0, err) == -1)
		return -1;
	m->fd = x->fd;
	return m->encoding == OFS_TORCH_ITEM
	    ? ofs_commit_fix_sums(c, x->fd, 0, x->len, false, err)
	    : 0;
}

/* Is this a file of the index? */
static bool is_item_file(const struct ofs_dcp_commit *d, uint32_t object)
{
	for (uint32_t i = 0; i < d->index.nitems; i++)
		if (d->object[i] == object)
			return true;
	return false;
}

/* Move an extent that is an item or inside one. */
static int move_extent(struct ofs_dcp_commit *d, size_t moved,
    struct optimfs_error *err)
{
	struct ofs_moved *m = &d->c->moved[moved];
	uint32_t around = ofs_dcp_commit_around(d, m->object, m->off);
	const struct ofs_dcp_item *item;
	uint32_t first, n, out;
	uint64_t to;

	if (around == OFS_NONE && !is_item_file(d, m->object))
		return 0; /* it belongs to another part */
	if (m->codec != OFS_PLAIN)
		return decode(d, moved, err);
	/* tensors in a blob are not at the offset in the index */
	if (around == OFS_NONE || m->encoding == OFS_RAW)
		return move_blob(d, m->object, err);
	item = &d->index.item[around];
	if (copy_item(d, m->object, item->off, item->len, &out, &to, err) == -1)
		return -1;
	/* and all other extents in the same item */
	for (size_t i = moved; i < d->c->nmoved; i++) {
		struct ofs_moved *x = &d->c->moved[i];

		if (x->object != m->object || x->off - item->off >= item->len)
			break;
		x->fd = d->out[out].fd;
		x->to = x->off - item->off + to;
	}
	ofs_dcp_commit_at(d, m->object, item->off, &first, &n);
	if (ofs_dcp_commit_note_all(d, first, n, out, to, item->len, false,
		err) == -1)
		return -1;
	return ofs_commit_fix_sums(d->c, d->out[out].fd, to, item->len, false,
	    err);
}

int ofs_dcp_commit_move(struct ofs_dcp_commit *d, struct optimfs_error *err)
{
	for (size_t i = 0; i < d->c->nmoved; i++) {
		if (d->c->moved[i].fd == -1 && !d->c->moved[i].whole &&
		    move_extent(d, i, err) == -1)
			return -1;
		ofs_commit_did(d->c, d->c->moved[i].len);
	}
	return 0;
}
