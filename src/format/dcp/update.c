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

static int read_index(struct ofs_dcp_commit *d, struct optimfs_error *err)
{
	if (ofs_dcp_commit_open(d, err) == -1 ||
	    ofs_dcp_commit_change(d, err) == -1)
		return -1;
	/* renamed tensors lose their old keys, but not their items */
	return ofs_dcp_commit_move(d, err) == -1
	    ? -1
	    : ofs_dcp_commit_put_new(d, false, err);
}

static int begin(struct ofs_commit *c, const struct ofs_part *part,
    void **state, struct optimfs_error *err)
{
	struct ofs_dcp_commit *d = calloc(1, sizeof(*d));
	struct stat st;

	if (d == NULL)
		return ofs_no_memory(err);
	d->c = c;
	d->part = part;
	d->nprefix = ofs_part_keys(part, d->prefix);
	d->name = ofs_path_join(part->rel, ".metadata");
	*state = d;
	if (d->name == NULL)
		return ofs_no_memory(err);
	/* Without .metadata each rank has its own index, which cannot be
	 * written; but items can be changed in place. */
	if (!ofs_dir_stat(&c->cat->dir, d->name, &st))
		return 0;
	return read_index(d, err);
}

/* The end of a commit, when all bytes are written. */

static int lay_index(struct ofs_dcp_commit *d, struct optimfs_error *err)
{
	struct ofs_buf index = { 0 };
	struct ofs_commit_file *f;
	uint8_t *bytes;
	uint64_t len;
	int ret;

	if (ofs_dcp_commit_bytes(d, &bytes, &len, err) == -1)
		return -1;
	ret = ofs_pickle_splice(bytes, len, &d->edits, &index, err);
	free(bytes);
	if (ret == 0) {
		f = ofs_commit_file(d->c, d->name, NULL, err);
		ret =
		    f == NULL ? -1 : ofs_composition_buf(&f->comp, &index, err);
	}
	ofs_buf_fini(&index);
	return ret;
}

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
		if (ofs_publish_remove(d->c->publish,
			ofs_dcp_commit_object(d, object)->path, err) == -1)
			return -1;
	}
	return 0;
}

static int end(void *state, struct optimfs_error *err)
{
	struct ofs_dcp_commit *d = state;

	if (!d->open)
		return 0;
	if (ofs_dcp_commit_coded(d, err) == -1 ||
	    ofs_dcp_commit_put_new(d, true, err) == -1 ||
	    ofs_dcp_commit_moved(d, err) == -1)
		return -1;
	if (d->edits.n == 0)
		return 0;
	ofs_dcp_commit_keep_renamed(d);
	if (remove_unused(d, err) == -1)
		return -1;
	/* The graph is as large as the index, which is parsed again now. */
	ofs_dcp_commit_close(d);
	return lay_index(d, err);
}

static void release(void *state)
{
	struct ofs_dcp_commit *d = state;

	if (d == NULL)
		return;
	ofs_pk_edits_fini(&d->edits);
	for (size_t i = 0; i < d->nout; i++)
		free(d->out[i].path);
	ofs_dcp_commit_close(d);
	free(d->name);
	free(d->ours);
	free(d->out);
	free(d->item);
	free(d->coded);
	free(d);
}

const struct ofs_update_ops ofs_dcp_update = {
	.begin = begin,
	.end = end,
	.free = release,
};
