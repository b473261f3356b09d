/* replace.c - a file that gets its name when it is complete */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "base/replace.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"

/* dest may have a name of the maximal length. */
mode_t ofs_made_mode(mode_t mode, uint32_t source, uint64_t gid)
{
	bool other = (source & 0004) != 0;

	if (!other)
		mode &= ~(mode_t)0007;
	if ((source & 0040) == 0 || (!other && gid != getegid()))
		mode &= ~(mode_t)0070;
	return mode;
}

static int open_new(struct ofs_replace *r, const char *dest, mode_t mode,
    struct optimfs_error *err)
{
	const char *slash = strrchr(dest, '/');
	int n = slash == NULL ? 0 : (int)(slash + 1 - dest);
	uint64_t random;
	char *dir;

	if (getrandom(&random, sizeof(random), 0) != sizeof(random))
		return optimfs_fail(err, errno, "getrandom: %m");
	if (asprintf(&r->beside, "%.*s.optimfs.%016" PRIx64, n, dest, random) ==
	    -1) {
		r->beside = NULL;
		return ofs_no_memory(err);
	}
	dir = n == 0 ? strdup(".") : strndup(dest, (size_t)n);
	/* give_name needs /proc */
	if (dir != NULL && access("/proc/self/fd", X_OK) == 0)
		r->fd = open(dir, O_TMPFILE | O_WRONLY | O_CLOEXEC, mode);
	free(dir);
	if (r->fd != -1)
		return 0;
	r->fd = open(r->beside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
	if (r->fd == -1)
		return optimfs_fail(err, errno, "%m");
	r->name = r->beside;
	return 0;
}

/* Permissions of a group are not given to another one. Only root can give a file
 * to the old owner. */
static int keep_permissions(int fd, const struct stat *old)
{
	mode_t mode = old->st_mode & 0777;
	struct stat now;

	if (fstat(fd, &now) == -1)
		return -1;
	if (now.st_gid != old->st_gid &&
	    fchown(fd, (uid_t)-1, old->st_gid) == -1)
		mode &= ~(mode_t)070;
	/* not every file system knows fchmod */
	if ((now.st_mode & 0777) != mode && fchmod(fd, mode) == -1)
		return -1;
	return now.st_uid == old->st_uid ||
		fchown(fd, old->st_uid, (gid_t)-1) == 0 || errno == EPERM ||
		errno == EINVAL
	    ? 0
	    : -1;
}

/* The path of this file without symbolic links; NULL if it has none, as a
 * deleted file behind /dev/stdout. */
static char *real_path(const char *dest, const struct stat *st)
{
	char *path = realpath(dest, NULL);
	struct stat found;

	if (path != NULL && stat(path, &found) == 0 &&
	    found.st_dev == st->st_dev && found.st_ino == st->st_ino)
		return path;
	free(path);
	return NULL;
}

/* Is a file mounted there, as containers do with single files? rename(2) would
 * fail when all bytes are copied. */
static bool is_mount(const char *path)
{
	struct statx st;

	return statx(AT_FDCWD, path, 0, 0, &st) == 0 &&
	    (st.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0;
}

static int open_old(struct ofs_replace *r, const char *dest,
    const struct stat *old, struct optimfs_error *err)
{
	if (S_ISREG(old->st_mode))
		r->dest = real_path(dest, old);
	if (r->dest != NULL && is_mount(r->dest))
		return optimfs_fail(err, EBUSY,
		    "OFS012 a file is mounted there (a bind mount), and cannot "
		    "be replaced: give another name, or redirect "
		    "optimfs cat to it");
	if (r->dest == NULL)
		r->fd = open(dest, O_WRONLY | O_TRUNC | O_NOCTTY | O_CLOEXEC);
	else if (open_new(r, r->dest, 0600, err) == -1)
		return -1;
	if (r->fd == -1 ||
	    (r->dest != NULL && keep_permissions(r->fd, old) == -1))
		return optimfs_fail(err, errno, "%m");
	return 0;
}

int ofs_replace_open(struct ofs_replace *r, const char *dest,
    struct optimfs_error *err)
{
	struct stat st;
	int ret;

	*r = (struct ofs_replace){ .fd = -1 };
	if (stat(dest, &st) == 0)
		ret = open_old(r, dest, &st, err);
	else if (lstat(dest, &st) == 0)
		ret = optimfs_fail(err, ENOENT,
		    "OFS018 a dangling symbolic link: remove it");
	else if ((r->dest = strdup(dest)) == NULL)
		ret = ofs_no_memory(err);
	else
		ret = open_new(r, dest, 0666, err);
	if (ret == -1) {
		optimfs_fail_in(err, "%s", dest);
		ofs_replace_fini(r);
	}
	return ret;
}

/* The name is used only in renames and links, which do not follow one that
 * appears later. */
static int open_beneath(struct ofs_replace *r, int dir, const char *name,
    struct optimfs_error *err)
{
	struct stat st;
	bool there = fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0;

	if (there && !S_ISREG(st.st_mode))
		return optimfs_fail(err, S_ISDIR(st.st_mode) ? EISDIR : ELOOP,
		    "OFS020 something other than a file is there, and a "
		    "symbolic link in the destination is not followed: remove "
		    "it");
	if (asprintf(&r->dest, "/proc/self/fd/%d/%s", dir, name) == -1) {
		r->dest = NULL;
		return ofs_no_memory(err);
	}
	if (there && is_mount(r->dest))
		return optimfs_fail(err, EBUSY,
		    "OFS012 a file is mounted there (a bind mount), and cannot "
		    "be replaced: give another name");
	if (open_new(r, r->dest, there ? 0600 : 0666, err) == -1)
		return -1;
	return there && keep_permissions(r->fd, &st) == -1
	    ? optimfs_fail(err, errno, "%m")
	    : 0;
}

int ofs_replace_open_at(struct ofs_replace *r, int dir, const char *name,
    const char *shown, struct optimfs_error *err)
{
	*r = (struct ofs_replace){ .fd = -1 };
	if (open_beneath(r, dir, name, err) == 0)
		return 0;
	optimfs_fail_in(err, "%s", shown);
	ofs_replace_fini(r);
	return -1;
}

/* Gives it a name: its destination's, or if that exists, one beside it. */
static int give_name(struct ofs_replace *r)
{
	char self[32];

	if (r->dest == NULL || r->name != NULL)
		return 0;
	snprintf(self, sizeof(self), "/proc/self/fd/%d", r->fd);
	if (linkat(AT_FDCWD, self, AT_FDCWD, r->dest, AT_SYMLINK_FOLLOW) == 0)
		r->name = r->dest;
	else if (errno == EEXIST &&
	    linkat(AT_FDCWD, self, AT_FDCWD, r->beside, AT_SYMLINK_FOLLOW) == 0)
		r->name = r->beside;
	return r->name == NULL ? -1 : 0;
}

static int close_file(struct ofs_replace *r)
{
	int fd = r->fd;

	r->fd = -1;
	return fd == -1 ? 0 : close(fd);
}

int ofs_replace_finish(struct ofs_replace *r, struct optimfs_error *err)
{
	if (give_name(r) == -1 || close_file(r) == -1 ||
	    (r->name != NULL && r->name == r->beside &&
		rename(r->beside, r->dest) == -1))
		return optimfs_fail(err, errno, "%m");
	r->name = NULL;
	return 0;
}

void ofs_replace_fini(struct ofs_replace *r)
{
	close_file(r);
	if (r->name != NULL)
		unlink(r->name);
	free(r->dest);
	free(r->beside);
	*r = (struct ofs_replace){ .fd = -1 };
}
