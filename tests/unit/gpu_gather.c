/* cluster/gpu/gather.c - the real GPU module over fake CUDA and NCCL
 * libraries */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "optimfs/optimfs.h"

#include "api/api.h"
#include "cluster/gpu/gather.h"
#include "cluster/gpu/module.h"
#include "cluster/manifest.h"
#include "cluster/wire.h"
#include "support/fakegroup.h"
#include "tap.h"

/* Limits in seconds. SHORT is for what hangs in a test: a transfer, which has half
 * of it, or a call. All else has LONG, so that no machine is too slow. */
#define SHORT     2
#define LONG      120
#define MAX_RANKS 4
/* A few blocks, the last of them not full. */
#define SIZE (3 * OFS_GPU_BLOCK + 12345)

static char top[] = "/tmp/optimfs-gather.XXXXXX";
static char each_rank[sizeof(top) + 3];

struct job {
	struct fakegroup *f;
	int size;
	unsigned timeout; /* of transfers; 0: of nothing */
	unsigned call;    /* of a call of the GPU; 0: LONG */
	struct optimfs_gather how;
	void (*work)(struct job *j, int rank, struct optimfs_group *w);
	struct optimfs_error err[MAX_RANKS]; /* of optimfs_group_gather */
	_Atomic unsigned wrong, tried, nunused, nlost;
	pthread_mutex_t lock;
	char said[16][1024];
	unsigned nsaid;
	uint64_t connections; /* to wait for */
	_Atomic unsigned nagain;
};

/* Each rank has a file of its own ("0", "1", ...); "all" is on every rank but
 * the first. */

static uint8_t byte_of(unsigned file, uint64_t off)
{
	return (uint8_t)((off * UINT64_C(0x9e3779b97f4a7c15)) >> 56 ^
	    off >> 12 ^ file * 37);
}

/* The bytes of each file. */
static uint8_t *content[10];

static void make_file(unsigned file, const char *name, int rank)
{
	char path[sizeof(top) + 32];
	uint8_t *p = content[file];
	FILE *f;

	if (p == NULL) {
		p = content[file] = malloc(SIZE);
		for (uint64_t i = 0; i < SIZE && p != NULL; i++)
			p[i] = byte_of(file, i);
	}
	snprintf(path, sizeof(path), "%s/%d/%s", top, rank, name);
	f = fopen(path, "we");
	if (f == NULL || p == NULL || fwrite(p, 1, SIZE, f) != SIZE ||
	    fclose(f) != 0)
		bail_out("%s: cannot be written", path);
}

static void make_files(void)
{
	char path[sizeof(top) + 16], name[12];

	for (int r = 0; r < MAX_RANKS; r++) {
		snprintf(path, sizeof(path), "%s/%d", top, r);
		if (mkdir(path, 0700) == -1)
			bail_out("%s: %s", path, strerror(errno));
		snprintf(name, sizeof(name), "%d", r);
		make_file((unsigned)r, name, r);
		if (r > 0)
			make_file(9, "all", r);
	}
}

/* A job has a thread for each rank, which runs work. */

static void say(void *ctx, const char *text)
{
	struct job *j = ctx;

	pthread_mutex_lock(&j->lock);
	if (j->nsaid < 16)
		snprintf(j->said[j->nsaid++], sizeof(j->said[0]), "%s", text);
	pthread_mutex_unlock(&j->lock);
}

static void run_rank(struct fakegroup *f, int rank, void *ctx)
{
	struct job *j = ctx;
	bool worker[MAX_RANKS] = { true, true, true, true };
	struct optimfs_options none = { 0 };
	struct optimfs_error err;
	unsigned limit = j->timeout == 0 ? 0 : LONG; /* of messages */
	struct optimfs_group *w;
	int ret;

	w = ofs_group_new(&fakegroup_ops, limit, ofs_group_services, &err);
	if (w == NULL)
		bail_out("%s", err.text);
	fakegroup_meet(f);
	j->err[rank].code = 0;
	w->timeout = j->timeout;
	ret = optimfs_group_gather(w, &j->how, &j->err[rank]);
	w->timeout = j->call == 0 ? limit : j->call;
	if (ret == 0) {
		if (optimfs_group_offer(w, each_rank, false, &none, &err) == -1)
			bail_out("%s", err.text);
		j->work(j, rank, w);
	}
	fakegroup_meet(f);
	optimfs_group_leave(w, worker);
}

