/* node.c - node numbers and path resolution */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "fs/edited.h"
#include "fs/view.h"

/* Is there such a node? The number has no generation. */
static int check_node(const struct ofs_snapshot *snap, struct ofs_at at,
    struct optimfs_error *err)
{
	uint64_t n =
	    snap->tree.n + (at.space == OFS_SPACE_TREE ? OFS_NSTATIC : 0);

	if (at.index == OFS_NONE)
		return optimfs_fail(err, ENOENT, "no such node");
	if (at.space >= OFS_SPACE_VIEW && ofs_view_has(snap, at))
		return 0;
	if (at.space < snap->nspaces && snap->overlay != NULL &&
	    (ofs_at_made(snap, at) ||
		(at.index < snap->tree.n && ofs_overlay_hides(snap->overlay))))
		return ofs_edited_has(snap, at, err);
	if (at.space < snap->nspaces && at.index < n)
		return 0;
	return optimfs_fail(err, ENOENT, "no such node");
}

int ofs_node_at(const struct ofs_snapshot *snap, uint64_t node,
    struct ofs_at *at, struct optimfs_error *err)
{
	uint64_t mask = (uint64_t)(OFS_GENERATIONS - 1) << OFS_GENERATION;
	struct ofs_at found = ofs_at_of(node & ~mask);
	bool stale = node != OPTIMFS_ROOT &&
	    (node & mask) >> OFS_GENERATION != snap->generation;

	if (!stale && check_node(snap, found, err) == 0) {
		*at = found;
		return 0;
	}
	/* the number may be from before a commit */
	if (stale)
		optimfs_fail(err, ESTALE,
		    "a commit has given the files other names, or other "
		    "contents");
	else if (ofs_view_is_past(snap, found.space))
		optimfs_fail(err, ESTALE,
		    "OFS776 the view is from before a change, or has made room "
		    "for others: look it up again");
	return -1;
}

const struct ofs_entry *ofs_at_entry(const struct ofs_snapshot *snap,
    struct ofs_at at)
{
	return at.index >= snap->tree.n || ofs_at_is_view(at)
	    ? NULL
	    : ofs_tree_entry(&snap->tree, snap->cat, at.index);
}

void ofs_at_path(const struct ofs_snapshot *snap, struct ofs_at at, char *path,
    size_t size)
{
	const char *top = ofs_static_nodes[OFS_STATIC_TOP].name;
	const struct ofs_space *s;
	char below[OFS_FILE_NAME];
	size_t n = 0;

	if (ofs_at_static(snap, at)) {
		uint32_t i = at.index - snap->tree.n;

		snprintf(path, size, "%s%s%s", top,
		    i == OFS_STATIC_TOP ? "" : "/",
		    i == OFS_STATIC_TOP ? "" : ofs_static_nodes[i].name);
		return;
	}
	if (ofs_at_is_view(at)) {
		ofs_view_name(snap, (struct ofs_at){ at.space, 0 }, below);
		n = (size_t)snprintf(path, size, "%s/view/%s", top, below);
		if (at.index == 0 || n >= size)
			return;
		ofs_view_path(snap, at, below);
		snprintf(path + n, size - n, "/%s", below);
		return;
	}
	if (snap->overlay != NULL && ofs_edited_path(snap, at, path, size))
		return;
	if (ofs_at_made(snap, at)) {
		snprintf(path, size, "(removed)");
		return;
	}
	s = &snap->space[at.space];
	if (at.space >= OFS_SPACE_RANK)
		n = (size_t)snprintf(path, size, "%s/rank/%d%s", top, s->rank,
		    at.index == 0 ? "" : "/");
	else if (at.space != OFS_SPACE_TREE)
		n = (size_t)snprintf(path, size, "%s/%s%s", top,
		    ofs_mirror_root(at.space), at.index == 0 ? "" : "/");
	if (n + 5 > size)
		return;
	ofs_tree_path(&snap->tree, at.index, path + n, size - n);
	if (ofs_at_entry(snap, at) != NULL)
		strncat(path, s->ops->suffix, size - strlen(path) - 1);
}

uint32_t ofs_tree_after(const struct ofs_tree *tree, uint32_t top,
    uint32_t index)
{
	const struct ofs_tree_node *v = tree->node;

	if (v[index].entry == OFS_NONE && v[index].nchild > 0)
		return v[index].child;
	while (index != top) {
		const struct ofs_tree_node *up = &v[v[index].parent];

		if (index + 1 < up->child + up->nchild)
			return index + 1;
		index = v[index].parent;
	}
	return OFS_NONE;
}

bool ofs_at_is_dir(const struct ofs_snapshot *snap, struct ofs_at at)
{
	const struct ofs_static_node *s;

	if (ofs_at_is_view(at))
		return ofs_view_is_dir(snap, at);
	if (ofs_at_made(snap, at))
		return ofs_edited_is_dir(snap, at);
	if (!ofs_at_static(snap, at))
		return snap->tree.node[at.index].entry == OFS_NONE;
	s = &ofs_static_nodes[at.index - snap->tree.n];
	return s->text == NULL && s->lines == NULL;
}

struct ofs_at ofs_at_of_static(const struct ofs_snapshot *snap, uint32_t i)
{
	if (ofs_static_nodes[i].space != 0)
		return (struct ofs_at){ ofs_static_nodes[i].space, 0 };
	return (struct ofs_at){ OFS_SPACE_TREE, snap->tree.n + i };
}

