/* edited.c - names and attributes of nodes that a writer has changed */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "fs/edited.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/npy.h"
#include "base/dtype.h"
#include "base/memory.h"
#include "overlay/overlay_impl.h"

/* Are added nodes shown in this space? */
static bool mirrors_made(uint32_t space)
{
	return ofs_space_edited(space) || space == OFS_SPACE_STAT;
}

/* Was a node of the tree hidden again, and is not open? The lock of names is held. */
static bool is_hidden(const struct ofs_overlay *o, uint32_t index)
{
	const struct ofs_overlay_node *v = o->base[index];
	const struct ofs_overlay_file *f = ofs_overlay_file(o, index);

	return v != NULL && v->gone && v->parent == OFS_NONE &&
	    (f == NULL || f->opens == 0);
}

int ofs_edited_has(const struct ofs_snapshot *snap, struct ofs_at at,
    struct optimfs_error *err)
{
	const struct ofs_overlay *o = snap->overlay;
	int ret = 0;

	pthread_rwlock_rdlock(&snap->overlay->names);
	if (at.index >= o->first &&
	    (at.index - o->first >= o->nmade || !mirrors_made(at.space)))
		ret = optimfs_fail(err, ENOENT, "no such node");
	else if (at.index < o->first ? is_hidden(o, at.index)
				     : o->made[at.index - o->first]->dead)
		ret = optimfs_fail(err, ESTALE,
		    "it was created in this mount, and the changes were "
		    "discarded");
	pthread_rwlock_unlock(&snap->overlay->names);
	return ret;
}

bool ofs_edited_moves(const struct ofs_snapshot *snap, uint32_t index)
{
	const struct ofs_overlay *o = snap->overlay;
	bool moves = ofs_overlay_is_made(o, index);

	pthread_rwlock_rdlock(&snap->overlay->names);
	if (!moves && o->base[index] != NULL)
		moves = o->base[index]->gone;
	pthread_rwlock_unlock(&snap->overlay->names);
	return moves;
}

bool ofs_edited_is_dir(const struct ofs_snapshot *snap, struct ofs_at at)
{
	bool dir;

	pthread_rwlock_rdlock(&snap->overlay->names);
	dir = ofs_overlay_is_dir(snap->overlay, at.index);
	pthread_rwlock_unlock(&snap->overlay->names);
	return dir;
}

/* Does a mirror show the node? The lock of names is held. */
static int is_shown(struct ofs_snapshot *snap, struct ofs_space *s,
    uint32_t space, uint32_t index, struct optimfs_error *err)
{
	struct ofs_overlay_form form;

	if (!ofs_overlay_is_made(snap->overlay, index))
		return ofs_space_has(snap, s, index, err);
	if (space == OFS_SPACE_TREE)
		return 1;
	if (!mirrors_made(space))
		return 0;
	if (ofs_overlay_is_dir(snap->overlay, index))
		return 1;
	ofs_overlay_form_of(snap->overlay, index, &form);
	if (form.ndim == 0)
		return 0;
	return space == OFS_SPACE_NPY
	    ? ofs_dtype_npy(form.dtype) != NULL
	    : ofs_dtype_size((enum ofs_dtype)form.dtype) > 0;
}

/* The file whose name plus the mirror's suffix is name. */
static uint32_t find_suffixed(const struct ofs_overlay *o,
    const struct ofs_space *s, uint32_t dir, const char *name)
{
	char bare[OFS_NAME_MAX + 1];
	uint32_t index;

	if (!ofs_name_bare(name, s->ops->suffix, bare))
		return OFS_NONE;
	index = ofs_overlay_find(o, dir, bare);
	return index == OFS_NONE || ofs_overlay_is_dir(o, index) ? OFS_NONE
								 : index;
}