static void run(struct job *j, int size, const char *faults)
{
	setenv("FAKEGPU", faults, 1);
	j->f = fakegroup_new(size);
	j->size = size;
	j->how.say = say;
	j->how.ctx = j;
	pthread_mutex_init(&j->lock, NULL);
	fakegroup_run(j->f, run_rank, j);
	pthread_mutex_destroy(&j->lock);
	fakegroup_free(j->f);
}

/* A counter of .optimfs/stats; 0 if it is missing. */
static uint64_t stat_of(const struct optimfs_group *w, const char *name)
{
	struct ofs_buf b = { 0 };
	uint64_t n = 0;
	char *at;

	ofs_gpu_gather_stats(w, &b);
	ofs_buf_putc(&b, '\0');
	if (b.bad)
		bail_out("out of memory");
	at = strstr((char *)b.data, name);
	if (at != NULL)
		n = strtoull(at + strlen(name), NULL, 10);
	ofs_buf_fini(&b);
	return n;
}

/* Reads of random segments. */

static struct ofs_manifest *share_of(const struct optimfs_group *w)
{
	struct ofs_manifest *s =
	    ofs_group_manifest((struct optimfs_group *)(uintptr_t)w, each_rank,
		NULL);

	if (s == NULL)
		bail_out("nothing is shared");
	return s;
}

/* The number of a random shared file that is not on this rank; which is its
 * content. */
static uint32_t file_there(const struct ofs_manifest *s, unsigned *seed,
    unsigned *which)
{
	for (;;) {
		uint32_t i = (uint32_t)rand_r(seed) % s->nfiles;
		const char *path = s->file[i].path;

		if (s->file[i].here && s->group->size > 1)
			continue;
		*which = strcmp(path, "all") == 0 ? 9 : (unsigned)atoi(path);
		return i;
	}
}

static uint64_t below(unsigned *seed, uint64_t n)
{
	return ((uint64_t)rand_r(seed) << 31 | (uint64_t)rand_r(seed)) % n;
}

/* Random segments that do not overlap in the buffer, and the bytes that the
 * buffer should have afterwards. */
static size_t make_segments(const struct ofs_manifest *s, unsigned *seed,
    struct ofs_segment *seg, size_t max, uint8_t *want, uint64_t size)
{
	uint64_t dst = below(seed, 100);
	size_t n = 0;

	while (n < max && dst < size) {
		struct ofs_segment *g = &seg[n];
		uint64_t limit = n % 3 == 0 ? 3 << 20 : 5000;
		unsigned which;

		*g = (struct ofs_segment){
			.object = file_there(s, seed, &which),
			.len = below(seed, limit) + 1,
			.n = n % 3 == 0 ? 1 : below(seed, 40) + 1,
			.dst = dst,
		};
		g->src_pitch = (int64_t)(g->len + below(seed, g->len));
		g->dst_pitch = (int64_t)(g->len + below(seed, 64));
		g->src = below(seed,
		    SIZE - (g->n - 1) * (uint64_t)g->src_pitch - g->len + 1);
		dst += (g->n - 1) * (uint64_t)g->dst_pitch + g->len;
		if (dst > size)
			break;
		for (uint64_t i = 0; i < g->n; i++)
			memcpy(want + g->dst + i * (uint64_t)g->dst_pitch,
			    content[which] + g->src +
				i * (uint64_t)g->src_pitch,
			    g->len);
		n++;
	}
	return n;
}

enum { BUF = 20 << 20 };

