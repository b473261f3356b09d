/* names.c - adding, moving and removing names */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/clock.h"
#include "base/memory.h"
#include "overlay/overlay_impl.h"

/* The tree of the checkpoint never changes. Its nodes have the indexes
 * [0, first); nodes that were made get those from first on. What differs is in
 * nodes of the overlay, which exist only where something does:
 *
 *     o->base[index]         of a node of the checkpoint, or NULL
 *     o->made[index - first] of a node that was made
 *
 * A name is looked up in a hash table of what was placed (made, or moved), by
 * directory and name; then in the tree, where a node counts unless it is gone.
 * mv model/w model/v, rm lr and mkdir model/new leave
 *
 *     base[w]     gone, parent model, name "v"    in the table
 *     base[lr]    gone, parent OFS_NONE           in no table
 *     made[0]     parent model, name "new"        in the table
 *     base[model] child = w, new
 *
 * - An index is a node for ever: a moved file keeps its index, its written
 *   bytes, its open files and its inode number; a new file never gets an old
 *   index.
 * - A node has its own name only. Moving a directory changes nothing below it.
 *   Paths are made by walking up, and what a node of the checkpoint was called
 *   is still in the tree.
 * - Positions of readdir(3) stay: first the children in the tree, then child[],
 *   in which a removed entry stays as OFS_NONE. So a program may remove files of
 *   the directory that it is reading.
 * - A call that changes names first checks, then gets all memory (prepare),
 *   then appends its record to the journal, and then cannot fail. A change that
 *   was answered with an error is not in the journal.
 *
 * What an index stands for in the checkpoint can differ from what it was:
 * editors write a new file and rename it over the old one. A path decides
 * (ofs_overlay_stands_for): a made file at the path of an entry of the
 * checkpoint has new bytes of that entry. */

static const struct ofs_tree_node *base_of(const struct ofs_overlay *o,
    uint32_t index)
{
	return index < o->tree->n ? &o->tree->node[index] : NULL;
}

struct ofs_overlay_node *ofs_overlay_node(const struct ofs_overlay *o,
    uint32_t index)
{
	if (ofs_overlay_is_made(o, index))
		return o->made[index - o->first];
	return o->base[index];
}

struct ofs_overlay_node *ofs_overlay_touch(struct ofs_overlay *o,
    uint32_t index, struct optimfs_error *err)
{
	struct ofs_overlay_node *v = ofs_overlay_node(o, index);

	if (v != NULL)
		return v;
	v = ofs_alloc(1, sizeof(*v), err);
	if (v == NULL)
		return NULL;
	v->index = index;
	v->parent = OFS_NONE;
	v->dir = o->tree->node[index].entry == OFS_NONE;
	o->base[index] = v;
	return v;
}

bool ofs_overlay_is_dir(const struct ofs_overlay *o, uint32_t index)
{
	const struct ofs_tree_node *b = base_of(o, index);

	return b != NULL ? b->entry == OFS_NONE
			 : ofs_overlay_node(o, index)->dir;
}

/* Hash table of the names that differ from the checkpoint, by directory and
 * name. */

static uint32_t bucket_of(const struct ofs_overlay *o, uint32_t dir,
    const char *name)
{
	return (uint32_t)XXH64(name, strlen(name), dir) & (o->nbuckets - 1);
}

static int grow_buckets(struct ofs_overlay *o, struct optimfs_error *err)
{
	uint32_t n = o->nbuckets == 0 ? 64 : o->nbuckets * 2, old = o->nbuckets;
	struct ofs_overlay_node **was = o->bucket, **now;

	if (o->nplaced < o->nbuckets)
		return 0;
	now = calloc(n, sizeof(struct ofs_overlay_node *));
	if (now == NULL)
		return ofs_no_memory(err);
	o->bucket = now;
	o->nbuckets = n;
	for (uint32_t i = 0; i < old; i++)
		for (struct ofs_overlay_node *v = was[i], *next; v != NULL;
		     v = next) {
			uint32_t b = bucket_of(o, v->parent, v->name);

			next = v->next;
			v->next = o->bucket[b];
			o->bucket[b] = v;
		}
	free(was);
	return 0;
}

static struct ofs_overlay_node *placed(const struct ofs_overlay *o,
    uint32_t dir, const char *name)
{
	struct ofs_overlay_node *v;

	if (o->nbuckets == 0)
		return NULL;
	v = o->bucket[bucket_of(o, dir, name)];
	while (v != NULL && (v->parent != dir || strcmp(v->name, name) != 0))
		v = v->next;
	return v;
}

