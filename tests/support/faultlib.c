/* faultlib.c - a preloaded library that counts system calls and makes one
 * fail */
/* SPDX-License-Identifier: Apache-2.0 */

/* FAULT_TRACE=FILE   gets a line for each call (its number, class, name and
 *                    path) and lines with "=" that describe its effect
 * FAULT_AT=N         at call N, counted from 1,
 * FAULT_PATH=TEXT    or at the first one about a path with TEXT in it that
 *                    changes something,
 * FAULT_AFTER=FILE   or, after FILE has existed,
 * FAULT_NTH=N        at the Nth of those calls, without syncs,
 * FAULT_HOW=FAULT    this happens (enum fault)
 * FAULT_CODE=ERRNO   with this error
 * FAULT_GATE=FILE    what FAULT_WAIT waits for. Meanwhile a thread that waits
 *                    for signals waits a thousandth of the time: deadlines
 *                    of minutes pass in a second
 * FAULT_TICKS=N      but after N of its waits it is a thousand times as long:
 *                    no deadline passes before the gate opens
 * FAULT_FUSE=1       libfuse is one that was built without custom I/O
 * FAULT_EARLY=1      the thread called optimfs-early, whose calls have no numbers,
 *                    may change something
 *
 * Calls on descriptor FAULT_MARK_FD are not passed on: they are marks in the
 * trace. This library calls syscall(2) or the next library, and allocates
 * nothing. */
#include "config.h"

#include "faultlib.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

/* The effect of a call. It decides which errors of a full, read-only or broken
 * disk the call can meet. */
enum class {
	LOOK = 'l',
	SPACE = 'w',  /* allocates space */
	CHANGE = 'c', /* another change */
	SYNC = 's',
};

static atomic_long count;
static atomic_bool locked; /* between the marks */
static atomic_long at;
static const char *where, *after;
static atomic_bool begun;   /* the file FAULT_AFTER has existed */
static atomic_long left;    /* calls left until that of FAULT_NTH */
static atomic_bool waiting; /* for FAULT_GATE */
static int code;
static enum fault how;
static int trace = -1;

static long number(const char *name)
{
	const char *value = getenv(name);

	return value == NULL ? 0 : atol(value);
}

