/* write_staged.c - a mount whose changes are staged until a commit */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdlib.h>

#include "base/memory.h"
#include "fs/commit.h"
#include "fs/enter.h"
#include "fs/view.h"
#include "rewrite/merge.h"

/* Lower layers do the work of a staged mount: rewrite/ commits, and merges staged
 * changes with the catalog for the views that show them. */

static int begin_staged(struct ofs_snapshot *snap, struct optimfs_error *err)
{
	(void)snap, (void)err;
	return 0;
}

/* The staged changes as a catalog. */
struct staged_edition {
	struct ofs_edition base;
	struct ofs_merged *merged;
};

static struct ofs_overlay_file *edition_staged(const struct ofs_edition *e,
    uint32_t tensor)
{
	return ofs_merged_staged(((const struct staged_edition *)e)->merged,
	    tensor);
}

static void edition_free(struct ofs_edition *e)
{
	ofs_merged_unref(((struct staged_edition *)e)->merged);
	free(e);
}

static struct ofs_edition *edition_new(struct ofs_snapshot *snap,
    struct optimfs_error *err)
{
	static const struct ofs_edition_ops ops = {
		.staged = edition_staged,
		.free = edition_free,
	};
	struct staged_edition *e = ofs_alloc(1, sizeof(*e), err);

	if (e == NULL)
		return NULL;
	if (ofs_hold_writers(snap->fs, false, err) == 0) {
		e->merged = ofs_merge(&snap->reader, snap->overlay, err);
		ofs_let_writers(snap->fs);
	}
	if (e->merged == NULL) {
		free(e);
		return NULL;
	}
	e->base.ops = &ops;
	e->base.cat = e->merged->cat;
	atomic_init(&e->base.refs, 1);
	return &e->base;
}

const struct ofs_write_ops ofs_write_staged = {
	.begin = begin_staged,
	.commit = ofs_fs_commit,
	.edition = edition_new,
};
