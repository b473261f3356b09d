/* stage.c - lock, journal and data of the stage */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "journal/stage.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "tap.h"

#define NRECORDS 6

/* System calls of the library, replaced here. The call of this name fails after
 * fail_in successful ones. */
static const char *failing;
static int fail_in;
static char calls[4096];

static bool fails(const char *call, int code)
{
	if (strlen(calls) + strlen(call) + 2 < sizeof(calls)) {
		strcat(calls, call);
		strcat(calls, " ");
	}
	if (failing == NULL || strcmp(failing, call) != 0 || fail_in-- != 0)
		return false;
	failing = NULL;
	errno = code;
	return true;
}

int fsync(int fd)
{
	return fails("fsync", EIO) ? -1 : (int)syscall(SYS_fsync, fd);
}

int fdatasync(int fd)
{
	return fails("fdatasync", EIO) ? -1 : (int)syscall(SYS_fdatasync, fd);
}

int unlinkat(int dirfd, const char *path, int flags)
{
	(void)fails(strncmp(path, "journal", 7) == 0 ? "unlink-journal"
						     : "unlink",
	    0);
	return (int)syscall(SYS_unlinkat, dirfd, path, flags);
}

ssize_t pwrite(int fd, const void *p, size_t n, off_t off)
{
	return fails("pwrite", ENOSPC)
	    ? -1
	    : (ssize_t)syscall(SYS_pwrite64, fd, p, n, off);
}

int symlinkat(const char *target, int at, const char *path)
{
	(void)fails("symlink", 0);
	return (int)syscall(SYS_symlinkat, target, at, path);
}

int mkdirat(int at, const char *path, mode_t mode)
{
	return fails("mkdirat", ENOSPC)
	    ? -1
	    : (int)syscall(SYS_mkdirat, at, path, mode);
}

/* Fails only where it makes a file. */
int openat(int at, const char *path, int flags, ...)
{
	va_list ap;
	mode_t mode;

	va_start(ap, flags);
	mode = va_arg(ap, mode_t);
	va_end(ap);
	if ((flags & O_CREAT) != 0 && fails("openat", ENOSPC))
		return -1;
	return (int)syscall(SYS_openat, at, path, flags, mode);
}

static void fail_next(const char *call, int after)
{
	failing = call;
	fail_in = after;
	calls[0] = '\0';
}

static char dir[64], source[80], stage[100];

static struct ofs_stage *open_stage(enum ofs_recover recover,
    struct optimfs_error *err)
{
	struct ofs_stage_config c = { .source = source, .recover = recover };

	return ofs_stage_open(&c, err);
}

static bool exists(const char *name)
{
	char path[200];

	snprintf(path, sizeof(path), "%s%s%s", stage,
	    name[0] == '\0' ? "" : "/", name);
	return access(path, F_OK) == 0;
}

/* Record i of a journal. Lengths vary, and the data contain zeros. */
static void make(unsigned i, char *a, uint8_t *b, struct ofs_record *r)
{
	memset(a, 'a' + (int)i, i);
	a[i] = '\0';
	memset(b, (int)i, 3 * i);
	*r = (struct ofs_record){
		.type = (uint8_t)(1 + i),
		.num = { i, UINT64_MAX - i, 0, 1ull << (8 * i) },
		.a = a,
		.b = b,
		.nb = 3 * i,
	};
}

static int check_record(void *ctx, const struct ofs_record *r,
    struct optimfs_error *err)
{
	unsigned *n = ctx;
	char a[NRECORDS + 1];
	uint8_t b[3 * NRECORDS];
	struct ofs_record want;

	make(*n, a, b, &want);
	if (r->type != want.type || strcmp(r->a, want.a) != 0 ||
	    memcmp(r->num, want.num, sizeof(want.num)) != 0 ||
	    r->nb != want.nb || memcmp(r->b, want.b, want.nb) != 0)
		return optimfs_fail(err, EUCLEAN, "record %u differs", *n);
	++*n;
	return 0;
}

static void append(struct ofs_stage *st, unsigned first, unsigned end)
{
	char a[NRECORDS + 1];
	uint8_t b[3 * NRECORDS];
	struct ofs_record r;

	for (unsigned i = first; i < end; i++) {
		make(i, a, b, &r);
		if (ofs_stage_append(st, &r, NULL) == -1)
			bail_out("append");
	}
}