/* Compares the bytes between segments too: they must not change. */
static void read_some(struct job *j, struct optimfs_group *w, unsigned seed,
    unsigned times)
{
	const struct ofs_manifest *s = share_of(w);
	uint8_t *want = malloc(BUF), *got = malloc(BUF);
	struct ofs_segment seg[12];
	struct optimfs_error err;

	if (want == NULL || got == NULL)
		bail_out("out of memory");
	for (unsigned i = 0; i < times; i++) {
		size_t n;

		memset(want, 0xee, BUF);
		memset(got, 0xee, BUF);
		n = make_segments(s, &seed, seg, 12, want, BUF);
		atomic_fetch_add(&j->tried, 1);
		if (ofs_remote_fetch(s, seg, n, got, &err) == -1) {
			diag("%s", err.text);
			atomic_fetch_add(&j->wrong, 1);
		} else {
			atomic_fetch_add(&j->wrong,
			    memcmp(want, got, BUF) != 0);
		}
	}
	free(want);
	free(got);
}

struct reader {
	struct job *j;
	struct optimfs_group *w;
	unsigned seed;
};

static void *reader(void *arg)
{
	struct reader *r = arg;

	read_some(r->j, r->w, r->seed, 4);
	return NULL;
}

/* Three threads of each rank read at the same time. */
static void read_all(struct job *j, int rank, struct optimfs_group *w)
{
	struct reader r[3];
	pthread_t t[3];

	for (unsigned i = 0; i < 3; i++) {
		r[i] = (struct reader){ j, w, (unsigned)rank * 10 + i };
		if (pthread_create(&t[i], NULL, reader, &r[i]) != 0)
			bail_out("no thread");
	}
	for (unsigned i = 0; i < 3; i++)
		pthread_join(t[i], NULL);
	fakegroup_meet(j->f);
	if (rank == 0) {
		ok(stat_of(w, "gpu.used ") == 1,
		    "GPUs are in use until the end of the job");
		ok(stat_of(w, "gpu.received ") > 0,
		    "data is received through GPUs");
		ok(j->size == 1 || stat_of(w, "gpu.sent ") > 0,
		    "data is sent through GPUs");
	}
}

static void whole(int size, uint64_t cache)
{
	struct job j = { .timeout = LONG,
		.how = { .how = OPTIMFS_GATHER_NCCL, .gpu_cache = cache },
		.work = read_all };

	run(&j, size, "");
	is_int(j.err[0].code, 0, "%d ranks set up their GPUs", size);
	ok(j.wrong == 0 && j.tried == 12 * (unsigned)size,
	    "%d ranks, cache of %" PRIu64 " MiB: all bytes are read", size,
	    cache >> 20);
	is_int(j.nsaid, 0, "a job without failures prints nothing");
}

/* With a cache, a second read of the same bytes needs no other rank. */
static void read_twice(struct job *j, int rank, struct optimfs_group *w)
{
	uint64_t asks, before;

	if (rank == 0) {
		read_some(j, w, 77, 2);
		asks = fakegroup_counts(j->f)->asks;
		before = stat_of(w, "gpu.received ");
		read_some(j, w, 77, 2);
		is_u64(stat_of(w, "gpu.received "), before,
		    "a second read of cached bytes receives nothing");
		is_u64(fakegroup_counts(j->f)->asks, asks,
		    "a second read of cached bytes sends no requests");
		ok(stat_of(w, "gpu.cache_hits ") > 0,
		    "a second read of cached bytes counts cache hits");
		ok(stat_of(w, "gpu.cached ") > 0, "cached blocks are counted");
	}
	fakegroup_meet(j->f);
}

static void cached(int size)
{
	struct job j = { .timeout = LONG,
		.how = { .how = OPTIMFS_GATHER_NCCL, .gpu_cache = 256 << 20 },
		.work = read_twice };

	run(&j, size, "");
	ok(j.wrong == 0 && j.tried == 4, "cached bytes are right");
}

/* gather=auto. */

/* Which way is faster depends on the machine: here the figures are compared with
 * the decision, and the decision with what is done. */
