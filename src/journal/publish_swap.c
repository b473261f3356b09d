/* publish_swap.c - a complete directory that replaces the old one */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/copy.h"
#include "base/error.h"
#include "base/io.h"
#include "base/sys.h"
#include "journal/publish_impl.h"

#define DIR_FLAGS (O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW)

struct walk {
	struct ofs_publish *p;
	int gen;
	size_t nchanged; /* names of the plan before those that are kept */
	/* Directories to visit, as paths below the checkpoint; "" is the
	 * checkpoint itself. */
	struct ofs_names dirs;
	struct optimfs_error *err;
};

static int fail(const struct walk *w, const char *rel)
{
	return optimfs_fail(w->err, errno, "OFS821 %.200s: %m", rel);
}

/* Does the commit replace or remove rel? */
static bool is_gone(const struct walk *w, const char *rel)
{
	for (size_t i = 0; i < w->nchanged; i++)
		if (strcmp(w->p->plan.name[i].rel, rel) == 0)
			return true;
	return false;
}

/* Adds a name that both directories have. */
static int kept(struct walk *w, const char *rel, enum ofs_publish_kind kind,
    const struct ofs_publish_stamp *was)
{
	struct ofs_publish_plan *plan = &w->p->plan;
	struct ofs_publish_stamp put;

	if (ofs_publish_look(w->gen, rel, &put) == -1)
		return fail(w, rel);
	if (ofs_publish_add(plan, rel, kind, -1, was, w->err) == -1)
		return -1;
	plan->name[plan->n - 1].put = put;
	return 0;
}

static int copy_times(int fd, const struct stat *st)
{
	const struct timespec t[2] = { st->st_atim, st->st_mtim };

	return futimens(fd, t);
}

