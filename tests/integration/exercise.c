/* exercise.c - random system calls on a mount, compared with a model */
/* SPDX-License-Identifier: Apache-2.0 */

/* exercise bytes SEED COUNT MOUNT FILE: random reads, writes, mappings and
 * truncations of a tensor in a mount, compared with a copy in memory, with
 * commits in between. "shared" instead of "bytes": while other processes do so,
 * too.
 * exercise names SEED COUNT DIR MODEL: random operations on names in two empty
 * directories, which must have equal results.
 *
 * On a difference, prints the seed and the last calls, and exits with 1. */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/tap/random.h"

static uint64_t seed;
static char journal[12][400]; /* the last calls */
static unsigned ncalls;

static uint32_t rnd(uint32_t n)
{
	return (uint32_t)tap_below(&seed, n);
}

__attribute__((format(printf, 1, 2))) static void note(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(journal[ncalls++ % 12], sizeof(journal[0]), fmt, ap);
	va_end(ap);
}

__attribute__((format(printf, 1, 2))) static _Noreturn void differs(const char
									*fmt,
    ...)
{
	unsigned n = ncalls < 12 ? ncalls : 12;
	va_list ap;

	for (unsigned i = ncalls - n; i < ncalls; i++)
		printf("# %u: %s\n", i, journal[i % 12]);
	printf("# ");
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	putchar('\n');
	exit(1);
}

static void check(bool ok, const char *what)
{
	if (!ok)
		differs("%s: %s", what, strerror(errno));
}

struct file {
	const char *mount;
	char path[500], npy[500];
	int fd, reader; /* for writing; opened once, for reading */
	bool shared;    /* other processes write to the mount */
	uint8_t *model, *buf;
	size_t full, size;
};

static void open_file(struct file *f)
{
	f->fd = open(f->path, O_RDWR | O_CLOEXEC);
	check(f->fd != -1, "open");
}

static void compare(const struct file *f, const uint8_t *got, size_t off,
    size_t n, const char *what)
{
	for (size_t i = 0; i < n; i++)
		if (got[i] != f->model[off + i])
			differs("%s: byte %zu of [%zu, %zu) is %02x, not %02x",
			    what, off + i, off, off + n, got[i],
			    f->model[off + i]);
}

/* A random range in [0, end]; half of them are short. */
static void range(size_t end, size_t *off, size_t *n)
{
	*off = rnd((uint32_t)end + 1);
	*n = rnd((uint32_t)(end - *off) + 1);
	if (rnd(2) == 0 && *n > 40)
		*n = rnd(40);
}

static void fill(struct file *f, size_t off, size_t n)
{
	for (size_t i = 0; i < n; i++)
		f->model[off + i] = (uint8_t)rnd(256);
}

static void set_size(struct file *f, size_t size)
{
	note("ftruncate %zu", size);
	check(ftruncate(f->fd, (off_t)size) == 0, "ftruncate");
	if (size > f->size)
		memset(f->model + f->size, 0, size - f->size);
	f->size = size;
}

static void do_write(struct file *f)
{
	size_t off, n;
	bool other = rnd(4) == 0; /* through a second descriptor */
	int fd = other ? open(f->path, O_WRONLY | O_CLOEXEC) : f->fd;

	check(fd != -1, "open");
	range(f->full, &off, &n);
	note("%s %zu bytes at %zu", other ? "O_WRONLY" : "write", n, off);
	if (n > 0 && off > f->size)
		memset(f->model + f->size, 0, off - f->size);
	fill(f, off, n);
	check(pwrite(fd, f->model + off, n, (off_t)off) == (ssize_t)n, "write");
	if (n > 0 && off + n > f->size)
		f->size = off + n;
	if (other)
		check(close(fd) == 0, "close");
}

static void do_read(struct file *f, int fd, const char *what)
{
	size_t off, n;
	ssize_t want, got;

	range(f->full, &off, &n);
	note("%s %zu bytes at %zu", what, n, off);
	want = off >= f->size   ? 0
	    : n < f->size - off ? (ssize_t)n
				: (ssize_t)(f->size - off);
	got = pread(fd, f->buf, n, (off_t)off);
	if (got != want)
		differs("%s: %zd bytes, not %zd: %s", what, got, want,
		    got == -1 ? strerror(errno) : "");
	compare(f, f->buf, off, (size_t)got, what);
}

