/* ckbench.c - times one client of a file system; prints one line of JSON a run */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "random.h"

#define MAX_READERS 64

static const char usage[] =
    "usage: ckbench [-b BYTES] [-n N] [-c] MODE PATH...\n"
    "  seq       read the files one after the other, BYTES at a time [1 MiB]\n"
    "  par       N readers, each its share of the one file, or a file each\n"
    "  mmap      touch every byte of the files through a mapping\n"
    "  mmaprand  touch one byte of N random pages of each\n"
    "  rand      N random reads of BYTES of each [4096]\n"
    "  openread  open, read and close every file below the paths\n"
    "  list      names below the paths, as ls -R does\n"
    "  stat      names and attributes, as ls -lR does\n"
    "  touch     make N empty files in the directory\n"
    "  memory    touch and free BYTES of memory, PATH is not used\n"
    "  drop      forget the pages of the files, written back first\n"
    "-c forgets them before the clock starts.\n";

struct bench {
	size_t block;
	uint64_t n;
	char **path;
	size_t npaths;
	uint64_t bytes, ops; /* done */
	uint64_t sum; /* of the bytes, so that reads are not optimized away */
};

static void die(const char *fmt, ...)
    __attribute__((format(printf, 1, 2), noreturn));
static void die(const char *fmt, ...)
{
	va_list ap;

	fputs("ckbench: ", stderr);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	exit(1);
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int must_open(const char *path, struct stat *st)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd == -1 || fstat(fd, st) == -1)
		die("%s: %s", path, strerror(errno));
	return fd;
}

static void *must_alloc(size_t n)
{
	void *p = NULL;

	if (posix_memalign(&p, 4096, n == 0 ? 1 : n) != 0)
		die("out of memory");
	memset(p, 0, n);
	return p;
}

/* Reads [off, end) of fd; a short file is a failure. */
static void read_range(const char *path, int fd, uint8_t *buf, size_t block,
    uint64_t off, uint64_t end)
{
	ssize_t got;

	for (; off < end; off += (uint64_t)got) {
		got = pread(fd, buf, end - off < block ? end - off : block,
		    (off_t)off);
		if (got <= 0)
			die("%s: at %" PRIu64 ": %s", path, off,
			    got == 0 ? "ends early" : strerror(errno));
	}
}

static void run_seq(struct bench *b)
{
	uint8_t *buf = must_alloc(b->block);
	struct stat st;

	for (size_t i = 0; i < b->npaths; i++) {
		int fd = must_open(b->path[i], &st);

		read_range(b->path[i], fd, buf, b->block, 0,
		    (uint64_t)st.st_size);
		b->bytes += (uint64_t)st.st_size;
		b->ops++;
		close(fd);
	}
	free(buf);
}

struct reader {
	pthread_t thread;
	const char *path;
	size_t block;
	uint64_t off, end;
};

static void *reader(void *arg)
{
	struct reader *r = arg;
	uint8_t *buf = must_alloc(r->block);
	struct stat st;
	int fd = must_open(r->path, &st);

	read_range(r->path, fd, buf, r->block, r->off, r->end);
	close(fd);
	free(buf);
	return NULL;
}

static void run_par(struct bench *b)
{
	struct reader r[MAX_READERS];
	struct stat st;
	size_t n = b->npaths > 1 ? b->npaths : (size_t)b->n;

	if (n == 0 || n > MAX_READERS)
		die("1 to %d readers", MAX_READERS);
	for (size_t i = 0; i < n; i++) {
		r[i] = (struct reader){ .path = b->path[i % b->npaths],
			.block = b->block };
		close(must_open(r[i].path, &st));
		r[i].end = (uint64_t)st.st_size;
		if (b->npaths == 1) {
			r[i].off = (uint64_t)st.st_size / n * i;
			if (i + 1 < n)
				r[i].end = (uint64_t)st.st_size / n * (i + 1);
		}
		b->bytes += r[i].end - r[i].off;
		b->ops++;
	}
	for (size_t i = 0; i < n; i++)
		if (pthread_create(&r[i].thread, NULL, reader, &r[i]) != 0)
			die("pthread_create");
	for (size_t i = 0; i < n; i++)
		pthread_join(r[i].thread, NULL);
}

