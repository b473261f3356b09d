/* copy.c - copy files out of the tree */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/io.h"
#include "base/memory.h"
#include "base/replace.h"
#include "base/step.h"
#include "base/team.h"
#include "cluster/task.h"
#include "fs/fs.h"
#include "fs/walk.h"
#include "journal/stage_path.h"
#include "store/http/open.h"

/* With several ranks, rank 0 lists the files to copy and assigns them to ranks
 * that see the destination. All threads of all ranks walk the tree in the same
 * order, and those of a rank take its files as they get to them. */

struct copy {
	struct optimfs *fs;
	struct optimfs_group *group; /* NULL: a single process */
	const struct optimfs_copy *how;
	uint64_t dir;      /* the directory to copy */
	const char *dest;  /* the destination directory */
	struct ofs_dir to; /* the same */
	/* With several ranks: the rank that copies each file, in the order of
	 * the walk. */
	int *who;
	uint64_t *size;
	size_t nfiles, cap;
	/* Of this rank's files, the next that no thread has. */
	_Atomic size_t next;
	atomic_bool stop; /* failed is set */

	pthread_mutex_t lock; /* protects the members below, and calls of how */
	struct optimfs_error failed;
	bool unread; /* a file could not be read */
};

/* A thread. */
struct copier {
	struct copy *all;
	const char *name; /* of the current file */
	/* Files so far, and those of this rank; of those, the next of this
	 * thread. */
	size_t at, ours, next;
};

static int write_all(int fd, const char *p, size_t n, struct optimfs_error *err)
{
	while (n > 0) {
		ssize_t k = write(fd, p, n);

		if (k == -1 && errno == EINTR)
			continue;
		if (k == -1)
			return optimfs_fail(err, errno, "%m");
		p += k;
		n -= (size_t)k;
	}
	return 0;
}

/* A file that is being written. */
struct filling {
	const struct copier *copier;
	int fd;
	bool stopped; /* it is not the checkpoint's fault */
};

static int go_on(const struct copy *copy, struct optimfs_error *err)
{
	if (atomic_load(&copy->stop))
		return optimfs_fail(err, ECANCELED, "interrupted");
	return ofs_go_on(copy->how->stop, copy->how->ctx, err);
}

static int put(void *ctx, const void *p, size_t n, struct optimfs_error *err)
{
	struct filling *f = ctx;
	struct copy *copy = f->copier->all;
	const struct optimfs_copy *how = copy->how;

	f->stopped =
	    go_on(copy, err) == -1 || write_all(f->fd, p, n, err) == -1;
	if (!f->stopped && how->copied != NULL) {
		pthread_mutex_lock(&copy->lock);
		how->copied(how->ctx, n, f->copier->name);
		pthread_mutex_unlock(&copy->lock);
	}
	return f->stopped ? -1 : 0;
}

/* 0; 1: the checkpoint lacks some of it; -1: it cannot be written. */
static int fill(const struct copier *c, uint64_t node, int fd,
    struct optimfs_error *err)
{
	struct filling f = { c, fd, false };
	struct optimfs_file *file;
	int ret;

	if (optimfs_file_open(c->all->fs, node, &file, err) == -1)
		return err->code == ENOMEM ? -1 : 1;
	ret = optimfs_file_stream(file, put, &f, err);
	optimfs_file_close(file);
	return ret == 0 || f.stopped || err->code == ENOMEM ? ret : 1;
}

/* The file appears under its name when it is complete, or not at all. Returns as
 * fill. */
static int fill_and_name(const struct copier *c,
    const struct optimfs_attr *attr, struct ofs_replace *r, const char *dest,
    struct optimfs_error *err)
{
	struct stat st;
	int ret;

	if (r->dest != NULL && fstat(r->fd, &st) == 0)
		(void)fchmod(r->fd,
		    ofs_made_mode(st.st_mode & 0777, attr->mode, attr->gid));
	ret = fill(c, attr->node, r->fd, err);

