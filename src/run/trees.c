/* trees.c - the opened checkpoints of a run, and the numbers of their nodes */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "run/trees.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

#include "base/error.h"
#include "base/memory.h"
#include "fs/fs.h"

struct ofs_run_tree {
	const struct ofs_run_source *source;
	const char *name;
	uint64_t ino; /* distinguishes its inode numbers */
	struct optimfs *fs;
	bool opening;
	/* When it was opened last, or could not be: */
	bool tried;
	uint64_t version; /* of the source */
	uint64_t files;   /* hash of the files it was read from */
	struct optimfs_error failed;

	uint32_t epoch; /* counts changes of files */
	uint32_t opens;
	uint64_t used;
};

/* A space of a tree: in space 0 of a tree are its directories and files. */
struct ofs_run_space {
	uint32_t tree, epoch;
	uint32_t inner;   /* its number in the opened tree */
	uint32_t opens;   /* of a view: in which opening it has that number */
	const char *view; /* its name; NULL: no view */
};

void ofs_run_trees_init(struct ofs_run_trees *t, struct ofs_run_dir *run,
    uint32_t limit)
{
	*t = (struct ofs_run_trees){ .run = run, .limit = limit };
	pthread_mutex_init(&t->lock, NULL);
	pthread_cond_init(&t->opened, NULL);
}

void ofs_run_trees_fini(struct ofs_run_trees *t)
{
	for (uint32_t i = 0; i < t->names.n; i++) {
		optimfs_close(t->v[i]->fs);
		free(t->v[i]);
	}
	free(t->v);
	free(t->space);
	ofs_keys_fini(&t->names);
	ofs_keys_fini(&t->spaces);
	pthread_cond_destroy(&t->opened);
	pthread_mutex_destroy(&t->lock);
}

static uint32_t add_tree(struct ofs_run_trees *t,
    const struct ofs_run_source *source, const char *name,
    struct optimfs_error *err)
{
	size_t n = strlen(name);
	char key[sizeof(source) + OFS_NAME_MAX];
	uint32_t i = t->names.n, found;

	if (n > OFS_NAME_MAX) {
		optimfs_fail(err, ENAMETOOLONG, "%.80s...: too long", name);
		return OFS_NONE;
	}
	memcpy(key, &source, sizeof(source));
	memcpy(key + sizeof(source), name, n);
	found = ofs_keys_find(&t->names, key, sizeof(source) + n);
	if (found != OFS_NONE)
		return found;
	if (ofs_grow(t->v, i, t->cap, err) == -1)
		return OFS_NONE;
	t->v[i] = ofs_alloc(1, sizeof(*t->v[i]), err);
	if (t->v[i] == NULL)
		return OFS_NONE;
	if (ofs_keys_copy(&t->names, key, sizeof(source) + n, err) ==
	    OFS_NONE) {
		free(t->v[i]);
		return OFS_NONE;
	}
	*t->v[i] = (struct ofs_run_tree){
		.source = source,
		.name = t->names.v[i].p + sizeof(source),
		.ino = XXH64(name, n, 0),
	};
	return i;
}

uint32_t ofs_run_tree(struct ofs_run_trees *t,
    const struct ofs_run_source *source, const char *name,
    struct optimfs_error *err)
{
	uint32_t tree;

	pthread_mutex_lock(&t->lock);
	tree = add_tree(t, source, name, err);
	pthread_mutex_unlock(&t->lock);
	return tree;
}

/* Opening and dropping. */

/* What the checkpoint was read from. */
static uint64_t hash_files(const struct optimfs *fs)
{
	return ofs_catalog_identity(fs->now->cat).hash[0];
}

/* Closes the tree that nobody has used for longest, if one is unused. Returns
 * it, for optimfs_close without the lock. */
static struct optimfs *drop_oldest(struct ofs_run_trees *t)
{
	struct ofs_run_tree *oldest = NULL;
	struct optimfs *fs;

	for (uint32_t i = 0; t->nopen > t->limit && i < t->names.n; i++) {
		struct ofs_run_tree *r = t->v[i];

		if (r->fs != NULL && atomic_load(&r->fs->refs) == 1 &&
		    (oldest == NULL || r->used < oldest->used))
			oldest = r;
	}
	if (oldest == NULL)
		return NULL;
	fs = oldest->fs;
	oldest->fs = NULL;
	t->nopen--;
	return fs;
}

/* Takes over fs, NULL: why says the reason. Returns what to close. */
static struct optimfs *keep(struct ofs_run_trees *t, struct ofs_run_tree *r,
    struct optimfs *fs, const struct optimfs_error *why, uint64_t version)
{
	struct optimfs *old = r->fs;
	uint64_t files = fs == NULL ? 0 : hash_files(fs);