static uint8_t *map(const char *path, size_t *len)
{
	struct stat st;
	int fd = must_open(path, &st);
	void *p;

	*len = (size_t)st.st_size;
	p = mmap(NULL, *len, PROT_READ, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		die("%s: mmap: %s", path, strerror(errno));
	close(fd);
	return p;
}

static void run_mmap(struct bench *b)
{
	for (size_t i = 0; i < b->npaths; i++) {
		size_t len;
		uint8_t *p = map(b->path[i], &len);
		const uint64_t *w = (const uint64_t *)(const void *)p;

		for (size_t k = 0; k < len / sizeof(*w); k++)
			b->sum += w[k];
		b->bytes += len;
		b->ops++;
		munmap(p, len);
	}
}

static void run_mmaprand(struct bench *b)
{
	uint64_t seed = 1;

	for (size_t i = 0; i < b->npaths; i++) {
		size_t len;
		volatile uint8_t *p = map(b->path[i], &len);

		if (madvise((void *)(uintptr_t)p, len, MADV_RANDOM) == -1)
			die("madvise: %s", strerror(errno));
		for (uint64_t k = 0; k < b->n && len >= 4096; k++)
			b->sum += p[tap_random(&seed) % (len / 4096) * 4096];
		b->ops += b->n;
		b->bytes += b->n;
		munmap((void *)(uintptr_t)p, len);
	}
}

static void run_rand(struct bench *b)
{
	uint8_t *buf = must_alloc(b->block);
	uint64_t seed = 1, off;
	struct stat st;

	for (size_t i = 0; i < b->npaths; i++) {
		int fd = must_open(b->path[i], &st);

		if ((uint64_t)st.st_size < b->block)
			die("%s: too small", b->path[i]);
		for (uint64_t k = 0; k < b->n; k++) {
			off = tap_random(&seed) %
			    ((uint64_t)st.st_size / b->block) * b->block;
			read_range(b->path[i], fd, buf, b->block, off,
			    off + b->block);
		}
		b->ops += b->n;
		b->bytes += b->n * b->block;
		close(fd);
	}
	free(buf);
}

static FTS *walk(struct bench *b, int flags)
{
	char **roots = calloc(b->npaths + 1, sizeof(*roots));
	FTS *fts;

	if (roots == NULL)
		die("out of memory");
	memcpy(roots, b->path, b->npaths * sizeof(*roots));
	fts = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR | flags, NULL);
	if (fts == NULL)
		die("fts_open: %s", strerror(errno));
	free(roots);
	return fts;
}

static void run_openread(struct bench *b)
{
	uint8_t *buf = must_alloc(b->block);
	FTS *fts = walk(b, 0);
	struct stat st;
	FTSENT *e;

	while ((e = fts_read(fts)) != NULL) {
		int fd;

		if (e->fts_info != FTS_F)
			continue;
		fd = must_open(e->fts_path, &st);
		read_range(e->fts_path, fd, buf, b->block, 0,
		    (uint64_t)st.st_size);
		close(fd);
		b->bytes += (uint64_t)st.st_size;
		b->ops++;
	}
	fts_close(fts);
	free(buf);
}

static void run_walk(struct bench *b, int flags)
{
	FTS *fts = walk(b, flags);
	FTSENT *e;

	while ((e = fts_read(fts)) != NULL) {
		if (e->fts_info == FTS_ERR || e->fts_info == FTS_DNR ||
		    e->fts_info == FTS_NS)
			die("%s: %s", e->fts_path, strerror(e->fts_errno));
		if (e->fts_info != FTS_DP)
			b->ops++;
		if (flags == 0 && e->fts_info == FTS_F)
			b->bytes += (uint64_t)e->fts_statp->st_size;
	}
	fts_close(fts);
}

static void run_list(struct bench *b)
{
	run_walk(b, FTS_NOSTAT);
}