static void read_both_ways(struct job *j, int rank, struct optimfs_group *w)
{
	uint64_t received, nccl, mpi;
	unsigned seed = (unsigned)rank;

	while (stat_of(w, "gpu.decided ") == 0)
		read_some(j, w, seed++, 1);
	nccl = stat_of(w, "gpu.nccl_rate ");
	mpi = stat_of(w, "gpu.mpi_rate ");
	received = stat_of(w, "gpu.received ");
	read_some(j, w, seed, 2);
	if (nccl > 0 && mpi > 0 && stat_of(w, "gpu.used ") == (nccl >= mpi) &&
	    (stat_of(w, "gpu.received ") > received) == (nccl >= mpi))
		atomic_fetch_add(&j->nagain, 1);
	fakegroup_meet(j->f);
	/* an owner answers both kinds of requests, whatever it has decided */
	if (rank == 0)
		ok(received > 0, "gather=auto tries GPUs");
}

static void measured(int size)
{
	struct job j = { .timeout = LONG,
		.how = { .how = OPTIMFS_GATHER_AUTO },
		.work = read_both_ways };

	run(&j, size, "");
	is_int(j.wrong, 0, "gather=auto: all bytes are read");
	is_int(j.nagain, size,
	    "gather=auto: each rank reads the way that was faster");
	is_int(j.nsaid, 0, "gather=auto prints nothing");
}

/* Failures. */

static void read_after_loss(struct job *j, int rank, struct optimfs_group *w)
{
	read_some(j, w, (unsigned)rank, 3);
	fakegroup_meet(j->f);
	if (stat_of(w, "gpu.connections ") == 0)
		atomic_fetch_add(&j->nunused, 1);
	if (stat_of(w, "gpu.used ") == 0 || stat_of(w, "gpu.connections ") > 1)
		atomic_fetch_add(&j->nlost, 1);
}

static unsigned count_said(const struct job *j, const char *part)
{
	unsigned n = 0;

	for (unsigned i = 0; i < j->nsaid; i++)
		n += strstr(j->said[i], part) != NULL;
	return n;
}

/* After a failure each rank still reads everything, and each rank that noticed
 * the failure reports it once. */
static void lost(const char *faults, int size, unsigned timeout, unsigned call,
    const char *code, const char *what)
{
	struct job j = { .timeout = timeout,
		.call = call,
		.how = { .how = OPTIMFS_GATHER_NCCL },
		.work = read_after_loss };

	run(&j, size, faults);
	is_int(j.err[0].code, 0, "%s: setting up succeeds", what);
	ok(j.wrong == 0 && j.tried == 3 * (unsigned)size,
	    "%s: all bytes are read over MPI", what);
	ok(j.nlost > 0, "%s: a rank loses its connection", what);
	ok(count_said(&j, code) >= 1, "%s: the failure is reported with %s",
	    what, code);
	ok(j.nsaid <= (unsigned)size, "%s: each rank reports it at most once",
	    what);
	for (unsigned i = 0; i < j.nsaid; i++)
		diag("%s", j.said[i]);
}

/* A new connection. */

/* Waits until this rank has had n connections, and uses the last one. */
static void wait_connected(const struct optimfs_group *w, uint64_t n)
{
	while (stat_of(w, "gpu.connections ") < n ||
	    stat_of(w, "gpu.used ") == 0)
		usleep(1000);
}

static void read_again(struct job *j, int rank, struct optimfs_group *w)
{
	uint64_t before;

	read_some(j, w, (unsigned)rank, 3);
	wait_connected(w, j->connections);
	fakegroup_meet(j->f);
	before = stat_of(w, "gpu.received ");
	read_some(j, w, (unsigned)rank + 10, 2);
	if (stat_of(w, "gpu.received ") > before)
		atomic_fetch_add(&j->nagain, 1);
	fakegroup_meet(j->f);
}

