/* drop.c - a checkpoint of a run without its optimizer */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <fts.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/copy.h"
#include "base/io.h"
#include "base/memory.h"
#include "base/ranges.h"
#include "base/sys.h"
#include "detect/registry.h"
#include "run/remove.h"
#include "run/run.h"

/* The new checkpoint begins as hard links to all files of the old one. There the
 * optimizer is removed as a user would do it, and committed: a commit writes new
 * files, and touches no old one. What a commit leaves in place, since an index
 * just does not name it any more, becomes a hole in a copy. So every format that
 * can be edited can do it, names and other files stay as they are, and nothing is
 * done to the old checkpoint until it has been exchanged for the new one. */

struct drop {
	struct optimfs *run;
	/* Of each object of the old checkpoint: what is stored there, and then
	 * what is not any more. */
	struct hole {
		char *path;
		uint64_t ino;
		struct ofs_ranges bytes;
	} *hole;
	uint32_t n;
};

/* Links. */

static int link_entry(const FTSENT *e, const char *to)
{
	char target[PATH_MAX];
	ssize_t n;

	switch (e->fts_info) {
	case FTS_D:
		return ofs_sys_mkdir(AT_FDCWD, to);
	case FTS_F:
		return ofs_sys_link(AT_FDCWD, e->fts_accpath, AT_FDCWD, to);
	case FTS_SL:
	case FTS_SLNONE:
		n = readlink(e->fts_accpath, target, sizeof(target) - 1);
		if (n == -1)
			return -1;
		target[n] = '\0';
		return ofs_sys_symlink(target, AT_FDCWD, to);
	default:
		errno = e->fts_info == FTS_DEFAULT ? EINVAL : e->fts_errno;
		return -1;
	}
}

