/* lock.c - the lock of the single writer */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "journal/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "base/mount_line.h"
#include "base/newmount.h"
#include "journal/stage_path.h"

#define LOCK_NAME     "lock"
#define MOUNTED_NAME  "mounted"
#define FUSECTL_MAGIC 0x65735543
/* Another process may remove the file of its lock while we try. */
#define TRIES 100

/* The contents of the lock file. */
struct holder {
	char host[65], boot[OFS_BOOT_ID], id[33];
	long pid;
	int64_t since;
};

/* The contents of the file that tells everybody of the holder's mount: its
 * device, the name space of the process number, and the source, because the
 * kernel gives the device number of a mount that is gone to the next one. Device
 * 0:0: the holder knows that it is gone; then what follows has no meaning. */
struct mounted {
	char boot[OFS_BOOT_ID];
	long pid;
	unsigned major, minor;
	uint64_t pids;
	char source[PATH_MAX]; /* "": unknown */
};

void ofs_boot_id(char id[OFS_BOOT_ID])
{
	int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	ssize_t n = -1;

	if (fd != -1) {
		n = read(fd, id, OFS_BOOT_ID - 1);
		close(fd);
	}
	id[n > 0 ? n : 0] = '\0';
	id[strcspn(id, "\n")] = '\0';
	if (id[0] == '\0')
		strcpy(id, "-");
}

static void myself(struct holder *h)
{
	uint8_t random[16] = { 0 };

	*h = (struct holder){ .pid = getpid(), .since = time(NULL) };
	if (gethostname(h->host, sizeof(h->host) - 1) == -1 ||
	    h->host[0] == '\0')
		strcpy(h->host, "?");
	ofs_boot_id(h->boot);
	if (getrandom(random, sizeof(random), 0) != sizeof(random))
		memcpy(random, &h->since, sizeof(h->since));
	for (size_t i = 0; i < sizeof(random); i++)
		snprintf(h->id + 2 * i, 3, "%02x", random[i]);
}

static int put_holder(int fd, const struct holder *h)
{
	char text[400];
	int n = snprintf(text, sizeof(text),
	    "host %s\nboot %s\npid %ld\nid %s\nsince %" PRId64 "\n", h->host,
	    h->boot, h->pid, h->id, h->since);

	if (ftruncate(fd, 0) == -1 || pwrite(fd, text, (size_t)n, 0) != n)
		return -1;
	return fsync(fd);
}

/* Unreadable fields are "?": then only the lock on the file counts. */
static void get_holder(int fd, struct holder *h)
{
	char text[400];
	ssize_t n = pread(fd, text, sizeof(text) - 1, 0);

	*h = (struct holder){ .host = "?", .boot = "?" };
	text[n > 0 ? n : 0] = '\0';
	if (sscanf(text,
		"host %64[^\n]\nboot %39[^\n]\npid %ld\nid %32[0-9a-f]\n"
		"since %" SCNd64,
		h->host, h->boot, &h->pid, h->id, &h->since) < 4)
		*h = (struct holder){ .host = "?", .boot = "?" };
}

static int busy(const struct holder *h, const char *place, const char *how,
    struct optimfs_error *err)
{
	char since[32] = "?";
	time_t at = (time_t)h->since;
	struct tm tm;

	if (h->since != 0 && localtime_r(&at, &tm) != NULL)
		strftime(since, sizeof(since), "%Y-%m-%d %H:%M:%S", &tm);
	return optimfs_fail(err, EBUSY,
	    "OFS259 being written by pid %ld on %s since %s (%s/%s)%s", h->pid,
	    h->host, since, place, LOCK_NAME, how);
}

/* 1: locked; 0: held by another process; -1: the file system has no such
 * locks. */
static int lock_file(int fd)
{
	struct flock f = { .l_type = F_WRLCK, .l_whence = SEEK_SET };

	if (fcntl(fd, F_OFD_SETLK, &f) == 0)
		return 1;
	return errno == EAGAIN || errno == EACCES ? 0 : -1;
}

/* May the lock of h be taken over? locked: 1: no process of this machine holds
 * the file; -1: unknown. */
static bool is_stale(const struct holder *h, const struct holder *me,
    int locked)
{
	bool here = strcmp(h->boot, me->boot) == 0 && h->boot[0] != '-';

	if (h->pid == 0)
		return locked == 1; /* died before it wrote its name */
	if (!here)
		return strcmp(h->host, me->host) ==
		    0; /* the machine was rebooted */
	if (locked == 1)
		return true;
	return kill((pid_t)h->pid, 0) == -1 && errno == ESRCH;
}

