/* simulation.c - jobs in a network that is simulated, and in which ranks die */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "optimfs/optimfs.h"

#include "api/api.h"
#include "cluster/manifest.h"
#include "handmade.h"
#include "support/group_job.h"
#include "support/simtime.h"
#include "tap.h"

/* Of mounts with timeout=15: until a rank counts as silent, and until all others
 * have left after its death. */
enum { TIMEOUT = 10, TIMEOUT_OPTION = 15 };
#define SECOND INT64_C(1000000000)
#define PIECE  (960 << 10)

/* Each rank does what a mount does, with an index that one rank has. */
struct world {
	struct fakegroup *f;
	struct fakegroup_network net;
	int size, machines, owner;
	struct optimfs_error *err; /* by rank; code 0: it has mounted */
	int64_t began, *mounted;   /* when */
};

static uint8_t *index_bytes;
static size_t nindex;

static int read_index(struct optimfs_group *w, struct optimfs_error *err)
{
	struct ofs_manifest *s = ofs_group_manifest(w, each_rank, err);
	uint32_t file = s == NULL ? OFS_NONE : ofs_manifest_find(s, "index");
	uint8_t *buf = malloc(nindex);
	int ret = 0;

	if (buf == NULL || file == OFS_NONE)
		bail_out("no index");
	if (!s->file[file].here)
		ret = s->names.ops->read(&s->names, file, buf, nindex, 0, err);
	if (!s->file[file].here && ret == 0 &&
	    memcmp(buf, index_bytes, nindex) != 0)
		bail_out("wrong bytes");
	free(buf);
	return ret;
}

/* As fuse/job.c: who has no tree takes part in the vote. */
static int mount(struct optimfs_group *w, struct optimfs_error *err)
{
	struct optimfs_error own = { 0 };

	if (optimfs_group_offer(w, each_rank, false, NULL, err) == -1)
		return -1;
	if (read_index(w, &own) == 0)
		own.code = 0;
	if (optimfs_group_compare(w, NULL, err) == -1)
		return -1;
	return optimfs_group_agree(w, own.code == 0 ? NULL : &own, err);
}

static void be_rank(struct fakegroup *f, int rank, void *ctx)
{
	struct world *x = ctx;
	bool *all = malloc((size_t)x->size);
	struct optimfs_error err;
	struct optimfs_group *w;

	if (all == NULL)
		bail_out("memory");
	memset(all, true, (size_t)x->size);
	fakegroup_meet(f);
	w = ofs_group_new(&fakegroup_ops, TIMEOUT, ofs_group_services, &err);
	if (w == NULL || optimfs_group_readers(w, all, &err) == -1)
		bail_out("%s", err.text);
	if (rank == 0)
		x->began = simtime_now();
	fakegroup_meet(f);
	if (mount(w, &x->err[rank]) == 0)
		x->err[rank].code = 0;
	x->mounted[rank] = simtime_now();
	optimfs_group_leave(w, all);
	free(all);
}

static void make_index(size_t n, int owner)
{
	index_bytes = malloc(n);
	if (index_bytes == NULL)
		bail_out("memory");
	nindex = n;
	handmade_fill(index_bytes, n, 7);
	clear();
	make_dirs(owner + 1);
	put(path_of("%d/index", owner), index_bytes, n);
}

/* victim: -1: none dies. */
static void run_world(struct world *x, int victim, uint64_t step, bool whole)
{
	x->net.now = simtime_now;
	x->net.sleep_until = simtime_sleep_until;
	x->err = calloc((size_t)x->size, sizeof(*x->err));
	x->mounted = calloc((size_t)x->size, sizeof(*x->mounted));
	if (x->err == NULL || x->mounted == NULL)
		bail_out("memory");
	x->f = fakegroup_new(x->size);
	fakegroup_machines(x->f, x->machines);
	fakegroup_network(x->f, &x->net);
	if (victim != -1)
		fakegroup_die(x->f, victim, step, whole);
	fakegroup_run(x->f, be_rank, x);
}

static void end_world(struct world *x)
{
	fakegroup_free(x->f);
	free(x->err);
	free(x->mounted);
}

static unsigned depth(int size)
{
	unsigned n = 0;

	while (size >>= 1)
		n++;
	return n;
}

/* docs/performance.md has this model: a chain of messages on each level of the
 * tree, for each 16 pieces; what a machine sends; what those below wait for until
 * they send the same; and four exchanges of some bytes of each rank. */
static double model(const struct world *x)
{
	double batch = 16.0 * PIECE, n = (double)nindex;
	double chain = 19 + 4 * (n / batch + 1);
	double far = (double)x->net.latency / 1e9 * (depth(x->machines) + 1);
	double near = (double)x->net.near / 1e9 * (depth(x->size) + 1);
	double all = (double)x->size * (60 + (double)strlen(each_rank) / 4);
	double bytes = 4 * 2 * all * (depth(x->size) + 1) + 2 * n +
	    2 * (n < batch ? n : batch) * depth(x->machines);

	return chain * (far + near) + bytes / (double)x->net.rate;
}

