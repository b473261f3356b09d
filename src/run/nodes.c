/* nodes.c - the calls on the nodes of a run */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

#include "base/blob.h"
#include "base/error.h"
#include "base/memory.h"
#include "run/places.h"
#include "run/run.h"

/* The nodes of the run itself. Those of its trees are in trees.h; their numbers
 * are above UINT32_MAX. */
enum own {
	OWN_ROOT = OPTIMFS_ROOT,
	OWN_META, /* .optimfs */
	OWN_FIRST,
	OWN_LATEST,
	OWN_FILES = 16, /* in .optimfs: files.c */
	OWN_PLACES = 64,
	OWN_LINKS = 1 << 16, /* in by-name/, for each member */
};

static const char meta[] = ".optimfs";
/* Links that are followed in one path. There are no chains. */
#define LINKS_MAX 8

static bool is_own(uint64_t node)
{
	return node >> 32 == 0;
}

static bool is_file(uint64_t node)
{
	return node >= OWN_FILES && node < OWN_FILES + ofs_run_nfiles;
}

static bool is_place(uint64_t node)
{
	return node >= OWN_PLACES && node < OWN_PLACES + ofs_run_nplaces;
}

static bool is_link(uint64_t node)
{
	return node == OWN_FIRST || node == OWN_LATEST || node >= OWN_LINKS;
}

static uint64_t own_ino(uint64_t node)
{
	uint64_t ino;

	if (node == OWN_ROOT)
		return OPTIMFS_ROOT;
	ino = XXH64(&node, sizeof(node), 1);
	return ino <= 1 ? ino + 2 : ino;
}

/* What a link of the run points to, relative to its directory. */
static char *link_target(struct ofs_run_dir *run, uint64_t node,
    struct optimfs_error *err)
{
	char *below, *target = NULL;
	uint32_t i;

	if (node < OWN_LINKS) {
		i = ofs_run_end(run, node == OWN_LATEST, err);
		return i == OFS_NONE ? NULL : ofs_run_link(run, i, err);
	}
	below = ofs_run_link(run, (uint32_t)node - OWN_LINKS, err);
	if (below == NULL)
		return NULL;
	if (asprintf(&target, "../%s", below) == -1) {
		target = NULL;
		ofs_no_memory(err);
	}
	free(below);
	return target;
}

static int own_file(struct ofs_run_dir *run, uint64_t node, struct ofs_buf *out,
    struct optimfs_error *err)
{
	ofs_run_files[node - OWN_FILES].text(run, out);
	return out->bad ? ofs_no_memory(err) : 0;
}

/* Attributes of the run's own nodes. All of them may change with the
 * directory. */
static int own_attr(struct ofs_run_dir *run, uint64_t node,
    struct optimfs_attr *attr, struct optimfs_error *err)
{
	bool dir = node == OWN_ROOT || node == OWN_META || is_place(node);
	struct ofs_buf text = { 0 };
	char *target;

	*attr = (struct optimfs_attr){
		.node = node,
		.ino = own_ino(node),
		.mtime_ns = run->members.stamp[0].mtime_ns,
		.nlink = 1,
		.exact = true,
		.changes = true,
		.moves = true,
	};
	ofs_snapshot_access(run->fs->now, dir, attr);
	if (dir)
		return 0;
	if (is_file(node)) {
		if (own_file(run, node, &text, err) == -1)
			return -1;
		attr->size = text.len;
		attr->exact = false;
		ofs_buf_fini(&text);
		return 0;
	}
	if (!is_link(node))
		return optimfs_fail(err, ENOENT, "no such node");
	target = link_target(run, node, err);
	if (target == NULL)
		return -1;
	attr->mode = S_IFLNK | 0777;
	attr->size = strlen(target);
	free(target);
	return 0;
}

static int getattr(struct optimfs *fs, uint64_t node, struct optimfs_attr *attr,
    struct optimfs_error *err)
{
	struct ofs_run_trees *t = &fs->run->trees;
	struct ofs_run_at at;
	int ret;

	if (is_own(node))
		return own_attr(fs->run, node, attr, err);
	if (ofs_run_enter(t, node, false, &at, err) == -1)
		return -1;
	if (at.fs == NULL)
		return ofs_run_tree_attr(t, at.tree, attr, err);
	ret = optimfs_getattr(at.fs, at.node, attr, err);
	attr->node = node;
	attr->ino = ofs_run_ino(t, at.tree, attr->ino);
	ofs_run_leave(&at);
	return ret;
}

