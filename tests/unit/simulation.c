/* simulation.c - jobs in a network that is simulated, and in which ranks die */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "optimfs/optimfs.h"

#include "api/api.h"
#include "base/copy.h"
#include "cluster/call.h"
#include "cluster/commit/coordinator.h"
#include "cluster/commit/coordinator_impl.h"
#include "cluster/commit/locks.h"
#include "cluster/manifest.h"
#include "cluster/task.h"
#include "handmade.h"
#include "journal/stage.h"
#include "support/group_job.h"
#include "support/simtime.h"
#include "support/truth.h"
#include "tap.h"

/* Of mounts with timeout=15: until a rank counts as silent, and until all others
 * have left after its death. */
enum { TIMEOUT = 10, TIMEOUT_OPTION = 15 };
#define SECOND INT64_C(1000000000)
#define PIECE  (960 << 10)

/* A request whose work takes 3 s. */
enum { SLOW = 15 };
static ofs_handler_fn be_slow;

/* Each rank does what a mount does, with an index that one rank has; or another
 * job. */
struct world {
	int (*job)(struct optimfs_group *w, struct optimfs_error *err);
	bool first; /* in which only rank 0 works */
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
	for (int r = 0; r < x->size; r++)
		all[r] = r == 0 || !x->first;
	fakegroup_meet(f);
	w = ofs_group_new(&fakegroup_ops, TIMEOUT, ofs_group_services, &err);
	if (w != NULL)
		w->handler[SLOW] = (struct ofs_handler){ .fn = be_slow };
	if (w == NULL || optimfs_group_readers(w, all, &err) == -1)
		bail_out("%s", err.text);
	if (rank == 0)
		x->began = simtime_now();
	fakegroup_meet(f);
	if (x->job(w, &x->err[rank]) == 0)
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
	if (x->job == NULL)
		x->job = mount;
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
	unsigned runs, done, refused, unexplained, wrong;
	int64_t latest; /* after the death */
};

static bool explained(const struct optimfs_error *e)
{
	return strstr(e->text, "OFS91") != NULL ||
	    strstr(e->text, "another rank failed") != NULL;
}