static void test_time(int size, int machines, int64_t latency, uint64_t rate,
    size_t n)
{
	struct world x = { .size = size,
		.machines = machines,
		.net = { latency, 1000, rate, NULL, NULL } };
	int64_t last = 0;
	bool well = true;

	make_index(n, 0);
	run_world(&x, -1, 0, false);
	for (int r = 0; r < size; r++) {
		well = well && x.err[r].code == 0;
		last = x.mounted[r] > last ? x.mounted[r] : last;
	}
	ok(well, "%d ranks mount", size);
	ok((double)(last - x.began) / 1e9 <= model(&x),
	    "%d ranks on %d machines: %.4f s, of at most %.4f s", size,
	    machines, (double)(last - x.began) / 1e9, model(&x));
	end_world(&x);
	free(index_bytes);
}

/* What became of a job. */
struct ends {
	unsigned runs, mounted, refused, unexplained;
	int64_t latest; /* after the death, and after the last umount */
};

/* One dies at a step. False: the job had fewer. */
static bool die_at(struct world *x, int victim, uint64_t step, bool whole,
    struct ends *e)
{
	int64_t died, last;

	run_world(x, victim, step, whole);
	died = last = fakegroup_died(x->f);
	for (int r = 0; r < x->size; r++)
		if (x->err[r].code == 0 && x->mounted[r] > last &&
		    !fakegroup_is_dead(x->f, r))
			last = x->mounted[r];
	for (int r = 0; r < x->size && died != 0; r++) {
		int64_t took = fakegroup_left(x->f, r) - last;

		if (fakegroup_is_dead(x->f, r))
			continue;
		e->mounted += x->err[r].code == 0;
		e->refused += x->err[r].code != 0;
		e->unexplained += x->err[r].code != 0 &&
		    strncmp(x->err[r].text, "OFS91", 5) != 0;
		if (took > e->latest)
			e->latest = took;
	}
	e->runs++;
	end_world(x);
	return died != 0;
}

static void test_deaths(int size, int machines, int victim, bool whole,
    uint64_t stride)
{
	struct world x = { .size = size,
		.machines = machines,
		.owner = 0,
		.net = { 100000, 1000, 1000000000, NULL, NULL } };
	struct ends e = { 0 };

	make_index((64 << 10) + 321, 0);
	for (uint64_t step = 0; die_at(&x, victim, step, whole, &e);
	     step += stride)
		continue;
	ok(e.runs > 5 && e.mounted > 0 && e.refused > 0,
	    "%s of rank %d of %d dies at each of %u steps",
	    whole ? "the machine" : "the process", victim, size, e.runs - 1);
	is_u64(e.unexplained, 0, "who does not mount says which rank is lost");
	ok(e.latest <= TIMEOUT_OPTION * SECOND,
	    "all others have left after at most %.1f s",
	    (double)e.latest / 1e9);
	free(index_bytes);
}

/* A machine of many dies at one step. */
static void test_death(int size, int machines, int victim, uint64_t step)
{
	struct world x = { .size = size,
		.machines = machines,
		.net = { 100000, 1000, 1000000000, NULL, NULL } };
	struct ends e = { 0 };

	make_index((64 << 10) + 321, 0);
	ok(die_at(&x, victim, step, true, &e),
	    "the machine of rank %d of %d dies", victim, size);
	is_u64(e.unexplained, 0, "who does not mount says which rank is lost");
	ok(e.latest <= TIMEOUT_OPTION * SECOND,
	    "%u have mounted and %u have not; all others have left after at "
	    "most %.1f s",
	    e.mounted, e.refused, (double)e.latest / 1e9);
	free(index_bytes);
}

/* With one argument: deaths at all steps. With four: ranks, machines, and one whose
 * machine dies at a step. With five: ranks, machines, latency in us, MB/s and KiB
 * of an index. */
int main(int argc, char **argv)
{
	uint64_t stride = argc == 2 ? 1 : 2;

	begin_ranks();
	if (argc == 6) {
		test_time(atoi(argv[1]), atoi(argv[2]),
		    atoi(argv[3]) * (int64_t)1000,
		    strtoull(argv[4], NULL, 10) * 1000000,
		    (size_t)atoi(argv[5]) << 10);
	} else if (argc == 5) {
		test_death(atoi(argv[1]), atoi(argv[2]), atoi(argv[3]),
		    strtoull(argv[4], NULL, 10));
	} else {
		test_time(64, 8, 20000, 1000000000, 4 << 20);
		test_time(64, 8, 20000000, 1000000000, 4 << 20);
		test_time(128, 128, 1000000, 100000000, 64 << 10);
		test_time(8, 8, 1000000, 1000000000, 32 << 20);
		for (int whole = 0; whole < 2; whole++) {
			test_deaths(12, 4, 0, whole, stride);
			test_deaths(12, 4, 1, whole, stride);
			test_deaths(12, 4, 11, whole, stride);
			test_deaths(64, 16, 0, whole, 9 * stride);
		}
	}
	end_ranks();
	return done_testing();
}