/* The attributes of what a place has under a name. */
static int found_attr(struct ofs_run_dir *run,
    const struct ofs_run_found *found, struct optimfs_attr *attr,
    struct optimfs_error *err)
{
	return found->link != OFS_NONE
	    ? own_attr(run, OWN_LINKS + found->link, attr, err)
	    : ofs_run_tree_attr(&run->trees, found->tree, attr, err);
}

/* The node of a name in the root, or in .optimfs; 0: none. */
static uint64_t find_own(uint64_t dir, const char *name)
{
	for (uint32_t i = 0; dir == OWN_META && i < ofs_run_nfiles; i++)
		if (strcmp(name, ofs_run_files[i].name) == 0)
			return OWN_FILES + i;
	for (uint32_t i = 0; dir == OWN_ROOT && i < ofs_run_nplaces; i++)
		if (strcmp(name, ofs_run_places[i]->name) == 0)
			return OWN_PLACES + i;
	if (dir != OWN_ROOT)
		return 0;
	return strcmp(name, meta) == 0    ? OWN_META
	    : strcmp(name, "first") == 0  ? OWN_FIRST
	    : strcmp(name, "latest") == 0 ? OWN_LATEST
					  : 0;
}

static int own_lookup(struct ofs_run_dir *run, uint64_t dir, const char *name,
    struct optimfs_attr *attr, struct optimfs_error *err)
{
	struct ofs_run_found found;
	uint64_t node;
	int ret;

	if (is_place(dir)) {
		ret = ofs_run_places[dir - OWN_PLACES]->find(run, name, &found,
		    err);
		return ret == 1 ? found_attr(run, &found, attr, err) : -1;
	}
	if (dir != OWN_ROOT && dir != OWN_META)
		return optimfs_fail(err, ENOTDIR, "%s: not in a directory",
		    name);
	node = find_own(dir, name);
	return node == 0 ? optimfs_fail(err, ENOENT, "%s: no such name", name)
			 : own_attr(run, node, attr, err);
}

/* From the root of a tree on, names are those of the tree. */
static int lookup(struct optimfs *fs, uint64_t dir, const char *name,
    struct optimfs_attr *attr, struct optimfs_error *err)
{
	struct ofs_run_trees *t = &fs->run->trees;
	struct ofs_run_at at;
	int ret;

	err = OFS_SOME_ERROR(err);
	if (is_own(dir))
		return own_lookup(fs->run, dir, name, attr, err);
	if (ofs_run_enter(t, dir, true, &at, err) == -1)
		return -1;
	ret = optimfs_lookup(at.fs, at.node, name, attr, err);
	if (ret == 0) {
		attr->ino = ofs_run_ino(t, at.tree, attr->ino);
		attr->node = ofs_run_node(t, &at, attr->node, name, err);
		ret = attr->node == 0 ? -1 : 0;
	}
	ofs_run_leave(&at);
	return ret;
}

/* Replaces path by the target of the link at node, and rest behind it. */
static int follow(struct ofs_run_dir *run, uint64_t node, const char *rest,
    char *path, size_t size, struct optimfs_error *err)
{
	char *target = link_target(run, node, err);
	const char *below;
	int n;

	if (target == NULL)
		return -1;
	below = strncmp(target, "../", 3) == 0 ? target + 3 : target;
	n = snprintf(path, size, "%s/%s", below, rest);
	free(target);
	return n < 0 || (size_t)n >= size
	    ? optimfs_fail(err, ENAMETOOLONG, "%.80s...: too long", rest)
	    : 0;
}

/* Looks up one component after the other, from the root, until the first link,
 * by whose target it is replaced: 1; 0: there is none, *attr is set; -1. */
static int walk(struct optimfs *fs, char *path, size_t size,
    struct optimfs_attr *attr, struct optimfs_error *err)
{
	char name[OFS_NAME_MAX + 1], rest[PATH_MAX];

	if (getattr(fs, OWN_ROOT, attr, err) == -1)
		return -1;
	for (const char *p = path + strspn(path, "/"); *p != '\0';) {
		size_t n = strcspn(p, "/");

		if (!S_ISDIR(attr->mode))
			return optimfs_fail(err, ENOTDIR,
			    "%s: a part of it is no directory", path);
		if (n >= sizeof(name))
			return optimfs_fail(err, ENAMETOOLONG,
			    "%s: a part of it is too long", path);
		memcpy(name, p, n);
		name[n] = '\0';
		p += n + strspn(p + n, "/");
		if (strcmp(name, ".") == 0)
			continue;
		if (lookup(fs, attr->node, name, attr, err) == -1)
			return -1;
		if (!S_ISLNK(attr->mode))
			continue;
		snprintf(rest, sizeof(rest), "%s", p);
		return follow(fs->run, attr->node, rest, path, size, err) == -1
		    ? -1
		    : 1;
	}
	return 0;
}

