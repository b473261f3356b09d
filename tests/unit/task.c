/* task.c - a task shared by ranks, which are threads here */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "cluster/task.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cluster/wire.h"
#include "support/group_job.h"
#include "tap.h"

/* Assignment of jobs. */

static uint64_t load_of(const struct ofs_task_job *job, size_t n, int rank)
{
	uint64_t load = 0;

	for (size_t i = 0; i < n; i++)
		load += job[i].rank == rank ? job[i].size : 0;
	return load;
}

static bool is_among(const struct ofs_task_job *job)
{
	for (uint32_t i = 0; i < job->nmay; i++)
		if (job->may[i].rank == job->rank)
			return true;
	return false;
}

static void test_assign(void)
{
	const struct ofs_owner all[] = { { 0, 0 }, { 1, 0 }, { 2, 0 } };
	const struct ofs_owner two[] = { { 2, 0 } };
	struct ofs_task_job job[] = {
		{ .size = 10, .may = all, .nmay = 3 },
		{ .size = 10, .may = all, .nmay = 3 },
		{ .size = 30, .may = two, .nmay = 1 },
		{ .size = 0 },
		{ .size = 20, .may = all, .nmay = 3 },
	};
	const size_t n = sizeof(job) / sizeof(job[0]);

	ok(ofs_task_assign(job, n, NULL, 3, NULL) == 0, "jobs are assigned");
	is_int(job[2].rank, 2, "a job goes to the only eligible rank");
	is_int(job[3].rank, 0, "a job without eligible ranks goes to rank 0");
	is_int((int)load_of(job, n, 0), 20,
	    "jobs are balanced: bytes of rank 0");
	is_int((int)load_of(job, n, 1), 20,
	    "jobs are balanced: bytes of rank 1");
	is_int((int)load_of(job, n, 2), 30,
	    "a rank with a job that only it can do gets no others");
	ok(ofs_task_assign(job, 0, NULL, 3, NULL) == 0,
	    "an empty list of jobs is assigned");
}

/* For any sizes, each job gets an eligible rank, and no rank exceeds an equal
 * share by more than the largest job. */
static void test_assign_many(void)
{
	struct ofs_owner all[MAX_RANKS];
	struct ofs_task_job job[64];
	bool may = true, fair = true;

	for (int r = 0; r < MAX_RANKS; r++)
		all[r] = (struct ofs_owner){ .rank = r };
	srand(1);
	for (int round = 0; round < 200; round++) {
		size_t n = (size_t)rand() % 64;
		uint64_t total = 0, most = 0, size;

		for (size_t i = 0; i < n; i++) {
			size = (uint64_t)(rand() % 1000);
			job[i] = (struct ofs_task_job){
				.size = size, .may = all, .nmay = MAX_RANKS
			};
			total += size;
			most = size > most ? size : most;
		}
		ofs_task_assign(job, n, NULL, MAX_RANKS, NULL);
		for (size_t i = 0; i < n; i++)
			may = may && is_among(&job[i]);
		for (int r = 0; r < MAX_RANKS; r++)
			fair = fair &&
			    load_of(job, n, r) <= total / MAX_RANKS + most + n;
	}
	ok(may, "each job has an eligible rank");
	ok(fair, "no rank has much more than an equal share");
}

/* Tasks of several ranks. */

struct test {
	struct job job;
	int bad;        /* the rank that something happens to; -1: none */
	uint64_t noted; /* sum of the reports that rank 0 got */
	unsigned from;  /* the ranks that sent them, as bits */
	int ret[MAX_RANKS];
	uint64_t files[MAX_RANKS], bytes[MAX_RANKS]; /* by rank */
};

static int take(void *ctx, int from, struct ofs_cursor *c,
    struct optimfs_error *err)
{
	struct test *t = ctx;
	uint32_t v = ofs_cursor_le32(c);

	if (c->bad || v == 13)
		return optimfs_fail(err, EINVAL, "no such report");
	t->noted += v;
	t->from |= 1u << from;
	return 0;
}

static int report(struct optimfs_group *w, uint32_t v,
    struct optimfs_error *err)
{
	struct ofs_buf b = { 0 };
	int ret;