static uint32_t find_in(struct ofs_snapshot *snap, struct ofs_space *s,
    uint32_t dir, const char *name)
{
	const struct ofs_overlay *o = snap->overlay;
	uint32_t index = ofs_overlay_find(o, dir, name);
	const struct ofs_overlay_node *v;

	if (s->ops->rename != NULL && dir < snap->tree.n) {
		index = ofs_mirror_find(snap, s, dir, name);
		v = index == OFS_NONE ? NULL : ofs_overlay_node(o, index);
		return v != NULL && v->gone ? OFS_NONE : index;
	}
	if (s->ops->suffix[0] == '\0' ||
	    (index != OFS_NONE && ofs_overlay_is_dir(o, index)))
		return index;
	index = find_suffixed(o, s, dir, name);
	if (index != OFS_NONE || dir >= snap->tree.n)
		return index;
	/* a name too long for the suffix was shortened */
	index = ofs_mirror_find(snap, s, dir, name);
	v = index == OFS_NONE ? NULL : ofs_overlay_node(o, index);
	return v != NULL && v->gone ? OFS_NONE : index;
}

int ofs_edited_lookup(struct ofs_snapshot *snap, struct ofs_at dir,
    const char *name, struct ofs_at *at, struct optimfs_error *err)
{
	struct ofs_space *s = &snap->space[dir.space];
	uint32_t index;
	int ret = 0;

	pthread_rwlock_rdlock(&snap->overlay->names);
	index = find_in(snap, s, dir.index, name);
	if (index != OFS_NONE)
		ret = is_shown(snap, s, dir.space, index, err);
	pthread_rwlock_unlock(&snap->overlay->names);
	*at = (struct ofs_at){ dir.space, index };
	return ret;
}

/* Names are copied, because the callback may need the lock to get
 * attributes. */
struct batch {
	struct ofs_snapshot *snap;
	struct ofs_space *s;
	struct ofs_at dir;
	struct {
		uint32_t index;
		uint64_t position;
		char name[OFS_NAME_MAX + 1];
	} entry[32];
	unsigned n;
	struct optimfs_error *err;
	bool failed;
};

static int collect(void *ctx, uint32_t child, const char *name,
    uint64_t position)
{
	struct batch *b = ctx;
	int shown = is_shown(b->snap, b->s, b->dir.space, child, b->err);

	if (shown == -1)
		b->failed = true;
	if (shown != 1)
		return shown;
	b->entry[b->n].index = child;
	b->entry[b->n].position = position;
	if (b->s->ops->suffix[0] == '\0' ||
	    ofs_overlay_is_dir(b->snap->overlay, child))
		strcpy(b->entry[b->n].name, name);
	else
		ofs_name_suffix(name, b->s->ops->suffix, b->entry[b->n].name);
	b->n++;
	return b->n == sizeof(b->entry) / sizeof(b->entry[0]);
}

int ofs_edited_list(struct ofs_snapshot *snap, struct ofs_at dir,
    uint64_t start, ofs_edited_list_fn *each, void *ctx,
    struct optimfs_error *err)
{
	struct batch *b = calloc(1, sizeof(*b));
	int ret = 0;

	if (b == NULL)
		return ofs_no_memory(err);
	b->snap = snap;
	b->s = &snap->space[dir.space];
	b->dir = dir;
	b->err = err;
	do {
		b->n = 0;
		pthread_rwlock_rdlock(&snap->overlay->names);
		ofs_overlay_children(snap->overlay, dir.index, start, collect,
		    b);
		pthread_rwlock_unlock(&snap->overlay->names);
		for (unsigned i = 0; i < b->n && ret == 0; i++) {
			struct ofs_at at = { dir.space, b->entry[i].index };

			start = b->entry[i].position + 1;
			ret = each(ctx, at, b->entry[i].name,
			    b->entry[i].position);
		}
	} while (ret == 0 && b->n > 0 && !b->failed);
	if (b->failed)
		ret = -1;
	free(b);
	return ret;
}

bool ofs_edited_path(const struct ofs_snapshot *snap, struct ofs_at at,
    char *path, size_t size)
{
	const char *top = ofs_static_nodes[OFS_STATIC_TOP].name;
	char *own, mirror[32] = "";

	if (at.space >= OFS_SPACE_RANK)
		snprintf(mirror, sizeof(mirror), "%s/rank/%d/", top,
		    snap->space[at.space].rank);
	else if (at.space != OFS_SPACE_TREE)
		snprintf(mirror, sizeof(mirror), "%s/%s/", top,
		    ofs_mirror_root(at.space));
	pthread_rwlock_rdlock(&snap->overlay->names);
	own = ofs_overlay_path(snap->overlay, at.index, NULL, NULL);
	if (own != NULL)
		snprintf(path, size, "%s%s%s", mirror, own,
		    ofs_overlay_is_dir(snap->overlay, at.index)
			? ""
			: snap->space[at.space].ops->suffix);
	pthread_rwlock_unlock(&snap->overlay->names);
	free(own);
	return own != NULL;
}