/* For file systems without hard links. */
static int copy_whole(struct walk *w, const char *rel)
{
	int in = openat(w->p->dir, rel, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	struct stat st = { 0 };
	int out = -1, ret = -1;

	if (in == -1 && errno == ENOENT)
		return 0;
	if (in == -1 || fstat(in, &st) == -1)
		fail(w, rel);
	else if ((out = ofs_sys_create(w->gen, rel)) == -1)
		fail(w, rel);
	else if (ofs_copy_file(in, (uint64_t)st.st_size, out, NULL, w->err) ==
		0 &&
	    ofs_copy_attributes(in, out, w->err) == 0)
		ret = copy_times(out, &st) == -1 || ofs_sys_fsync(out) == -1
		    ? fail(w, rel)
		    : 0;
	if (ret == 0) {
		struct ofs_publish_stamp was = ofs_publish_stamp_of(&st);

		ret = kept(w, rel, OFS_PUBLISH_KEEP, &was);
	}
	if (in != -1)
		close(in);
	if (out != -1)
		close(out);
	return ret;
}

/* Files come and go while others save: what is not there any more need not be
 * carried. */
static int carry_file(struct walk *w, const char *rel)
{
	struct ofs_publish_stamp was;

	if (is_gone(w, rel))
		return 0;
	if (ofs_sys_link(w->p->dir, rel, w->gen, rel) == 0)
		return ofs_publish_look(w->gen, rel, &was) == -1
		    ? fail(w, rel)
		    : kept(w, rel, OFS_PUBLISH_KEEP, &was);
	if (errno == EPERM || errno == EMLINK || errno == EXDEV ||
	    errno == EOPNOTSUPP || errno == ENOSYS)
		return copy_whole(w, rel);
	return errno == ENOENT ? 0 : fail(w, rel);
}

static int carry_link(struct walk *w, const char *rel,
    const struct ofs_publish_stamp *was)
{
	char target[4097];
	ssize_t n = readlinkat(w->p->dir, rel, target, sizeof(target) - 1);

	if (is_gone(w, rel) || (n == -1 && errno == ENOENT))
		return 0;
	if (n == -1)
		return fail(w, rel);
	target[n] = '\0';
	return ofs_sys_symlink(target, w->gen, rel) == -1
	    ? fail(w, rel)
	    : kept(w, rel, OFS_PUBLISH_KEEP, was);
}

/* Another file system, even one that is a single file, would stay with the old
 * directory, which is removed. */
static bool is_mount(const struct walk *w, const char *rel)
{
	struct statx st;

	return statx(w->p->dir, rel, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT, 0,
		   &st) == 0 &&
	    (st.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0;
}

static int carry(struct walk *w, const char *rel)
{
	struct ofs_publish_stamp was;
	struct stat st;

	if (fstatat(w->p->dir, rel, &st, AT_SYMLINK_NOFOLLOW) == -1)
		return errno == ENOENT ? 0 : fail(w, rel);
	was = ofs_publish_stamp_of(&st);
	if (is_mount(w, rel))
		return optimfs_fail(w->err, EOPNOTSUPP,
		    "OFS823 %.200s: another file system is mounted there, and "
		    "would be left behind: unmount it",
		    rel);
	if (S_ISREG(st.st_mode))
		return carry_file(w, rel);
	if (S_ISLNK(st.st_mode))
		return carry_link(w, rel, &was);
	if (!S_ISDIR(st.st_mode))
		return optimfs_fail(w->err, EOPNOTSUPP,
		    "OFS823 %.200s is neither a file nor a directory, and "
		    "cannot be copied",
		    rel);
	if (ofs_sys_mkdir(w->gen, rel) == -1)
		return fail(w, rel);
	if (kept(w, rel, OFS_PUBLISH_KEEP_DIR, &was) == -1)
		return -1;
	return ofs_names_add(&w->dirs, rel, strlen(rel), w->err);
}

static int carry_all(struct walk *w, const char *rel)
{
	int fd = openat(w->p->dir, *rel == '\0' ? "." : rel, DIR_FLAGS);
	DIR *dir = fd == -1 ? NULL : fdopendir(fd);
	struct dirent *d;
	char path[4097];
	int ret = 0;

	if (dir == NULL) {
		ret = errno == ENOENT ? 0 : fail(w, rel);
		if (fd != -1)
			close(fd);
		return ret;
	}
	while (ret == 0 && (errno = 0, d = readdir(dir)) != NULL) {
		if (strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0)
			continue;
		if ((size_t)snprintf(path, sizeof(path), "%s%s%s", rel,
			*rel == '\0' ? "" : "/", d->d_name) >= sizeof(path))
			ret = optimfs_fail(w->err, ENAMETOOLONG,
			    "OFS821 a path of more than 4096 bytes");
		else
			ret = carry(w, path);
	}
	if (ret == 0 && errno != 0)
		ret = fail(w, rel);
	closedir(dir);
	return ret;
}

static int move_new(struct walk *w)
{
	struct ofs_publish *p = w->p;

	for (size_t i = 0; i < w->nchanged; i++) {
		const struct ofs_publish_name *n = &p->plan.name[i];

		if (!ofs_publish_is_new(n))
			continue;
		if (ofs_publish_parents(w->gen, n->rel, p->dir, w->err) == -1)
			return -1;
		/* existing directories are sealed with the rest */
		if (ofs_sys_rename(p->new, n->rel, w->gen, n->rel, 0) == -1 ||
		    (n->kind == OFS_PUBLISH_CREATE &&
			ofs_publish_sync_dir(w->gen, n->rel) == -1))
			return fail(w, n->rel);
	}
	return 0;
}

/* Directories come last, because adding entries changes their times. */
static int seal(struct walk *w, const char *rel)
{
	const char *path = *rel == '\0' ? "." : rel;
	int in = openat(w->p->dir, path, DIR_FLAGS);
	int out = openat(w->gen, path, DIR_FLAGS), ret = -1;

	if (in == -1 && errno == ENOENT)
		ret = 0; /* another program has removed it */
	else if (in == -1 || out == -1)
		fail(w, path);
	else if (ofs_copy_attributes(in, out, w->err) == 0)
		ret = ofs_sys_fsync(out) == -1 ? fail(w, path) : 0;
	if (in != -1)
		close(in);
	if (out != -1)
		close(out);
	return ret;
}

static int build(struct walk *w)
{
	if (ofs_names_add(&w->dirs, "", 0, w->err) == -1)
		return -1;
	for (size_t i = 0; i < w->dirs.n; i++)
		if (carry_all(w, w->dirs.name[i]) == -1)
			return -1;
	if (move_new(w) == -1)
		return -1;
	for (size_t i = w->dirs.n; i-- > 0;)
		if (seal(w, w->dirs.name[i]) == -1)
			return -1;
	return 0;
}

int ofs_publish_build(struct ofs_publish *p, struct optimfs_error *err)
{
	struct walk w = { .p = p, .nchanged = p->plan.n, .err = err };
	struct stat st, old;
	int ret;

	if (ofs_publish_parent(p->source, p->dir, &p->parent, &p->base, err) ==
	    -1)
		return -1;
	w.gen = ofs_publish_dir(p->stage, OFS_PUBLISH_GEN, err);
	if (w.gen == -1)
		return -1;
	ret = build(&w);
	if (ret == 0 && (fstat(w.gen, &st) == -1 || fstat(p->dir, &old) == -1))
		ret = fail(&w, OFS_PUBLISH_GEN);
	if (ret == 0) {
		p->plan.gen = st.st_ino;
		p->plan.old = old.st_ino;
	}
	close(w.gen);
	ofs_names_free(&w.dirs);
	return ret;
}

static int cannot_exchange(struct optimfs_error *err)
{
	return optimfs_fail(err, EOPNOTSUPP,
	    "OFS824 this file system cannot exchange two directories, and "
	    "several files change: copy the checkpoint elsewhere, or write it "
	    "with optimfs reshard");
}

static bool is_unsupported(int code)
{
	return code == EINVAL || code == ENOSYS || code == EOPNOTSUPP;
}

/* Leaves a directory onto which no other can be renamed, because it is not
 * empty. */
static int try_in_stage(const struct ofs_publish *p, struct optimfs_error *err)
{
	int gen = ofs_publish_dir(p->stage, OFS_PUBLISH_GEN, err), ret = 0;

	if (gen == -1)
		return -1;
	if (ofs_sys_mkdir(gen, "a") == -1 || ofs_sys_mkdir(gen, "b") == -1)
		ret =
		    optimfs_fail(err, errno, "OFS821 %s/: %m", OFS_PUBLISH_GEN);
	else if (ofs_sys_rename(gen, "a", gen, "b", RENAME_EXCHANGE) == -1)
		ret = is_unsupported(errno)
		    ? cannot_exchange(err)
		    : optimfs_fail(err, errno, "OFS821 %s/a: %m",
			  OFS_PUBLISH_GEN);
	close(gen);
	return ret;
}

/* What is left in gen/ would become a part of the checkpoint. */
static int clear(const struct ofs_publish *p, struct optimfs_error *err)
{
	struct stat st;

	ofs_publish_clear(p->stage, OFS_PUBLISH_GEN);
	if (fstatat(p->stage, OFS_PUBLISH_GEN, &st, AT_SYMLINK_NOFOLLOW) ==
		-1 &&
	    errno == ENOENT)
		return 0;
	return optimfs_fail(err, EIO, "OFS821 %s/ cannot be emptied",
	    OFS_PUBLISH_GEN);
}

int ofs_publish_try_exchange(const struct ofs_publish *p,
    struct optimfs_error *err)
{
	int ret;

	if (clear(p, err) == -1)
		return -1;
	ret = try_in_stage(p, err);
	return clear(p, ret == -1 ? NULL : err) == -1 ? -1 : ret;
}

/* overlayfs does not rename directories of lower layers (EXDEV). It finds that
 * before it finds that the target is not empty (ENOTEMPTY): this rename of the
 * checkpoint cannot succeed. */
static bool is_lower(const struct ofs_publish *p, int parent, const char *base)
{
	return ofs_sys_rename(parent, base, p->stage, OFS_PUBLISH_GEN, 0) ==
	    -1 &&
	    errno == EXDEV;
}

static bool is_overlay(const struct ofs_publish *p)
{
	struct statfs fs;

	return fstatfs(p->stage, &fs) == 0 &&
	    fs.f_type == OVERLAYFS_SUPER_MAGIC;
}

int ofs_publish_exchangeable(struct ofs_publish *p, struct optimfs_error *err)
{
	char *base;
	int parent, ret;

	if (ofs_publish_parent(p->source, p->dir, &parent, &base, err) == -1)
		return -1;
	ret = clear(p, err);
	if (ret == 0)
		ret = try_in_stage(p, err);
	if (ret == 0 && is_overlay(p) && is_lower(p, parent, base))
		ret = cannot_exchange(err);
	if (clear(p, ret == -1 ? NULL : err) == -1)
		ret = -1;
	free(base);
	close(parent);
	return ret;
}

static int exchange(const struct ofs_publish *p)
{
	return ofs_sys_rename(p->stage, OFS_PUBLISH_GEN, p->parent, p->base,
	    RENAME_EXCHANGE);
}

static int unfinished(struct optimfs_error *err)
{
	struct optimfs_error why = *err;

	optimfs_fail(err, EIO,
	    "OFS803 published, but not known to survive a power failure, or "
	    "not finished: mount it again for writing (%.200s)",
	    why.text);
	return 1;
}

/* Puts the old directory, out, in place again; err says why. If the new one does
 * not come out, somebody has put a third one there. */
static int go_back(struct ofs_publish *p, int out, struct optimfs_error *err)
{
	struct ofs_publish_stamp came;

	if (exchange(p) == -1)
		return unfinished(err);
	if (ofs_publish_look(p->stage, OFS_PUBLISH_GEN, &came) == -1 ||
	    came.ino != p->plan.gen) {
		(void)exchange(p);
		return unfinished(err);
	}
	p->published = false;
	/* what it cannot move stays in the stage, with the record */
	p->stuck = ofs_publish_merge(p, out, true, NULL) == -1;
	return -1;
}

/* Is what came out the old directory, with the files that are replaced? What was
 * decided by several ranks is not refused any more: then a file that another
 * program saved counts as saved after the commit. */
static int check_out(const struct ofs_publish *p, int out,
    struct optimfs_error *err)
{
	struct stat st;

	if (fstat(out, &st) == -1 || st.st_ino != p->plan.old)
		return optimfs_fail(err, ESTALE,
		    "OFS805 %s is not the directory that was mounted",
		    p->source);
	return p->plan.id[0] != '\0'
	    ? 0
	    : ofs_publish_unchanged(&p->plan, out, err);
}

int ofs_publish_exchanged(struct ofs_publish *p, int in,
    struct optimfs_error *err)
{
	int out = openat(p->stage, OFS_PUBLISH_GEN, DIR_FLAGS), ret = 0;

	p->published = p->stuck = true;
	err = OFS_SOME_ERROR(err);
	if (out != -1 && check_out(p, out, err) == -1)
		ret = go_back(p, out, err);
	else if (ofs_publish_merge(p, in, false, err) == -1)
		ret = unfinished(err);
	else
		p->stuck = false;
	if (out != -1)
		close(out);
	return ret;
}

int ofs_publish_exchange(struct ofs_publish *p, struct optimfs_error *err)
{
	int in = openat(p->stage, OFS_PUBLISH_GEN, DIR_FLAGS), ret, code;

	if (in == -1)
		return optimfs_fail(err, errno, "OFS802 %s/: %m",
		    OFS_PUBLISH_GEN);
	if (exchange(p) == 0) {
		ret = ofs_publish_exchanged(p, in, err);
		close(in);
		return ret;
	}
	code = errno;
	close(in);
	/* EXDEV: a directory of a lower layer of overlayfs */
	if (is_unsupported(code) || code == EXDEV)
		return cannot_exchange(err);
	errno = code;
	return optimfs_fail(err, code,
	    "OFS802 the new directory cannot be put in place: %m");
}