static int resolve(struct optimfs *fs, const char *path,
    struct optimfs_attr *attr, struct optimfs_error *err)
{
	char now[PATH_MAX];
	int ret = 1;

	err = OFS_SOME_ERROR(err);
	if ((size_t)snprintf(now, sizeof(now), "%s", path) >= sizeof(now))
		return optimfs_fail(err, ENAMETOOLONG, "%.80s...: too long",
		    path);
	for (int i = 0; i < LINKS_MAX && ret == 1; i++)
		ret = walk(fs, now, sizeof(now), attr, err);
	return ret == 1 ? optimfs_fail(err, ELOOP, "%s", path) : ret;
}

/* Listing. */

struct run_listing {
	struct ofs_run_dir *run;
	struct ofs_run_at at; /* the directory in a tree */
	bool want_attr;
	optimfs_dirent_fn *each;
	void *ctx;
	struct optimfs_error *err;
	bool failed;
};

static int give(struct run_listing *l, const char *name,
    const struct optimfs_attr *attr, uint64_t position)
{
	const struct optimfs_dirent entry = {
		.name = name,
		.ino = attr->ino,
		.mode = attr->mode & S_IFMT,
		.attr = l->want_attr ? attr : NULL,
		.position = position,
	};

	return l->each(l->ctx, &entry);
}

/* What disappears meanwhile is left out. */
static int give_found(void *ctx, const char *name,
    const struct ofs_run_found *found, uint64_t position)
{
	struct run_listing *l = ctx;
	struct optimfs_attr attr;

	if (found_attr(l->run, found, &attr, l->err) == -1) {
		l->failed = l->err->code == ENOMEM;
		return l->failed;
	}
	return give(l, name, &attr, position);
}

static int give_own(struct run_listing *l, uint64_t dir, const char *name,
    uint64_t position)
{
	struct optimfs_attr attr;

	if (own_attr(l->run, find_own(dir, name), &attr, l->err) == -1) {
		l->failed = l->err->code == ENOMEM;
		return l->failed;
	}
	return give(l, name, &attr, position);
}

/* The root: places, and the links between them by name. */
static int list_root(struct run_listing *l, uint64_t start)
{
	static const char *const links[] = { "first", "latest" };
	uint32_t place = 0, link = 0;
	int ret = 0;

	for (uint64_t i = 0; i < ofs_run_nplaces + 2 && ret == 0; i++) {
		const char *name;

		if (place == ofs_run_nplaces ||
		    (link < 2 &&
			strcmp(links[link], ofs_run_places[place]->name) < 0))
			name = links[link++];
		else
			name = ofs_run_places[place++]->name;
		if (i >= start)
			ret = give_own(l, OWN_ROOT, name, i);
	}
	return ret;
}

static int list_own(struct run_listing *l, uint64_t dir, uint64_t start)
{
	const struct ofs_run_place *place;
	int ret = 0;

	if (dir == OWN_ROOT)
		return list_root(l, start);
	if (is_place(dir)) {
		place = ofs_run_places[dir - OWN_PLACES];
		return place->list == NULL
		    ? 0
		    : place->list(l->run, start, give_found, l, l->err);
	}
	if (dir != OWN_META)
		return optimfs_fail(l->err, ENOTDIR, "not a directory");
	for (uint64_t i = start; i < ofs_run_nfiles && ret == 0; i++)
		ret = give_own(l, dir, ofs_run_files[i].name, i);
	return ret;
}

/* An entry of a directory in a tree, under the numbers of the run. */
static int pass_on(void *ctx, const struct optimfs_dirent *d)
{
	struct run_listing *l = ctx;
	struct optimfs_dirent entry = *d;
	struct optimfs_attr attr;

	entry.ino = ofs_run_ino(&l->run->trees, l->at.tree, d->ino);
	if (d->attr != NULL) {
		attr = *d->attr;
		attr.ino = entry.ino;
		attr.node = ofs_run_node(&l->run->trees, &l->at, d->attr->node,
		    d->name, l->err);
		entry.attr = &attr;
		l->failed = attr.node == 0;
	}
	return l->failed ? 1 : l->each(l->ctx, &entry);
}

static int readdir(struct optimfs *fs, uint64_t dir, uint64_t start,
    bool want_attr, optimfs_dirent_fn *each, void *ctx,
    struct optimfs_error *err)
{
	struct run_listing l = { .run = fs->run,
		.want_attr = want_attr,
		.each = each,
		.ctx = ctx,
		.err = OFS_SOME_ERROR(err) };
	int ret;