static void do_map(struct file *f, bool write)
{
	size_t off, n;
	uint8_t *p;

	if (f->size == 0)
		return;
	range(f->size, &off, &n);
	note("%s %zu bytes at %zu", write ? "mapped write" : "mapped read", n,
	    off);
	p = mmap(NULL, f->size, write ? PROT_READ | PROT_WRITE : PROT_READ,
	    MAP_SHARED, f->fd, 0);
	check(p != MAP_FAILED, "mmap");
	if (write) {
		fill(f, off, n);
		memcpy(p + off, f->model + off, n);
		check(msync(p, f->size, MS_SYNC) == 0, "msync");
	} else {
		compare(f, p + off, off, n, "mapped read");
	}
	munmap(p, f->size);
}

static void do_npy(struct file *f)
{
	int fd = open(f->npy, O_RDONLY | O_CLOEXEC);
	struct stat st;
	size_t head;

	note("npy");
	check(fd != -1 && fstat(fd, &st) == 0, f->npy);
	head = (size_t)st.st_size - f->size;
	if (head == 0 || head % 64 != 0)
		differs("npy: %zu bytes of header", head);
	check(pread(fd, f->buf, f->size, (off_t)head) == (ssize_t)f->size,
	    "npy");
	compare(f, f->buf, 0, f->size, "npy");
	close(fd);
}

static void do_commit(struct file *f)
{
	char path[500];
	ssize_t done;
	int fd;

	note("commit of %zu of %zu bytes", f->size, f->full);
	check(close(f->fd) == 0, "close");
	snprintf(path, sizeof(path), "%s/.optimfs/control", f->mount);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	check(fd != -1, path);
	/* EBUSY: another process has a file open, or is committing */
	done = write(fd, "commit", 6);
	if (f->size < f->full && done != -1)
		differs("the commit of an incomplete tensor succeeded");
	check(f->size < f->full || done == 6 || errno == EBUSY ||
		(f->shared && errno == EINVAL),
	    "commit");
	close(fd);
	open_file(f);
}

static void do_reopen(struct file *f, bool sync)
{
	note(sync ? "fsync" : "close");
	if (sync)
		check(fsync(f->fd) == 0, "fsync");
	check(close(f->fd) == 0, "close");
	open_file(f);
}

static void step(struct file *f)
{
	struct stat st;

	switch (rnd(16)) {
	case 0:
	case 1:
	case 2:
	case 3:
		do_write(f);
		break;
	case 4:
		set_size(f, rnd((uint32_t)f->full + 1));
		break;
	case 5:
	case 6:
		do_map(f, true);
		break;
	case 7:
		do_map(f, false);
		break;
	case 8:
		do_reopen(f, rnd(2) == 0);
		break;
	case 9:
		if (rnd(4) == 0)
			do_commit(f);
		break;
	case 10:
		do_npy(f);
		break;
	case 11:
		do_read(f, f->reader, "another reader's");
		break;
	default:
		do_read(f, f->fd, "read");
	}
	check(fstat(f->fd, &st) == 0, "fstat");
	if ((size_t)st.st_size != f->size)
		differs("size is %zu, not %zu", (size_t)st.st_size, f->size);
}

static int bytes(unsigned count, const char *mount, const char *name,
    bool shared)
{
	struct file f = { .mount = mount, .shared = shared };
	struct stat st;

	snprintf(f.path, sizeof(f.path), "%s/%s", mount, name);
	snprintf(f.npy, sizeof(f.npy), "%s/.optimfs/npy/%s.npy", mount, name);
	open_file(&f);
	f.reader = open(f.path, O_RDONLY | O_CLOEXEC);
	check(f.reader != -1 && fstat(f.fd, &st) == 0, f.path);
	f.full = f.size = (size_t)st.st_size;
	f.model = calloc(1, f.full + 1);
	f.buf = calloc(1, f.full + 1);
	check(f.model != NULL && f.buf != NULL, "memory");
	check(pread(f.fd, f.model, f.full, 0) == st.st_size, "read");
	for (unsigned i = 0; i < count; i++)
		step(&f);
	set_size(&f, f.full);
	do_commit(&f);
	check(pread(f.fd, f.buf, f.full, 0) == st.st_size, "read");
	compare(&f, f.buf, 0, f.full, "after the last commit");
	close(f.fd);
	close(f.reader);
	free(f.model);
	free(f.buf);
	return 0;
}

