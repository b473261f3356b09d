/* journal/stage.c - the staging directory: lock, journal, data */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "journal/stage.h"

#include <errno.h>
#include <fcntl.h>
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

/* System calls of the library, one of which fails: that at this count. */
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

/* Record i of a journal: strings of all lengths, zeros in them. */
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

/* Records there are, and whether more can be added behind them. */
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
	is_int(ofs_stage_sync(st, NULL), 0, "sync");
	ofs_stage_close(st, true);
	all = slurp(&n);
	for (size_t cut = 0; cut <= n; cut++) {
		spit(all, cut);
		if (recovers(&got, &dropped) && got >= before)
			cuts++;
		before = got;
	}
	is_u64(cuts, n + 1, "cut at each of %zu bytes: a prefix is found", n);
	is_u64(got, NRECORDS, "uncut: all of it");
	for (size_t at = 16; at < n; at++) {
		all[at] ^= 0x40;
		spit(all, n);
		if (recovers(&got, &dropped) && got < NRECORDS && dropped > 0)
			flips++;
		all[at] ^= 0x40;
	}
	is_u64(flips, n - 16, "a changed byte ends it");
	free(all);
}

/* A record of another place in the journal is not taken for one of this. */
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
	ok(recovers(&got, &dropped), "records that are repeated are dropped");
	is_u64(got, 1, "what comes before them is not");
	is_u64(dropped, two - 16, "and it is said how much");
	spit((const uint8_t *)"something else entirely", 23);
	st = open_stage(OFS_RECOVER_YES, NULL);
	ok(st == NULL, "a file that is no journal");
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
	ok(fd != -1 && ofs_pwrite_all(fd, "abc", 3, 5, &err) == 0, "data");
	close(fd);
	ofs_stage_close(st, true);
	ok(open_stage(OFS_RECOVER_NO, &err) == NULL, "not asked for");
	is_error(err, EBUSY, "OFS811", "says what is there");
	ok(exists("data/7") && exists("journal"), "and leaves it");
	st = open_stage(OFS_RECOVER_YES, &err);
	is_int(ofs_stage_replay(st, check_record, &n, &found, &err), 0,
	    "replay");
	is_u64(n, 2, "what was there");
	fd = ofs_stage_data(st, 7, false, &err);
	ok(fd != -1 && lseek(fd, 0, SEEK_END) == 8, "its data, too");
	close(fd);
	is_int(ofs_stage_reset(st, &err), 0, "reset");
	is_int(ofs_stage_data(st, 7, false, &err), -1, "removes data");
	is_error(err, EIO, "OFS807", "which is not made again by asking");
	ofs_stage_close(st, false);
	ok(!exists(""), "closed clean: nothing is left");
	st = open_stage(OFS_RECOVER_NO, &err);
	append(st, 0, 1);
	ofs_stage_close(st, true);
	st = open_stage(OFS_RECOVER_DISCARD, &err);
	n = 0;
	ok(ofs_stage_replay(st, check_record, &n, &found, &err) == 0 && n == 0,
	    "discarded");
	ofs_stage_close(st, false);
}

/* What the journal says when it is opened again: records, or -1. */
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

/* A failure is not forgotten by trying once more, and what is taken after
 * one is found again. */