/* A directory has all of its entries: it gets the attributes of the old one. */
static int end_dir(const char *from, const char *to, struct optimfs_error *err)
{
	int in = open(from, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int out = open(to, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int ret = -1;

	if (in == -1 || out == -1 || ofs_sys_fsync(out) == -1)
		optimfs_fail(err, errno, "OFS871 %.300s: %m", from);
	else
		ret = ofs_copy_attributes(in, out, err);
	if (in != -1)
		close(in);
	if (out != -1)
		close(out);
	return ret;
}

static int link_all(const char *old, const char *new, struct optimfs_error *err)
{
	char *const top[] = { (char *)(uintptr_t)old, NULL };
	FTS *fts = fts_open(top, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
	FTSENT *e;
	int ret = 0;

	if (fts == NULL)
		return optimfs_fail(err, errno, "OFS871 %.300s: %m", old);
	while (ret == 0 && (errno = 0, e = fts_read(fts)) != NULL) {
		char *to;

		if (asprintf(&to, "%s%s", new, e->fts_path + strlen(old)) ==
		    -1) {
			ret = ofs_no_memory(err);
			break;
		}
		if (e->fts_info == FTS_DP)
			ret = end_dir(e->fts_path, to, err);
		else if (link_entry(e, to) == -1)
			ret = optimfs_fail(err, errno,
			    "OFS871 %.300s: a link to it: %m", e->fts_path);
		free(to);
	}
	if (ret == 0 && errno != 0)
		ret = optimfs_fail(err, errno, "OFS871 %.300s: %m", old);
	fts_close(fts);
	return ret;
}

/* The tree without its optimizer. */

struct children {
	struct child {
		char *name;
		bool is_dir;
	} * v;
	size_t n, cap;
};

static int add_child(void *ctx, const struct optimfs_dirent *e)
{
	struct children *c = ctx;

	if (ofs_grow(c->v, c->n, c->cap, NULL) == -1)
		return 1;
	c->v[c->n].is_dir = S_ISDIR(e->mode);
	c->v[c->n].name = strdup(e->name);
	return c->v[c->n].name == NULL ? 1 : (c->n++, 0);
}

static void children_fini(struct children *c)
{
	for (size_t i = 0; i < c->n; i++)
		free(c->v[i].name);
	free(c->v);
}

/* What belongs to the optimizer is removed, or only counted. */
struct taking {
	struct optimfs *fs;
	const char *const *stays; /* as in struct ofs_format */
	bool remove, any;
	uint64_t bytes;
	struct optimfs_error *err;
};

static int take(struct taking *t, uint64_t dir, const struct child *c,
    const char *path);

/* 0: all below it is taken; 1: not all; -1. As deep as the tree, whose depth is
 * limited. */
static int take_children(struct taking *t, uint64_t dir, const char *path)
{
	struct children c = { 0 };
	bool stays = false;
	int ret = optimfs_readdir(t->fs, dir, 0, false, add_child, &c, t->err);

	if (ret == 1)
		ret = ofs_no_memory(t->err);
	for (size_t i = 0; i < c.n && ret != -1; i++) {
		char *below = ofs_path_join(path, c.v[i].name);

		ret = below == NULL ? ofs_no_memory(t->err)
				    : take(t, dir, &c.v[i], below);
		stays |= ret == 1;
		free(below);
	}
	children_fini(&c);
	return ret == -1 ? -1 : stays;
}

/* path: of c, which is in dir */
static int take(struct taking *t, uint64_t dir, const struct child *c,
    const char *path)
{
	struct optimfs_attr attr;
	int ret = 0;

	if (ofs_path_matches(t->stays, path))
		return 1;
	if (optimfs_lookup(t->fs, dir, c->name, &attr, t->err) == -1)
		return -1;
	if (c->is_dir) {
		ret = take_children(t, attr.node, path);
	} else {
		t->any = true;
		ofs_sum_u64(&t->bytes, attr.stored);
	}
	if (ret == 0 && t->remove)
		ret = optimfs_remove(t->fs, dir, c->name, c->is_dir, t->err);
	return ret;
}

/* Takes the directories below dir whose path matches pattern. */
static int take_matching(struct taking *t, uint64_t dir, const char *path,
    const char *pattern)
{
	const char *rest = strchrnul(pattern, '/');
	struct children c = { 0 };
	struct optimfs_attr attr;
	char *first = strndup(pattern, (size_t)(rest - pattern)), *below;
	int ret = first == NULL
	    ? 1
	    : optimfs_readdir(t->fs, dir, 0, false, add_child, &c, t->err);

	if (ret == 1)
		ret = ofs_no_memory(t->err);
	for (size_t i = 0; i < c.n && ret != -1; i++) {
		const struct child *v = &c.v[i];

		if (!v->is_dir || fnmatch(first, v->name, 0) != 0)
			continue;
		below = ofs_path_join(path, v->name);
		if (below == NULL)
			ret = ofs_no_memory(t->err);
		else if (*rest == '\0')
			ret = take(t, dir, v, below);
		else
			ret = optimfs_lookup(t->fs, dir, v->name, &attr,
				  t->err) == -1
			    ? -1
			    : take_matching(t, attr.node, below, rest + 1);
		free(below);
	}
	children_fini(&c);
	free(first);
	return ret == -1 ? -1 : 0;
}

static int take_optim(struct taking *t)
{
	const struct ofs_catalog *cat = t->fs->now->cat;
	const struct ofs_format *f = ofs_format_find(cat->format);

	if (f != NULL && f->stays != NULL)
		t->stays = f->stays(cat);
	if (take_matching(t, OPTIMFS_ROOT, "", "optim") == -1)
		return -1;
	for (size_t i = 0; f != NULL && f->optim != NULL && f->optim[i] != NULL;
	     i++)
		if (take_matching(t, OPTIMFS_ROOT, "", f->optim[i]) == -1)
			return -1;
	return 0;
}

int optimfs_run_droppable(struct optimfs *fs, uint64_t *bytes,
    struct optimfs_error *err)
{
	struct taking t = { .fs = fs, .err = err };

	if (take_optim(&t) == -1)
		return -1;
	*bytes = t.bytes;
	return t.any;
}

static int remove_optim(struct optimfs *fs, struct optimfs_error *err)
{
	struct taking t = { .fs = fs, .remove = true, .err = err };

	if (take_optim(&t) == -1)
		return -1;
	/* What may not be on the disk takes nobody's place. */
	return optimfs_commit(fs, NULL, NULL, err) == 0 ? 0 : -1;
}

static int cannot_drop(struct optimfs_error *err)
{
	struct optimfs_error why = *err;

	return optimfs_fail(err, why.code,
	    "OFS826 the optimizer cannot be taken out in place: write the "
	    "model alone with optimfs reshard --to torch,only=model, and "
	    "remove this one (%.130s)",
	    why.text);
}

/* Holes. */

/* Calls each for the bytes of a file that a catalog names. */
static int each_extent(const struct ofs_catalog *cat,
    int (*each)(struct drop *d, const struct ofs_catalog *cat,
	const struct ofs_extent *at, struct optimfs_error *err),
    struct drop *d, struct optimfs_error *err)
{
	int ret = 0;

	for (uint32_t i = 0; i < cat->nshards && ret == 0; i++)
		ret = each(d, cat, &cat->shards[i].at, err);
	for (uint32_t i = 0; i < cat->nreplicas && ret == 0; i++)
		ret = each(d, cat, &cat->replicas[i].at, err);
	for (uint32_t i = 0; i < cat->nitems && ret == 0; i++)
		ret = each(d, cat, &cat->items[i].at, err);
	return ret;
}

static int was_stored(struct drop *d, const struct ofs_catalog *cat,
    const struct ofs_extent *at, struct optimfs_error *err)
{
	(void)cat;
	return at->len == 0 ? 0
			    : ofs_ranges_add(&d->hole[at->object].bytes,
				  at->off, at->off + at->len, err);
}

/* index: where it was, most likely */
static struct hole *hole_of(struct drop *d, const char *path, uint32_t index)
{
	if (index < d->n && strcmp(d->hole[index].path, path) == 0)
		return &d->hole[index];
	for (uint32_t i = 0; i < d->n; i++)
		if (strcmp(d->hole[i].path, path) == 0)
			return &d->hole[i];
	return NULL;
}

static int is_stored(struct drop *d, const struct ofs_catalog *cat,
    const struct ofs_extent *at, struct optimfs_error *err)
{
	struct hole *h = hole_of(d, cat->objects[at->object].path, at->object);

	return h == NULL
	    ? 0
	    : ofs_ranges_remove(&h->bytes, at->off, at->off + at->len, err);
}

static int find_stored(struct drop *d, const struct ofs_catalog *cat,
    struct optimfs_error *err)
{
	const struct ofs_format *f = ofs_format_find(cat->format);

	if (f == NULL || !f->holes)
		return 0;
	d->hole = ofs_alloc(cat->nobjects, sizeof(*d->hole), err);
	if (d->hole == NULL)
		return -1;
	for (d->n = 0; d->n < cat->nobjects; d->n++) {
		d->hole[d->n].path = strdup(cat->objects[d->n].path);
		d->hole[d->n].ino = cat->objects[d->n].ino;
		if (d->hole[d->n].path == NULL)
			return ofs_no_memory(err);
	}
	return each_extent(cat, was_stored, d, err);
}

static void drop_fini(struct drop *d)
{
	for (uint32_t i = 0; i < d->n; i++) {
		free(d->hole[i].path);
		ofs_ranges_fini(&d->hole[i].bytes);
	}
	free(d->hole);
}

/* Copies what is not in holes to out, which is empty. */
static int copy_rest(const struct hole *h, int in, int out,
    struct optimfs_error *err)
{
	struct stat st;
	uint64_t at = 0, end;

	if (fstat(in, &st) == -1 ||
	    ofs_sys_truncate(out, (uint64_t)st.st_size) == -1)
		return optimfs_fail(err, errno, "OFS871 %.300s: %m", h->path);
	for (size_t i = 0; i <= h->bytes.n; i++) {
		end = i < h->bytes.n ? h->bytes.v[i].off : (uint64_t)st.st_size;
		if (end > at &&
		    ofs_copy_sparse(in, at, out, at, end - at, err) == -1)
			return -1;
		at = i < h->bytes.n ? h->bytes.v[i].end : at;
	}
	if (ofs_copy_attributes(in, out, err) == -1)
		return -1;
	if (futimens(out, (struct timespec[]){ st.st_atim, st.st_mtim }) ==
		-1 ||
	    ofs_sys_fsync(out) == -1)
		return optimfs_fail(err, errno, "OFS871 %.300s: %m", h->path);
	return 0;
}

/* The file is a link: the old one stays as it is. */
static int make_hole(const struct hole *h, int dir, const char *name,
    struct optimfs_error *err)
{
	int in = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	int out = -1, ret = -1;
	struct stat st;

	if (in == -1 && errno == ENOENT)
		return 0; /* it held nothing else */
	if (in == -1 || fstat(in, &st) == -1) {
		optimfs_fail(err, errno, "OFS871 %.300s: %m", h->path);
	} else if (st.st_ino != h->ino) {
		ret = 0; /* the commit has written it anew */
	} else if (ofs_sys_unlink(dir, name) == -1 ||
	    (out = ofs_sys_create(dir, name)) == -1) {
		optimfs_fail(err, errno, "OFS871 %.300s: %m", h->path);
	} else {
		ret = copy_rest(h, in, out, err);
	}
	if (in != -1)
		close(in);
	if (out != -1)
		close(out);
	if (ret == 0 && ofs_sys_fsync(dir) == -1)
		ret = optimfs_fail(err, errno, "OFS871 %.300s: %m", h->path);
	return ret;
}

/* No link is followed: one below new leads to what is not new. */
static int make_hole_below(const struct hole *h, const struct ofs_dir *new,
    struct optimfs_error *err)
{
	const char *name = ofs_path_last(h->path);
	struct ofs_dir sub;
	char *parent;
	int ret = -1;

	if (name == h->path)
		return make_hole(h, new->fd, name, err);
	parent = strndup(h->path, (size_t)(name - h->path) - 1);
	if (parent == NULL)
		return ofs_no_memory(err);
	if (ofs_dir_open_sub(new, parent, &sub, err) == 0) {
		ret = make_hole(h, sub.fd, name, err);
		ofs_dir_close(&sub);
	}
	free(parent);
	return ret;
}

static int make_holes(const struct drop *d, const char *new,
    struct optimfs_error *err)
{
	struct ofs_dir dir;
	int ret = 0;

	if (d->n == 0)
		return 0;
	if (ofs_dir_open(new, &dir, err) == -1)
		return -1;
	for (uint32_t i = 0; i < d->n && ret == 0; i++)
		if (d->hole[i].bytes.n > 0)
			ret = make_hole_below(&d->hole[i], &dir, err);
	ofs_dir_close(&dir);
	return ret;
}

static int make(void *ctx, const char *old, const char *new,
    struct optimfs_error *err)
{
	struct drop *d = ctx;
	struct optimfs_options options = d->run->run->options;
	struct optimfs *fs;
	int ret;

	options.rw = options.explicit_commit = true;
	options.run = OPTIMFS_RUN_NO;
	if (link_all(old, new, err) == -1)
		return -1;
	fs = d->run->run->open(new, &options, err);
	if (fs == NULL)
		return -1;
	ret = find_stored(d, fs->now->cat, err);
	if (ret == 0 && remove_optim(fs, err) == -1)
		ret = err != NULL && (err->number == 826 || err->number == 827)
		    ? cannot_drop(err)
		    : -1;
	if (ret == 0)
		ret = each_extent(fs->now->cat, is_stored, d, err);
	optimfs_close(fs);
	return ret == 0 ? make_holes(d, new, err) : -1;
}

int optimfs_run_drop(struct optimfs *run, const char *name,
    const struct optimfs_run_weight *w, struct optimfs_error *err)
{
	struct drop d = { .run = run };
	int ret;

	if (run->run == NULL)
		return optimfs_fail(err, EINVAL, "%s is not a run",
		    run->source);
	ret = ofs_run_replace(run, name, w, make, &d, err);
	drop_fini(&d);
	return ret;
}
