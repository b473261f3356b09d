/* update.c - changed items of a DCP checkpoint go to new data files */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "format/dcp/update.h"

#include <stdlib.h>

#include "base/memory.h"
#include "format/dcp/dcp.h"

/* No data file is changed. An item with changed bytes is copied to a new file
 * of the same rank and changed there, and the index points to the copy; the old
 * bytes stay until no item of their file is used. A safetensors blob has one
 * header for many items, so its file is copied as a whole. Encoded items go to
 * files of their own: where one ends is known when it is written. */

/* Remove files whose items are all unused. */
static int remove_unused(struct ofs_dcp_commit *d, struct optimfs_error *err)
{
	uint32_t n = d->index.nitems;

	for (uint32_t i = 0; i < n;) {
		uint32_t object = d->object[d->by_place[i]];
		bool used = false;

		for (; i < n && d->object[d->by_place[i]] == object; i++)
			used = used || !d->gone[d->by_place[i]];
		if (object == OFS_NONE || used ||
		    ofs_dcp_commit_object(d, object)->missing)
			continue;
		if (ofs_commit_remove(d->c,
			ofs_dcp_commit_object(d, object)->path, err) == -1)
			return -1;
	}
	return 0;
}

/* All items have their places: make the new index. The graph is as large as the
 * index, which is parsed again here. */
static int make_index(void *ctx, struct ofs_composition *comp,
    struct optimfs_error *err)
{
	struct ofs_dcp_commit *d = ctx;
	struct ofs_buf index = { 0 };
	uint8_t *bytes;
	uint64_t len;
	int ret;

	ofs_dcp_commit_end_coded(d);
	if (ofs_dcp_commit_put_new(d, true, err) == -1 ||
	    ofs_dcp_commit_moved(d, err) == -1)
		return -1;
	ofs_dcp_commit_close(d);
	if (ofs_dcp_commit_bytes(d, &bytes, &len, err) == -1)
		return -1;
	ret = ofs_pickle_splice(bytes, len, &d->edits, &index, err);
	free(bytes);
	if (ret == 0)
		ret = ofs_composition_buf(comp, &index, err);
	ofs_buf_fini(&index);
	return ret;
}

static void release(void *ctx)
{
	struct ofs_dcp_commit *d = ctx;

	ofs_pk_edits_fini(&d->edits);
	for (size_t i = 0; i < d->nout; i++)
		free(d->out[i].path);
	ofs_dcp_commit_close(d);
	free(d->name);
	free(d->ours);
	free(d->out);
	free(d->place);
	free(d);
}

/* Lay out the data files. */
static int lay_data(struct ofs_dcp_commit *d, struct optimfs_error *err)
{
	struct stat st;

	/* Without .metadata each rank has its own index, which cannot be
	 * written; but items can be changed in place. */
	if (!ofs_dir_stat(&d->c->cat->dir, d->name, &st))
		return 0;
	if (ofs_dcp_commit_open(d, err) == -1 ||
	    ofs_dcp_commit_change(d, err) == -1)
		return -1;
	/* renamed tensors lose their old keys, but not their items */
	return ofs_dcp_commit_move(d, err) == -1
	    ? -1
	    : ofs_dcp_commit_put_new(d, false, err);
}

/* Add the index, which takes over d. */
static int lay_index(struct ofs_dcp_commit *d, struct optimfs_error *err)
{
	struct ofs_commit_file *f;

	ofs_dcp_commit_keep_renamed(d);
	f = remove_unused(d, err) == -1
	    ? NULL
	    : ofs_commit_file(d->c, d->name, NULL, err);
	if (f == NULL) {
		release(d);
		return -1;
	}
	f->ctx = d;
	f->release = release;
	if (!d->coded)
		return make_index(d, &f->comp, err);
	f->make = make_index;
	return 0;
}

int ofs_dcp_update(struct ofs_commit *c, const struct ofs_part *part,
    struct optimfs_error *err)
{
	struct ofs_dcp_commit *d = ofs_alloc(1, sizeof(*d), err);
	int ret;

	if (d == NULL)
		return -1;
	d->c = c;
	d->part = part;
	d->nprefix = ofs_part_keys(part, d->prefix);
	d->name = ofs_path_join(part->rel, ".metadata");
	ret = d->name == NULL ? ofs_no_memory(err) : lay_data(d, err);
	if (ret == 0 && (d->edits.n > 0 || d->nplaces > 0))
		return lay_index(d, err);
	release(d);
	return ret;
}
