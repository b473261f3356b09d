/* stage_path.c - paths and files of staging directories */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "journal/stage_path.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "journal/stage.h"

/* The path without symbolic links; its last component may not exist. */
static char *resolve(const char *source)
{
	char *real = realpath(source, NULL), *copy, *parent, *full = NULL;
	size_t n = strlen(source);

	if (real != NULL || errno != ENOENT)
		return real;
	copy = strdup(source);
	if (copy == NULL)
		return NULL;
	while (n > 1 && copy[n - 1] == '/')
		copy[--n] = '\0';
	parent = strrchr(copy, '/');
	if (parent == NULL)
		real = realpath(".", NULL);
	else if (parent == copy)
		real = strdup("");
	else {
		*parent = '\0';
		real = realpath(copy, NULL);
	}
	if (real != NULL &&
	    asprintf(&full, "%s/%s", strcmp(real, "/") == 0 ? "" : real,
		parent == NULL ? copy : parent + 1) == -1)
		full = NULL;
	free(real);
	free(copy);
	return full;
}

static int no_parent(const char *source, struct optimfs_error *err)
{
	char *copy = strdup(source);
	int ret = copy == NULL
	    ? ofs_no_memory(err)
	    : optimfs_fail(err, ENOENT,
		  "OFS809 %s: the directory above it does not exist: make it "
		  "first (mkdir -p %s)",
		  source, dirname(copy));

	free(copy);
	return ret;
}

char *ofs_stage_split(const char *source, char **name,
    struct optimfs_error *err)
{
	char *real = resolve(source), *slash;

	if (real == NULL) {
		if (errno == ENOENT)
			no_parent(source, err);
		else
			optimfs_fail(err, errno, "OFS809 %s: %m", source);
		return NULL;
	}
	slash = strrchr(real, '/');
	*name = slash + 1;
	if (**name == '\0') {
		optimfs_fail(err, EINVAL,
		    "OFS809 %s: no file can be created beside it: give upper=",
		    source);
		free(real);
		return NULL;
	}
	*slash = '\0';
	return real;
}

static int open_dir(int at, const char *name)
{
	return openat(at, name,
	    O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
}

/* Fails for a directory in which somebody else than owner (or root, who may do
 * everything) can put files. */
static int check_ours(int dir, uid_t owner, const char *place,
    struct optimfs_error *err)
{
	struct stat st;

	if (fstat(dir, &st) == -1)
		return optimfs_fail(err, errno, "OFS809 %s: %m", place);
	if (st.st_uid != owner)
		return optimfs_fail(err, EPERM,
		    "OFS846 %s belongs to another user (%u)", place,
		    (unsigned)st.st_uid);
	if ((st.st_mode & 022) != 0)
		return optimfs_fail(err, EPERM,
		    "OFS846 %s: others may write in it (mode %04o)", place,
		    (unsigned)st.st_mode & 07777);
	return 0;
}

int ofs_stage_look(const char *place, struct optimfs_error *err)
{
	/* others may search our stages, but not list them */
	int dir = open(place, O_PATH | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	struct stat st;

	if (dir == -1 && (errno == ENOTDIR || errno == ELOOP))
		return optimfs_fail(err, EPERM, "OFS846 %s is not a directory",
		    place);
	if (dir == -1)
		return optimfs_fail(err, errno, "OFS809 %s: %m", place);
	if (check_ours(dir,
		fstat(dir, &st) == 0 && st.st_uid == 0 ? 0 : geteuid(), place,
		err) == 0)
		return dir;
	close(dir);
	return -1;
}

int ofs_stage_open_file(int at, const char *name, int flags, mode_t mode)
{
	bool empty = (flags & O_TRUNC) != 0;
	int fd = openat(at, name,
	    (flags & ~O_TRUNC) | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY,
	    mode);
	struct stat st;
	int code;

	if (fd == -1)
		return -1;
	if (fstat(fd, &st) == -1)
		code = errno;
	else if (!S_ISREG(st.st_mode))
		code = EUCLEAN;
	else if ((flags & O_ACCMODE) != O_RDONLY && st.st_nlink > 1)
		code = EMLINK;
	/* ext4 writes a file to the disk at close if it was ever truncated,
	 * even an empty one */
	else if (empty && st.st_size > 0 && ftruncate(fd, 0) == -1)
		code = errno;
	else
		return fd;
	close(fd);
	errno = code;
	return -1;
}

const char *ofs_stage_why(int code)
{
	if (code == EMLINK)
		return "it has another name (a hard link), and what is "
		       "written here would change that";
	return code == EUCLEAN ? "not a regular file" : strerror(code);
}

char *ofs_stage_place(const char *source, struct optimfs_error *err)
{
	char *name, *parent = ofs_stage_split(source, &name, err), *path = NULL;

	if (parent == NULL)
		return NULL;
	if (asprintf(&path, "%s/.%s.optimfs", parent, name) == -1) {
		path = NULL;
		ofs_no_memory(err);
	}
	free(parent);
	return path;
}

static int look_beside(const char *source, char **place,
    struct optimfs_error *err)
{
	*place = ofs_stage_place(source, err);
	return *place == NULL ? -1 : ofs_stage_look(*place, err);
}

int ofs_stage_watch(const char *source)
{
	char *place;
	int dir = look_beside(source, &place, NULL);
	int fd = dir == -1 ? -1 : ofs_lock_watch(dir);

	if (dir != -1)
		close(dir);
	free(place);
	return fd;
}

/* Is the mount of the stage dir gone, and its process not? */
static bool is_leaving(int dir)
{
	long pid;
	int fd = ofs_lock_leaving(dir, &pid);

	if (fd != -1)
		close(fd);
	return fd != -1;
}

/* Waits until the lock of fd is free, for limit_ms at most. After a second the
 * kernel is asked again, because two minutes are long if its first answer was
 * wrong. */
static int await(int dir, int fd, long pid, const char *place, int64_t limit_ms,
    const struct ofs_stage_tell *tell, struct optimfs_error *err)
{
	static const struct timespec tick = { .tv_nsec = 10000000 };
	int64_t since = ofs_clock_ms(), now = since;
	bool told = false;
	char text[160];

	for (; ofs_lock_busy(fd); now = ofs_clock_ms()) {
		if (now - since >= limit_ms)
			return optimfs_fail(err, EBUSY,
			    "OFS847 the mount of pid %ld is gone, but that "
			    "process does not end its commit (%" PRId64
			    " s): end it, or, if it is gone, remove "
			    "%.100s/mounted",
			    pid, limit_ms / 1000, place);
		if (!told && now - since >= 1000) {
			if (!is_leaving(dir))
				return 0;
			snprintf(text, sizeof(text),
			    "waiting for the commit of a mount that was just "
			    "unmounted (pid %ld), for %" PRId64 " s at most",
			    pid, limit_ms / 1000);
			tell->say(tell->ctx, text);
			told = true;
		}
		nanosleep(&tick, NULL);
	}
	return 0;
}

int ofs_stage_await(const char *source, int64_t limit_ms,
    const struct ofs_stage_tell *tell, struct optimfs_error *err)
{
	struct optimfs_error why = { 0 };
	char *place;
	int dir = look_beside(source, &place, &why);
	long pid = 0;
	int fd = dir == -1 ? -1 : ofs_lock_leaving(dir, &pid);
	int ret = 0;

	if (dir == -1 && why.number == 846) {
		optimfs_fail_in(&why, "not looked at, and not waited for");
		tell->say(tell->ctx, why.text);
	}
	if (fd != -1) {
		ret = await(dir, fd, pid, place, limit_ms, tell, err);
		close(fd);
	}
	if (dir != -1)
		close(dir);
	free(place);
	return ret;
}

int ofs_stage_make_dir(int at, const char *name, const char *place,
    struct optimfs_error *err)
{
	int fd;

	if (mkdirat(at, name, 0700) == -1 && errno != EEXIST)
		return optimfs_fail(err, errno,
		    "OFS809 cannot create %s, where new files are written "
		    "first: %m",
		    place);
	fd = open_dir(at, name);
	if (fd == -1)
		return optimfs_fail(err, errno, "OFS809 %s: %m", place);
	if (check_ours(fd, geteuid(), place, err) == 0)
		return fd;
	close(fd);
	return optimfs_fail_in(err, "new files cannot be written there first");
}

int ofs_stage_open_at(const char *path, struct optimfs_error *err)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd == -1)
		optimfs_fail(err, errno, "OFS809 %s: %m", path);
	return fd;
}