	ofs_wire_u32(&b, v);
	ret = ofs_task_report(w, &b, err);
	ofs_buf_fini(&b);
	return ret;
}

/* The number of ranks with this result. */
static int count_ret(const struct test *t, int want)
{
	int n = 0;

	for (int r = 0; r < t->job.size; r++)
		n += t->ret[r] == want;
	return n;
}

static void note_work(void *ctx, int rank, uint64_t files, uint64_t bytes)
{
	struct test *t = ctx;

	t->files[rank] = files;
	t->bytes[rank] = bytes;
}

/* Rank r does r jobs and reports r. The slowest is not rank 0. */
static void do_well(struct job *j, int r, struct optimfs_group *w)
{
	struct test *t = (struct test *)j;
	const struct optimfs_watch watch = { .did = note_work, .ctx = t };
	const struct optimfs_error well = { 0 };
	struct ofs_buf b = { 0 };
	struct ofs_buf got = { 0 };
	bool who[MAX_RANKS];

	t->ret[r] = -1;
	ofs_buf_puts(&b, r == 0 ? "zero" : "somebody else");
	if (ofs_task_begin(w, take, t, &well, &j->err[r]) == -1 ||
	    ofs_task_broadcast(w, 0, &b, &got, &j->err[r]) == -1 ||
	    ofs_task_who(w, 0, r % 2 == 1, who, &j->err[r]) == -1)
		return;
	ofs_buf_fini(&b);
	if (got.len != 4 || memcmp(got.data, "zero", 4) != 0 || who[0] ||
	    !who[1])
		return;
	ofs_buf_fini(&got);
	for (int i = 0; i < r; i++)
		ofs_task_did(w, 100);
	if (report(w, (uint32_t)r, &j->err[r]) == -1 ||
	    ofs_task_check(w, &j->err[r]) == -1)
		return;
	usleep((useconds_t)r * 20000);
	t->ret[r] = ofs_task_barrier(w, &well, NULL, NULL, &j->err[r]);
	if (t->ret[r] == 0)
		t->ret[r] = ofs_task_barrier(w, &well, NULL, NULL, &j->err[r]);
	ofs_task_end(w);
	ofs_task_tell(w, &watch);
}

static void test_well(void)
{
	struct test t = { .job = { .size = 4, .work = do_well } };

	run(&t.job);
	is_int(count_ret(&t, 0), 4, "all ranks pass two barriers");
	is_int((int)t.noted, 6, "rank 0 gets all reports");
	is_int((int)t.from, 15, "rank 0 gets reports from each rank");
	is_int((int)t.files[3], 3, "jobs of each rank are counted");
	is_int((int)t.bytes[2], 200, "bytes of each rank are counted");
}

/* Of five ranks on two machines 0, 1 and 3 work. */
static void do_some(struct job *j, int r, struct optimfs_group *w)
{
	static const bool works[] = { true, true, false, true, false };
	const struct ofs_owner of4[] = { { 4, 0 } };
	struct ofs_task_job job = { .size = 1, .may = of4, .nmay = 1 };
	struct test *t = (struct test *)j;
	struct optimfs_error own = { 0 };
	bool who[MAX_RANKS];
	int *worker;

	t->ret[r] = 1;
	if (optimfs_group_readers(w, works, &own) == -1)
		bail_out("%s", own.text);
	w->together = true;
	if (!works[r])
		return;
	worker = ofs_task_workers(w, NULL);
	t->ret[r] =
	    worker == NULL || ofs_task_assign(&job, 1, worker, 5, NULL) == -1;
	t->files[r] = job.rank == 0 && worker[2] == 0 && worker[3] == 3;
	free(worker);
	if (r == t->bad)
		optimfs_fail(&own, ENOSPC, "full");
	t->ret[r] += ofs_task_begin(w, take, t, &own, &j->err[r]);
	if (t->ret[r] == -1)
		return;
	t->ret[r] += ofs_task_who(w, 0, r != 1, who, &j->err[r]);
	t->bytes[r] = who[0] && !who[1] && !who[2] && who[3] && !who[4];
	t->ret[r] += report(w, (uint32_t)r, &j->err[r]) +
	    ofs_task_barrier(w, &own, NULL, NULL, &j->err[r]);
	ofs_task_end(w);
}