/* After an error that does not come back all ranks are connected again. */
static void again(const char *faults, int size, unsigned timeout,
    uint64_t connections, const char *what)
{
	struct job j = { .timeout = timeout,
		.how = { .how = OPTIMFS_GATHER_NCCL },
		.connections = connections,
		.work = read_again };

	run(&j, size, faults);
	ok(j.wrong == 0 && j.tried == 5 * (unsigned)size,
	    "%s: all bytes are read", what);
	is_int(j.nagain, size, "%s: then all ranks receive through GPUs", what);
	ok(count_said(&j, "MPI until ranks are connected again") >= 1,
	    "%s: the failure is reported", what);
	is_int(count_said(&j, "NCCL is connected again"), 1,
	    "%s: it is said once that ranks are connected again", what);
	for (unsigned i = 0; i < j.nsaid; i++)
		diag("%s", j.said[i]);
}

/* The job ends while the second connection is made, which would take for ever. */
static void leave_early(struct job *j, int rank, struct optimfs_group *w)
{
	_Atomic uint64_t *calls =
	    &fakegroup_counts(j->f)->asks_of[OFS_WIRE_CALL];
	uint64_t before = atomic_load(calls);

	fakegroup_meet(j->f);
	read_some(j, w, (unsigned)rank, 3);
	while (atomic_load(calls) == before)
		usleep(1000);
	fakegroup_meet(j->f);
}

static void leaves(void)
{
	struct job j = { .timeout = 0,
		.how = { .how = OPTIMFS_GATHER_NCCL },
		.work = leave_early };

	run(&j, 3, "async=1:2,again=hang");
	ok(j.wrong == 0 && j.tried == 9,
	    "a job ends while its ranks are being connected again");
}

/* Half a block of a file, which one rank at a time reads. */
static uint8_t half[OFS_GPU_BLOCK / 2];

static int read_half(const struct ofs_manifest *s, uint32_t file,
    struct optimfs_error *err)
{
	struct ofs_segment seg = {
		.object = file, .len = sizeof(half), .n = 1
	};

	return ofs_remote_fetch(s, &seg, 1, half, err);
}

/* What only a dead rank has cannot be read. Everything else still comes through
 * GPUs. */
static void read_without_2(struct job *j, int rank, struct optimfs_group *w)
{
	const struct ofs_manifest *s = share_of(w);
	struct optimfs_error err;

	fakegroup_meet(j->f);
	if (rank == 0) {
		fakegroup_kill(j->f, 2, 1);
		for (uint32_t i = 0; i < s->nfiles; i++) {
			const char *path = s->file[i].path;
			const uint8_t *want =
			    content[*path == 'a' ? 9 : *path - '0'];
			int ret;

			if (s->file[i].here)
				continue;
			ret = read_half(s, i, &err);
			if (strcmp(path, "2") == 0)
				ok(ret == -1 && err.code == EHOSTDOWN,
				    "reading a file that only a dead rank has "
				    "fails");
			else
				ok(ret == 0 &&
					memcmp(half, want, sizeof(half)) == 0,
				    "with a dead rank the file of another "
				    "rank is read: %s",
				    path);
		}
		ok(stat_of(w, "gpu.used ") == 1,
		    "GPUs stay in use after a rank died");
		is_u64(stat_of(w, "gpu.received "), 3 * sizeof(half),
		    "all bytes of living ranks are received through GPUs");
		is_u64(stat_of(w, "gpu.refused "), 1,
		    "one request is refused for the dead rank");
		fakegroup_kill(j->f, 2, 0);
	}
	fakegroup_meet(j->f);
}

static void one_dead(void)
{
	struct job j = { .timeout = LONG,
		.how = { .how = OPTIMFS_GATHER_NCCL },
		.work = read_without_2 };

	run(&j, 4, "");
	is_int(j.nsaid, 0, "a dead rank is not reported as a failure of GPUs");
}

/* How many bytes it receives through GPUs. */
static uint64_t read_of_1(const struct optimfs_group *w, const char *what)
{
	const struct ofs_manifest *s = share_of(w);
	uint64_t before = stat_of(w, "gpu.received ");
	struct optimfs_error err;
	uint32_t file = 0;

	while (strcmp(s->file[file].path, "1") != 0)
		file++;
	ok(read_half(s, file, &err) == 0 &&
		memcmp(half, content[1], sizeof(half)) == 0,
	    "%s", what);
	return stat_of(w, "gpu.received ") - before;
}