	if (ret == 0)
		ret = ofs_replace_finish(r, err);
	if (ret != 0)
		optimfs_fail_in(err, "%s", dest);
	ofs_replace_fini(r);
	return ret;
}

static int copy_file(const struct copier *c, const struct optimfs_attr *attr,
    const char *dest, struct optimfs_error *err)
{
	struct ofs_replace r;

	return ofs_replace_open(&r, dest, err) == -1
	    ? -1
	    : fill_and_name(c, attr, &r, dest, err);
}

static int make_directory(const struct copy *copy, const char *path,
    struct optimfs_error *err)
{
	struct optimfs_attr attr;
	struct stat st;

	if (optimfs_getattr(copy->fs, copy->dir, &attr, err) == -1)
		return -1;
	if (mkdir(path, ofs_made_mode(0777, attr.mode, attr.gid)) == 0)
		return 0;
	if (errno == EEXIST && stat(path, &st) == 0 && S_ISDIR(st.st_mode))
		return 0;
	return optimfs_fail(err, errno, "%s: %m", path);
}

/* Whoever may write in the destination must not lead the copy out of it. */
static int make_directory_at(int dir, const char *name,
    const struct optimfs_attr *attr, const char *shown,
    struct optimfs_error *err)
{
	struct stat st;

	if (mkdirat(dir, name, ofs_made_mode(0777, attr->mode, attr->gid)) == 0)
		return 0;
	if (errno == EEXIST &&
	    fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	    !S_ISDIR(st.st_mode))
		return optimfs_fail(err, ENOTDIR,
		    "OFS020 %s: something other than a directory is there, and "
		    "a symbolic link in the destination is not followed: "
		    "remove it",
		    shown);
	return errno == EEXIST ? 0 : optimfs_fail(err, errno, "%s: %m", shown);
}

/* The directory that gets path, opened without following links, and the name
 * there. */
static int open_parent(const struct copy *copy, const char *path,
    struct ofs_dir *dir, const char **name, struct optimfs_error *err)
{
	char *above;
	int ret;

	*name = ofs_path_last(path);
	if (*name == path)
		return ofs_dir_copy(&copy->to, dir, err);
	above = strndup(path, (size_t)(*name - path) - 1);
	if (above == NULL)
		return ofs_no_memory(err);
	ret = ofs_dir_open_sub(&copy->to, above, dir, err);
	free(above);
	return ret;
}

static int copy_link(const struct copy *copy, uint64_t node, int dir,
    const char *name, const char *shown, struct optimfs_error *err)
{
	char *target;
	int ret = 0;

	if (optimfs_readlink(copy->fs, node, &target, err) == -1)
		return 1;
	if (symlinkat(target, dir, name) == -1)
		ret = optimfs_fail(err, errno, "%s: %m", shown);
	free(target);
	return ret;
}

static int copy_to(const struct copier *c, const struct ofs_walk_entry *e,
    const char *shown, struct optimfs_error *err)
{
	const struct copy *copy = c->all;
	struct ofs_dir dir;
	struct ofs_replace r;
	const char *name;
	int ret = -1;

	if (open_parent(copy, e->path, &dir, &name, err) == -1)
		return -1;
	if (S_ISDIR(e->attr.mode))
		ret = make_directory_at(dir.fd, name, &e->attr, shown, err);
	else if (S_ISLNK(e->attr.mode))
		ret = copy_link(copy, e->attr.node, dir.fd, name, shown, err);
	else if (ofs_replace_open_at(&r, dir.fd, name, shown, err) == 0)
		ret = fill_and_name(c, &e->attr, &r, shown, err);
	ofs_dir_close(&dir);
	return ret;
}

/* Is the next file to be copied by this thread? */
static int is_mine(struct copier *c, bool *mine, struct optimfs_error *err)
{
	struct copy *copy = c->all;

	if (copy->group != NULL && c->at == copy->nfiles)
		return optimfs_fail(err, ESTALE,
		    "there are more files than rank 0 has found");
	*mine =
	    (copy->group == NULL || copy->who[c->at] == copy->group->rank) &&
	    c->ours++ == c->next;
	c->at++;
	if (*mine)
		c->next = atomic_fetch_add(&copy->next, 1);
	return 0;
}

