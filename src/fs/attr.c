/* attr.c - attributes of files and directories */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "base/checked.h"
#include "base/memory.h"
#include "fs/edited.h"
#include "fs/view.h"

/* Mixes two inode numbers into one. The root of a mirror keeps its own
 * number. */
static uint64_t mix(uint64_t a, uint64_t b)
{
	uint64_t x = a ^ (b << 31 | b >> 33);

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	x ^= x >> 31;
	return x <= 1 ? x + 2 : x;
}

uint64_t ofs_at_ino(const struct ofs_snapshot *snap, struct ofs_at at)
{
	if (ofs_at_is_view(at))
		return ofs_view_ino(snap, at);
	if (ofs_at_static(snap, at))
		return snap->static_ino[at.index - snap->tree.n];
	if (ofs_at_made(snap, at))
		return ofs_edited_ino(snap, at);
	if (at.space == OFS_SPACE_TREE)
		return ofs_tree_node_ino(&snap->tree, at.index);
	if (at.index == 0)
		return snap->space[at.space].ino;
	return mix(snap->space[at.space].ino,
	    ofs_tree_node_ino(&snap->tree, at.index));
}

/* Sets the attributes that come from the source files, for a file of the tree
 * or a mirror. */
static void source_attr(const struct ofs_snapshot *snap,
    const struct ofs_entry *e, struct optimfs_attr *attr)
{
	const struct ofs_catalog *cat = snap->cat;
	const struct ofs_extent *at;
	int64_t newest = INT64_MIN;

	if (e->kind == OFS_ENTRY_VALUE)
		attr->stored = attr->size;
	for (uint32_t i = 0; (at = ofs_entry_extent(cat, e, i)) != NULL; i++) {
		const struct ofs_object *o = &cat->objects[at->object];

		if (!o->missing && o->mtime_ns > newest)
			newest = o->mtime_ns;
		ofs_sum_u64(&attr->stored, at->len);
	}
	if (newest != INT64_MIN)
		attr->mtime_ns = newest;
}

static int static_size(struct ofs_snapshot *snap, uint32_t i,
    struct optimfs_attr *attr, struct optimfs_error *err)
{
	const struct ofs_static_node *s = ofs_static_node(snap, i);
	struct ofs_lines *lines = &snap->lines[i];
	struct ofs_buf text = { 0 };

	if (s->lines != NULL) {
		/* the size of a long file is only known after generating it:
		 * too slow for stat */
		uint32_t steps = s->lines->steps(snap);

		attr->exact = steps <= 1024 || atomic_load(&lines->known);
		attr->size = (uint64_t)steps * 256;
		if (!attr->exact)
			return 0;
		if (ofs_lines_index(lines, snap, err) == -1)
			return -1;
		attr->size = lines->size;
		return 0;
	}
	s->text(snap, &text);
	if (text.bad)
		return ofs_no_memory(err);
	attr->size = text.len;
	attr->exact = !s->live;
	ofs_buf_fini(&text);
	return 0;
}

static bool is_writable(const struct ofs_snapshot *snap, struct ofs_at at)
{
	bool fixed = ofs_at_static(snap, at) &&
	    at.index - snap->tree.n != OFS_STATIC_CONTROL;

	return snap->overlay != NULL && ofs_space_edited(at.space) && !fixed;
}

/* A tensor can be written in place in the tree; in npy/ only as a whole. */
static void changeable(const struct ofs_snapshot *snap, struct ofs_at at,
    struct optimfs_attr *attr)
{
	const struct ofs_entry *e = ofs_at_entry(snap, at);

	attr->changes = true;
	if (ofs_at_static(snap, at))
		return;
	attr->moves =
	    at.space != OFS_SPACE_TREE || ofs_edited_moves(snap, at.index);
	attr->shared = at.space != OFS_SPACE_TREE ||
	    (e != NULL &&
		ofs_entry_is_text(snap->cat,
		    (uint32_t)(e - snap->cat->entries)));
}

/* The number of the root never changes. */
static uint64_t public_node(const struct ofs_snapshot *snap, struct ofs_at at)
{
	uint64_t node = ofs_node_of(at.space, at.index);

	return node == OPTIMFS_ROOT
	    ? node
	    : node | (uint64_t)snap->generation << OFS_GENERATION;
}

int ofs_at_attr(struct ofs_snapshot *snap, struct ofs_at at,
    struct optimfs_attr *attr, struct optimfs_error *err)
{
	const struct ofs_space *space;
	bool dir = ofs_at_is_dir(snap, at);
	int ret = 0;

	*attr = (struct optimfs_attr){
		.node = public_node(snap, at),
		.ino = ofs_at_ino(snap, at),
		.mtime_ns = snap->mtime_ns,
		/* 1: subdirectories are not counted */
		.nlink = 1,
		.exact = true,
	};
	ofs_snapshot_access(snap, dir, attr);
	if (is_writable(snap, at))
		attr->mode |= 0200;
	if (snap->overlay != NULL)
		changeable(snap, at, attr);
	if (ofs_at_static(snap, at) && !dir)
		return static_size(snap, at.index - snap->tree.n, attr, err);
	if (ofs_at_made(snap, at) ||
	    (dir && snap->overlay != NULL && ofs_space_edited(at.space) &&
		!ofs_at_static(snap, at)))
		return ofs_edited_attr(snap, at, attr, err);
	if (dir)
		return 0;
	if (ofs_at_is_view(at)) {
		ret = ofs_view_size(snap, at, &attr->size, err);
		attr->stored = attr->size;
		return ret;
	}
	space = &snap->space[at.space];
	ret = space->ops->size(snap, space, at.index, attr, err);
	if (ret == -1)
		return -1;
	source_attr(snap, ofs_at_entry(snap, at), attr);
	return snap->overlay != NULL && ofs_space_edited(at.space)
	    ? ofs_edited_attr(snap, at, attr, err)
	    : 0;
}

int ofs_node_getattr(struct optimfs *fs, uint64_t node,
    struct optimfs_attr *attr, struct optimfs_error *err)
{
	struct ofs_snapshot *snap;
	struct ofs_at at;
	int ret;

	do {
		snap = ofs_enter(fs);
		ret = ofs_node_at(snap, node, &at, err);
		if (ret == 0)
			ret = ofs_at_attr(snap, at, attr, err);
	} while (ofs_leave_again(snap, ret == -1));
	return ret;
}
