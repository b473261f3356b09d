/* cmd_reshard.c - optimfs reshard: write a checkpoint in another layout */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "tools/command.h"
#include "tools/walk.h"

#define PIECE       (4u << 20)
#define THREADS_MAX 8

/* The view's files go to a directory beside the one that is asked for, which
 * gets its name once all of them are on disk: it is there whole or not. */

struct file {
	char *name;
	uint64_t node, size;
};

struct reshard {
	struct ofs_command *c;
	struct file *file;
	size_t n, cap;
	uint64_t bytes;
	int stage; /* directory */
	_Atomic size_t next;
	_Atomic uint64_t done;
	_Atomic unsigned running;
	atomic_bool failed;
	pthread_mutex_t lock;
	struct optimfs_error err; /* of the first that failed */
};

static int add_file(void *ctx, const struct ofs_walk_entry *e,
    struct optimfs_error *err)
{
	struct reshard *r = ctx;

	if (r->n == r->cap) {
		size_t cap = r->cap == 0 ? 64 : r->cap * 2;
		struct file *grown = reallocarray(r->file, cap, sizeof(*grown));

		if (grown == NULL)
			return optimfs_fail(err, ENOMEM, "out of memory");
		r->file = grown;
		r->cap = cap;
	}
	r->file[r->n] =
	    (struct file){ strdup(e->name), e->attr.node, e->attr.size };
	if (r->file[r->n].name == NULL)
		return optimfs_fail(err, ENOMEM, "out of memory");
	r->bytes += r->file[r->n++].size;
	return 0;
}

static int write_all(int fd, const char *p, size_t n, struct optimfs_error *err)
{
	while (n > 0) {
		ssize_t k = write(fd, p, n);

		if (k == -1 && errno == EINTR)
			continue;
		if (k == -1)
			return optimfs_fail(err, errno, "%m");
		p += k;
		n -= (size_t)k;
	}
	return 0;
}

static int copy_pieces(struct reshard *r, struct optimfs_file *from, int fd,
    char *buf, struct optimfs_error *err)
{
	uint64_t off = 0;
	ssize_t n;

	while ((n = optimfs_file_read(from, buf, PIECE, off, err)) > 0) {
		if (write_all(fd, buf, (size_t)n, err) == -1)
			return -1;
		off += (uint64_t)n;
		atomic_fetch_add(&r->done, (uint64_t)n);
		if (atomic_load(&r->failed))
			return optimfs_fail(err, ECANCELED, "given up");
	}
	if (n == -1)
		return -1;
	return fsync(fd) == -1 ? optimfs_fail(err, errno, "fsync: %m") : 0;
}

static int copy_file(struct reshard *r, const struct file *f, char *buf,
    struct optimfs_error *err)
{
	struct optimfs_file *from;
	int fd, ret;