int ofs_stage_make_in(const char *parent, const char *name, char **path,
    struct optimfs_error *err)
{
	int at, fd;

	if (asprintf(path, "%s/.%s.optimfs", parent, name) == -1) {
		*path = NULL;
		return ofs_no_memory(err);
	}
	at = ofs_stage_open_at(parent[0] == '\0' ? "/" : parent, err);
	if (at == -1)
		return -1;
	fd = ofs_stage_make_dir(at, *path + strlen(parent) + 1, *path, err);
	/* files synced in it are lost without its name */
	if (fd != -1 && fsync(at) == -1) {
		optimfs_fail(err, errno, "OFS809 %s: %m", *path);
		ofs_stage_rmdir(*path);
		close(fd);
		fd = -1;
	}
	close(at);
	return fd;
}

void ofs_stage_rmdir(const char *path)
{
	if (path != NULL)
		(void)rmdir(path);
}

int ofs_beside_take(const char *source, struct ofs_beside *b,
    struct optimfs_error *err)
{
	char *name, *parent = ofs_stage_split(source, &name, err), note[256];

	*b = (struct ofs_beside){ .dir = -1, .lock.fd = -1 };
	if (parent == NULL)
		return -1;
	b->dir = ofs_stage_make_in(parent, name, &b->path, err);
	free(parent);
	if (b->dir != -1 &&
	    ofs_lock_take(&b->lock, b->dir, b->path, note, sizeof(note), err) ==
		0)
		return 0;
	if (err != NULL && err->code == EBUSY)
		optimfs_fail_in(err, "%s", source);
	if (b->dir != -1)
		close(b->dir);
	ofs_stage_rmdir(b->path);
	free(b->path);
	*b = (struct ofs_beside){ .dir = -1, .lock.fd = -1 };
	return -1;
}

void ofs_beside_drop(struct ofs_beside *b)
{
	if (b->dir == -1)
		return;
	ofs_lock_remove(&b->lock);
	ofs_stage_rmdir(b->path);
	ofs_lock_close(&b->lock);
	close(b->dir);
	free(b->path);
	*b = (struct ofs_beside){ .dir = -1, .lock.fd = -1 };
}

void ofs_beside_holder(const char *source, char id[OFS_LOCK_ID])
{
	char *place;
	int dir = look_beside(source, &place, NULL);

	id[0] = '\0';
	if (dir != -1) {
		ofs_lock_peek(dir, id);
		close(dir);
	}
	free(place);
}