static uint8_t *slurp(size_t *n)
{
	char path[200];
	struct stat st;
	uint8_t *p;
	int fd;

	snprintf(path, sizeof(path), "%s/journal", stage);
	fd = open(path, O_RDONLY);
	if (fd == -1 || fstat(fd, &st) == -1)
		bail_out("%s", path);
	*n = (size_t)st.st_size;
	p = malloc(*n);
	if (p == NULL || read(fd, p, *n) != st.st_size)
		bail_out("%s", path);
	close(fd);
	return p;
}

static void spit(const uint8_t *p, size_t n)
{
	char path[200];
	int fd;

	snprintf(path, sizeof(path), "%s/journal", stage);
	fd = open(path, O_WRONLY | O_TRUNC);
	if (fd == -1 || write(fd, p, n) != (ssize_t)n)
		bail_out("%s", path);
	close(fd);
}

/* Counts the intact records, and checks that another can be appended after
 * them. */
static bool recovers(unsigned *n, uint64_t *dropped)
{
	struct ofs_stage *st = open_stage(OFS_RECOVER_YES, NULL);
	struct ofs_replay found;
	unsigned again = 0;
	bool fine;

	*n = 0;
	if (st == NULL)
		return false;
	fine = ofs_stage_replay(st, check_record, n, &found, NULL) == 0 &&
	    found.records == *n && !found.rebooted;
	*dropped = found.dropped;
	append(st, *n, *n < NRECORDS ? *n + 1 : *n);
	ofs_stage_close(st, true);
	st = open_stage(OFS_RECOVER_YES, NULL);
	if (st == NULL)
		return false;
	fine = fine &&
	    ofs_stage_replay(st, check_record, &again, &found, NULL) == 0 &&
	    again == (*n < NRECORDS ? *n + 1 : *n) && found.dropped == 0;
	ofs_stage_close(st, true);
	return fine;
}

static void torn(void)
{
	struct ofs_stage *st = open_stage(OFS_RECOVER_DISCARD, NULL);
	size_t n, cuts = 0, flips = 0;
	uint8_t *all;
	unsigned got, before = 0;
	uint64_t dropped;

	append(st, 0, NRECORDS);
	is_int(ofs_stage_sync(st, NULL), 0, "sync of the journal");
	ofs_stage_close(st, true);
	all = slurp(&n);
	for (size_t cut = 0; cut <= n; cut++) {
		spit(all, cut);
		if (recovers(&got, &dropped) && got >= before)
			cuts++;
		before = got;
	}
	is_u64(cuts, n + 1,
	    "a journal cut at any of %zu bytes gives the records before it", n);
	is_u64(got, NRECORDS, "a complete journal gives all records");
	for (size_t at = 16; at < n; at++) {
		all[at] ^= 0x40;
		spit(all, n);
		if (recovers(&got, &dropped) && got < NRECORDS && dropped > 0)
			flips++;
		all[at] ^= 0x40;
	}
	is_u64(flips, n - 16, "a changed byte ends the journal");
	free(all);
}

/* A record copied to another position in the journal is not valid there. */
static void moved(void)
{
	struct ofs_stage *st = open_stage(OFS_RECOVER_DISCARD, NULL);
	size_t one, two;
	uint8_t *a, *b;
	unsigned got;
	uint64_t dropped;

	append(st, 0, 1);
	ofs_stage_close(st, true);
	a = slurp(&one);
	st = open_stage(OFS_RECOVER_YES, NULL);
	append(st, 1, 2);
	ofs_stage_close(st, true);
	b = slurp(&two);
	a = realloc(a, one + two);
	memcpy(a + one, b + 16, two - 16);
	spit(a, one + two - 16);
	ok(recovers(&got, &dropped),
	    "a journal with records copied to another position is recovered");
	is_u64(got, 1, "the records before the copied ones are kept");
	is_u64(dropped, two - 16, "the number of dropped bytes is reported");
	spit((const uint8_t *)"something else entirely", 23);
	st = open_stage(OFS_RECOVER_YES, NULL);
	ok(st == NULL, "a file that is not a journal is refused");
	free(a);
	free(b);
}