static void run_stat(struct bench *b)
{
	run_walk(b, 0);
}

/* Names as long as those of tensors. */
static void run_touch(struct bench *b)
{
	char path[4096];

	for (uint64_t i = 0; i < b->n; i++) {
		int fd;

		snprintf(path, sizeof(path),
		    "%s/layers.%" PRIu64 ".attention.w%" PRIu64 ".weight",
		    b->path[0], i / 8, i % 8);
		fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
		if (fd == -1)
			die("%s: %s", path, strerror(errno));
		close(fd);
		b->ops++;
	}
}

/* A virtual machine may have given free memory back to its host. Getting it back
 * takes longer than anything that is measured here. */
static void run_memory(struct bench *b)
{
	volatile uint8_t *p = must_alloc(b->block);

	for (size_t i = 0; i < b->block; i += 4096)
		p[i] = 1;
	b->bytes = b->block;
	free((void *)(uintptr_t)p);
}

static void run_drop(struct bench *b)
{
	struct stat st;

	for (size_t i = 0; i < b->npaths; i++) {
		int fd = must_open(b->path[i], &st);

		if (!S_ISREG(st.st_mode)) {
			close(fd);
			continue;
		}
		fdatasync(fd);
		if (posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) != 0)
			die("%s: fadvise", b->path[i]);
		close(fd);
		b->ops++;
	}
}

static const struct mode {
	const char *name;
	void (*run)(struct bench *b);
	size_t block;
} modes[] = {
	{ "seq", run_seq, 1 << 20 },
	{ "par", run_par, 1 << 20 },
	{ "mmap", run_mmap, 1 },
	{ "mmaprand", run_mmaprand, 1 },
	{ "rand", run_rand, 4096 },
	{ "openread", run_openread, 1 << 20 },
	{ "list", run_list, 1 },
	{ "stat", run_stat, 1 },
	{ "touch", run_touch, 1 },
	{ "memory", run_memory, 1 << 20 },
	{ "drop", run_drop, 1 },
};

static const struct mode *find_mode(const char *name)
{
	for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++)
		if (strcmp(modes[i].name, name) == 0)
			return &modes[i];
	return NULL;
}

static double seconds(const struct timeval *t)
{
	return (double)t->tv_sec + (double)t->tv_usec * 1e-6;
}

static void time_it(const struct mode *m, struct bench *b)
{
	struct rusage before, after;
	double began, s;

	getrusage(RUSAGE_SELF, &before);
	began = now();
	m->run(b);
	s = now() - began;
	getrusage(RUSAGE_SELF, &after);
	printf("{\"mode\":\"%s\",\"s\":%.6f,\"bytes\":%" PRIu64
	       ",\"ops\":%" PRIu64
	       ",\"user\":%.3f,\"sys\":%.3f,\"sum\":%" PRIu64 "}\n",
	    m->name, s, b->bytes, b->ops,
	    seconds(&after.ru_utime) - seconds(&before.ru_utime),
	    seconds(&after.ru_stime) - seconds(&before.ru_stime), b->sum);
}

int main(int argc, char **argv)
{
	struct bench b = { .n = 4 }, cold;
	const struct mode *m;
	bool drop = false;
	int opt;

	while ((opt = getopt(argc, argv, "b:n:c")) != -1)
		switch (opt) {
		case 'b':
			b.block = strtoull(optarg, NULL, 10);
			break;
		case 'n':
			b.n = strtoull(optarg, NULL, 10);
			break;
		case 'c':
			drop = true;
			break;
		default:
			fputs(usage, stderr);
			return 2;
		}
	m = optind < argc ? find_mode(argv[optind]) : NULL;
	if (m == NULL || optind + 1 >= argc) {
		fputs(usage, stderr);
		return 2;
	}
	b.path = argv + optind + 1;
	b.npaths = (size_t)(argc - optind - 1);
	if (b.block == 0)
		b.block = m->block;
	cold = b;
	if (drop)
		run_drop(&cold);
	time_it(m, &b);
	return 0;
}