uint64_t ofs_edited_ino(const struct ofs_snapshot *snap, struct ofs_at at)
{
	uint64_t ino;

	pthread_rwlock_rdlock(&snap->overlay->names);
	ino = ofs_overlay_node(snap->overlay, at.index)->ino;
	pthread_rwlock_unlock(&snap->overlay->names);
	return at.space == OFS_SPACE_TREE
	    ? ino
	    : ofs_tree_ino(snap->space[at.space].ino ^ ino, "");
}

static int made_size(struct ofs_snapshot *snap, struct ofs_at at,
    struct ofs_overlay_file *f, struct optimfs_attr *attr,
    struct optimfs_error *err)
{
	struct ofs_overlay_form form;
	struct ofs_buf header = { 0 };

	if (at.space == OFS_SPACE_STAT)
		return ofs_space_stat.size(snap, &snap->space[at.space],
		    at.index, attr, err);
	if (f != NULL) {
		pthread_rwlock_rdlock(&f->lock);
		attr->size = f->size;
		pthread_rwlock_unlock(&f->lock);
	}
	attr->stored = attr->size;
	if (at.space != OFS_SPACE_NPY)
		return 0;
	ofs_overlay_form_of(snap->overlay, at.index, &form);
	if (ofs_dtype_npy(form.dtype) == NULL)
		return 0;
	ofs_npy_header(form.dtype, form.shape, form.ndim, &header);
	attr->size += header.len;
	ofs_buf_fini(&header);
	return header.bad ? ofs_no_memory(err) : 0;
}

/* Adjusts the size of a file that has grown or shrunk. */
static void adjust_size(struct ofs_snapshot *snap, struct ofs_at at,
    struct ofs_overlay_file *f, struct optimfs_attr *attr)
{
	const struct ofs_tensor *t =
	    ofs_entry_tensor(snap->cat, ofs_at_entry(snap, at));

	if (f->text || t == NULL || !ofs_space_edited(at.space))
		return;
	pthread_rwlock_rdlock(&f->lock);
	attr->size = attr->size - ofs_tensor_bytes(snap->cat, t) + f->size;
	pthread_rwlock_unlock(&f->lock);
}

/* The lock of names is held. */
static int edited_attr(struct ofs_snapshot *snap, struct ofs_at at,
    struct optimfs_attr *attr, struct optimfs_error *err)
{
	struct ofs_overlay *o = snap->overlay;
	bool made = ofs_overlay_is_made(o, at.index);
	const struct ofs_overlay_node *v = ofs_overlay_node(o, at.index);
	struct ofs_overlay_file *f = ofs_overlay_file(o, at.index);

	if (v != NULL && v->mtime_ns != 0)
		attr->mtime_ns = v->mtime_ns;
	if (v != NULL && v->parent == OFS_NONE && (made || v->gone))
		attr->nlink = 0;
	if (f != NULL) {
		pthread_rwlock_rdlock(&f->lock);
		if (f->mtime_ns != 0)
			attr->mtime_ns = f->mtime_ns;
		pthread_rwlock_unlock(&f->lock);
	}
	if (made && !v->dir)
		return made_size(snap, at, f, attr, err);
	if (f != NULL)
		adjust_size(snap, at, f, attr);
	return 0;
}

int ofs_edited_attr(struct ofs_snapshot *snap, struct ofs_at at,
    struct optimfs_attr *attr, struct optimfs_error *err)
{
	int ret;

	pthread_rwlock_rdlock(&snap->overlay->names);
	ret = edited_attr(snap, at, attr, err);
	pthread_rwlock_unlock(&snap->overlay->names);
	return ret;
}