static void test_some(void)
{
	struct test t = { .job = { .size = 5, .work = do_some }, .bad = -1 };

	run(&t.job);
	is_int(count_ret(&t, 0), 3, "three of five ranks share a task");
	is_int(count_ret(&t, 1), 2, "the others do not take part");
	is_int((int)t.noted, 4, "rank 0 gets the reports of those that work");
	is_int((int)(t.files[0] + t.files[1] + t.files[3]), 3,
	    "a rank on its machine works for one that does not");
	is_int((int)(t.bytes[0] + t.bytes[1] + t.bytes[3]), 3,
	    "each that works gets what the others of them say");
	t = (struct test){ .job = { .size = 5, .work = do_some }, .bad = 3 };
	run(&t.job);
	is_int(count_ret(&t, -1), 3, "one of them fails: the three fail");
	is_int(t.job.err[1].code, ENOSPC, "with its error");
}

static void begin_badly(struct job *j, int r, struct optimfs_group *w)
{
	struct test *t = (struct test *)j;
	struct optimfs_error own = { 0 };

	if (r == t->bad)
		optimfs_fail(&own, ENOSPC, "full");
	t->ret[r] = ofs_task_begin(w, take, t, &own, &j->err[r]);
}

static void test_begin(void)
{
	struct test t = { .job = { .size = 3, .work = begin_badly }, .bad = 2 };

	run(&t.job);
	is_int(count_ret(&t, -1), 3,
	    "a rank that cannot begin fails the task on all ranks");
	is_int(t.job.err[0].code, ENOSPC,
	    "a failed begin has the error of the rank");
}

/* One rank has failed before all exchange something. */
static void exchange_badly(struct job *j, int r, struct optimfs_group *w)
{
	struct test *t = (struct test *)j;
	struct optimfs_error well = { 0 };
	struct ofs_buf b = { 0 }, got = { 0 };
	bool who[MAX_RANKS];
	int ret = 0;

	if (ofs_task_begin(w, take, t, &well, &j->err[r]) == -1)
		return;
	if (r == t->bad)
		ret = optimfs_fail(&j->err[r], ENOSPC, "full");
	t->ret[r] = ofs_task_broadcast(w, ret, &b, &got, &j->err[r]);
	if (r == t->bad)
		optimfs_fail(&j->err[r], EDQUOT, "its disk is full");
	if (ofs_task_who(w, ret, true, who, &j->err[r]) == 0)
		t->ret[r] = 1;
	ofs_task_end(w);
	ofs_buf_fini(&got);
}

static void test_exchange(int bad)
{
	struct test t = { .job = { .size = 3, .work = exchange_badly },
		.bad = bad };

	run(&t.job);
	is_int(count_ret(&t, -1), 3,
	    "rank %d has failed: all ranks fail, and exchange nothing", bad);
	is_int(t.job.err[bad == 0 ? 2 : 0].code, EDQUOT,
	    "rank %d has failed: others get its error", bad);
}

/* One rank fails at once, the others work until they learn of it. */
static void fail_early(struct job *j, int r, struct optimfs_group *w)
{
	struct test *t = (struct test *)j;
	struct optimfs_error own = { 0 };

	if (ofs_task_begin(w, take, t, &own, &j->err[r]) == -1)
		return;
	if (r == t->bad)
		optimfs_fail(&own, EDQUOT, "its disk is full");
	while (own.code == 0 && ofs_task_check(w, &own) == 0)
		usleep(10000);
	t->ret[r] = ofs_task_barrier(w, &own, NULL, NULL, &j->err[r]);
	ofs_task_end(w);
}

static void test_fail(int bad)
{
	struct test t = { .job = { .size = 4, .work = fail_early },
		.bad = bad };

	run(&t.job);
	is_int(count_ret(&t, -1), 4, "rank %d fails: all ranks fail", bad);
	is_int(t.job.err[0].code, EDQUOT,
	    "rank %d fails: rank 0 gets its error", bad);
	is_int(t.job.err[3].code, EDQUOT,
	    "rank %d fails: rank 3 gets its error", bad);
	if (bad != 0)
		ok(strstr(t.job.err[0].text,
		       "rank 2 (even): its disk is full") != NULL,
		    "the error names the rank that failed: %s",
		    t.job.err[0].text);
}