static void leave_out(struct copy *copy, const struct optimfs_error *why)
{
	pthread_mutex_lock(&copy->lock);
	copy->unread = true;
	if (copy->how->unread != NULL)
		copy->how->unread(copy->how->ctx, why);
	pthread_mutex_unlock(&copy->lock);
}

static int copy_entry(void *ctx, const struct ofs_walk_entry *e,
    struct optimfs_error *err)
{
	struct copier *c = ctx;
	struct copy *copy = c->all;
	bool is_dir = S_ISDIR(e->attr.mode), mine = true;
	char *dest = NULL;
	int ret;

	if (go_on(copy, err) == -1 || (!is_dir && is_mine(c, &mine, err) == -1))
		return -1;
	if (!mine)
		return 0;
	if (asprintf(&dest, "%s/%s", copy->dest, e->path) == -1)
		return ofs_no_memory(err);
	c->name = e->name;
	ret = copy_to(c, e, dest, err);
	if (ret == 0 && !is_dir && copy->group != NULL)
		ofs_task_did(copy->group, e->attr.size);
	free(dest);
	if (ret == 1) /* as cp(1): continue with other files */
		leave_out(copy, err);
	return ret == -1 ? -1 : 0;
}

static void fail(struct copy *copy, const struct optimfs_error *why)
{
	pthread_mutex_lock(&copy->lock);
	if (!atomic_exchange(&copy->stop, true))
		copy->failed = *why;
	pthread_mutex_unlock(&copy->lock);
}

static void work(void *ctx, unsigned i)
{
	struct copy *copy = ctx;
	struct copier c = { .all = copy,
		.next = atomic_fetch_add(&copy->next, 1) };
	struct optimfs_error err;

	(void)i;
	if (ofs_walk(copy->fs, copy->dir, 0, copy_entry, &c, &err) == -1)
		fail(copy, &err);
}

/* Looks for failures of other ranks. */
static void tick(void *ctx)
{
	struct copy *copy = ctx;
	struct optimfs_error err;

	if (ofs_task_check(copy->group, &err) == -1)
		fail(copy, &err);
}

static int count_entry(void *ctx, const struct ofs_walk_entry *e,
    struct optimfs_error *err)
{
	struct copy *copy = ctx;

	if (S_ISDIR(e->attr.mode))
		return 0;
	if (ofs_grow(copy->size, copy->nfiles, copy->cap, err) == -1)
		return -1;
	copy->size[copy->nfiles++] = e->attr.size;
	return 0;
}

/* As cp(1): into dest if it is a directory, otherwise as dest. */
static char *target(const char *path, const char *dest)
{
	char *copy, *full = NULL, *base;
	struct stat st;

	if (stat(dest, &st) == -1 || !S_ISDIR(st.st_mode))
		return strdup(dest);
	copy = strdup(path);
	if (copy == NULL)
		return NULL;
	base = basename(copy);
	if (strcmp(base, "/") == 0 || strcmp(base, ".") == 0)
		full = strdup(dest);
	else if (asprintf(&full, "%s/%s", dest, base) == -1)
		full = NULL;
	free(copy);
	return full;
}

/* Rank 0 sends the destination and the assignment. Ranks that do not see the
 * destination only serve the others. */
static int assign(struct copy *copy, char **to, bool *sees,
    struct optimfs_error *err)
{
	struct optimfs_group *w = copy->group;
	int ret = sees == NULL ? -1 : 0;

	if (w->rank == 0 && ret == 0 &&
	    (make_directory(copy, *to, err) == -1 ||
		ofs_walk(copy->fs, copy->dir, 0, count_entry, copy, err) == -1))
		ret = -1;
	if (ofs_task_sees(w, ret, to, sees, err) == -1)
		return -1;
	return ofs_task_assign_all(w, copy->size, sees, &copy->who,
	    &copy->nfiles, err);
}