/* The sender of a transfer dies before it has sent. */
static void read_of_2(struct job *j, int rank, struct optimfs_group *w)
{
	_Atomic uint64_t *sends =
	    &fakegroup_counts(j->f)->asks_of[OFS_WIRE_SEND];
	const struct ofs_manifest *s = share_of(w);
	struct optimfs_error err;
	uint32_t file = 0;

	fakegroup_meet(j->f);
	while (rank == 1 && atomic_load(sends) == 0)
		usleep(1000);
	if (rank == 1)
		fakegroup_kill(j->f, 2, 1);
	while (strcmp(s->file[file].path, "2") != 0)
		file++;
	if (rank == 0)
		ok(read_half(s, file, &err) == -1 && err.code == EHOSTDOWN,
		    "reading from a rank that dies in a transfer fails");
	/* the others connect without it */
	if (rank != 2)
		wait_connected(w, 2);
	fakegroup_meet(j->f);
	if (rank == 0)
		is_u64(read_of_1(w, "the file of a living rank is read"),
		    sizeof(half),
		    "it is received over the connection of the living ranks");
	fakegroup_meet(j->f);
	if (rank == 0)
		fakegroup_kill(j->f, 2, 0);
	fakegroup_meet(j->f);
}

static void dies_in_transfer(void)
{
	struct job j = { .timeout = LONG,
		.how = { .how = OPTIMFS_GATHER_NCCL },
		.work = read_of_2 };

	run(&j, 3, "hang=2:1");
	ok(count_said(&j, "OFS901 NCCL: rank 2 ended during a transfer") == 1,
	    "the reader says that the rank ended, before the time of a "
	    "transfer is over");
	ok(count_said(&j, "NCCL is connected again; 2 of 3 ranks use it") == 1,
	    "it is said how many ranks are connected again");
	for (unsigned i = 0; i < j.nsaid; i++)
		diag("%s", j.said[i]);
}

/* Rank 0 has a block, then rank 1 causes the error. */
static void read_kept(struct job *j, int rank, struct optimfs_group *w)
{
	if (rank == 0)
		is_u64(read_of_1(w, "a block is read"), OFS_GPU_BLOCK,
		    "it is received");
	fakegroup_meet(j->f);
	if (rank == 1)
		read_some(j, w, 1, 1);
	wait_connected(w, 2);
	if (rank == 0)
		is_u64(read_of_1(w, "a block that was kept is still right"), 0,
		    "it is not received again");
	fakegroup_meet(j->f);
}

static void kept(void)
{
	struct job j = { .timeout = LONG,
		.how = { .how = OPTIMFS_GATHER_NCCL, .gpu_cache = 64 << 20 },
		.work = read_kept };

	run(&j, 3, "async=1:2,times=1");
	is_int(j.wrong, 0, "all bytes are read beside a block that is kept");
}

/* The GPU of one rank fails: the others connect without it. Without a limit of
 * time nobody may wait for it. */
static void read_beside_broken(struct job *j, int rank, struct optimfs_group *w)
{
	read_some(j, w, (unsigned)rank, 3);
	if (rank != 2)
		wait_connected(w, 2);
	fakegroup_meet(j->f);
	if (rank == 0)
		is_u64(read_of_1(w, "the file of a rank with a GPU is read"),
		    sizeof(half), "it is received through GPUs");
	fakegroup_meet(j->f);
}

static void one_broken(void)
{
	struct job j = { .timeout = 0,
		.how = { .how = OPTIMFS_GATHER_NCCL },
		.work = read_beside_broken };

	run(&j, 3, "reset=4,only=1");
	ok(j.wrong == 0 && j.tried == 9,
	    "a GPU of three that fails: all bytes are read");
	ok(count_said(&j, "NCCL is connected again; 2 of 3 ranks use it") == 1,
	    "it is said that two are connected");
	for (unsigned i = 0; i < j.nsaid; i++)
		diag("%s", j.said[i]);
}