	if (is_own(dir))
		return list_own(&l, dir, start) == -1 || l.failed ? -1 : 0;
	if (ofs_run_enter(&fs->run->trees, dir, true, &l.at, l.err) == -1)
		return -1;
	ret = optimfs_readdir(l.at.fs, l.at.node, start, want_attr, pass_on, &l,
	    l.err);
	ofs_run_leave(&l.at);
	return l.failed ? -1 : ret;
}

/* Files, links, attributes. */

static int read_link(struct optimfs *fs, uint64_t node, char **target,
    struct optimfs_error *err)
{
	if (!is_own(node) || !is_link(node))
		return optimfs_fail(err, EINVAL, "not a symbolic link");
	*target = link_target(fs->run, node, err);
	return *target == NULL ? -1 : 0;
}

static int open_own(struct ofs_run_dir *run, uint64_t node,
    struct optimfs_file **file, struct optimfs_error *err)
{
	struct ofs_buf text = { 0 };
	struct optimfs_file *f;

	if (!is_file(node))
		return optimfs_fail(err, is_link(node) ? ELOOP : EISDIR,
		    "not a file");
	if (own_file(run, node, &text, err) == -1)
		return -1;
	f = ofs_file_new(run->fs->now, (struct ofs_at){ 0, 0 }, err);
	if (f != NULL)
		f->blob = ofs_blob_of(&text, err);
	ofs_buf_fini(&text);
	if (f == NULL || f->blob == NULL) {
		optimfs_file_close(f);
		return -1;
	}
	f->size = f->blob->len;
	*file = f;
	return 0;
}

/* The file has the reference to its checkpoint. */
static int open_file(struct optimfs *fs, uint64_t node,
    struct optimfs_file **file, struct optimfs_error *err)
{
	struct ofs_run_at at;
	int ret;

	if (is_own(node))
		return open_own(fs->run, node, file, err);
	if (ofs_run_enter(&fs->run->trees, node, true, &at, err) == -1)
		return -1;
	ret = optimfs_file_open(at.fs, at.node, file, err);
	if (ret == 0)
		(*file)->holds = true;
	else
		ofs_run_leave(&at);
	return ret;
}

static bool access_changed(struct optimfs *fs, uint64_t node)
{
	struct ofs_run_at at;
	bool changed;

	if (is_own(node))
		return ofs_snapshot_access_changed(fs->now);
	if (ofs_run_enter(&fs->run->trees, node, false, &at, NULL) == -1 ||
	    at.fs == NULL)
		return false; /* nothing of it is open */
	changed = optimfs_access_changed(at.fs, at.node);
	ofs_run_leave(&at);
	return changed;
}

static int getxattr(struct optimfs *fs, uint64_t node, const char *name,
    char **value, size_t *len, struct optimfs_error *err)
{
	struct ofs_run_at at = { .fs = NULL };
	int ret;

	if (!is_own(node) &&
	    ofs_run_enter(&fs->run->trees, node, false, &at, err) == -1)
		return -1;
	if (at.fs == NULL)
		return optimfs_fail(err, ENODATA, "no attribute %s", name);
	ret = optimfs_getxattr(at.fs, at.node, name, value, len, err);
	ofs_run_leave(&at);
	return ret;
}

static int listxattr(struct optimfs *fs, uint64_t node, char **names,
    size_t *len, struct optimfs_error *err)
{
	struct ofs_run_at at = { .fs = NULL };
	int ret;

	if (!is_own(node) &&
	    ofs_run_enter(&fs->run->trees, node, false, &at, err) == -1)
		return -1;
	if (at.fs == NULL) {
		*len = 0;
		*names = ofs_alloc(1, 1, err);
		return *names == NULL ? -1 : 0;
	}
	ret = optimfs_listxattr(at.fs, at.node, names, len, err);
	ofs_run_leave(&at);
	return ret;
}

static void close_run(struct optimfs *fs)
{
	ofs_run_trees_fini(&fs->run->trees);
	ofs_run_members_close(&fs->run->members);
	free(fs->run->path);
	free(fs->run);
}

const struct ofs_node_ops ofs_nodes_of_run = {
	.getattr = getattr,
	.lookup = lookup,
	.resolve = resolve,
	.readdir = readdir,
	.readlink = read_link,
	.open = open_file,
	.access_changed = access_changed,
	.getxattr = getxattr,
	.listxattr = listxattr,
	.summary = ofs_run_summary,
	.close = close_run,
};