	if (r->tried && files != r->files)
		r->epoch++;
	t->nopen += (fs != NULL) - (old != NULL);
	r->fs = fs;
	r->files = files;
	r->version = version;
	r->tried = true;
	r->opens++;
	if (fs == NULL)
		r->failed = *why;
	return old;
}

/* Opens r, without the lock in between. */
static void open_tree(struct ofs_run_trees *t, struct ofs_run_tree *r,
    uint64_t version)
{
	struct optimfs_error why = { 0 };
	struct optimfs *fs, *old, *dropped;

	r->opening = true;
	pthread_mutex_unlock(&t->lock);
	fs = r->source->open(t->run, r->name, &why);
	pthread_mutex_lock(&t->lock);
	old = keep(t, r, fs, &why, version);
	r->used = ++t->clock;
	if (fs != NULL)
		ofs_fs_ref(fs); /* not the one to be dropped */
	dropped = drop_oldest(t);
	pthread_mutex_unlock(&t->lock);
	optimfs_close(fs);
	optimfs_close(old);
	optimfs_close(dropped);
	pthread_mutex_lock(&t->lock);
	r->opening = false;
	pthread_cond_broadcast(&t->opened);
}

/* A reference to what r shows. The lock is held, but not all the time. */
static struct optimfs *enter_tree(struct ofs_run_trees *t,
    struct ofs_run_tree *r, struct optimfs_error *err)
{
	uint64_t version = r->source->version(t->run, r->name);

	while (r->opening)
		pthread_cond_wait(&t->opened, &t->lock);
	if (!r->tried || r->version != version ||
	    (r->fs == NULL && r->failed.code == 0))
		open_tree(t, r, version);
	r->used = ++t->clock;
	if (r->fs != NULL)
		return ofs_fs_ref(r->fs);
	if (r->failed.code != 0)
		optimfs_fail_with(err, &r->failed);
	else
		optimfs_fail(err, ESTALE, "%s was closed meanwhile", r->name);
	return NULL;
}

struct optimfs *ofs_run_tree_open(struct ofs_run_trees *t, uint32_t tree,
    struct optimfs_error *err)
{
	struct optimfs *fs;

	pthread_mutex_lock(&t->lock);
	fs = enter_tree(t, t->v[tree], err);
	pthread_mutex_unlock(&t->lock);
	return fs;
}

int ofs_run_tree_path(struct ofs_run_trees *t, uint32_t tree, char **path,
    struct optimfs_error *err)
{
	const struct ofs_run_tree *r;

	pthread_mutex_lock(&t->lock);
	r = t->v[tree];
	pthread_mutex_unlock(&t->lock);
	*path = NULL;
	if (r->source->path == NULL)
		return 0;
	*path = r->source->path(t->run, r->name, err);
	return *path == NULL ? -1 : 0;
}

uint32_t ofs_run_nopen(struct ofs_run_trees *t)
{
	uint32_t n;

	pthread_mutex_lock(&t->lock);
	n = t->nopen;
	pthread_mutex_unlock(&t->lock);
	return n;
}

/* Node numbers. */

static bool is_view(uint64_t node)
{
	return node >> 32 >= OFS_SPACE_VIEW;
}

/* The number of a space of the tree at at, from 1 on; 0: ENOMEM. view NULL:
 * inner is no view. */
static uint32_t number_space(struct ofs_run_trees *t,
    const struct ofs_run_at *at, uint32_t inner, const char *view,
    struct optimfs_error *err)
{
	size_t n = view == NULL ? 0 : strlen(view);
	const uint32_t head[] = { at->tree, at->epoch,
		view == NULL ? inner : OFS_SPACE_VIEW };
	char key[sizeof(head) + OFS_NAME_MAX];
	uint32_t i = t->spaces.n, found;

	if (n > OFS_NAME_MAX)
		return 0; /* views have shorter names */
	memcpy(key, head, sizeof(head));
	memcpy(key + sizeof(head), view == NULL ? "" : view, n);
	if (ofs_grow(t->space, i, t->space_cap, err) == -1)
		return 0;
	found = ofs_keys_copy(&t->spaces, key, sizeof(head) + n, err);
	if (found == OFS_NONE)
		return 0;
	if (found == i)
		t->space[i] = (struct ofs_run_space){
			.tree = at->tree,
			.epoch = at->epoch,
			.view = view == NULL ? NULL
					     : t->spaces.v[i].p + sizeof(head),
		};
	t->space[found].inner = inner;
	t->space[found].opens = at->opens;
	return found + 1;
}

int ofs_run_tree_attr(struct ofs_run_trees *t, uint32_t tree,
    struct optimfs_attr *attr, struct optimfs_error *err)
{
	struct ofs_run_at at = { .tree = tree };
	const struct ofs_run_tree *r;
	uint32_t space;