/* One of few paths, so that calls hit the same names. */
static void some_path(char *path, size_t size)
{
	unsigned depth = 1 + rnd(3);
	size_t n = 0;

	for (unsigned i = 0; i < depth; i++)
		n += (size_t)snprintf(path + n, size - n, "%s%c",
		    i == 0 ? "" : "/", "abcd"[rnd(4)]);
}

static int call(int at, unsigned what, const char *a, const char *b)
{
	struct stat st;
	int fd;

	switch (what) {
	case 0:
		return mkdirat(at, a, 0755);
	case 1:
		fd = openat(at, a, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC,
		    0644);
		return fd == -1 ? -1 : close(fd);
	case 2:
		return unlinkat(at, a, 0);
	case 3:
		return unlinkat(at, a, AT_REMOVEDIR);
	case 4:
		return renameat(at, a, at, b);
	case 5:
		return fstatat(at, a, &st, 0) == -1 ? -1 : S_ISDIR(st.st_mode);
	case 6:
		return (int)renameat2(at, a, at, b, RENAME_NOREPLACE);
	default:
		fd = openat(at, a, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
		return fd == -1 ? -1 : close(fd);
	}
}

static const char *const call_names[] = { "mkdir", "create", "unlink", "rmdir",
	"rename", "stat", "rename2", "open" };

struct listing {
	char text[65536];
	size_t n;
};

static int by_name(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

static int not_dots(const struct dirent *e)
{
	return strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
}

/* Lists a tree depth first, names only. */
static void list(struct listing *l, int at, const char *path)
{
	struct dirent **v;
	int n = scandirat(at, path, &v, not_dots, by_name);
	char below[1000];
	struct stat st;

	for (int i = 0; i < n; i++) {
		snprintf(below, sizeof(below), "%s/%s", path, v[i]->d_name);
		free(v[i]);
		check(fstatat(at, below, &st, 0) == 0, below);
		l->n += (size_t)snprintf(l->text + l->n, sizeof(l->text) - l->n,
		    "%s%s\n", below, S_ISDIR(st.st_mode) ? "/" : "");
		if (S_ISDIR(st.st_mode))
			list(l, at, below);
	}
	if (n >= 0)
		free(v);
}

static void same_lists(int a, int b)
{
	struct listing in_a = { .n = 0 }, in_b = { .n = 0 };

	list(&in_a, a, ".");
	list(&in_b, b, ".");
	if (strcmp(in_a.text, in_b.text) != 0)
		differs("there is\n%swhere there should be\n%s", in_a.text,
		    in_b.text);
}

static int names(unsigned count, const char *dir, const char *model)
{
	int a = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int b = open(model, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	check(a != -1, dir);
	check(b != -1, model);
	for (unsigned i = 0; i < count; i++) {
		char from[20], to[20];
		unsigned what = rnd(8);
		int got, want, code;

		some_path(from, sizeof(from));
		some_path(to, sizeof(to));
		note("%s %s %s", call_names[what], from, to);
		errno = 0;
		got = call(a, what, from, to);
		code = got == -1 ? errno : 0;
		errno = 0;
		want = call(b, what, from, to);
		if (got != want || code != (want == -1 ? errno : 0))
			differs("%d (%s), not %d (%s)", got, strerror(code),
			    want, strerror(errno));
		if (i % 16 == 0)
			same_lists(a, b);
	}
	same_lists(a, b);
	close(a);
	close(b);
	return 0;
}

static void on_bus_error(int sig)
{
	(void)sig;
	differs("SIGBUS");
}

int main(int argc, char **argv)
{
	unsigned count;
	int ret;

	if (argc != 6) {
		fputs("usage: exercise bytes|shared|names SEED COUNT A B\n",
		    stderr);
		return 2;
	}
	signal(SIGBUS, on_bus_error);
	seed = strtoull(argv[2], NULL, 0);
	count = (unsigned)strtoul(argv[3], NULL, 0);
	printf("# seed %s\n", argv[2]);
	if (strcmp(argv[1], "names") == 0)
		ret = names(count, argv[4], argv[5]);
	else
		ret = bytes(count, argv[4], argv[5],
		    strcmp(argv[1], "shared") == 0);
	printf("# %u calls\n", count);
	return ret;
}
