/* io.c - opening and reading beneath the directory of a checkpoint */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "base/io.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/step.h"

#define MAX_PATH       4096
#define MAX_COMPONENTS 255

/* Opening a FIFO must not block, and a terminal must not become our controlling
 * terminal. */
#define FILE_FLAGS (O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)
#define DIR_FLAGS  (O_RDONLY | O_CLOEXEC | O_DIRECTORY)

static int open_as(const char *path, int flags, struct ofs_dir *dir,
    struct optimfs_error *err)
{
	struct ofs_dir new = { .fd = -1 };

	new.path = strdup(path);
	if (new.path == NULL)
		return ofs_no_memory(err);
	new.fd = open(path, flags);
	if (new.fd == -1) {
		if (errno == EACCES)
			optimfs_fail(err, EACCES,
			    "OFS756 %s: not allowed to read it", path);
		else
			optimfs_fail(err, EIO,
			    "OFS755 %s: cannot be opened: %m", path);
		free(new.path);
		return -1;
	}
	*dir = new;
	return 0;
}

int ofs_dir_open(const char *path, struct ofs_dir *dir,
    struct optimfs_error *err)
{
	return open_as(path, DIR_FLAGS, dir, err);
}

int ofs_dir_open_top(const char *path, struct ofs_dir *dir,
    struct optimfs_error *err)
{
	return open_as(path, O_PATH | O_CLOEXEC | O_DIRECTORY, dir, err);
}

int ofs_dir_open_names(const struct ofs_namespace *names, const char *path,
    struct ofs_dir *dir, struct optimfs_error *err)
{
	struct ofs_dir new = { .fd = -1, .names = names, .counted = true };

	new.path = strdup(path);
	if (new.path == NULL) {
		ofs_dir_close(&new);
		return ofs_no_memory(err);
	}
	*dir = new;
	return 0;
}

static void hold_names(const struct ofs_dir *dir)
{
	if (dir->counted)
		dir->names->ops->hold(dir->names);
}

static void let_names(const struct ofs_dir *dir)
{
	if (dir->counted)
		dir->names->ops->let(dir->names);
}

void ofs_dir_close(struct ofs_dir *dir)
{
	let_names(dir);
	if (dir->path != NULL && dir->fd != -1)
		close(dir->fd);
	if (dir->over)
		close(dir->upper);
	if (dir->rooted)
		close(dir->root);
	free(dir->within);
	free(dir->path);
	free(dir->below);
	*dir = (struct ofs_dir){ .fd = -1 };
}

/* Gives new, which has none, the root of dir, seen from the directory rel in
 * it. */
static int copy_root(const struct ofs_dir *dir, const char *rel,
    struct ofs_dir *new, struct optimfs_error *err)
{
	if (!dir->rooted)
		return 0;
	new->within = rel[0] == '\0' ? strdup(dir->within)
				     : ofs_path_join(dir->within, rel);
	if (new->within == NULL)
		return ofs_no_memory(err);
	new->root = fcntl(dir->root, F_DUPFD_CLOEXEC, 3);
	new->rooted = new->root != -1;
	return new->rooted ? 0
			   : optimfs_fail(err, errno,
				 "%s: cannot be opened again: %m", dir->path);
}

int ofs_dir_set_root(struct ofs_dir *dir, size_t n, struct optimfs_error *err)
{
	const char *within = dir->path + n + (dir->path[n] == '/');
	char *root = strndup(dir->path, n), *copy = strdup(within);

	if (root == NULL || copy == NULL) {
		free(root);
		free(copy);
		return ofs_no_memory(err);
	}
	dir->root = open(root, DIR_FLAGS);
	if (dir->root == -1) {
		optimfs_fail(err, EIO, "OFS755 %s: cannot be opened: %m", root);
		free(copy);
	} else {
		dir->rooted = true;
		dir->within = copy;
	}
	free(root);
	return dir->rooted ? 0 : -1;
}

int ofs_dir_copy(const struct ofs_dir *dir, struct ofs_dir *copy,
    struct optimfs_error *err)
{
	struct ofs_dir new = *dir;