uint32_t ofs_overlay_find(const struct ofs_overlay *o, uint32_t dir,
    const char *name)
{
	const struct ofs_overlay_node *v = placed(o, dir, name);
	uint32_t index;

	if (v != NULL)
		return v->index;
	if (base_of(o, dir) == NULL)
		return OFS_NONE;
	index = ofs_tree_lookup(o->tree, dir, name);
	if (index == OFS_NONE)
		return OFS_NONE;
	v = o->base[index];
	return v != NULL && v->gone ? OFS_NONE : index;
}

int ofs_overlay_children(const struct ofs_overlay *o, uint32_t dir,
    uint64_t start, ofs_overlay_child_fn *each, void *ctx)
{
	const struct ofs_tree_node *b = base_of(o, dir);
	const struct ofs_overlay_node *v = ofs_overlay_node(o, dir);
	uint32_t nbase = b == NULL ? 0 : b->nchild;
	int ret = 0;

	for (uint64_t i = start; i < nbase && ret == 0; i++) {
		uint32_t child = b->child + (uint32_t)i;
		const struct ofs_overlay_node *c = o->base[child];

		if (c == NULL || !c->gone)
			ret = each(ctx, child, o->tree->node[child].name, i);
	}
	if (v == NULL)
		return ret;
	for (uint64_t i = start > nbase ? start - nbase : 0;
	     i < v->nchild && ret == 0; i++)
		if (v->child[i] != OFS_NONE)
			ret = each(ctx, v->child[i],
			    ofs_overlay_name(o, v->child[i]), nbase + i);
	return ret;
}

/* A prepared place: everything that can fail is done before the record is
 * written to the journal. */
struct place {
	struct ofs_overlay_node *dir;
	char *name;
};

static int prepare(struct ofs_overlay *o, uint32_t dir, const char *name,
    struct place *p, struct optimfs_error *err)
{
	p->name = NULL;
	p->dir = ofs_overlay_touch(o, dir, err);
	if (p->dir == NULL || grow_buckets(o, err) == -1)
		return -1;
	if (ofs_grow(p->dir->child, p->dir->nchild, p->dir->cap, err) == -1)
		return -1;
	p->name = strdup(name);
	return p->name == NULL ? ofs_no_memory(err) : 0;
}

static void put(struct ofs_overlay *o, struct ofs_overlay_node *v,
    struct place *p)
{
	uint32_t b;

	free(v->name);
	v->name = p->name;
	v->parent = p->dir->index;
	v->slot = p->dir->nchild;
	p->dir->child[p->dir->nchild++] = v->index;
	b = bucket_of(o, v->parent, v->name);
	v->next = o->bucket[b];
	o->bucket[b] = v;
	o->nplaced++;
}

/* Takes a node out of its directory. */
static void take(struct ofs_overlay *o, struct ofs_overlay_node *v)
{
	struct ofs_overlay_node **at, *dir;

	if (!ofs_overlay_is_made(o, v->index) && !v->gone) {
		v->gone = true;
		return;
	}
	if (v->parent == OFS_NONE)
		return;
	at = &o->bucket[bucket_of(o, v->parent, v->name)];
	while (*at != v)
		at = &(*at)->next;
	*at = v->next;
	o->nplaced--;
	dir = ofs_overlay_node(o, v->parent);
	dir->child[v->slot] = OFS_NONE;
	while (dir->nchild > 0 && dir->child[dir->nchild - 1] == OFS_NONE)
		dir->nchild--;
	v->parent = OFS_NONE;
}

int ofs_overlay_record_path(struct ofs_overlay *o, enum ofs_overlay_record type,
    uint32_t dir, const char *name, struct optimfs_error *err)
{
	char *path = ofs_overlay_path(o, dir, name, err);
	struct ofs_record r = { .type = (uint8_t)type, .a = path };
	int ret;

	if (path == NULL)
		return -1;
	ret = ofs_overlay_record(o, &r, err);
	free(path);
	return ret;
}

static struct ofs_overlay_node *new_node(struct ofs_overlay *o,
    struct optimfs_error *err)
{
	struct ofs_overlay_node *v;

	/* indexes stay below 2^31 */
	if (o->nmade >= UINT32_MAX / 2 - o->first) {
		optimfs_fail(err, ENOMEM, "too many new files");
		return NULL;
	}
	if (ofs_grow(o->made, o->nmade, o->cap, err) == -1)
		return NULL;
	v = ofs_alloc(1, sizeof(*v), err);
	if (v == NULL)
		return NULL;
	v->mtime_ns = ofs_now_ns();
	v->index = o->first + o->nmade;
	v->parent = OFS_NONE;
	return v;
}