static void recovery(void)
{
	struct optimfs_error err = { 0 };
	struct ofs_stage *st = open_stage(OFS_RECOVER_DISCARD, &err);
	struct ofs_replay found;
	unsigned n = 0;
	int fd;

	append(st, 0, 2);
	fd = ofs_stage_data(st, 7, true, &err);
	ok(fd != -1 && ofs_stage_write(fd, "abc", 3, 5, &err) == 0,
	    "write staged data");
	close(fd);
	ofs_stage_close(st, true);
	ok(open_stage(OFS_RECOVER_NO, &err) == NULL,
	    "a stage with staged changes does not open without recover");
	is_error(err, EBUSY, "OFS811",
	    "a stage with staged changes: error text");
	ok(exists("data/7") && exists("journal"),
	    "a refused stage keeps its data and journal");
	st = open_stage(OFS_RECOVER_YES, &err);
	is_int(ofs_stage_replay(st, check_record, &n, &found, &err), 0,
	    "replay of a recovered stage");
	is_u64(n, 2, "replay gives both records");
	fd = ofs_stage_data(st, 7, false, &err);
	ok(fd != -1 && lseek(fd, 0, SEEK_END) == 8,
	    "a recovered stage has its data");
	close(fd);
	is_int(ofs_stage_reset(st, &err), 0, "reset of a stage");
	is_int(ofs_stage_data(st, 7, false, &err), -1,
	    "reset removes staged data");
	is_error(err, EIO, "OFS807",
	    "opening removed data without create: error text");
	ofs_stage_close(st, false);
	ok(!exists(""), "a stage closed without keeping is removed");
	st = open_stage(OFS_RECOVER_NO, &err);
	append(st, 0, 1);
	ofs_stage_close(st, true);
	st = open_stage(OFS_RECOVER_DISCARD, &err);
	n = 0;
	ok(ofs_stage_replay(st, check_record, &n, &found, &err) == 0 && n == 0,
	    "recover=discard drops the records");
	ofs_stage_close(st, false);
}

/* Opens the journal again; the number of its records, or -1. */
static int recovered(void)
{
	struct ofs_replay found;
	struct optimfs_error err;
	struct ofs_stage *st = open_stage(OFS_RECOVER_YES, &err);
	unsigned n = 0;
	int ret;

	if (st == NULL)
		return -1;
	ret = ofs_stage_replay(st, check_record, &n, &found, &err);
	ofs_stage_close(st, false);
	return ret == -1 ? -1 : (int)found.records;
}

/* After a failed call, retrying must not hide the failure, and what is accepted
 * then must be recovered. */
static void failures(void)
{
	static const char *const failing_calls[] = { "fdatasync", "pwrite" };
	struct optimfs_error err;
	struct ofs_stage *st = open_stage(OFS_RECOVER_NO, &err);
	struct ofs_record r;
	char a[NRECORDS + 1];
	uint8_t b[3 * NRECORDS];
	bool taken;
	int fd;

	make(0, a, b, &r);
	fd = ofs_stage_data(st, 1, true, &err);
	fail_next("fsync", 0);
	ok(ofs_stage_sync(st, &err) == -1,
	    "sync fails when the data directory cannot be synced");
	ok(ofs_stage_sync(st, &err) == -1,
	    "sync fails again after a failed sync");
	ok(ofs_stage_append(st, &r, &err) == -1,
	    "append fails after a failed sync");
	fail_next(NULL, 0);
	ok(ofs_stage_reset(st, &err) == 0,
	    "reset after a failed sync succeeds");
	ok(strstr(calls, "unlink-journal openat fsync ") != NULL,
	    "reset syncs the name of the new journal");
	ok(ofs_stage_append(st, &r, &err) == 0 && ofs_stage_sync(st, &err) == 0,
	    "a stage can be written again after reset");
	close(fd);

	fd = ofs_stage_data(st, 2, true, &err);
	fail_next(NULL, 0);
	ok(ofs_stage_reset(st, &err) == 0 &&
		strstr(calls, "fdatasync unlink ") != NULL &&
		strstr(calls, "unlink ") > strstr(calls, "fdatasync "),
	    "reset removes data only when the empty journal is durable");
	close(fd);
	ofs_stage_close(st, false);

	for (unsigned way = 0; way < 2; way++)
		for (int after = 0; after < 3; after++) {
			st = open_stage(OFS_RECOVER_NO, &err);
			append(st, 0, 2);
			fail_next(failing_calls[way], after);
			(void)ofs_stage_reset(st, &err);
			failing = NULL;
			taken = ofs_stage_append(st, &r, &err) == 0;
			ofs_stage_close(st, true);
			ok(!taken || recovered() == 1,
			    "failing %s %d in reset: later records are found",
			    failing_calls[way], after);
		}
}

