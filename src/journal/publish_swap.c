/* publish_swap.c - a complete directory that replaces the old one */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/copy.h"
#include "base/io.h"
#include "base/sys.h"
#include "journal/publish_impl.h"

#define DIR_FLAGS (O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW)

struct walk {
	struct ofs_publish *p;
	int gen;
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
static bool is_gone(const struct ofs_publish *p, const char *rel)
{
	for (size_t i = 0; i < p->plan.n; i++)
		if (strcmp(p->plan.name[i].rel, rel) == 0)
			return true;
	return false;
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
	struct stat st;
	int out = -1, ret = -1;

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
	if (in != -1)
		close(in);
	if (out != -1)
		close(out);
	return ret;
}

static int carry_file(struct walk *w, const char *rel)
{
	if (is_gone(w->p, rel) ||
	    ofs_sys_link(w->p->dir, rel, w->gen, rel) == 0)
		return 0;
	if (errno == EPERM || errno == EMLINK || errno == EXDEV ||
	    errno == EOPNOTSUPP || errno == ENOSYS)
		return copy_whole(w, rel);
	return fail(w, rel);
}

static int carry_link(struct walk *w, const char *rel)
{
	char target[4097];
	ssize_t n = readlinkat(w->p->dir, rel, target, sizeof(target) - 1);

	if (n == -1)
		return fail(w, rel);
	target[n] = '\0';
	return ofs_sys_symlink(target, w->gen, rel) == -1 ? fail(w, rel) : 0;
}

static int carry(struct walk *w, const char *rel)
{
	struct stat st;

	if (fstatat(w->p->dir, rel, &st, AT_SYMLINK_NOFOLLOW) == -1)
		return fail(w, rel);
	if (S_ISREG(st.st_mode))
		return carry_file(w, rel);
	if (S_ISLNK(st.st_mode))
		return carry_link(w, rel);
	if (!S_ISDIR(st.st_mode))
		return optimfs_fail(w->err, EOPNOTSUPP,
		    "OFS823 %.200s is neither a file nor a directory, and "
		    "cannot be copied",
		    rel);
	if (ofs_sys_mkdir(w->gen, rel) == -1)
		return fail(w, rel);
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
		ret = fail(w, rel);
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

	for (size_t i = 0; i < p->plan.n; i++) {
		const struct ofs_publish_name *n = &p->plan.name[i];

		if (n->kind == OFS_PUBLISH_REMOVE)
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

	if (in == -1 || out == -1)
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
	struct walk w = { .p = p, .err = err };
	struct stat st;
	int ret;

	if (ofs_publish_parent(p->source, p->dir, &p->parent, &p->base, err) ==
	    -1)
		return -1;
	w.gen = ofs_publish_dir(p->stage, OFS_PUBLISH_GEN, err);
	if (w.gen == -1)
		return -1;
	ret = build(&w);
	if (ret == 0 && fstat(w.gen, &st) == -1)
		ret = fail(&w, OFS_PUBLISH_GEN);
	if (ret == 0)
		p->plan.gen = st.st_ino;
	close(w.gen);
	ofs_names_free(&w.dirs);
	return ret;
}

int ofs_publish_exchange(struct ofs_publish *p, struct optimfs_error *err)
{
	if (ofs_sys_rename(p->stage, OFS_PUBLISH_GEN, p->parent, p->base,
		RENAME_EXCHANGE) == -1) {
		int code = errno;

		if (code == EINVAL || code == ENOSYS || code == EOPNOTSUPP)
			return optimfs_fail(err, EOPNOTSUPP,
			    "OFS824 this file system cannot exchange two "
			    "directories, and %zu files change: copy the "
			    "checkpoint elsewhere, or write it with optimfs "
			    "reshard",
			    p->plan.n);
		return optimfs_fail(err, code,
		    "OFS802 the new directory cannot be put in place: %m");
	}
	p->published = true;
	if (ofs_sys_fsync(p->parent) == -1 || ofs_sys_fsync(p->stage) == -1) {
		optimfs_fail(err, EIO,
		    "OFS803 published, but not known to survive a power "
		    "failure: %m");
		return 1;
	}
	ofs_publish_clear(p->stage, OFS_PUBLISH_GEN);
	return 0;
}