	if (optimfs_file_open(r->c->fs, f->node, &from, err) == -1)
		return -1;
	fd = openat(r->stage, f->name,
	    O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
	if (fd == -1) {
		optimfs_file_close(from);
		return optimfs_fail(err, errno, "%s: %m", f->name);
	}
	ret = copy_pieces(r, from, fd, buf, err);
	optimfs_file_close(from);
	if (close(fd) == -1 && ret == 0)
		ret = optimfs_fail(err, errno, "%m");
	return ret == -1 ? optimfs_fail_in(err, "%s", f->name) : 0;
}

static void *work(void *ctx)
{
	struct reshard *r = ctx;
	struct optimfs_error err = { 0 };
	char *buf = malloc(PIECE);
	int ret = buf == NULL ? optimfs_fail(&err, ENOMEM, "out of memory") : 0;

	while (ret == 0 && !atomic_load(&r->failed)) {
		size_t i = atomic_fetch_add(&r->next, 1);

		if (i >= r->n)
			break;
		ret = copy_file(r, &r->file[i], buf, &err);
	}
	free(buf);
	if (ret == -1) {
		pthread_mutex_lock(&r->lock);
		if (!atomic_exchange(&r->failed, true))
			r->err = err;
		pthread_mutex_unlock(&r->lock);
	}
	atomic_fetch_sub(&r->running, 1);
	return NULL;
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* A line for whoever waits at a terminal. */
static void watch(struct reshard *r)
{
	const struct timespec pause = { .tv_nsec = 200000000 };
	double start = now(), took, rate;
	uint64_t done;
	bool said = false;

	while (atomic_load(&r->running) > 0) {
		nanosleep(&pause, NULL);
		took = now() - start;
		if (took < 2 || !isatty(STDERR_FILENO))
			continue;
		done = atomic_load(&r->done);
		rate = (double)done / took;
		fprintf(stderr,
		    "\r%" PRIu64 " of %" PRIu64
		    " MiB, %.0f MiB/s, %.0f s left   ",
		    done >> 20, r->bytes >> 20, rate / (1 << 20),
		    rate > 0 ? (double)(r->bytes - done) / rate : 0);
		said = true;
	}
	if (said)
		fputc('\n', stderr);
}

static unsigned nthreads(const struct reshard *r)
{
	long n = sysconf(_SC_NPROCESSORS_ONLN);

	if (n < 1)
		n = 1;
	if (n > THREADS_MAX)
		n = THREADS_MAX;
	return (size_t)n < r->n ? (unsigned)n : (unsigned)r->n;
}

static int copy_files(struct reshard *r, struct optimfs_error *err)
{
	pthread_t thread[THREADS_MAX];
	unsigned n = nthreads(r), started = 0;

	pthread_mutex_init(&r->lock, NULL);
	for (; started < n; started++) {
		atomic_fetch_add(&r->running, 1);
		if (pthread_create(&thread[started], NULL, work, r) == 0)
			continue;
		atomic_fetch_sub(&r->running, 1);
		break;
	}
	if (started == 0 && n > 0) {
		atomic_fetch_add(&r->running, 1);
		work(r);
	}
	watch(r);
	for (unsigned i = 0; i < started; i++)
		pthread_join(thread[i], NULL);
	pthread_mutex_destroy(&r->lock);
	if (atomic_load(&r->failed))
		*err = r->err;
	return atomic_load(&r->failed) ? -1 : 0;
}

/* Sums of their own cost another look at each byte, which it takes anyway on
 * its way to the disk; a copy should have them. */
static int find_view(struct reshard *r, struct optimfs_error *err)
{
	const char *sum = strncmp(r->c->to, "safetensors", 11) == 0 ||
		strstr(r->c->to, ",crc") != NULL
	    ? ""
	    : ",crc";
	struct optimfs_attr attr;
	char path[256];

	if (strchr(r->c->to, '/') != NULL || strlen(r->c->to) > 100)
		return optimfs_fail(err, EINVAL, "--to %.80s: no such layout",
		    r->c->to);
	snprintf(path, sizeof(path), ".optimfs/view/%s%s", r->c->to, sum);
	if (optimfs_resolve(r->c->fs, path, &attr, err) == -1)
		return -1;
	return ofs_walk(r->c->fs, attr.node, 1, add_file, r, err);
}

static void drop_stage(struct reshard *r, const char *stage)
{
	for (size_t i = 0; i < r->n; i++)
		unlinkat(r->stage, r->file[i].name, 0);
	close(r->stage);
	rmdir(stage);
}

static int sync_parent(const char *parent)
{
	int fd = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC), ret;

	if (fd == -1)
		return -1;
	ret = fsync(fd);
	close(fd);
	return ret;
}

/* mkdtemp makes 0700; the directory gets what mkdir(1) would have given. */
static int open_stage(struct reshard *r, char *stage, struct optimfs_error *err)
{
	mode_t mask = umask(0);

	umask(mask);
	if (mkdtemp(stage) == NULL)
		return optimfs_fail(err, errno, "%s: %m", stage);
	r->stage = open(stage, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (r->stage != -1 && fchmod(r->stage, 0777 & ~mask) == 0)
		return 0;
	optimfs_fail(err, errno, "%s: %m", stage);
	if (r->stage != -1)
		close(r->stage);
	rmdir(stage);
	return -1;
}

/* Status of the command; the parent's name is what stands before base. */
static int publish(struct reshard *r, char *stage, const char *parent,
    const char *dest)
{
	struct optimfs_error err;

	if (open_stage(r, stage, &err) == -1)
		return ofs_tool_fail(&err);
	if (copy_files(r, &err) == -1)
		goto fail;
	if (fsync(r->stage) == -1 ||
	    renameat2(AT_FDCWD, stage, AT_FDCWD, dest, RENAME_NOREPLACE) ==
		-1) {
		optimfs_fail(&err, errno, "%s: %m", dest);
		goto fail;
	}
	close(r->stage);
	if (sync_parent(parent) == 0)
		return OFS_EXIT_OK;
	ofs_tool_say("%s is there, but may not survive a crash: fsync: %s",
	    dest, strerror(errno));
	return OFS_EXIT_UNSYNCED;
fail:
	drop_stage(r, stage);
	return ofs_tool_fail(&err);
}

static int reshard(struct reshard *r, char *dest)
{
	size_t n = strlen(dest);
	char *stage = NULL, *base;
	struct optimfs_error err;
	struct stat st;
	int status;

	while (n > 1 && dest[n - 1] == '/')
		dest[--n] = '\0';
	if (lstat(dest, &st) == 0) {
		optimfs_fail(&err, EEXIST, "%s is there already", dest);
		return ofs_tool_fail(&err);
	}
	if (find_view(r, &err) == -1)
		return ofs_tool_fail(&err);
	base = strrchr(dest, '/');
	base = base == NULL ? dest : base + 1;
	if (asprintf(&stage, "%.*s.%s.XXXXXX", (int)(base - dest), dest,
		base) == -1) {
		optimfs_fail(&err, ENOMEM, "out of memory");
		return ofs_tool_fail(&err);
	}
	n = (size_t)(base - dest);
	base = n == 0 ? strdup(".") : strndup(dest, n);
	status = publish(r, stage, base == NULL ? "/" : base, dest);
	free(base);
	free(stage);
	return status;
}

static int run(const struct ofs_verb *verb, int argc, char **argv)
{
	struct reshard r = { 0 };
	struct ofs_command c;
	int status;

	if (ofs_command_init(&c, verb, argc, argv, OFS_TO, 1, 1, &status) == -1)
		return status;
	r.c = &c;
	if (c.to == NULL)
		status = ofs_tool_usage(verb, "which layout? --to dcp@16");
	else
		status = reshard(&r, c.operand[0]);
	for (size_t i = 0; i < r.n; i++)
		free(r.file[i].name);
	free(r.file);
	ofs_command_fini(&c);
	return status;
}

const struct ofs_verb ofs_verb_reshard = {
	.name = "reshard",
	.synopsis = "--to FORMAT[@LAYOUT] [-o OPTION] CHECKPOINT DIRECTORY",
	.summary = "write a checkpoint in another layout",
	.options =
	    "  --to FORMAT[@LAYOUT]  dcp@16, dcp@2x8, torch, safetensors; "
	    "optimfs(5) has them all\n",
	.run = run,
};