/* A disk that is full, or fails, at each step of the start. */
static void unopened(void)
{
	static const char *const failing_calls[] = { "openat", "mkdirat",
		"pwrite", "fsync", "fdatasync" };
	struct optimfs_error err;
	struct ofs_stage *st;

	for (size_t i = 0; i < sizeof(failing_calls) / sizeof(*failing_calls);
	     i++)
		for (int after = 0;; after++) {
			fail_next(failing_calls[i], after);
			st = open_stage(OFS_RECOVER_NO, &err);
			failing = NULL;
			if (st != NULL) {
				ofs_stage_close(st, false);
				break;
			}
			ok(!exists(""),
			    "failing %s %d: a stage that is not opened leaves nothing",
			    failing_calls[i], after);
		}
}

static void locks(void)
{
	struct optimfs_error err = { 0 };
	struct ofs_stage *st = open_stage(OFS_RECOVER_NO, &err);
	struct ofs_stage_config c = { .source = source };
	char pid[32], path[200];
	FILE *f;
	int status;
	pid_t child;

	ok(st != NULL && ofs_stage_held(st, &err) == 0,
	    "a stage is locked when it is opened");
	ok(open_stage(OFS_RECOVER_NO, &err) == NULL,
	    "a locked stage does not open");
	snprintf(pid, sizeof(pid), "pid %ld on ", (long)getpid());
	is_error(err, EBUSY, pid, "a locked stage: the error names the holder");
	is_error(err, EBUSY, "OFS259", "a locked stage: error code");
	ofs_stage_close(st, false);
	fflush(stdout);
	child = fork();
	if (child == 0)
		_exit(open_stage(OFS_RECOVER_NO, NULL) == NULL);
	waitpid(child, &status, 0);
	ok(status == 0 && exists("lock"),
	    "a process that died leaves its lock");
	st = ofs_stage_open(&c, &err);
	ok(st != NULL && strstr(ofs_stage_note(st), "OFS804") != NULL,
	    "the lock of a dead process is taken over");
	ofs_stage_close(st, false);
	mkdir(stage, 0700);
	snprintf(path, sizeof(path), "%s/lock", stage);
	f = fopen(path, "w");
	fputs("host far-away\nboot 1-2-3\npid 77\nid 00ff\nsince 1000000000\n",
	    f);
	fclose(f);
	ok(open_stage(OFS_RECOVER_NO, &err) == NULL,
	    "a stage locked by another host does not open");
	is_error(err, EBUSY, "pid 77 on far-away since 2001-09-0",
	    "a stage locked by another host: error text");
	unlink(path);
	st = open_stage(OFS_RECOVER_NO, &err);
	f = fopen(path, "r+");
	fputs("host far-away\nboot 1-2-3\npid 77\nid 00ff\nsince 1000000000\n",
	    f);
	fclose(f);
	is_int(ofs_stage_held(st, &err), -1,
	    "a lock taken over by another host is detected");
	is_error(err, ESTALE, "OFS812",
	    "a lock taken over by another host: error text");
	ofs_stage_close(st, false);
	unlink(path);
	st = open_stage(OFS_RECOVER_NO, &err);
	unlink(path);
	is_int(ofs_stage_held(st, &err), -1, "a removed lock is detected");
	is_error(err, EIO, "OFS807", "a removed lock: error text");
	ofs_stage_close(st, false);
}

/* Opening a named pipe would block until somebody writes to it. */
static void pipes(void)
{
	static const char *const names[] = { "journal", "lock" };
	struct optimfs_error err = { 0 };
	char path[200];

	for (size_t i = 0; i < 2; i++) {
		mkdir(stage, 0700);
		snprintf(path, sizeof(path), "%s/%s", stage, names[i]);
		if (mkfifo(path, 0600) == -1)
			bail_out("%s", path);
		ok(open_stage(OFS_RECOVER_YES, &err) == NULL,
		    "a stage whose %s is a pipe is refused", names[i]);
		is_error(err, EUCLEAN, "not a regular file",
		    "a %s that is a pipe: error text", names[i]);
		is_error(err, EUCLEAN, "OFS809",
		    "a %s that is a pipe: error code", names[i]);
		unlink(path);
		snprintf(path, sizeof(path), "%s/lock", stage);
		unlink(path);
		snprintf(path, sizeof(path), "%s/data", stage);
		rmdir(path);
		rmdir(stage);
	}
}