	new.rooted = false;
	new.within = NULL;
	if (copy_root(dir, "", &new, err) == -1) {
		free(new.within);
		return -1;
	}
	new.path = strdup(dir->path);
	new.below = dir->below == NULL ? NULL : strdup(dir->below);
	if (dir->fd != -1)
		new.fd = fcntl(dir->fd, F_DUPFD_CLOEXEC, 3);
	if (dir->over)
		new.upper = fcntl(dir->upper, F_DUPFD_CLOEXEC, 3);
	if (new.path != NULL && (new.below != NULL) == (dir->below != NULL) &&
	    (new.fd != -1) == (dir->fd != -1) &&
	    (!dir->over || new.upper != -1)) {
		hold_names(&new);
		*copy = new;
		return 0;
	}
	optimfs_fail(err, dir->fd != -1 && new.fd == -1 ? errno : ENOMEM,
	    "%s: cannot be opened again: %m", dir->path);
	if (new.fd != -1)
		close(new.fd);
	if (dir->over && new.upper != -1)
		close(new.upper);
	if (new.rooted)
		close(new.root);
	free(new.within);
	free(new.path);
	free(new.below);
	return -1;
}

/* Does upper have a file rel that hides that of dir? */
static bool is_above(const struct ofs_dir *dir, const char *rel)
{
	struct stat st;

	return dir->over &&
	    fstatat(dir->upper, rel, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	    !S_ISDIR(st.st_mode);
}

/* Where is rel, a path in dir? Asks names by its path there. */
static enum ofs_where look_up(const struct ofs_dir *dir, const char *rel,
    uint32_t *file, struct stat *st, struct optimfs_error *err)
{
	char path[2 * MAX_PATH + 2];
	int n;

	if (dir->names == NULL || is_above(dir, rel))
		return OFS_HERE;
	n = snprintf(path, sizeof(path), "%s%s%s",
	    dir->below == NULL ? "" : dir->below,
	    dir->below == NULL || rel[0] == '\0' ? "" : "/", rel);
	if (n < 0 || (size_t)n >= sizeof(path))
		return OFS_NOWHERE;
	return dir->names->ops->find(dir->names, path, file, st, err);
}

bool ofs_dir_remote(const struct ofs_dir *dir, const char *rel,
    uint32_t *file)
{
	return dir->names != NULL && ofs_path_stays(rel, strlen(rel)) &&
	    look_up(dir, rel, file, NULL, NULL) == OFS_THERE;
}

bool ofs_dir_shared(const struct ofs_dir *dir, const char *rel, uint32_t *file)
{
	enum ofs_where where;

	if (dir->names == NULL || dir->over ||
	    !ofs_path_stays(rel, strlen(rel)))
		return false;
	where = look_up(dir, rel, file, NULL, NULL);
	return where == OFS_HERE || where == OFS_THERE;
}

bool ofs_path_stays(const char *rel, size_t n)
{
	size_t start = 0, components = 0;

	if (n == 0 || n > MAX_PATH || memchr(rel, '\0', n) != NULL)
		return false;
	for (size_t i = 0; i <= n; i++) {
		size_t len = i - start;

		if (i < n && rel[i] != '/')
			continue;
		if (len == 0 || (len == 1 && rel[start] == '.') ||
		    (len == 2 && memcmp(rel + start, "..", 2) == 0) ||
		    ++components > MAX_COMPONENTS)
			return false;
		start = i + 1;
	}
	return true;
}

const char *ofs_path_last(const char *path)
{
	const char *name = basename(path);

	return *name == '\0' ? path : name;
}

bool ofs_path_matches(const char *const *patterns, const char *path)
{
	for (; patterns != NULL && *patterns != NULL; patterns++)
		if (fnmatch(*patterns, path, FNM_PATHNAME | FNM_LEADING_DIR) ==
		    0)
			return true;
	return false;
}

char *ofs_path_join(const char *rel, const char *name)
{
	char *path;

	return asprintf(&path, "%s%s%s", rel, rel[0] == '\0' ? "" : "/",
		   name) == -1
	    ? NULL
	    : path;
}

/* One step of walk: open the directory name[0..n) in at, and close at if
 * close_at. */
static int walk_into(int at, const char *name, size_t n, bool close_at)
{
	char component[MAX_PATH + 1];
	struct stat st;
	int fd, saved;

	memcpy(component, name, n);
	component[n] = '\0';
	fd = openat(at, component, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	saved = errno;
	if (close_at)
		close(at);
	errno = saved;
	if (fd == -1)
		return -1;
	saved = 0;
	if (fstat(fd, &st) == -1)
		saved = errno;
	else if (S_ISLNK(st.st_mode))
		saved = ELOOP;
	else if (!S_ISDIR(st.st_mode))
		saved = ENOTDIR;
	if (saved == 0)
		return fd;
	close(fd);
	errno = saved;
	return -1;
}

static bool is_link(int at, const char *name)
{
	struct stat st;

	return fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	    S_ISLNK(st.st_mode);
}

/* open_beneath for a kernel or a sandbox without openat2. rel has no ".." and
 * no link is followed, so no step leaves the directory. */
static int walk(int dirfd, const char *rel, int flags)
{
	const char *slash;
	int at = dirfd, fd, saved;

	while ((slash = strchr(rel, '/')) != NULL) {
		at = walk_into(at, rel, (size_t)(slash - rel), at != dirfd);
		if (at == -1)
			return -1;
		rel = slash + 1;
	}
	do
		fd = openat(at, rel, flags | O_NOFOLLOW);
	while (fd == -1 && errno == EINTR);
	saved = errno;
	/* the kernel reports a link so, too, with O_DIRECTORY */
	if (fd == -1 && saved == ENOTDIR && is_link(at, rel))
		saved = ELOOP;
	if (at != dirfd)
		close(at);
	errno = saved;
	return fd;
}

static int open_in(int at, bool follow, const char *rel, int flags)
{
	struct open_how how = {
		.flags = (unsigned int)flags,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS,
	};
	int fd;

	if (!follow)
		how.resolve |= RESOLVE_NO_SYMLINKS;
	/* EAGAIN: something was renamed while a ".." in a link was resolved. */
	for (int tries = 0; tries < 100; tries++) {
		fd = (int)syscall(__NR_openat2, at, rel, &how, sizeof(how));
		if (fd != -1 || (errno != EAGAIN && errno != EINTR))
			break;
	}
	/* Old seccomp filters fail unknown calls with EPERM. */
	if (fd == -1 && (errno == ENOSYS || errno == EPERM))
		return walk(at, rel, flags);
	return fd;
}

/* Open what a link, or a path over one, leads to beneath the root. */
static int open_through_root(const struct ofs_dir *dir, const char *rel,
    int flags)
{
	char *path = ofs_path_join(dir->within, rel);
	int fd, saved;

	if (path == NULL) {
		errno = ENOMEM;
		return -1;
	}
	fd = open_in(dir->root, true, path, flags);
	saved = errno;
	free(path);
	errno = saved;
	return fd;
}

/* Open rel, which ofs_path_stays accepts; -1 with errno, ELOOP for a link. */
static int open_beneath(const struct ofs_dir *dir, const char *rel, int flags)
{
	int fd;


	if (dir->over && (flags & O_DIRECTORY) == 0) {
		fd = open_in(dir->upper, dir->follow, rel, flags);
		if (fd != -1 || errno != ENOENT)
			return fd;
	}
	fd = open_in(dir->fd, dir->follow, rel, flags);
	return fd == -1 && dir->rooted && (errno == ELOOP || errno == EXDEV)
	    ? open_through_root(dir, rel, flags)
	    : fd;
}

static int refuse_path(const char *rel, struct optimfs_error *err)
{
	return optimfs_fail(err, EPERM,
	    "OFS620 path '%.300s' leaves the checkpoint", rel);
}

static int explain_open(const struct ofs_dir *dir, const char *rel,
    struct optimfs_error *err)
{
	switch (errno) {
	case ENOENT:
	case ENOTDIR:
		return ofs_fail_lost(err, ENOENT, OPTIMFS_LOST_MISSING,
		    "OFS140", rel, ": no such file");
	case EXDEV:
		return refuse_path(rel, err);
	case ELOOP:
		if (dir->follow)
			return optimfs_fail(err, EPERM,
			    "OFS621 %.300s: symbolic links could not be "
			    "followed inside the checkpoint",
			    rel);
		return optimfs_fail(err, EPERM,
		    "OFS621 %.300s: symbolic link refused (-o follow)", rel);
	case ENXIO: /* a socket, or a device without a driver */
		return optimfs_fail(err, EUCLEAN,
		    "OFS602 %.300s: not a regular file", rel);
	case EMFILE: /* the caller can close descriptors and retry */
	case ENFILE:
		return optimfs_fail(err, errno,
		    "OFS755 %.300s: %m (ulimit -Hn)", rel);
	case ENOMEM:
	case ESTALE:
		return optimfs_fail(err, errno, "%.300s: %m", rel);
	case EACCES:
		return ofs_fail_lost(err, EACCES, OPTIMFS_LOST_CLOSED, "OFS756",
		    rel, ": not allowed to read it");
	default:
		return optimfs_fail(err, EIO,
		    "OFS755 %.300s: cannot be opened: %m", rel);
	}
}

int ofs_dir_open_file(const struct ofs_dir *dir, const char *rel,
    struct stat *st, struct optimfs_error *err)
{
	struct stat got;
	int fd;

	if (!ofs_path_stays(rel, strlen(rel)))
		return refuse_path(rel, err);
	fd = open_beneath(dir, rel, FILE_FLAGS);
	if (fd == -1)
		return explain_open(dir, rel, err);
	if (fstat(fd, &got) == -1) {
		explain_open(dir, rel, err);
		close(fd);
		return -1;
	}
	if (!S_ISREG(got.st_mode)) {
		close(fd);
		return optimfs_fail(err, EUCLEAN,
		    "OFS602 %.300s: not a regular file", rel);
	}
	*st = got;
	return fd;
}

int ofs_dir_open_input(const struct ofs_dir *dir, const char *rel,
    struct ofs_input *in, struct stat *st, struct optimfs_error *err)
{
	struct ofs_input new = { .fd = -1, .names = dir->names };
	enum ofs_where where = OFS_HERE;
	struct stat mine;

	if (st == NULL)
		st = &mine;
	if (dir->names != NULL && ofs_path_stays(rel, strlen(rel)))
		where = look_up(dir, rel, &new.file, st, err);
	if (where == OFS_UNKNOWN)
		return -1;
	if (where != OFS_THERE) {
		new.names = NULL;
		if (dir->fd == -1 && !is_above(dir, rel))
			return ofs_fail_lost(err, ENOENT, OPTIMFS_LOST_MISSING,
			    "OFS140", rel, ": no such file");
		new.fd = ofs_dir_open_file(dir, rel, st, err);
		if (new.fd == -1)
			return -1;
	} else if (!S_ISREG(st->st_mode)) {
		return optimfs_fail(err, EUCLEAN,
		    "OFS602 %.300s: not a regular file on the rank that has it",
		    rel);
	}
	*in = new;
	return 0;
}

int ofs_input_read(const struct ofs_input *in, void *buf, uint64_t n,
    uint64_t off, struct optimfs_error *err)
{
	if (in->fd != -1)
		return ofs_pread_all(in->fd, buf, n, off, err);
	return in->names->ops->read(in->names, in->file, buf, n, off,
	    err);
}

void ofs_input_close(struct ofs_input *in)
{
	if (in->fd != -1)
		close(in->fd);
	in->fd = -1;
}

static bool put_below(const struct ofs_dir *dir, const char *rel,
    struct ofs_dir *sub)
{
	if (dir->names == NULL)
		return true;
	sub->names = dir->names;
	sub->counted = dir->counted;
	hold_names(sub);
	sub->below = ofs_path_join(dir->below == NULL ? "" : dir->below, rel);
	return sub->below != NULL;
}

int ofs_dir_open_sub(const struct ofs_dir *dir, const char *rel,
    struct ofs_dir *sub, struct optimfs_error *err)
{
	struct ofs_dir new = {
		.fd = -1, .follow = dir->follow, .gone = dir->gone
	};
	enum ofs_where where;
	uint32_t file;
	int saved;

	if (!ofs_path_stays(rel, strlen(rel)))
		return refuse_path(rel, err);
	if (asprintf(&new.path, "%s/%s", dir->path, rel) == -1)
		return ofs_no_memory(err);
	if (!put_below(dir, rel, &new) ||
	    copy_root(dir, rel, &new, err) == -1) {
		ofs_dir_close(&new);
		return ofs_no_memory(err);
	}
	errno = ENOENT;
	if (dir->fd != -1)
		new.fd = open_beneath(dir, rel, DIR_FLAGS);
	saved = errno;
	if (dir->over) {
		new.upper =
		    open_in(dir->upper, dir->follow, rel, DIR_FLAGS);
		new.over = new.upper != -1;
	}
	where = new.fd != -1 || dir->names == NULL
	    ? OFS_HERE
	    : look_up(dir, rel, &file, NULL, err);
	if (new.fd == -1 && where != OFS_DIRECTORY &&
	    (dir->names == NULL || !new.over)) {
		errno = saved;
		if (where != OFS_UNKNOWN)
			explain_open(dir, rel, err);
		ofs_dir_close(&new);
		return -1;
	}
	*sub = new;
	return 0;
}

/* The stat of a name with one component, in one call. It cannot leave the
 * directory, because it is not a link. */
static bool stat_plain(const struct ofs_dir *dir, const char *rel,
    struct stat *st)
{
	return !dir->over && strchr(rel, '/') == NULL &&
	    fstatat(dir->fd, rel, st, AT_SYMLINK_NOFOLLOW) == 0 &&
	    !S_ISLNK(st->st_mode);
}

bool ofs_dir_stat(const struct ofs_dir *dir, const char *rel, struct stat *st)
{
	int fd, flags = O_PATH | O_CLOEXEC;
	uint32_t file;
	bool there;

	if (!ofs_path_stays(rel, strlen(rel)))
		return false;
	switch (look_up(dir, rel, &file, st, NULL)) {
	case OFS_UNKNOWN:
	case OFS_NOWHERE:
		return false;
	case OFS_THERE:
		return true;
	case OFS_DIRECTORY:
		*st = (struct stat){ .st_mode = S_IFDIR | 0555, .st_nlink = 2 };
		return true;
	case OFS_HERE:
		break;
	}
	if (stat_plain(dir, rel, st))
		return true;
	if (!dir->follow && !dir->rooted)
		flags |= O_NOFOLLOW; /* stat the link itself */
	fd = open_beneath(dir, rel, flags);
	if (fd == -1)
		return false;
	there = fstat(fd, st) == 0;
	close(fd);
	return there;
}

int ofs_dir_empty(const char *path)
{
	struct dirent *e;
	DIR *d = opendir(path);
	int empty = 1, saved;

	if (d == NULL)
		return -1;
	while (errno = 0, (e = readdir(d)) != NULL)
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
			empty = 0;
	saved = errno;
	closedir(d);
	errno = saved;
	return saved == 0 ? empty : -1;
}

int ofs_sync_parent(const char *path)
{
	size_t n = strlen(path);
	char *parent;
	int fd, ret;

	while (n > 1 && path[n - 1] == '/')
		n--;
	while (n > 0 && path[n - 1] != '/')
		n--;
	parent = n == 0 ? strdup(".") : strndup(path, n);
	fd = parent == NULL ? -1
			    : open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	free(parent);
	if (fd == -1)
		return -1;
	ret = fsync(fd);
	close(fd);
	return ret;
}