/* One rank dies (its thread ends here) while another waits and another
 * works. */
static void die(struct job *j, int r, struct optimfs_group *w)
{
	struct test *t = (struct test *)j;
	struct optimfs_error own = { 0 };

	if (ofs_task_begin(w, take, t, &own, &j->err[r]) == -1)
		return;
	t->ret[r] = -1;
	if (r == t->bad) {
		fakegroup_kill(j->f, r, 1);
		return;
	}
	if (r == 1)
		while (ofs_task_check(w, &own) == 0)
			usleep(10000);
	t->ret[r] = ofs_task_barrier(w, &own, NULL, NULL, &j->err[r]);
	ofs_task_end(w);
}

static void test_death(int bad)
{
	struct test t = { .job = { .size = 3, .work = die }, .bad = bad };

	run(&t.job);
	is_int(count_ret(&t, -1), 3, "rank %d dies: all ranks fail", bad);
	is_int(t.job.err[bad == 0 ? 2 : 0].code, EHOSTDOWN,
	    "rank %d dies: another rank gets EHOSTDOWN", bad);
}

/* One rank stops answering. */
static void fall_silent(struct job *j, int r, struct optimfs_group *w)
{
	struct test *t = (struct test *)j;
	struct optimfs_error own = { 0 };

	if (ofs_task_begin(w, take, t, &own, &j->err[r]) == -1)
		return;
	t->ret[r] = -1;
	if (r == t->bad) {
		fakegroup_mute(j->f, r, 1);
		return;
	}
	t->ret[r] = ofs_task_barrier(w, &own, NULL, NULL, &j->err[r]);
	ofs_task_end(w);
}

static void test_silence(int bad)
{
	struct test t = { .job = { .size = 3, .work = fall_silent },
		.bad = bad };

	run(&t.job);
	is_int(count_ret(&t, -1), 3, "rank %d is silent: all ranks fail", bad);
	is_int(t.job.err[bad == 0 ? 2 : 0].code, ETIMEDOUT,
	    "rank %d is silent: another rank gets ETIMEDOUT", bad);
}

/* A refused report, one after the end of the task, and malformed messages. */
static void report_badly(struct job *j, int r, struct optimfs_group *w)
{
	struct test *t = (struct test *)j;
	static const uint8_t garbage[][3] = { { OFS_WIRE_TASK, 99, 0 },
		{ OFS_WIRE_LETTER, 1, 7 }, { OFS_WIRE_CALL, 2, 7 } };
	struct optimfs_error own = { 0 };

	if (ofs_task_begin(w, take, t, &own, &j->err[r]) == -1)
		return;
	t->ret[r] = report(w, 13, &j->err[r]);
	if (r == 1)
		for (size_t i = 0; i < 3; i++)
			t->noted += fakegroup_ask(j->f, 0, garbage[i], 3, NULL,
					0, NULL) == -1;
	(void)ofs_task_barrier(w, &own, NULL, NULL, NULL);
	ofs_task_end(w);
	fakegroup_meet(j->f);
	if (r == 1)
		t->ret[1] += report(w, 1, &j->err[1]);
}

static void test_reports(void)
{
	struct test t = { .job = { .size = 2, .work = report_badly },
		.bad = -1 };

	run(&t.job);
	is_int(t.ret[0], -1, "a report that rank 0 refuses fails");
	is_int(t.ret[1], -2,
	    "a refused report of rank 1, and one after the task, fail");
	is_int(t.job.err[1].code, ECANCELED,
	    "a report after the task fails with ECANCELED");
	is_int((int)t.noted, 3, "malformed messages are refused");
}

int main(void)
{
	test_assign();
	test_assign_many();
	test_well();
	test_some();
	test_begin();
	test_exchange(0);
	test_exchange(2);
	test_fail(2);
	test_fail(0);
	test_death(2);
	test_death(0);
	test_silence(1);
	test_silence(0);
	test_reports();
	return done_testing();
}