int ofs_overlay_make(struct ofs_overlay *o, uint32_t dir, const char *name,
    bool is_dir, uint32_t *index, struct optimfs_error *err)
{
	struct ofs_overlay_node *v;
	struct place p;
	int ret;

	if (ofs_overlay_find(o, dir, name) != OFS_NONE)
		return optimfs_fail(err, EEXIST, "%s: it exists", name);
	ret = ofs_overlay_reveal(o, dir, name, is_dir, index, err);
	if (ret != 0)
		return ret == 1 ? 0 : -1;
	v = new_node(o, err);
	if (v == NULL)
		return -1;
	if (prepare(o, dir, name, &p, err) == -1 ||
	    ofs_overlay_record_path(o, is_dir ? OFS_REC_MKDIR : OFS_REC_CREATE,
		dir, name, err) == -1) {
		free(p.name);
		free(v);
		return -1;
	}
	v->dir = is_dir;
	/* unique, also if an older node had this path */
	v->ino = ofs_tree_ino(v->index, name);
	o->made[o->nmade++] = v;
	put(o, v, &p);
	*index = v->index;
	ofs_overlay_changed(o, true);
	return 0;
}

static int any_child(void *ctx, uint32_t child, const char *name,
    uint64_t position)
{
	(void)ctx, (void)child, (void)name, (void)position;
	return 1;
}

/* May the node be removed? */
static int removable(const struct ofs_overlay *o, uint32_t index, bool is_dir,
    const char *name, struct optimfs_error *err)
{
	bool dir = ofs_overlay_is_dir(o, index);

	if (dir && !is_dir)
		return optimfs_fail(err, EISDIR, "%s: a directory", name);
	if (!dir && is_dir)
		return optimfs_fail(err, ENOTDIR, "%s: not a directory", name);
	if (dir && ofs_overlay_children(o, index, 0, any_child, NULL) != 0)
		return optimfs_fail(err, ENOTEMPTY, "%s: not empty", name);
	return 0;
}

/* Frees the bytes of a removed file that is not open. */
static void let_go(struct ofs_overlay *o, struct ofs_overlay_node *v)
{
	if (v->file != NULL && v->file->opens == 0 &&
	    ofs_overlay_is_made(o, v->index))
		ofs_overlay_file_revert(o, v->file);
}

void ofs_overlay_drop(struct ofs_overlay *o, uint32_t index)
{
	struct ofs_overlay_node *v = ofs_overlay_node(o, index);

	take(o, v);
	let_go(o, v);
	ofs_overlay_changed(o, true);
}

int ofs_overlay_remove(struct ofs_overlay *o, uint32_t dir, const char *name,
    bool is_dir, struct optimfs_error *err)
{
	uint32_t index = ofs_overlay_find(o, dir, name);

	if (index == OFS_NONE)
		return optimfs_fail(err, ENOENT, "%s: no such name", name);
	if (removable(o, index, is_dir, name, err) == -1)
		return -1;
	if (ofs_overlay_touch(o, index, err) == NULL ||
	    ofs_overlay_record_path(o, OFS_REC_REMOVE, dir, name, err) == -1)
		return -1;
	ofs_overlay_drop(o, index);
	return 0;
}

static bool is_below(const struct ofs_overlay *o, uint32_t index, uint32_t dir)
{
	for (; index != 0 && index != OFS_NONE;
	     index = ofs_overlay_parent(o, index))
		if (index == dir)
			return true;
	return dir == 0;
}

int ofs_overlay_record_rename(struct ofs_overlay *o, uint32_t dir,
    const char *name, uint32_t to, const char *newname,
    struct optimfs_error *err)
{
	char *from = ofs_overlay_path(o, dir, name, err);
	char *there = ofs_overlay_path(o, to, newname, err);
	struct ofs_record r = { .type = OFS_REC_RENAME, .a = from, .b = there };
	int ret = -1;

	if (from != NULL && there != NULL) {
		r.nb = strlen(there);
		ret = ofs_overlay_record(o, &r, err);
	}
	free(from);
	free(there);
	return ret;
}

/* A file that is renamed to a text must be valid there; one that is renamed to a
 * tensor must have its form if that cannot change. */
