/* dir.c - listing a directory */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdio.h>

#include "detect/view_name.h"
#include "fs/edited.h"
#include "fs/view.h"

/* The state of one listing. */
struct listing {
	struct ofs_snapshot *snap;
	bool want_attr;
	optimfs_dirent_fn *each;
	void *ctx;
	struct optimfs_error *err;
	uint64_t next; /* position after the last entry returned */
};

/* 0: continue; 1: the caller has enough; -1: failed. */
static int give(void *ctx, struct ofs_at at, const char *name,
    uint64_t position)
{
	struct listing *l = ctx;
	struct optimfs_attr attr;
	struct optimfs_dirent entry = {
		.name = name,
		.ino = ofs_at_ino(l->snap, at),
		.mode = ofs_at_is_dir(l->snap, at) ? S_IFDIR : S_IFREG,
		.attr = l->want_attr ? &attr : NULL,
		.position = position,
	};

	if (l->want_attr && ofs_at_attr(l->snap, at, &attr, l->err) == -1)
		return -1;
	l->next = position + 1;
	return l->each(l->ctx, &entry) != 0;
}

static int list_static(struct listing *l, uint32_t dir, uint64_t start)
{
	const struct ofs_snapshot *snap = l->snap;
	bool top = dir == OFS_STATIC_TOP;
	uint64_t n = top ? OFS_NSTATIC - 1 : snap->nspaces - OFS_SPACE_RANK;
	int ret = 0;

	for (uint64_t i = start; i < n && ret == 0; i++) {
		uint32_t k = (uint32_t)i + (top ? 1 : OFS_SPACE_RANK);
		char rank[16];

		if (top) {
			ret = give(l, ofs_at_of_static(snap, k),
			    ofs_static_nodes[k].name, i);
			continue;
		}
		snprintf(rank, sizeof(rank), "%d", snap->space[k].rank);
		ret = give(l, (struct ofs_at){ k, 0 }, rank, i);
	}
	return ret;
}

/* Lists the useful views. Other valid names resolve too. */
static int list_views(struct listing *l, uint64_t start)
{
	const char *name;
	struct ofs_at at;
	int ret = 0;

	for (uint64_t i = start; ret == 0; i++) {
		name = i > UINT32_MAX ? NULL : ofs_layout_common((unsigned)i);
		if (name == NULL)
			break;
		if (ofs_view_find(l->snap, name, &at, l->err) == -1)
			return -1;
		ret = give(l, at, name, i);
	}
	return ret;
}

static int list_view(struct listing *l, struct ofs_at dir, uint64_t start)
{
	char name[OFS_FILE_NAME];
	struct ofs_at first;
	uint32_t n;
	int ret = 0;

	if (ofs_view_children(l->snap, dir, &first, &n, l->err) == -1)
		return -1;
	for (uint64_t i = start; i < n && ret == 0; i++) {
		struct ofs_at at = { dir.space, first.index + (uint32_t)i };

		ofs_view_name(l->snap, at, name);
		ret = give(l, at, name, i);
	}
	return ret;
}

static int list_tree(struct listing *l, struct ofs_at dir, uint64_t start)
{
	const struct ofs_tree_node *d = &l->snap->tree.node[dir.index];
	struct ofs_space *s = &l->snap->space[dir.space];
	char name[OFS_NAME_MAX + 1];
	int ret = 0;

	for (uint64_t i = start; i < d->nchild && ret == 0; i++) {
		struct ofs_at at = { .space = dir.space };
		int has;

		if (ofs_mirror_child(l->snap, s, d->child + (uint32_t)i,
			&at.index, l->err) == -1)
			return -1;
		has = ofs_space_has(l->snap, s, at.index, l->err);
		if (has == -1)
			return -1;
		if (has == 1)
			ret = give(l, at,
			    ofs_mirror_name(l->snap, s, at.index, name), i);
	}
	return ret;
}

static int do_readdir(struct listing *l, uint64_t dir)
{
	struct ofs_snapshot *snap = l->snap;
	struct optimfs_error *err = l->err;
	uint64_t start = l->next;
	struct ofs_at at;
	int ret;

	if (ofs_node_at(snap, dir, &at, err) == -1)
		return -1;
	if (!ofs_at_is_dir(snap, at))
		return optimfs_fail(err, ENOTDIR, "not a directory");
	if (ofs_at_is_view(at))
		ret = list_view(l, at, start);
	else if (!ofs_at_static(snap, at) && snap->overlay != NULL &&
	    snap->space[at.space].ops->rename == NULL)
		ret = ofs_edited_list(snap, at, start, give, l, err);
	else if (!ofs_at_static(snap, at))
		ret = list_tree(l, at, start);
	else if (at.index - snap->tree.n == OFS_STATIC_VIEW)
		ret = list_views(l, start);
	else
		ret = list_static(l, at.index - snap->tree.n, start);
	return ret == -1 ? -1 : 0;
}

int ofs_node_readdir(struct optimfs *fs, uint64_t dir, uint64_t start,
    bool want_attr, optimfs_dirent_fn *each, void *ctx,
    struct optimfs_error *err)
{
	struct listing l = { NULL, want_attr, each, ctx, err, start };
	int ret;

	do {
		l.snap = ofs_enter(fs);
		ret = do_readdir(&l, dir);
	} while (ofs_leave_again(l.snap, ret == -1));
	return ret;
}