/* A child of .optimfs or .optimfs/rank. */
static bool find_static(const struct ofs_snapshot *snap, uint32_t dir,
    const char *name, struct ofs_at *at)
{
	char rank[16];

	if (dir == OFS_STATIC_TOP) {
		for (uint32_t i = OFS_STATIC_TOP + 1; i < OFS_NSTATIC; i++)
			if (strcmp(name, ofs_static_nodes[i].name) == 0) {
				*at = ofs_at_of_static(snap, i);
				return true;
			}
		return false;
	}
	for (uint32_t i = OFS_SPACE_RANK; i < snap->nspaces; i++) {
		snprintf(rank, sizeof(rank), "%d", snap->space[i].rank);
		if (strcmp(name, rank) == 0) {
			*at = (struct ofs_at){ i, 0 };
			return true;
		}
	}
	return false;
}

/* The error of an invalid view name is recorded, because the kernel passes on
 * only an errno. */
static int find_view(struct ofs_snapshot *snap, const char *name,
    struct ofs_at *at, struct optimfs_error *err)
{
	err = OFS_SOME_ERROR(err);
	if (ofs_view_find(snap, name, at, err) == 0)
		return 1;
	ofs_failures_add(&snap->fs->failures, 0, ".optimfs/view", 0, 0, err);
	return -1;
}

/* 1: found; 0: no such name, err is unchanged; -1: failed. */
static int find_child(struct ofs_snapshot *snap, struct ofs_at dir,
    const char *name, struct ofs_at *at, struct optimfs_error *err)
{
	struct ofs_space *s;
	uint32_t index;
	int has;

	if (ofs_at_is_view(dir))
		return ofs_view_child(snap, dir, name, at, err);
	if (ofs_at_static(snap, dir)) {
		index = dir.index - snap->tree.n;
		if (index == OFS_STATIC_VIEW)
			return find_view(snap, name, at, err);
		return find_static(snap, index, name, at);
	}
	s = &snap->space[dir.space];
	if (dir.space == OFS_SPACE_TREE && dir.index == 0 &&
	    strcmp(name, ofs_static_nodes[OFS_STATIC_TOP].name) == 0) {
		*at = ofs_at_of_static(snap, OFS_STATIC_TOP);
		return 1;
	}
	if (snap->overlay != NULL)
		return ofs_edited_lookup(snap, dir, name, at, err);
	index = ofs_mirror_find(snap, s, dir.index, name);
	has = index == OFS_NONE ? 0 : ofs_space_has(snap, s, index, err);
	if (has == 1)
		*at = (struct ofs_at){ dir.space, index };
	return has;
}

/* path is for the message. */
static int get_child(struct ofs_snapshot *snap, struct ofs_at dir,
    const char *name, const char *path, struct ofs_at *child,
    struct optimfs_error *err)
{
	int found = find_child(snap, dir, name, child, err);

	if (found != 0)
		return found == 1 ? 0 : -1;
	/* a writer may create it */
	if (snap->overlay == NULL && !ofs_at_static(snap, dir) &&
	    dir.space < OFS_SPACE_RANK &&
	    ofs_tree_absent(&snap->tree, dir.index, name))
		return optimfs_fail(err, ENODATA,
		    "OFS642 %s: this parameter has no state", path);
	return optimfs_fail(err, ENOENT, "%s: no such name", path);
}

int ofs_lookup(struct ofs_snapshot *snap, uint64_t dir, const char *name,
    struct ofs_at *child, struct optimfs_error *err)
{
	struct ofs_at at;

	if (ofs_node_at(snap, dir, &at, err) == -1)
		return -1;
	if (!ofs_at_is_dir(snap, at))
		return optimfs_fail(err, ENOTDIR, "%s: not in a directory",
		    name);
	if (strlen(name) > OFS_NAME_MAX)
		return optimfs_fail(err, ENAMETOOLONG, "%.80s...: too long",
		    name);
	return get_child(snap, at, name, name, child, err);
}

int ofs_node_lookup(struct optimfs *fs, uint64_t dir, const char *name,
    struct optimfs_attr *attr, struct optimfs_error *err)
{
	struct ofs_snapshot *snap;
	struct ofs_at at;
	int ret;

	do {
		snap = ofs_enter(fs);
		ret = ofs_lookup(snap, dir, name, &at, err);
		if (ret == 0)
			ret = ofs_at_attr(snap, at, attr, err);
	} while (ofs_leave_again(snap, ret == -1));
	return ret;
}

int ofs_resolve(struct ofs_snapshot *snap, const char *path,
    struct ofs_at *found_at, struct optimfs_error *err)
{
	struct ofs_at at = { OFS_SPACE_TREE, 0 }, child;
	char name[OFS_NAME_MAX + 1];
	const char *p;

	for (p = path + strspn(path, "/"); *p != '\0'; p += strspn(p, "/")) {
		size_t n = strcspn(p, "/");

		if (!ofs_at_is_dir(snap, at))
			return optimfs_fail(err, ENOTDIR,
			    "%s: %s is a file, not a directory", path, name);
		if (n >= sizeof(name))
			return optimfs_fail(err, ENAMETOOLONG,
			    "%s: a part of it is too long", path);
		memcpy(name, p, n);
		name[n] = '\0';
		p += n;
		if (strcmp(name, ".") == 0)
			continue;
		if (get_child(snap, at, name, path, &child, err) == -1)
			return -1;
		at = child;
	}
	*found_at = at;
	return 0;
}

int ofs_node_resolve(struct optimfs *fs, const char *path,
    struct optimfs_attr *attr, struct optimfs_error *err)
{
	struct ofs_snapshot *snap;
	struct ofs_at at;
	int ret;

	do {
		snap = ofs_enter(fs);
		ret = ofs_resolve(snap, path, &at, err);
		if (ret == 0)
			ret = ofs_at_attr(snap, at, attr, err);
	} while (ofs_leave_again(snap, ret == -1));
	return ret;
}
