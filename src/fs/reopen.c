/* reopen.c - after a commit: the next snapshot */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <string.h>

#include "cluster/commit/coordinator.h"
#include "cluster/source.h"
#include "fs/fs.h"
#include "fs/view.h"

/* Do the nodes of both trees have the same numbers? */
static bool same_tree(const struct ofs_tree *a, const struct ofs_tree *b)
{
	if (a->n != b->n)
		return false;
	for (uint32_t i = 0; i < a->n; i++)
		if (a->node[i].parent != b->node[i].parent ||
		    (a->node[i].entry == OFS_NONE) !=
			(b->node[i].entry == OFS_NONE) ||
		    strcmp(a->node[i].name, b->node[i].name) != 0)
			return false;
	return true;
}

static struct ofs_snapshot *read_again(struct optimfs *fs,
    struct optimfs_error *err)
{
	struct optimfs_options o = fs->options;
	const char *source = fs->source;
	struct ofs_catalog *cat;

	o.rw = o.scratch = false;
	if (fs->coordinator != NULL)
		source = ofs_coordinator_source(fs->coordinator, &o.group);
	cat = ofs_read_checkpoint(source, &o, err);
	return cat == NULL ? NULL : ofs_snapshot_new(fs, cat, err);
}

int ofs_fs_reopen(struct optimfs *fs, struct optimfs_error *err)
{
	struct ofs_snapshot *next = read_again(fs, err), *now = fs->now;
	struct ofs_overlay_base base;
	bool same;

	if (next == NULL)
		return -1;
	/* the kernel may still know numbers of views */
	same =
	    same_tree(&now->tree, &next->tree) && ofs_views_follow(next, now);
	base = ofs_snapshot_base(next);
	next->overlay = ofs_overlay_next(now->overlay, &base, same, err);
	if (next->overlay == NULL) {
		ofs_snapshot_unref(next);
		return -1;
	}
	next->serial = now->serial + 1;
	next->generation = (now->generation + !same) % OFS_GENERATIONS;
	ofs_install(fs, next);
	return 0;
}
