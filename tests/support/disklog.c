/* disklog.c - a disk that remembers its writes, and what a power failure leaves */
/* SPDX-License-Identifier: Apache-2.0 */

/* disklog serve IMAGE LOG DIR       mounts DIR, whose only file "disk" has the
 *                                   bytes of IMAGE; what is written there goes
 *                                   to IMAGE and LOG, and each fsync to LOG
 * disklog flushes LOG BYTES         prints how many fsyncs are in its first BYTES
 * disklog states LOG                prints all STATEs: "FLUSHES WHICH"
 * disklog replay LOG IMAGE FLUSHES WHICH
 *                                   does to IMAGE, a copy from before serve, what
 *                                   is on a disk that loses power after FLUSHES
 *                                   fsyncs: all writes before the last of them,
 *                                   and some up to the next: none, all, the even,
 *                                   the odd, or all but one
 *
 * Writes are cut into blocks, as a disk may lose a part of one. */
#define FUSE_USE_VERSION 312
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BLOCK 4096

struct record {
	uint64_t at, n; /* n bytes follow; 0: a flush */
};

static int image, journal;
static off_t size;

static void die(const char *what)
{
	perror(what);
	exit(1);
}

/* --- serve --- */

static int log_record(const char *data, size_t n, off_t at)
{
	struct record r = { (uint64_t)at, n };

	if (write(journal, &r, sizeof(r)) != (ssize_t)sizeof(r) ||
	    write(journal, data, n) != (ssize_t)n)
		return -EIO;
	return 0;
}

static int disk_write(const char *path, const char *data, size_t n, off_t at,
    struct fuse_file_info *fi)
{
	(void)path;
	(void)fi;
	if (pwrite(image, data, n, at) != (ssize_t)n)
		return -EIO;
	for (size_t done = 0, piece; done < n; done += piece) {
		piece = n - done < BLOCK ? n - done : BLOCK;
		if (log_record(data + done, piece, at + (off_t)done) != 0)
			return -EIO;
	}
	return (int)n;
}

static int disk_fsync(const char *path, int data, struct fuse_file_info *fi)
{
	(void)path;
	(void)data;
	(void)fi;
	return log_record("", 0, 0);
}

static int disk_read(const char *path, char *data, size_t n, off_t at,
    struct fuse_file_info *fi)
{
	ssize_t got = pread(image, data, n, at);

	(void)path;
	(void)fi;
	return got == -1 ? -errno : (int)got;
}

static int disk_getattr(const char *path, struct stat *st,
    struct fuse_file_info *fi)
{
	(void)fi;
	if (strcmp(path, "/") == 0) {
		st->st_mode = S_IFDIR | 0700;
		st->st_nlink = 2;
		return 0;
	}
	if (strcmp(path, "/disk") != 0)
		return -ENOENT;
	st->st_mode = S_IFREG | 0600;
	st->st_nlink = 1;
	st->st_size = size;
	return 0;
}

/* Past the page cache: each write comes as it was made. */
static int disk_open(const char *path, struct fuse_file_info *fi)
{
	(void)path;
	fi->direct_io = 1;
	return 0;
}

static int serve(char *program, char **arg)
{
	static const struct fuse_operations operations = {
		.getattr = disk_getattr,
		.open = disk_open,
		.read = disk_read,
		.write = disk_write,
		.fsync = disk_fsync,
	};
	/* One thread: the order of the log is that of the disk. */
	char foreground[] = "-f", one_thread[] = "-s";
	char *argv[] = { program, foreground, one_thread, arg[2], NULL };
	struct stat st;

	image = open(arg[0], O_RDWR | O_CLOEXEC);
	journal = open(arg[1], O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (image == -1 || journal == -1 || fstat(image, &st) != 0)
		die(arg[0]);
	size = st.st_size;
	return fuse_main(4, argv, &operations, NULL);
}

/* --- what is in a log --- */

static FILE *open_log(const char *name)
{
	FILE *f = fopen(name, "re");

	if (f == NULL)
		die(name);
	return f;
}

static bool next(FILE *f, struct record *r, char *data)
{
	if (fread(r, sizeof(*r), 1, f) != 1)
		return false;
	if (r->n > BLOCK || (r->n != 0 && fread(data, r->n, 1, f) != 1)) {
		fprintf(stderr, "not a log\n");
		exit(1);
	}
	return true;
}

static int flushes(const char *name, long long bytes)
{
	FILE *f = open_log(name);
	char data[BLOCK];
	struct record r;
	int n = 0;

	while (next(f, &r, data) && ftello(f) <= bytes)
		n += r.n == 0;
	printf("%d\n", n);
	return fclose(f);
}

/* Those of one gap between flushes that differ from each other. */
static void print_states(int flush, unsigned writes)
{
	static const char *const which[] = { "none", "all", "even", "odd",
		"but" };
	static const unsigned from[] = { 0, 1, 2, 2, 3 };

	for (unsigned i = 0; i < sizeof(which) / sizeof(*which); i++)
		if (writes >= from[i])
			printf("%d %s\n", flush, which[i]);
}

static int states(const char *name)
{
	FILE *f = open_log(name);
	char data[BLOCK];
	struct record r;
	unsigned writes = 0;
	int flush = 0;

	while (next(f, &r, data)) {
		if (r.n != 0) {
			writes++;
			continue;
		}
		print_states(flush++, writes);
		writes = 0;
	}
	print_states(flush, writes);
	return fclose(f);
}

/* The writes between two flushes. */
static unsigned count_gap(const char *name, int flush)
{
	FILE *f = open_log(name);
	char data[BLOCK];
	struct record r;
	unsigned writes = 0;

	for (int seen = 0; next(f, &r, data) && seen <= flush;) {
		seen += r.n == 0;
		writes += r.n != 0 && seen == flush;
	}
	fclose(f);
	return writes;
}

static bool survives(const char *which, unsigned i, unsigned one)
{
	if (strcmp(which, "even") == 0)
		return i % 2 == 0;
	if (strcmp(which, "odd") == 0)
		return i % 2 == 1;
	if (strcmp(which, "but") == 0)
		return i != one;
	return strcmp(which, "all") == 0;
}

static int replay(const char *name, const char *to, int flush,
    const char *which)
{
	unsigned writes = count_gap(name, flush);
	unsigned one = writes == 0 ? 0 : (unsigned)flush * 7919U % writes;
	FILE *f = open_log(name);
	char data[BLOCK];
	struct record r;
	unsigned i = 0;

	image = open(to, O_WRONLY | O_CLOEXEC);
	if (image == -1)
		die(to);
	for (int seen = 0; seen <= flush && next(f, &r, data);) {
		if (r.n == 0)
			seen++;
		else if ((seen < flush || survives(which, i++, one)) &&
		    pwrite(image, data, r.n, (off_t)r.at) != (ssize_t)r.n)
			die(to);
	}
	fclose(f);
	return close(image);
}

int main(int argc, char **argv)
{
	if (argc == 5 && strcmp(argv[1], "serve") == 0)
		return serve(argv[0], argv + 2);
	if (argc == 4 && strcmp(argv[1], "flushes") == 0)
		return flushes(argv[2], atoll(argv[3]));
	if (argc == 3 && strcmp(argv[1], "states") == 0)
		return states(argv[2]);
	if (argc == 6 && strcmp(argv[1], "replay") == 0)
		return replay(argv[2], argv[3], atoi(argv[4]), argv[5]);
	fprintf(stderr, "usage: see disklog.c\n");
	return 2;
}