static void failures(void)
{
	static const char *const ways[] = { "fdatasync", "pwrite" };
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
	ok(ofs_stage_sync(st, &err) == -1, "names of data are not synced");
	ok(ofs_stage_sync(st, &err) == -1, "... and it is not forgotten");
	ok(ofs_stage_append(st, &r, &err) == -1, "... nothing more is taken");
	fail_next(NULL, 0);
	ok(ofs_stage_reset(st, &err) == 0, "all is dropped");
	ok(strstr(calls, "unlink-journal fsync ") != NULL,
	    "... the new journal has its name for good");
	ok(ofs_stage_append(st, &r, &err) == 0 && ofs_stage_sync(st, &err) == 0,
	    "... and can be written to");
	close(fd);

	fd = ofs_stage_data(st, 2, true, &err);
	fail_next(NULL, 0);
	ok(ofs_stage_reset(st, &err) == 0 &&
		strstr(calls, "fdatasync unlink ") != NULL &&
		strstr(calls, "unlink ") > strstr(calls, "fdatasync "),
	    "data go when the journal is empty for good");
	close(fd);
	ofs_stage_close(st, false);

	for (unsigned way = 0; way < 2; way++)
		for (int after = 0; after < 3; after++) {
			st = open_stage(OFS_RECOVER_NO, &err);
			append(st, 0, 2);
			fail_next(ways[way], after);
			(void)ofs_stage_reset(st, &err);
			failing = NULL;
			taken = ofs_stage_append(st, &r, &err) == 0;
			ofs_stage_close(st, true);
			ok(!taken || recovered() == 1,
			    "%s %d of dropping all fails: what is taken then "
			    "is there",
			    ways[way], after);
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

	ok(st != NULL && ofs_stage_held(st, &err) == 0, "locked");
	ok(open_stage(OFS_RECOVER_NO, &err) == NULL, "twice");
	snprintf(pid, sizeof(pid), "pid %ld on ", (long)getpid());
	is_error(err, EBUSY, pid, "names the holder");
	is_error(err, EBUSY, "OFS259", "by code");
	ofs_stage_close(st, false);
	fflush(stdout);
	child = fork();
	if (child == 0)
		_exit(open_stage(OFS_RECOVER_NO, NULL) == NULL);
	waitpid(child, &status, 0);
	ok(status == 0 && exists("lock"), "a process that died with it");
	st = ofs_stage_open(&c, &err);
	ok(st != NULL && strstr(ofs_stage_note(st), "OFS804") != NULL,
	    "its lock is taken");
	ofs_stage_close(st, false);
	mkdir(stage, 0700);
	snprintf(path, sizeof(path), "%s/lock", stage);
	f = fopen(path, "w");
	fputs("host far-away\nboot 1-2-3\npid 77\nid 00ff\nsince 1000000000\n",
	    f);
	fclose(f);
	ok(open_stage(OFS_RECOVER_NO, &err) == NULL, "another host's");
	is_error(err, EBUSY, "pid 77 on far-away since 2001-09-0",
	    "is not taken");
	unlink(path);
	st = open_stage(OFS_RECOVER_NO, &err);
	f = fopen(path, "r+");
	fputs("host far-away\nboot 1-2-3\npid 77\nid 00ff\nsince 1000000000\n",
	    f);
	fclose(f);
	is_int(ofs_stage_held(st, &err), -1, "another host takes it over");
	is_error(err, ESTALE, "OFS812", "is noticed");
	ofs_stage_close(st, false);
	unlink(path);
	st = open_stage(OFS_RECOVER_NO, &err);
	unlink(path);
	is_int(ofs_stage_held(st, &err), -1, "somebody removed it");
	is_error(err, EIO, "OFS807", "is noticed");
	ofs_stage_close(st, false);
}

/* A pipe would make us wait for somebody who writes to it. */
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
		ok(open_stage(OFS_RECOVER_YES, &err) == NULL, "%s is a pipe",
		    names[i]);
		is_error(err, EUCLEAN, "not a regular file", "says so");
		is_error(err, EUCLEAN, "OFS809", "by code");
		unlink(path);
		snprintf(path, sizeof(path), "%s/lock", stage);
		unlink(path);
		snprintf(path, sizeof(path), "%s/data", stage);
		rmdir(path);
		rmdir(stage);
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
	st = ofs_stage_open(&c, &err);
	snprintf(path, sizeof(path), "%s/.ck.optimfs", upper);
	is_str(ofs_stage_path(st), path, "upper= says where");
	ok(exists("lock") && !exists("journal"), "but for the lock");
	other = open_stage(OFS_RECOVER_NO, &err);
	ok(other == NULL, "which counts for other places, too");
	ofs_stage_close(st, false);
	ok(access(path, F_OK) == -1 && !exists(""), "both are removed");
	c.scratch = true;
	c.upper = NULL;
	st = ofs_stage_open(&c, &err);
	other = ofs_stage_open(&c, &err);
	ok(st != NULL && other != NULL && !exists(""), "scratch: nothing");
	fd = ofs_stage_data(st, 1, true, &err);
	ok(fd != -1 && ofs_pwrite_all(fd, "x", 1, 0, &err) == 0, "but data");
	close(fd);
	ofs_stage_close(st, false);
	ofs_stage_close(other, false);
	rmdir(upper);
	c.scratch = false;
	c.source = "/";
	ok(ofs_stage_open(&c, &err) == NULL, "the root has no beside");
	is_error(err, EINVAL, "OFS809", "and says so");
}

int main(void)
{
	snprintf(dir, sizeof(dir), "%s/optimfs-stage-XXXXXX",
	    getenv("TMPDIR") != NULL ? getenv("TMPDIR") : "/tmp");
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
	locks();
	pipes();
	places();
	rmdir(source);
	ok(rmdir(dir) == 0, "nothing is left behind");
	return done_testing();
}