/* A failure to set up has the same result on all ranks. */
static void refused(enum optimfs_gather_how how, const char *faults, int size,
    int code, const char *text, const char *what)
{
	struct job j = { .timeout = strstr(faults, "init=hang") ? SHORT : LONG,
		.how = { .how = how },
		.work = read_after_loss };

	run(&j, size, faults);
	for (int r = 0; r < size; r++)
		is_int(j.err[r].code, code,
		    "%s: result of setting up on rank %d", what, r);
	if (code != 0) {
		is_error(j.err[0], code, text, "%s: the error gives the reason",
		    what);
		is_int(j.nsaid, 0, "%s: nothing is printed beside the error",
		    what);
		return;
	}
	ok(j.wrong == 0 && j.tried == 3 * (unsigned)size,
	    "%s: all bytes are read over MPI", what);
	is_int(j.nunused, size, "%s: no rank uses a GPU", what);
	is_int(j.nsaid, 1, "%s: one line is printed", what);
	ok(count_said(&j, text) == 1, "%s: the printed line gives the reason",
	    what);
	diag("%s", j.said[0]);
}

static void small_cache(void)
{
	struct job j = { .timeout = LONG,
		.how = { .how = OPTIMFS_GATHER_NCCL,
		    .gpu_cache = UINT64_C(1) << 30 },
		.work = read_all };

	run(&j, 2, "max=100");
	ok(j.wrong == 0, "data is right without the cache that does not fit");
	is_int(j.nsaid, 2, "each rank reports that its cache does not fit");
	ok(count_said(&j, "OFS902") == 2,
	    "a cache that does not fit is reported with OFS902");
}

/* The fake libraries check the rest: that only memory which a connection knows is
 * sent, and that it is freed after the end of the connection, by whom it was
 * allocated. */
static void without_own_memory(void)
{
	struct job j = { .timeout = LONG,
		.how = { .how = OPTIMFS_GATHER_NCCL },
		.work = read_all };

	run(&j, 2, "own=fail");
	ok(j.wrong == 0, "data is right where NCCL allocates no memory");
	is_int(j.nsaid, 0, "that NCCL allocates no memory is not a failure");
}

/* Requests from other ranks are trusted as little as files are. */
static void send_nonsense(struct job *j, int rank, struct optimfs_group *w)
{
	static const uint8_t kinds[] = { OFS_WIRE_STAGE, OFS_WIRE_SEQUENCE,
		OFS_WIRE_SEND, OFS_WIRE_CONNECT };
	uint8_t out[4096], request[64];
	struct optimfs_error err;
	unsigned seed = 5, failed = 0;

	if (rank == 0) {
		for (unsigned i = 0; i < 3000; i++) {
			size_t n = 1 + below(&seed, sizeof(request) - 1);

			for (size_t k = 0; k < n; k++)
				request[k] = (uint8_t)rand_r(&seed);
			request[0] = kinds[i % 4];
			if (i % 3 == 0 && n > 5)
				memset(request + 1, 0, 4);
			failed += fakegroup_ask(j->f, 1, request, n, out,
				      below(&seed, sizeof(out)), &err) == -1;
		}
		is_int(failed, 3000, "all of 3000 random requests are refused");
		is_error(err, EPROTO, "OFS913",
		    "a random request fails with OFS913");
	}
	fakegroup_meet(j->f);
	read_some(j, w, (unsigned)rank, 1);
}

static void nonsense(void)
{
	struct job j = { .timeout = LONG,
		.how = { .how = OPTIMFS_GATHER_NCCL },
		.work = send_nonsense };

	run(&j, 2, "");
	ok(j.wrong == 0, "all files can be read after random requests");
}

/* The module finds the libraries by name, so the loader's path must be set
 * before the program starts. */