static int copy_tree(struct copy *copy, struct optimfs_error *err)
{
	if (ofs_dir_open(copy->dest, &copy->to, err) == -1)
		return -1;
	ofs_team_run(ofs_fs_threads(copy->fs), work,
	    copy->group == NULL ? NULL : tick, copy);
	ofs_dir_close(&copy->to);
	return atomic_load(&copy->stop) ? optimfs_fail_with(err, &copy->failed)
					: 0;
}

static int copy_together(struct copy *copy, char **to,
    struct optimfs_error *err)
{
	struct optimfs_group *w = copy->group;
	bool *sees = ofs_alloc((size_t)w->size, sizeof(*sees), err);
	int ret = assign(copy, to, sees, err);

	if (ret == 0) {
		copy->dest = *to;
		if (sees[w->rank])
			ret = copy_tree(copy, err);
		ret = ofs_task_agree(w, ret, err);
	}
	if (ret == 0)
		ofs_task_tell(w, &copy->fs->watch);
	free(copy->who);
	free(copy->size);
	free(sees);
	return ret;
}

static int copy_directory(struct copy *copy, uint64_t dir, char **to,
    struct optimfs_error *err)
{
	int ret;

	copy->dir = dir;
	copy->dest = *to;
	if (copy->group != NULL)
		ret = copy_together(copy, to, err);
	else if (make_directory(copy, *to, err) == -1)
		ret = -1;
	else
		ret = copy_tree(copy, err);
	return ret == 0 && copy->unread ? 1 : ret;
}

static bool is_first(const struct optimfs *fs)
{
	return fs->options.group == NULL || fs->options.group->rank == 0;
}

/* A directory is not copied into the checkpoint, which would grow meanwhile. */
static int check_outside(const struct optimfs *fs, const char *dest,
    struct optimfs_error *err)
{
	char *place = realpath(dest, NULL), *name;
	int ret;

	if (place == NULL)
		place = ofs_stage_split(dest, &name, NULL);
	ret = place == NULL ? 0 : ofs_fs_outside(fs, place, dest, err);
	free(place);
	return ret;
}

/* Finds the source, and on rank 0 the destination. */
static int find_ends(struct optimfs *fs, const char *path, const char *dest,
    const struct optimfs_copy *how, struct optimfs_attr *attr, char **to,
    struct optimfs_error *err)
{
	if (optimfs_resolve(fs, path, attr, err) == -1)
		return optimfs_fail_in(err, "%s", fs->source);
	if (S_ISDIR(attr->mode) && !how->recursive)
		return optimfs_fail(err, EISDIR, "%s: is a directory: use -r",
		    path);
	if (ofs_http_refuse(dest, err) == -1)
		return -1;
	if (!is_first(fs))
		return 0;
	*to = target(path, dest);
	if (*to == NULL)
		return ofs_no_memory(err);
	return S_ISDIR(attr->mode) ? check_outside(fs, *to, err) : 0;
}

int optimfs_copy(struct optimfs *fs, const char *path, const char *dest,
    const struct optimfs_copy *how, struct optimfs_error *err)
{
	struct copy copy = { .fs = fs,
		.group = fs->options.group,
		.how = how,
		.lock = PTHREAD_MUTEX_INITIALIZER };
	const struct copier alone = { .all = &copy, .name = path };
	struct optimfs_attr attr;
	char *to = NULL;
	int ret;

	err = OFS_SOME_ERROR(err);
	ret = find_ends(fs, path, dest, how, &attr, &to, err);
	if (copy.group != NULL)
		ret = ofs_task_agree(copy.group, ret, err);
	if (ret == 0 && S_ISDIR(attr.mode))
		ret = copy_directory(&copy, attr.node, &to, err);
	else if (ret == 0 && is_first(fs))
		ret = copy_file(&alone, &attr, to, err) == 0 ? 0 : -1;
	pthread_mutex_destroy(&copy.lock);
	free(to);
	return ret;
}