/* A backup of hard links (cp -al) shares the files of a stage. */
static void links(void)
{
	static const char *const names[] = { "journal", "lock", "data/7" };
	struct optimfs_error err = { 0 };
	char path[200], other[200];

	snprintf(other, sizeof(other), "%s/backup", dir);
	for (size_t i = 0; i < 3; i++) {
		struct ofs_stage *st = open_stage(OFS_RECOVER_YES, &err);
		struct ofs_record record = { .type = 1 };
		struct stat was, now;
		int fd = ofs_stage_data(st, 7, true, &err);

		if (write(fd, "bytes", 5) != 5 ||
		    ofs_stage_append(st, &record, &err) == -1)
			bail_out("data/7");
		close(fd);
		ofs_stage_close(st, true);
		snprintf(path, sizeof(path), "%s/%s", stage, names[i]);
		fd = open(path, O_WRONLY | O_CREAT, 0600); /* a lock is gone */
		if (fd == -1 || fstat(fd, &was) == -1)
			bail_out("%s", path);
		close(fd);
		if (link(path, other) == -1)
			bail_out("%s", other);
		st = open_stage(OFS_RECOVER_YES, &err);
		is_int(st == NULL ? -1 : ofs_stage_data(st, 7, true, &err), -1,
		    "a %s that has two names is not opened for writing",
		    names[i]);
		is_error(err, EMLINK, "hard link",
		    "a %s that has two names: error text", names[i]);
		stat(other, &now);
		is_int(now.st_size, was.st_size,
		    "a %s that has two names keeps its contents", names[i]);
		if (st != NULL)
			ofs_stage_close(st, true);
		unlink(other);
		st = open_stage(OFS_RECOVER_YES, &err);
		ok(st != NULL, "a %s that has one name again is opened: %s",
		    names[i], st == NULL ? err.text : "");
		ofs_stage_close(st, false);
	}
}

static void places(void)
{
	struct ofs_stage_config c = { .source = source };
	struct optimfs_error err = { 0 };
	char upper[100], path[200];
	struct ofs_stage *st, *other;
	int fd;

	snprintf(upper, sizeof(upper), "%s/upper", dir);
	mkdir(upper, 0700);
	c.upper = upper;
	fail_next(NULL, 0);
	st = ofs_stage_open(&c, &err);
	ok(strstr(calls, "symlink fsync ") != NULL,
	    "with upper= the name of the link is synced");
	snprintf(path, sizeof(path), "%s/.ck.optimfs", upper);
	is_str(ofs_stage_path(st), path,
	    "upper= sets the directory of the stage");
	ok(exists("lock") && exists("upper") && !exists("journal"),
	    "with upper= the lock is beside the checkpoint, and a link");
	other = open_stage(OFS_RECOVER_NO, &err);
	ok(other == NULL,
	    "the lock beside the checkpoint also excludes other stages");
	ofs_stage_close(st, false);
	ok(access(path, F_OK) == -1 && !exists(""),
	    "close removes the stage and the lock");
	c.scratch = true;
	c.upper = NULL;
	st = ofs_stage_open(&c, &err);
	other = ofs_stage_open(&c, &err);
	ok(st != NULL && other != NULL && !exists(""),
	    "scratch stages make nothing beside the checkpoint");
	fd = ofs_stage_data(st, 1, true, &err);
	ok(fd != -1 && ofs_stage_write(fd, "x", 1, 0, &err) == 0,
	    "a scratch stage has data");
	close(fd);
	ofs_stage_close(st, false);
	ofs_stage_close(other, false);
	rmdir(upper);
	c.scratch = false;
	c.source = "/";
	ok(ofs_stage_open(&c, &err) == NULL,
	    "the root directory cannot have a stage");
	is_error(err, EINVAL, "OFS809", "the root directory: error text");
}

static char said[400];

static void say(void *ctx, const char *text)
{
	(void)ctx;
	snprintf(said, sizeof(said), "%s", text);
}

static int await(struct optimfs_error *err)
{
	const struct ofs_stage_tell tell = { .say = say };

	said[0] = '\0';
	return ofs_stage_await(source, 0, &tell, err);
}

/* Makes the file by which a mount that is gone says that it commits, and locks
 * it. */
static int pretend_mounted(void)
{
	struct flock f = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	char path[200], boot[OFS_BOOT_ID];
	struct stat st;
	int fd;

	ofs_boot_id(boot);
	snprintf(path, sizeof(path), "%s/mounted", stage);
	fd = open(path, O_RDWR | O_CREAT, 0644);
	if (fd == -1 || stat("/proc/self/ns/pid", &st) == -1 ||
	    dprintf(fd, "boot %s\npid %ld\nmount 0:99999 %llu\n", boot,
		(long)getpid(), (unsigned long long)st.st_ino) < 0 ||
	    fcntl(fd, F_OFD_SETLK, &f) == -1)
		bail_out("%s", path);
	return fd;
}