__attribute__((constructor)) static void begin(void)
{
	const char *path = getenv("FAULT_TRACE");

	if (path != NULL)
		trace = (int)syscall(SYS_openat, AT_FDCWD, path,
		    O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	at = number("FAULT_AT");
	where = getenv("FAULT_PATH");
	after = getenv("FAULT_AFTER");
	left = number("FAULT_NTH");
	how = (enum fault)number("FAULT_HOW");
	code = (int)number("FAULT_CODE");
}

/* The function of this name in the next library. */
#define NEXT(name)                       \
 static __typeof__(name) *next;          \
 if (next == NULL) {                     \
  void *found = dlsym(RTLD_NEXT, #name); \
  memcpy(&next, &found, sizeof(next));   \
 }

static void say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void say(const char *fmt, ...)
{
	char line[3 * PATH_MAX];
	va_list ap;
	int n;

	if (trace == -1)
		return;
	va_start(ap, fmt);
	n = vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	if (n > 0)
		syscall(SYS_write, trace, line, (size_t)n);
}

static void die(void)
{
	raise(SIGKILL);
	for (;;)
		pause();
}

static bool refused_from_now_on(enum class class)
{
	switch (code) {
	case ENOSPC:
		return class == SPACE;
	case EROFS:
		return class == SPACE || class == CHANGE;
	default:
		return class != LOOK;
	}
}

/* The path of a descriptor, or of a name in a directory. */
static const char *about(int fd, const char *path, char out[2 * PATH_MAX])
{
	char link[64];
	ssize_t n = 0;

	if (fd != AT_FDCWD && (path == NULL || path[0] != '/')) {
		snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
		n = readlink(link, out, PATH_MAX - 1);
		n = n < 0 ? 0 : n;
	}
	snprintf(out + n, PATH_MAX, "%s%s", n > 0 && path != NULL ? "/" : "",
	    path == NULL ? "" : path);
	return out;
}

static void wait_gate(void)
{
	const struct timespec tick = { .tv_nsec = 10000000 };
	const char *gate = getenv("FAULT_GATE");

	atomic_store(&waiting, true);
	while (gate != NULL &&
	    syscall(SYS_faccessat, AT_FDCWD, gate, F_OK) == -1)
		nanosleep(&tick, NULL);
	atomic_store(&waiting, false);
}

/* Is this call, which changes something, the one that FAULT_PATH selects? */
static bool is_chosen(enum class class, const char *path)
{
	if (strstr(path, where) == NULL)
		return false;
	if (after == NULL)
		return true;
	if (syscall(SYS_faccessat, AT_FDCWD, after, F_OK) == 0)
		atomic_store(&begun, true);
	return atomic_load(&begun) && class != SYNC &&
	    atomic_fetch_sub(&left, 1) == 1;
}

/* Is this the thread that writes a new checkpoint early (push/early.h)? How far it
 * gets, and so the calls of the commit, differ from run to run. */
static bool is_early(void)
{
	char name[16] = "";

	return prctl(PR_GET_NAME, name) == 0 &&
	    strcmp(name, "optimfs-early") == 0;
}

/* Must this call fail? n: the bytes to write, or NULL. */
static bool fails(const char *name, enum class class, int fd, const char *path,
    size_t *n)
{
	bool early = is_early();
	long k = early ? atomic_load(&count) : atomic_fetch_add(&count, 1) + 1;
	char of[2 * PATH_MAX];

	if (early) {
		bool from = how == FAULT_FROM && k >= at;

		errno = from ? code : EOPNOTSUPP;
		return from ? refused_from_now_on(class)
			    : class != LOOK && getenv("FAULT_EARLY") == NULL;
	}
	if (trace != -1)
		say("%ld\t%c\t%s\t%s\n", k, class, name, about(fd, path, of));
	if (at == 0 && where != NULL && class != LOOK &&
	    is_chosen(class, about(fd, path, of)))
		at = k;
	if (how == FAULT_STOP && k >= at && class != LOOK &&
	    atomic_load(&locked))
		raise(SIGSTOP);
	if (how == FAULT_FROM && k >= at && refused_from_now_on(class)) {
		errno = code;
		return true;
	}
	if (k != at || how == FAULT_FROM || how == FAULT_STOP)
		return false;
	if (how == FAULT_INTERRUPT)
		raise(SIGINT);
	if (how == FAULT_WAIT)
		wait_gate();
	if (how == FAULT_INTERRUPT || how == FAULT_WAIT)
		return false;
	if (how == FAULT_KILL || (how == FAULT_TORN && n == NULL))
		die();
	if (how == FAULT_ERROR) {
		errno = code;
		return true;
	}
	if (n != NULL && *n > 1)
		*n /= 2;
	return false;
}

/* Called after half of a write. */
static void torn(void)
{
	if (how == FAULT_TORN && count >= at)
		die();
}

static unsigned long ino_of(int fd)
{
	struct stat st;

	return fstat(fd, &st) == -1 ? 0 : (unsigned long)st.st_ino;
}

static unsigned long ino_at(int dir, const char *path, int flags)
{
	struct stat st;

	return fstatat(dir, path, &st, flags) == -1 ? 0
						    : (unsigned long)st.st_ino;
}

static unsigned long named(int dir, const char *path)
{
	return ino_at(dir, path, AT_SYMLINK_NOFOLLOW);
}

/* The inode of the directory that contains the last component of path. */
static unsigned long parent_of(int dir, const char *path)
{
	const char *slash = strrchr(path, '/');
	char up[PATH_MAX];

	if (slash == NULL)
		strcpy(up, ".");
	else
		snprintf(up, sizeof(up), "%.*s",
		    slash == path ? 1 : (int)(slash - path), path);
	return ino_at(dir, up, 0);
}

static const char *base_of(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash == NULL ? path : slash + 1;
}

static void said(const char *what, int fd)
{
	if (trace != -1)
		say("=\t%s\t%lu\n", what, ino_of(fd));
}

static bool makes(int flags)
{
	return (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE;
}

static bool is_elsewhere(const char *path)
{
	return strncmp(path, "/proc/", 6) == 0 ||
	    strncmp(path, "/sys/", 5) == 0 || strncmp(path, "/dev/", 5) == 0;
}

static int opened(int dir, const char *path, int flags, mode_t mode)
{
	bool new = makes(flags), writes = (flags & O_ACCMODE) != O_RDONLY;
	unsigned long was = 0;
	int fd;

	if (!is_elsewhere(path) &&
	    fails(new ? "create" : "open",
		new          ? SPACE
		    : writes ? CHANGE
			     : LOOK,
		dir, path, NULL))
		return -1;
	if (trace != -1 && (flags & O_CREAT) != 0)
		was = named(dir, path);
	fd = (int)syscall(SYS_openat, dir, path, flags, mode);
	if (fd == -1 || trace == -1)
		return fd;
	if ((flags & O_CREAT) != 0 && was == 0)
		say("=\tcreate\t%lu\t%lu\t%s\n", parent_of(dir, path),
		    ino_of(fd), base_of(path));
	else if ((flags & O_TRUNC) != 0)
		said("write", fd);
	return fd;
}

static mode_t mode_of(int flags, va_list ap)
{
	return makes(flags) ? va_arg(ap, mode_t) : 0;
}

int open(const char *path, int flags, ...)
{
	va_list ap;
	mode_t mode;

	va_start(ap, flags);
	mode = mode_of(flags, ap);
	va_end(ap);
	return opened(AT_FDCWD, path, flags, mode);
}

int openat(int dir, const char *path, int flags, ...)
{
	va_list ap;
	mode_t mode;

	va_start(ap, flags);
	mode = mode_of(flags, ap);
	va_end(ap);
	return opened(dir, path, flags, mode);
}

ssize_t pwrite(int fd, const void *buf, size_t n, off_t off)
{
	ssize_t done;

	if (fails("pwrite", SPACE, fd, NULL, &n))
		return -1;
	done = (ssize_t)syscall(SYS_pwrite64, fd, buf, n, off);
	torn();
	if (done > 0)
		said("write", fd);
	return done;
}

static void marked(const char *text, size_t n)
{
	say("=\tmark\t%.*s\n", (int)n, text);
	if (n == strlen(FAULT_OPEN) && memcmp(text, FAULT_OPEN, n) == 0)
		atomic_store(&locked, true);
	if (n == strlen(FAULT_DONE) && memcmp(text, FAULT_DONE, n) == 0)
		atomic_store(&locked, false);
}

ssize_t write(int fd, const void *buf, size_t n)
{
	ssize_t done;

	if (fd == FAULT_MARK_FD) {
		marked(buf, n);
		syscall(SYS_write, fd, buf, n);
		return (ssize_t)syscall(SYS_write, fd, "\n", 1);
	}
	if (fails("write", SPACE, fd, NULL, &n))
		return -1;
	done = (ssize_t)syscall(SYS_write, fd, buf, n);
	torn();
	if (done > 0)
		said("write", fd);
	return done;
}

ssize_t pread(int fd, void *buf, size_t n, off_t off)
{
	if (fails("pread", LOOK, fd, NULL, NULL))
		return -1;
	return (ssize_t)syscall(SYS_pread64, fd, buf, n, off);
}

int ftruncate(int fd, off_t size)
{
	int ret;

	if (fails("ftruncate", CHANGE, fd, NULL, NULL))
		return -1;
	ret = (int)syscall(SYS_ftruncate, fd, size);
	if (ret == 0)
		said(size == 0 ? "empty" : "write", fd);
	return ret;
}

ssize_t copy_file_range(int in, off64_t *in_off, int out, off64_t *out_off,
    size_t n, unsigned flags)
{
	ssize_t done;

	if (fails("copy_file_range", SPACE, out, NULL, &n))
		return -1;
	done = (ssize_t)syscall(SYS_copy_file_range, in, in_off, out, out_off,
	    n, flags);
	torn();
	if (done > 0)
		said("write", out);
	return done;
}

int ioctl(int fd, unsigned long request, ...)
{
	va_list ap;
	void *arg;
	int ret;

	va_start(ap, request);
	arg = va_arg(ap, void *);
	va_end(ap);
	if (request == FICLONE && fails("ficlone", SPACE, fd, NULL, NULL))
		return -1;
	ret = (int)syscall(SYS_ioctl, fd, request, arg);
	if (ret == 0 && request == FICLONE)
		said("write", fd);
	return ret;
}

static int synced(long call, int fd)
{
	int ret;

	if (fails("fsync", SYNC, fd, NULL, NULL))
		return -1;
	ret = (int)syscall(call, fd);
	if (ret == 0)
		said("fsync", fd);
	return ret;
}

int sigtimedwait(const sigset_t *set, siginfo_t *info,
    const struct timespec *timeout)
{
	static atomic_int ticked;
	const char *ticks = getenv("FAULT_TICKS");
	struct timespec t = { 0 };
	NEXT(sigtimedwait)

	if (timeout == NULL || !atomic_load(&waiting))
		return next(set, info, timeout);
	if (ticks != NULL && atomic_fetch_add(&ticked, 1) >= atoi(ticks))
		t.tv_sec = timeout->tv_sec * 1000 + timeout->tv_nsec / 1000000;
	else
		t.tv_nsec = timeout->tv_sec * 1000000 + timeout->tv_nsec / 1000;
	return next(set, info, &t);
}

int fsync(int fd)
{
	return synced(SYS_fsync, fd);
}

int fdatasync(int fd)
{
	return synced(SYS_fdatasync, fd);
}

int renameat2(int from, const char *a, int to, const char *b, unsigned flags)
{
	int ret;

	if (fails("rename", CHANGE, to, b, NULL))
		return -1;
	ret = (int)syscall(SYS_renameat2, from, a, to, b, flags);
	if (ret == 0 && trace != -1)
		say("=\trename\t%lu\t%lu\t%u\t%s\t%s\n", parent_of(from, a),
		    parent_of(to, b), flags, base_of(a), base_of(b));
	return ret;
}

int renameat(int from, const char *a, int to, const char *b)
{
	return renameat2(from, a, to, b, 0);
}

int rename(const char *a, const char *b)
{
	return renameat2(AT_FDCWD, a, AT_FDCWD, b, 0);
}

int unlinkat(int dir, const char *path, int flags)
{
	unsigned long up = trace == -1 ? 0 : parent_of(dir, path);
	int ret;

	if (fails("unlink", CHANGE, dir, path, NULL))
		return -1;
	ret = (int)syscall(SYS_unlinkat, dir, path, flags);
	if (ret == 0)
		say("=\tunlink\t%lu\t%s\n", up, base_of(path));
	return ret;
}

int unlink(const char *path)
{
	return unlinkat(AT_FDCWD, path, 0);
}

int rmdir(const char *path)
{
	return unlinkat(AT_FDCWD, path, AT_REMOVEDIR);
}

static void said_made(int dir, const char *path)
{
	if (trace != -1)
		say("=\tcreate\t%lu\t%lu\t%s\n", parent_of(dir, path),
		    named(dir, path), base_of(path));
}

int mkdirat(int dir, const char *path, mode_t mode)
{
	int ret;

	if (fails("mkdir", SPACE, dir, path, NULL))
		return -1;
	ret = (int)syscall(SYS_mkdirat, dir, path, mode);
	if (ret == 0)
		said_made(dir, path);
	return ret;
}

int mkdir(const char *path, mode_t mode)
{
	return mkdirat(AT_FDCWD, path, mode);
}

int linkat(int from, const char *a, int to, const char *b, int flags)
{
	int ret;

	if (fails("link", SPACE, to, b, NULL))
		return -1;
	ret = (int)syscall(SYS_linkat, from, a, to, b, flags);
	if (ret == 0)
		said_made(to, b);
	return ret;
}

int symlinkat(const char *target, int dir, const char *path)
{
	int ret;

	if (fails("symlink", SPACE, dir, path, NULL))
		return -1;
	ret = (int)syscall(SYS_symlinkat, target, dir, path);
	if (ret == 0)
		said_made(dir, path);
	return ret;
}

int fchmod(int fd, mode_t mode)
{
	NEXT(fchmod)
	return fails("fchmod", CHANGE, fd, NULL, NULL) ? -1 : next(fd, mode);
}

int fchown(int fd, uid_t uid, gid_t gid)
{
	NEXT(fchown)
	return fails("fchown", CHANGE, fd, NULL, NULL) ? -1
						       : next(fd, uid, gid);
}

int futimens(int fd, const struct timespec t[2])
{
	NEXT(futimens)
	return fails("futimens", CHANGE, fd, NULL, NULL) ? -1 : next(fd, t);
}

int fsetxattr(int fd, const char *name, const void *value, size_t n, int flags)
{
	NEXT(fsetxattr)
	return fails("fsetxattr", SPACE, fd, NULL, NULL)
	    ? -1
	    : next(fd, name, value, n, flags);
}

int fallocate(int fd, int mode, off_t off, off_t len)
{
	NEXT(fallocate)
	return fails("fallocate", SPACE, fd, NULL, NULL)
	    ? -1
	    : next(fd, mode, off, len);
}

int umount2(const char *path, int flags)
{
	NEXT(umount2)
	return fails("umount", CHANGE, AT_FDCWD, path, NULL)
	    ? -1
	    : next(path, flags);
}

/* libfuse before 3.17 has the first, with three arguments. */
int fuse_session_custom_io(void *se, const void *io, size_t size, int fd);
int fuse_session_custom_io_317(void *se, const void *io, size_t size, int fd);

int fuse_session_custom_io(void *se, const void *io, size_t size, int fd)
{
	NEXT(fuse_session_custom_io)
	return getenv("FAULT_FUSE") != NULL ? -EOPNOTSUPP
					    : next(se, io, size, fd);
}

int fuse_session_custom_io_317(void *se, const void *io, size_t size, int fd)
{
	NEXT(fuse_session_custom_io_317)
	return getenv("FAULT_FUSE") != NULL ? -EOPNOTSUPP
					    : next(se, io, size, fd);
}