/* One dies at a step. False: the job had fewer. */
static bool die_at(struct world *x, int victim, uint64_t step, bool whole,
    bool (*check)(const struct world *x), struct ends *e)
{
	int64_t died;

	run_world(x, victim, step, whole);
	died = fakegroup_died(x->f);
	for (int r = 0; r < x->size && died != 0; r++) {
		int64_t took = fakegroup_left(x->f, r) - died;

		if (fakegroup_is_dead(x->f, r))
			continue;
		e->done += x->err[r].code == 0;
		e->refused += x->err[r].code != 0;
		if (x->err[r].code != 0 && !explained(&x->err[r])) {
			diag("rank %d, step %u: %s", r, (unsigned)step,
			    x->err[r].text);
			e->unexplained++;
		}
		if (took > e->latest)
			e->latest = took;
		if (took > TIMEOUT_OPTION * SECOND)
			diag("rank %d, step %u: %.1f s, of which %.1f s before "
			     "it leaves",
			    r, (unsigned)step, (double)took / 1e9,
			    (double)(x->mounted[r] - died) / 1e9);
	}
	if (check != NULL && !check(x)) {
		diag("wrong after step %u", (unsigned)step);
		e->wrong++;
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
	for (uint64_t step = 0; die_at(&x, victim, step, whole, NULL, &e);
	     step += stride)
		continue;
	ok(e.runs > 5 && e.done > 0 && e.refused > 0,
	    "%s of rank %d of %d dies at each of %u steps",
	    whole ? "the machine" : "the process", victim, size, e.runs - 1);
	is_u64(e.unexplained, 0, "who does not mount says which rank is lost");
	ok(e.latest <= TIMEOUT_OPTION * SECOND,
	    "all others have left after at most %.1f s",
	    (double)e.latest / 1e9);
	free(index_bytes);
}

/* Tasks. */

static const char *out; /* what is written; NULL: nothing */

static int do_task(struct optimfs_group *w, struct optimfs_error *err)
{
	struct optimfs_options o = { .group = w, .together = true };
	struct optimfs_reshard how = { .to = "dcp@6", .jobs = 2 };
	struct optimfs *fs;
	uint64_t problems;
	int ret;

	if (optimfs_group_offer(w, each_rank, false, &o, err) == -1)
		return -1;
	fs = optimfs_open(each_rank, &o, err);
	if (fs == NULL)
		return -1;
	ret = out != NULL ? optimfs_reshard(fs, out, &how, err)
			  : optimfs_fsck(fs, true, NULL, NULL, &problems, err);
	optimfs_close(fs);
	return ret;
}

/* Sums of the files of the output; empty: there is none. Removes it, and what is
 * left of its stage. */
static void take_output(char sums[80])
{
	char command[512];
	FILE *p;

	snprintf(command, sizeof(command),
	    "cd %s 2>/dev/null && find . -type f | sort | xargs cat | cksum; "
	    "rm -rf %s %s.* %s",
	    out, out, out, path_of(".o*"));
	p = popen(command, "re");
	sums[0] = '\0';
	if (p == NULL)
		bail_out("popen");
	(void)!fgets(sums, 80, p);
	pclose(p);
}

static char whole_output[80];

/* Is there all of the output, or nothing, and nothing only if nobody has been told
 * that it is there? */
static bool check_output(const struct world *x)
{
	char sums[80];
	bool told = false;

	take_output(sums);
	for (int r = 0; r < x->size; r++)
		told = told || x->err[r].code == 0;
	return strcmp(sums, whole_output) == 0 || (!told && sums[0] == '\0');
}

static void test_task(const char *what, int victim, bool whole, uint64_t stride)
{
	struct world x = { .job = do_task,
		.size = 6,
		.machines = 3,
		.net = { 100000, 1000, 1000000000, NULL, NULL } };
	struct ends e = { 0 };

	for (uint64_t step = 0; die_at(&x, victim, step, whole,
		 out == NULL ? NULL : check_output, &e);
	     step += stride)
		continue;
	ok(e.runs > 4 && e.refused > 0, "%s: %s of rank %d dies at %u steps",
	    what, whole ? "the machine" : "the process", victim, e.runs - 1);
	is_u64(e.unexplained, 0, "%s: the others say who is lost", what);
	is_u64(e.wrong, 0, "%s: all of the output is there, or nothing", what);
	ok(e.latest <= TIMEOUT_OPTION * SECOND,
	    "%s: all others have left after at most %.1f s", what,
	    (double)e.latest / 1e9);
}

static void test_tasks(uint64_t stride)
{
	struct world x = { .job = do_task, .size = 6, .machines = 3 };
	char path[64];

	spread(data_path("pytorch/dcp_fsdp2_w4/ckpt"), 6);
	for (int k = 0; k < 2; k++) {
		snprintf(path, sizeof(path), "%s", path_of("o"));
		out = k == 0 ? NULL : path;
		if (k == 1) {
			run_world(&x, -1, 0, false);
			take_output(whole_output);
			ok(x.err[0].code == 0 && whole_output[0] != '\0',
			    "6 ranks reshard");
			end_world(&x);
		}
		for (int whole = 0; whole < 2; whole++) {
			test_task(k == 0 ? "fsck" : "reshard", 0, whole,
			    (k == 0 ? 5 : 11) * stride);
			test_task(k == 0 ? "fsck" : "reshard", 5, whole,
			    (k == 0 ? 2 : 7) * stride);
		}
	}
}

/* Tasks in which ranks do not look for each other, but work. */

/* A task with a step that a rank works at until end. */
static int share(struct optimfs_group *w,
    int (*step)(struct optimfs_group *w, int64_t end,
	struct optimfs_error *err),
    struct optimfs_error *err)
{
	struct optimfs_error own = { 0 };
	int64_t end;
	int ret;

	if (optimfs_group_offer(w, each_rank, false, NULL, err) == -1)
		return -1;
	w->together = true;
	end = simtime_now() + 9 * SECOND;
	if (ofs_task_begin(w, NULL, NULL, NULL, err) == -1)
		return -1;
	if (step(w, end, &own) == 0)
		own.code = 0;
	ret = ofs_task_barrier(w, &own, NULL, NULL, err);
	ofs_task_end(w);
	return ret;
}

/* Rank 2 reads the file of rank 1 again and again. In the tree they are no
 * neighbours. */
static int read_or_work(struct optimfs_group *w, int64_t end,
    struct optimfs_error *err)
{
	struct ofs_manifest *s = ofs_group_manifest(w, each_rank, err);
	struct ofs_segment seg = { .len = 8, .n = 1 };
	uint8_t buf[8];
	int ret = 0;

	seg.object = ofs_manifest_find(s, "index");
	while (ret == 0 && w->rank == 2 && simtime_now() < end) {
		ret = ofs_remote_fetch(s, &seg, 1, buf, err);
		simtime_sleep_until(simtime_now() + SECOND / 10);
	}
	if (w->rank != 2)
		simtime_sleep_until(end);
	return ret;
}

static int read_on(struct optimfs_group *w, struct optimfs_error *err)
{
	return share(w, read_or_work, err);
}

/* Rank 0 waits for ranks 1 and 2. */
static int first_works(struct optimfs_group *w, int64_t end,
    struct optimfs_error *err)
{
	(void)err;
	if (w->rank == 1)
		simtime_sleep_until(end);
	return 0;
}

static int wait_for_two(struct optimfs_group *w, struct optimfs_error *err)
{
	return share(w, first_works, err);
}

static int be_slow(struct ofs_request *q, struct optimfs_error *err)
{
	(void)q;
	(void)err;
	simtime_sleep_until(simtime_now() + 3 * SECOND);
	return 0;
}

/* Rank 0 asks for that on all others, which do something else meanwhile. */
static int call_all(struct optimfs_group *w, struct optimfs_error *err)
{
	uint8_t slow = SLOW;
	const struct ofs_buf b = { .data = &slow, .len = 1 };
	struct ofs_call call[MAX_RANKS] = { 0 };
	size_t n = 0;
	int ret = 0;

	if (w->rank != 0)
		simtime_sleep_until(simtime_now() + 9 * SECOND);
	for (int r = 1; w->rank == 0 && r < w->size; r++)
		call[n++] = (struct ofs_call){ .to = r, .request = &b };
	ofs_group_call(w, call, n);
	for (size_t i = 0; i < n; i++) {
		ofs_buf_fini(&call[i].result);
		if (call[i].err.code != 0 && ret == 0)
			ret = optimfs_fail_with(err, &call[i].err);
	}
	return ret;
}

static void test_busy(const char *what,
    int (*job)(struct optimfs_group *w, struct optimfs_error *err), int size,
    int machines, int victim)
{
	struct world x = { .job = job,
		.size = size,
		.machines = machines,
		.net = { 100000, 1000, 1000000000, NULL, NULL } };
	struct ends e = { 0 };

	make_index(100, 1);
	while (die_at(&x, victim, e.runs, true, NULL, &e))
		continue;
	ok(e.runs > 5 && e.refused > 0, "%s: its machine dies at %u steps",
	    what, e.runs - 1);
	is_u64(e.unexplained, 0, "%s: the others say who is lost", what);
	ok(e.latest <= TIMEOUT_OPTION * SECOND,
	    "%s: all others have left after at most %.1f s", what,
	    (double)e.latest / 1e9);
	free(index_bytes);
}

/* Commits. */

static int add_file(struct ofs_publish *p, const char *rel,
    struct optimfs_error *err)
{
	int fd;

	if (ofs_publish_file(p, rel, NULL, &fd, err) == -1)
		return -1;
	return ofs_write_all(fd, "new", 3, 0, err);
}

static atomic_int published;

static int nchanged;

/* Rank 0 replaces a file of each of some ranks. */
static int publish(struct optimfs_group *w, struct optimfs_error *err)
{
	struct ofs_manifest *s = ofs_group_manifest(w, each_rank, err);
	struct ofs_coordinator *c = s->writing->coordinator;
	struct ofs_publish *p =
	    ofs_publish_begin_all(c, ofs_stage_beside(s->writing->stage), err);
	int ret = p == NULL ? -1 : 0;
	char rel[16];

	for (int r = 0; r < nchanged && ret == 0; r++) {
		snprintf(rel, sizeof(rel), "a%d", r);
		ret = add_file(p, rel, err);
	}
	if (ret == 0)
		ret = ofs_publish_commit(p, err);
	ofs_publish_free(p);
	if (ret == 0)
		(void)ofs_coordinator_forget(c, NULL);
	atomic_store(&published, ret);
	ofs_stage_close(s->writing->stage, false);
	s->writing->stage = NULL;
	return ret;
}

static int do_commit(struct optimfs_group *w, struct optimfs_error *err)
{
	struct optimfs_options o = { .rw = true };

	if (optimfs_group_offer(w, each_rank, false, &o, err) == -1)
		return -1;
	return w->rank == 0 ? publish(w, err) : 0;
}

static int do_settle(struct optimfs_group *w, struct optimfs_error *err)
{
	struct optimfs_options o = { .rw = true };
	int ret = optimfs_group_offer(w, each_rank, false, &o, err);
	struct ofs_manifest *s;

	if (ret == 0 && w->rank == 0) {
		s = ofs_group_manifest(w, each_rank, err);
		ofs_stage_close(s->writing->stage, false);
		s->writing->stage = NULL;
	}
	return ret;
}

/* How many of the files are new? */
static int count_new(int size)
{
	int n = 0;

	for (int r = 0; r < size; r++) {
		struct ofs_buf b = { 0 };

		load(path_of("%d/a%d", r, r), &b);
		n += b.len == 3 && memcmp(b.data, "new", 3) == 0;
		ofs_buf_fini(&b);
	}
	return n;
}

/* The next job finishes or reverts what is left: then all is old, or new. */
static bool check_commit(const struct world *x)
{
	struct world next = { .job = do_settle,
		.first = true,
		.size = x->size,
		.machines = x->machines };
	int ret = atomic_load(&published), n;
	bool good = true;

	run_world(&next, -1, 0, false);
	for (int r = 0; r < x->size; r++) {
		if (next.err[r].code != 0)
			diag("rank %d: %s", r, next.err[r].text);
		good = good && next.err[r].code == 0;
	}
	end_world(&next);
	n = count_new(x->size);
	if (n != (ret == -1 ? 0 : nchanged))
		diag("%d of %d files are new after %d", n, x->size, ret);
	for (int r = 0; r < x->size; r++)
		put(path_of("%d/a%d", r, r), "old!", 4);
	return good && n == (ret == -1 ? 0 : nchanged);
}

/* n: how many ranks have a file that is replaced. */
static void test_commit(int size, int machines, int n, int victim, bool whole,
    uint64_t stride)
{
	struct world x = { .job = do_commit,
		.first = true,
		.size = size,
		.machines = machines,
		.net = { 100000, 1000, 1000000000, NULL, NULL } };
	struct ends e = { 0 };

	nchanged = n;
	clear();
	make_dirs(x.size);
	for (int r = 0; r < x.size; r++)
		put(path_of("%d/a%d", r, r), "old!", 4);
	do
		atomic_store(&published, -1);
	while (die_at(&x, victim, e.runs * stride, whole, check_commit, &e));
	ok(e.runs > 5 && e.refused > 0,
	    "a commit to %d of %d ranks: %s of rank %d dies at %u steps", n,
	    size, whole ? "the machine" : "the process", victim, e.runs - 1);
	is_u64(e.wrong, 0, "all directories are old, or all are new");
	is_u64(e.unexplained, 0, "the others say who is lost");
	ok(e.latest <= TIMEOUT_OPTION * SECOND,
	    "all others have left after at most %.1f s",
	    (double)e.latest / 1e9);
}

/* A machine of many dies at one step. */
static void test_death(int size, int machines, int victim, uint64_t step)
{
	struct world x = { .size = size,
		.machines = machines,
		.net = { 100000, 1000, 1000000000, NULL, NULL } };
	struct ends e = { 0 };

	make_index((64 << 10) + 321, 0);
	ok(die_at(&x, victim, step, true, NULL, &e),
	    "the machine of rank %d of %d dies", victim, size);
	is_u64(e.unexplained, 0, "who does not mount says which rank is lost");
	ok(e.latest <= TIMEOUT_OPTION * SECOND,
	    "%u have mounted and %u have not; all others have left after at "
	    "most %.1f s",
	    e.done, e.refused, (double)e.latest / 1e9);
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
			test_commit(6, 3, 6, 0, whole, 4 * stride);
			test_commit(6, 3, 6, 5, whole, 2 * stride);
		}
		/* machines of several participants: all or some get files */
		test_commit(9, 2, 9, 5, true, stride);
		test_commit(9, 2, 3, 1, true, stride);
		test_tasks(stride);
		test_busy("its neighbours work, another one reads its file",
		    read_on, 6, 3, 1);
		test_busy("the other child of its parent works", wait_for_two,
		    3, 3, 2);
		test_busy("work for rank 0", call_all, 8, 2, 1);
	}
	end_ranks();
	return done_testing();
}