static int fits_there(struct ofs_overlay *o, uint32_t index, uint32_t to,
    const char *newname, struct optimfs_error *err)
{
	char *path = ofs_overlay_path(o, to, newname, err);
	uint32_t base = path == NULL ? OFS_NONE : ofs_overlay_base_at(o, path);
	struct ofs_overlay_file *f = ofs_overlay_file(o, index);
	struct ofs_blob *text;
	int ret;

	free(path);
	if (path == NULL)
		return -1;
	if (base == OFS_NONE || f == NULL || !ofs_overlay_is_made(o, index))
		return 0;
	if (o->hidden == NULL && ofs_overlay_keeps_form(o, base))
		return ofs_overlay_fits(o, f, base, err);
	if (o->tree->node[base].entry == OFS_NONE ||
	    !ofs_entry_is_text(o->cat, o->tree->node[base].entry) ||
	    f->dtype != OFS_DTYPE_NONE)
		return 0;
	pthread_rwlock_wrlock(&f->lock);
	text = ofs_overlay_text_now(o, f, err);
	pthread_rwlock_unlock(&f->lock);
	if (text == NULL)
		return -1;
	ret = ofs_overlay_text_check(o, base, (const char *)text->bytes,
	    text->len, NULL, NULL, err);
	ofs_blob_unref(text);
	return ret;
}

/* Checks before a rename; *over gets the node that would be replaced. */
static int may_rename(struct ofs_overlay *o, uint32_t index, uint32_t to,
    const char *newname, bool replace, uint32_t *over,
    struct optimfs_error *err)
{
	bool dir = ofs_overlay_is_dir(o, index);

	*over = ofs_overlay_find(o, to, newname);
	if (*over == index)
		return 0;
	if (dir && is_below(o, to, index))
		return optimfs_fail(err, EINVAL, "%s: into itself", newname);
	if (*over != OFS_NONE && !replace)
		return optimfs_fail(err, EEXIST, "%s: it exists", newname);
	if (*over != OFS_NONE && removable(o, *over, dir, newname, err) == -1)
		return -1;
	if (dir || o->replaying)
		return 0;
	return fits_there(o, index, to, newname, err);
}

/* A made file, written and closed, replaces a text of the checkpoint: it is that
 * text with other words, so that what is written to it later is checked like
 * what was written to it before. */
static bool is_new_text(const struct ofs_overlay *o, uint32_t index,
    uint32_t over)
{
	const struct ofs_overlay_file *f = ofs_overlay_file(o, index);
	const struct ofs_overlay_node *v;

	if (o->replaying || f == NULL || over == OFS_NONE ||
	    !ofs_overlay_is_made(o, index) || ofs_overlay_is_made(o, over))
		return false;
	v = ofs_overlay_node(o, over);
	return f->dtype == OFS_DTYPE_NONE && f->writers == 0 &&
	    (v == NULL || !v->gone) &&
	    ofs_entry_is_text(o->cat, o->tree->node[over].entry);
}

static int take_text(struct ofs_overlay *o, uint32_t index, uint32_t over,
    struct optimfs_error *err)
{
	struct ofs_overlay_file *from = ofs_overlay_file_touch(o, index, err);
	struct ofs_overlay_file *to = ofs_overlay_file_touch(o, over, err);

	if (from == NULL || to == NULL ||
	    ofs_overlay_text_take(o, from, to, over, err) == -1)
		return -1;
	return ofs_overlay_remove(o, ofs_overlay_parent(o, index),
	    ofs_overlay_name(o, index), false, err);
}

int ofs_overlay_rename(struct ofs_overlay *o, uint32_t dir, const char *name,
    uint32_t to, const char *newname, bool replace, struct optimfs_error *err)
{
	uint32_t index = ofs_overlay_find(o, dir, name), over;
	struct ofs_overlay_node *v, *old = NULL;
	struct place p = { NULL, NULL };
	bool in_params;
	int ret;

	if (index == OFS_NONE)
		return optimfs_fail(err, ENOENT, "%s: no such name", name);
	if (may_rename(o, index, to, newname, replace, &over, err) == -1)
		return -1;
	if (over == index)
		return 0;
	ret = ofs_overlay_rename_over(o, index, to, newname, err);
	if (ret != 0)
		return ret == 1 ? 0 : -1;
	if (is_new_text(o, index, over))
		return take_text(o, index, over, err);
	in_params = dir == to && over == OFS_NONE;
	v = ofs_overlay_touch(o, index, err);
	if (over != OFS_NONE)
		old = ofs_overlay_touch(o, over, err);
	if (v == NULL || (over != OFS_NONE && old == NULL))
		return -1;
	if ((in_params &&
		ofs_overlay_rename_params(o, index, name, newname, err) ==
		    -1) ||
	    prepare(o, to, newname, &p, err) == -1 ||
	    ofs_overlay_record_rename(o, dir, name, to, newname, err) == -1) {
		if (in_params)
			ofs_overlay_rename_params(o, index, newname, name,
			    NULL);
		free(p.name);
		return -1;
	}
	if (old != NULL) {
		take(o, old);
		let_go(o, old);
	}
	take(o, v);
	put(o, v, &p);
	ofs_overlay_changed(o, true);
	return 0;
}