static void waits(void)
{
	struct optimfs_error err = { 0 };
	char path[200];
	int fd;

	mkdir(stage, 0700);
	fd = pretend_mounted();
	is_int(await(&err), -1, "the wait for a commit has an end");
	is_error(err, EBUSY, "OFS847",
	    "a commit that does not end: error code");
	snprintf(path, sizeof(path), "pid %ld", (long)getpid());
	is_error(err, EBUSY, path, "a commit that does not end: its process");
	close(fd);
	is_int(await(&err), 0, "a commit that has ended is not waited for");
	is_str(said, "", "nothing is said of a stage of our own");
	snprintf(path, sizeof(path), "%s/mounted", stage);
	unlink(path);
	if (mkfifo(path, 0600) == -1)
		bail_out("%s", path);
	is_int(await(&err), 0, "a pipe in place of the file is ignored");
	unlink(path);
	rmdir(stage);
}

/* A mount that is gone, whose device another one has got. */
static void unmounted(void)
{
	struct optimfs_error err = { 0 };
	struct ofs_stage *st = open_stage(OFS_RECOVER_NO, &err);
	struct stat proc;

	if (st == NULL || stat("/proc", &proc) == -1)
		bail_out("no stage, or no /proc");
	is_int(ofs_stage_mounted(st, proc.st_dev, &err), 0,
	    "a stage is that of a mount");
	is_int(await(&err), 0, "what is mounted is not waited for");
	is_int(ofs_stage_mounted(st, 0, &err), 0, "its mount is gone");
	is_int(await(&err), -1,
	    "its end is waited for while another mount has the device");
	is_error(err, EBUSY, "OFS847", "which has not come: error code");
	ofs_stage_close(st, false);
}

/* What anybody can make beside a checkpoint in a shared directory. */
static void strangers(void)
{
	static const struct {
		const char *what;
		mode_t mode;
		uid_t owner;
	} kind[] = {
		{ "that everybody may write in", 01777, 0 },
		{ "that a group may write in", 0770, 0 },
		{ "of another user", 0700, 12345 },
	};
	struct optimfs_error err = { 0 };
	char path[200];
	int fd;

	for (size_t i = 0; i < 3; i++) {
		mkdir(stage, 0700);
		fd = pretend_mounted();
		if (kind[i].owner != 0 && geteuid() != 0) {
			skip(5, "only root can give a directory away");
		} else {
			chmod(stage, kind[i].mode);
			if (kind[i].owner != 0 &&
			    chown(stage, kind[i].owner, (gid_t)-1) == -1)
				bail_out("%s", stage);
			is_int(await(&err), 0,
			    "a directory %s is not waited for", kind[i].what);
			ok(strstr(said, "OFS846") != NULL,
			    "a directory %s is mentioned: %s", kind[i].what,
			    said);
			is_int(ofs_stage_watch(source), -1,
			    "no lock in a directory %s is watched",
			    kind[i].what);
			ok(open_stage(OFS_RECOVER_DISCARD, &err) == NULL,
			    "nothing is staged in a directory %s",
			    kind[i].what);
			is_error(err, EPERM, "OFS846",
			    "a directory %s: error code", kind[i].what);
		}
		close(fd);
		snprintf(path, sizeof(path), "%s/mounted", stage);
		unlink(path);
		rmdir(stage);
	}
	snprintf(path, sizeof(path), "%s/elsewhere", dir);
	mkdir(path, 0700);
	if (symlink(path, stage) == -1)
		bail_out("%s", stage);
	is_int(await(&err), 0, "a link in place of the directory is ignored");
	ok(strstr(said, "OFS846") != NULL, "a link is mentioned: %s", said);
	unlink(stage);
	rmdir(path);
}

int main(void)
{
	snprintf(dir, sizeof(dir), "%s/optimfs-stage-XXXXXX", tap_tmpdir());
	if (mkdtemp(dir) == NULL)
		bail_out("%s", dir);
	snprintf(source, sizeof(source), "%s/ck", dir);
	snprintf(stage, sizeof(stage), "%s/.ck.optimfs", dir);
	if (mkdir(source, 0700) == -1)
		bail_out("%s", source);
	torn();
	moved();
	recovery();
	failures();
	unopened();
	locks();
	pipes();
	links();
	places();
	waits();
	unmounted();
	strangers();
	rmdir(source);
	ok(rmdir(dir) == 0, "nothing is left in the temporary directory");
	return done_testing();
}