static bool is_at_its_name(int dir, int fd)
{
	struct stat named, st;

	return fstatat(dir, LOCK_NAME, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
	    fstat(fd, &st) == 0 && named.st_ino == st.st_ino &&
	    named.st_dev == st.st_dev;
}

/* One attempt with the existing file or a new one: 1: taken; 0: try again. */
static int try(struct ofs_lock *lock, const struct holder *me,
    const char *place, char *note, size_t size, struct optimfs_error *err)
{
	struct holder was;
	bool made = true;
	int fd, locked;

	fd = ofs_stage_open_file(lock->dir, LOCK_NAME,
	    O_RDWR | O_CREAT | O_EXCL, 0600);
	if (fd == -1 && errno == EEXIST) {
		made = false;
		fd = ofs_stage_open_file(lock->dir, LOCK_NAME, O_RDWR, 0);
		if (fd == -1 && errno == ENOENT)
			return 0;
	}
	if (fd == -1)
		return optimfs_fail(err, errno, "OFS809 %s/%s: %s", place,
		    LOCK_NAME, ofs_stage_why(errno));
	locked = lock_file(fd);
	get_holder(fd, &was);
	if (locked == 1 && !is_at_its_name(lock->dir, fd)) {
		close(fd);
		return 0;
	}
	if (locked == 0 || (!made && !is_stale(&was, me, locked))) {
		close(fd);
		return busy(&was, place,
		    locked == 0
			? ""
			: "; if that host is gone for good, remove this file",
		    err);
	}
	if (put_holder(fd, me) == -1) {
		optimfs_fail(err, errno, "OFS809 %s/%s: %m", place, LOCK_NAME);
		if (made)
			unlinkat(lock->dir, LOCK_NAME, 0);
		close(fd);
		return -1;
	}
	if (!made && was.pid != 0)
		snprintf(note, size,
		    "OFS804 took over the lock of pid %ld on %s, which is gone",
		    was.pid, was.host);
	lock->fd = fd;
	return 1;
}

int ofs_lock_take(struct ofs_lock *lock, int dir, const char *place, char *note,
    size_t size, struct optimfs_error *err)
{
	struct holder me;

	myself(&me);
	*lock = (struct ofs_lock){ .fd = -1, .mounted = -1, .dir = dir };
	strcpy(lock->id, me.id);
	note[0] = '\0';
	for (int i = 0; i < TRIES; i++) {
		int ret = try(lock, &me, place, note, size, err);

		if (ret != 0)
			return ret == 1 ? 0 : -1;
	}
	return optimfs_fail(err, EBUSY,
	    "OFS259 %s/%s: other processes keep making and removing it: try again later",
	    place, LOCK_NAME);
}

int ofs_lock_watch(int dir)
{
	return ofs_stage_open_file(dir, LOCK_NAME, O_RDONLY, 0);
}

/* Who may only read the file could lock it for reading, which does not count. */
bool ofs_lock_busy(int fd)
{
	struct flock f = { .l_type = F_RDLCK, .l_whence = SEEK_SET };

	return fcntl(fd, F_OFD_GETLK, &f) == 0 && f.l_type != F_UNLCK;
}

static uint64_t pid_space(void)
{
	struct stat st;

	return stat("/proc/self/ns/pid", &st) == -1 ? 0 : st.st_ino;
}

/* The source of the mount of a device that a process sees; the caller frees it.
 * NULL: it sees none, or, if not *readable, who knows. */
static char *source_of(const char *pid, unsigned major, unsigned minor,
    bool *readable)
{
	char path[64], *line = NULL, *source = NULL;
	struct ofs_mount_line m;
	size_t cap = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%s/mountinfo", pid);
	f = fopen(path, "re");
	*readable = f != NULL;
	if (f == NULL)
		return NULL;
	while (source == NULL && getline(&line, &cap, f) != -1)
		if (ofs_mount_line_parse(line, &m) && m.major == major &&
		    m.minor == minor)
			source = strdup(m.source);
	free(line);
	fclose(f);
	return source;
}

static int put_mounted(int fd, dev_t dev)
{
	char boot[OFS_BOOT_ID], *source;
	bool readable;
	int ret = -1;

	ofs_boot_id(boot);
	source = source_of("self", major(dev), minor(dev), &readable);
	if (lseek(fd, 0, SEEK_SET) == 0)
		ret = dprintf(fd, "boot %s\npid %ld\nmount %u:%u %" PRIu64 " %s\n",
		    boot, (long)getpid(), major(dev), minor(dev), pid_space(),
		    source != NULL ? source : "");
	free(source);
	return ret < 0 ? -1 : 0;
}

void ofs_lock_unmounted(struct ofs_lock *lock)
{
	if (lock->mounted != -1)
		(void)put_mounted(lock->mounted, 0);
}

int ofs_lock_mounted(struct ofs_lock *lock, dev_t dev,
    struct optimfs_error *err)
{
	int fd;

	unlinkat(lock->dir, MOUNTED_NAME, 0);
	fd = ofs_stage_open_file(lock->dir, MOUNTED_NAME,
	    O_RDWR | O_CREAT | O_EXCL, 0644);
	if (fd == -1 || fchmod(fd, 0644) == -1 || lock_file(fd) == 0 ||
	    put_mounted(fd, dev) == -1) {
		optimfs_fail(err, errno, "OFS809 " MOUNTED_NAME ": %m");
		if (fd != -1)
			close(fd);
		return -1;
	}
	lock->mounted = fd;
	(void)fchmod(lock->dir, 0711);
	return 0;
}

/* The kernel's list of FUSE mounts: as somebody has mounted it, or, for root,
 * by a mount without a name. */
static int open_connections(void)
{
	int fs,
	    dir = open("/sys/fs/fuse/connections",
		O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct statfs st;

	if (dir != -1 && fstatfs(dir, &st) == 0 && st.f_type == FUSECTL_MAGIC)
		return dir;
	if (dir != -1)
		close(dir);
	dir = -1;
	fs = ofs_fsopen("fusectl", FSOPEN_CLOEXEC);
	if (fs == -1)
		return -1;
	if (ofs_fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) == 0)
		dir = ofs_fsmount(fs, FSMOUNT_CLOEXEC, 0);
	close(fs);
	return dir;
}

/* Is it in the list? -1: the list cannot be read. */
static int is_connected(unsigned minor)
{
	int dir = open_connections();
	char name[16];
	int found;

	if (dir == -1)
		return -1;
	snprintf(name, sizeof(name), "%u", minor);
	found = faccessat(dir, name, F_OK, 0) == 0;
	close(dir);
	return found;
}

/* The kernel's list has the mounts of all name spaces, and those that umount -l
 * detached. Without it, the mounts that the process sees count, if they can be
 * read. A device with another source belongs to another mount. */
static bool is_mounted(const struct mounted *m)
{
	int connected = is_connected(m->minor);
	bool same_space = m->pids == pid_space(), readable, found;
	char pid[32] = "self", *source;

	if (m->major == 0 && m->minor == 0)
		return false;
	if (same_space)
		snprintf(pid, sizeof(pid), "%ld", m->pid);
	source = source_of(pid, m->major, m->minor, &readable);
	if (source != NULL)
		found = m->source[0] == '\0' || strcmp(source, m->source) == 0;
	else if (connected != -1)
		found = connected;
	else
		found = !same_space || !readable;
	free(source);
	return found;
}

/* False: the file is not one of these. The source may have spaces and newlines:
 * it is all that follows, but for the last newline. */
static bool get_mounted(int fd, struct mounted *m)
{
	char text[PATH_MAX + 200];
	ssize_t n = pread(fd, text, sizeof(text) - 1, 0);
	int source = 0;

	text[n > 0 ? n : 0] = '\0';
	*m = (struct mounted){ 0 };
	if (sscanf(text, "boot %39[^\n]\npid %ld\nmount %u:%u %" SCNu64 "%n",
		m->boot, &m->pid, &m->major, &m->minor, &m->pids, &source) != 5)
		return false;
	if (text[source] == ' ' && n - source >= 2 &&
	    n - source < (ssize_t)sizeof(m->source))
		memcpy(m->source, text + source + 1, (size_t)(n - source - 2));
	return true;
}

int ofs_lock_leaving(int dir, long *pid)
{
	int fd = ofs_stage_open_file(dir, MOUNTED_NAME, O_RDONLY, 0);
	char boot[OFS_BOOT_ID];
	struct mounted m;

	if (fd == -1)
		return -1;
	ofs_boot_id(boot);
	if (get_mounted(fd, &m) && strcmp(m.boot, boot) == 0 &&
	    ofs_lock_busy(fd) && !is_mounted(&m)) {
		*pid = m.pid;
		return fd;
	}
	close(fd);
	return -1;
}

int ofs_lock_held(const struct ofs_lock *lock, const char *place,
    struct optimfs_error *err)
{
	struct holder now;

	get_holder(lock->fd, &now);
	if (!is_at_its_name(lock->dir, lock->fd))
		return optimfs_fail(err, EIO,
		    "OFS807 %s/%s: removed while it was in use", place,
		    LOCK_NAME);
	if (strcmp(now.id, lock->id) != 0)
		return optimfs_fail(err, ESTALE,
		    "OFS812 %s/%s: taken over by pid %ld on %s", place,
		    LOCK_NAME, now.pid, now.host);
	return 0;
}

void ofs_lock_peek(int dir, char id[OFS_LOCK_ID])
{
	int fd = ofs_stage_open_file(dir, LOCK_NAME, O_RDONLY, 0);
	struct holder h = { .id = "" };

	if (fd != -1) {
		get_holder(fd, &h);
		close(fd);
	}
	strcpy(id, h.id);
}

void ofs_lock_remove(struct ofs_lock *lock)
{
	if (lock->fd == -1 || !is_at_its_name(lock->dir, lock->fd))
		return;
	unlinkat(lock->dir, MOUNTED_NAME, 0);
	unlinkat(lock->dir, LOCK_NAME, 0);
}

void ofs_lock_close(struct ofs_lock *lock)
{
	if (lock->fd == -1)
		return;
	close(lock->fd);
	if (lock->mounted != -1)
		close(lock->mounted);
	lock->fd = lock->mounted = -1;
}