static void use_fakes(char **argv)
{
	const char *b = getenv("TOP_BUILDDIR");
	char path[4096];

	if (getenv("FAKEGPU") != NULL)
		return;
	if (b == NULL)
		b = ".";
	snprintf(path, sizeof(path), "%s/tests/support/fakegpu", b);
	setenv("LD_LIBRARY_PATH", path, 1);
	snprintf(path, sizeof(path), "%s/.libs", b);
	setenv("OPTIMFS_MODULES", path, 0);
	setenv("FAKEGPU", "", 1);
	execv("/proc/self/exe", argv);
	bail_out("%s: %s", argv[0], strerror(errno));
}

/* Failures are tested with the fake libraries only. */
static void all_of_fake(void)
{
	whole(1, 0);
	whole(2, 0);
	whole(4, 0);
	whole(4, 8 << 20);
	cached(2);
	measured(3);
	one_dead();
	dies_in_transfer();
	/* the first group connects all pairs */
	lost("async=1:2", 3, LONG, LONG, "OFS901", "an asynchronous error");
	lost("hang=0:3", 3, SHORT, LONG, "OFS901", "a transfer that hangs");
	lost("hang=0:3,abort=hang", 3, SHORT, LONG, "OFS901",
	    "an abort that does not return");
	lost("async=0:0", 1, LONG, LONG, "OFS901",
	    "an asynchronous error of a single rank");
	lost("reset=3", 2, LONG, LONG, "OFS902", "a GPU that fails");
	lost("stuck=3", 2, LONG, SHORT, "OFS902",
	    "a GPU call that does not return");
	again("async=1:2,times=1", 3, LONG, 2, "an error of one connection");
	again("async=1:2,times=1,again=fail", 3, LONG, 3,
	    "a connection that fails at the second attempt");
	again("async=0:0,times=1", 1, LONG, 2, "an error of a single rank");
	kept();
	one_broken();
	leaves();
	refused(OPTIMFS_GATHER_NCCL, "init=fail", 2, 0, "OFS901",
	    "NCCL that fails to connect");
	refused(OPTIMFS_GATHER_NCCL, "init=hang", 2, 0, "OFS901",
	    "NCCL that never connects");
	refused(OPTIMFS_GATHER_NCCL, "init=hang,abort=hang", 2, 0, "OFS901",
	    "NCCL that hangs while connecting and aborting");
	refused(OPTIMFS_GATHER_NCCL, "max=10", 2, 0, "OFS902",
	    "a GPU with too little memory");
	refused(OPTIMFS_GATHER_NCCL, "left=200", 2, 0, "OFS902",
	    "a GPU with too little memory for a connection");
	refused(OPTIMFS_GATHER_NCCL, "devices=0", 2, ENODEV, "OFS903",
	    "gather=nccl without a GPU");
	refused(OPTIMFS_GATHER_AUTO, "devices=0", 2, 0, "OFS903",
	    "gather=auto without a GPU");
	refused(OPTIMFS_GATHER_NCCL, "devices=1", 3, ENODEV, "share",
	    "fewer GPUs than ranks");
	small_cache();
	without_own_memory();
	nonsense();
}

/* With real libraries: up to this many ranks, each with a GPU. */
static void all_of_real(int ranks)
{
	for (int n = 1; n <= ranks && n <= MAX_RANKS; n *= 2) {
		whole(n, 0);
		whole(n, 8 << 20);
		cached(n);
	}
}

/* Without an argument: over the fake libraries. The argument is the number of
 * GPUs for the real ones. */
int main(int argc, char **argv)
{
	char command[sizeof(top) + 16];

	if (argc == 1)
		use_fakes(argv);
	if (mkdtemp(top) == NULL)
		bail_out("%s: %s", top, strerror(errno));
	setenv("TMPDIR", top, 1);
	snprintf(each_rank, sizeof(each_rank), "%s/%%r", top);
	make_files();
	if (argc == 1)
		all_of_fake();
	else
		all_of_real(atoi(argv[1]));
	for (size_t i = 0; i < sizeof(content) / sizeof(*content); i++)
		free(content[i]);
	snprintf(command, sizeof(command), "rm -rf %s", top);
	if (system(command) != 0)
		diag("%s: not removed", top);
	return done_testing();
}