	pthread_mutex_lock(&t->lock);
	r = t->v[tree];
	at.epoch = r->epoch;
	space = number_space(t, &at, OFS_SPACE_TREE, NULL, err);
	pthread_mutex_unlock(&t->lock);
	if (space == 0)
		return -1;
	*attr = (struct optimfs_attr){
		.node = (uint64_t)space << 32 | OPTIMFS_ROOT,
		.ino = ofs_run_ino(t, tree, OPTIMFS_ROOT),
		.nlink = 1,
		.exact = true,
		.changes = true,
		.moves = true,
	};
	return r->source->attr(t->run, r->name, attr, err);
}

/* Finds the view again in a tree that was opened again. */
static int find_view(struct ofs_run_trees *t, uint32_t space,
    struct optimfs *fs, struct optimfs_error *err)
{
	struct optimfs_attr attr;
	char path[OFS_VIEW_NAME + 32];

	snprintf(path, sizeof(path), ".optimfs/view/%s", t->space[space].view);
	pthread_mutex_unlock(&t->lock);
	if (optimfs_resolve(fs, path, &attr, err) == -1)
		attr.node = 0;
	pthread_mutex_lock(&t->lock);
	if (attr.node == 0)
		return -1;
	t->space[space].inner = (uint32_t)(attr.node >> 32);
	t->space[space].opens = t->v[t->space[space].tree]->opens;
	return 0;
}

/* Other files have the path of the tree now. Its root is still its root. */
static int enter_new(struct ofs_run_trees *t, struct ofs_run_at *at,
    struct optimfs_error *err)
{
	if (at->node != OPTIMFS_ROOT)
		return optimfs_fail(err, ESTALE,
		    "the checkpoint %s was replaced by another",
		    t->v[at->tree]->name);
	at->space = number_space(t, at, OFS_SPACE_TREE, NULL, err);
	return at->space == 0 ? -1 : 0;
}

static int enter(struct ofs_run_trees *t, uint64_t node, bool whole,
    struct ofs_run_at *at, struct optimfs_error *err)
{
	uint32_t i = (uint32_t)(node >> 32) - 1;
	struct ofs_run_tree *r;

	if (node >> 32 == 0 || node >> 32 > t->spaces.n)
		return optimfs_fail(err, ENOENT, "no such node");
	*at = (struct ofs_run_at){ .tree = t->space[i].tree, .space = i + 1 };
	r = t->v[at->tree];
	at->node = (uint64_t)t->space[i].inner << 32 | (uint32_t)node;
	if (at->node == OPTIMFS_ROOT && !whole)
		return 0;
	at->fs = enter_tree(t, r, err);
	if (at->fs == NULL)
		return -1;
	at->epoch = r->epoch;
	at->opens = r->opens;
	if (t->space[i].epoch != r->epoch)
		return enter_new(t, at, err);
	if (t->space[i].view != NULL && t->space[i].opens != r->opens &&
	    find_view(t, i, at->fs, err) == -1)
		return -1;
	at->node = (uint64_t)t->space[i].inner << 32 | (uint32_t)node;
	return 0;
}

int ofs_run_enter(struct ofs_run_trees *t, uint64_t node, bool whole,
    struct ofs_run_at *at, struct optimfs_error *err)
{
	int ret;

	at->fs = NULL;
	pthread_mutex_lock(&t->lock);
	ret = enter(t, node, whole, at, err);
	pthread_mutex_unlock(&t->lock);
	if (ret == -1)
		ofs_run_leave(at);
	return ret;
}

void ofs_run_leave(struct ofs_run_at *at)
{
	optimfs_close(at->fs);
	at->fs = NULL;
}

uint64_t ofs_run_node(struct ofs_run_trees *t, const struct ofs_run_at *at,
    uint64_t node, const char *name, struct optimfs_error *err)
{
	uint32_t space = at->space;

	if (node >> 32 != at->node >> 32) {
		pthread_mutex_lock(&t->lock);
		space = number_space(t, at, (uint32_t)(node >> 32),
		    is_view(node) ? name : NULL, err);
		pthread_mutex_unlock(&t->lock);
	}
	return space == 0 ? 0 : (uint64_t)space << 32 | (uint32_t)node;
}

uint64_t ofs_run_ino(struct ofs_run_trees *t, uint32_t tree, uint64_t ino)
{
	uint64_t pair[2] = { 0, ino }, mixed;

	pthread_mutex_lock(&t->lock);
	pair[0] = t->v[tree]->ino;
	pthread_mutex_unlock(&t->lock);
	mixed = XXH64(pair, sizeof(pair), 0);
	return mixed <= 1 ? mixed + 2 : mixed;
}
