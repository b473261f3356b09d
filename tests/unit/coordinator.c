/* cluster/commit/coordinator.c - commits to several directories, with a failure
 * at every call */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "cluster/commit/coordinator.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "optimfs/optimfs.h"

#include "api/api.h"
#include "base/copy.h"
#include "base/sys.h"
#include "cluster/commit/coordinator_impl.h"
#include "cluster/commit/locks.h"
#include "cluster/manifest.h"
#include "journal/stage.h"
#include "support/fakegroup.h"
#include "support/scratch.h"
#include "tap.h"

#define NRANKS    3
#define MAX_CALLS 400

static char each_rank[80];

/* A file before and after the commit; NULL: it does not exist. */
struct expected {
	const char *rel, *old, *new;
};

struct scenario {
	const char *name;
	const char *more; /* commands that prepare the directories */
	uint32_t directories;
	int (*change)(struct ofs_publish *p, struct optimfs_error *err);
	struct expected file[12];
};

static int add(struct ofs_publish *p, const char *rel, const char *like,
    const char *text, struct optimfs_error *err)
{
	int fd;

	if (ofs_publish_file(p, rel, like, &fd, err) == -1)
		return -1;
	return ofs_write_all(fd, text, strlen(text), 0, err);
}

static int change_index(struct ofs_publish *p, struct optimfs_error *err)
{
	if (add(p, "b1", "a1", "B", err) == -1 ||
	    add(p, "sub/b2", "a2", "BB", err) == -1 ||
	    add(p, "index", NULL, "new", err) == -1)
		return -1;
	return ofs_publish_remove(p, "a1", err);
}

static int change_files(struct ofs_publish *p, struct optimfs_error *err)
{
	if (add(p, "a0", NULL, "new 0", err) == -1 ||
	    add(p, "a1", NULL, "new 1", err) == -1 ||
	    add(p, "c1", NULL, "new c", err) == -1 ||
	    add(p, "both", NULL, "new both", err) == -1)
		return -1;
	return add(p, "a2", NULL, "new 2", err);
}

static const struct scenario scenarios[] = {
	{ "one new index", NULL, 3, change_index,
	    { { "0/ck/index", "old", "new" }, { "1/ck/b1", NULL, "B" },
		{ "2/ck/sub/b2", NULL, "BB" }, { "0/ck/b1", NULL, NULL },
		{ "0/ck/a0", "0", "0" }, { "2/ck/a2", "2", "2" } } },
	{ "a new file on each rank", NULL, 3, change_files,
	    { { "0/ck/a0", "0", "new 0" }, { "1/ck/a1", "1", "new 1" },
		{ "1/ck/c1", "c", "new c" },
		{ "1/ck/both", "both", "new both" },
		{ "2/ck/both", "both", "new both" },
		{ "2/ck/a2", "2", "new 2" }, { "0/ck/index", "old", "old" } } },
	{ "a directory that two ranks share",
	    "mv 2/ck/a2 1/ck && rm -r 2 && ln -s 1 2", 2, change_files,
	    { { "0/ck/a0", "0", "new 0" }, { "1/ck/a1", "1", "new 1" },
		{ "1/ck/both", "both", "new both" },
		{ "1/ck/a2", "2", "new 2" } } },
	{ "a rank without the directory", "mv 2/ck/a2 1/ck && rm -r 2", 2,
	    change_files,
	    { { "0/ck/a0", "0", "new 0" }, { "1/ck/a1", "1", "new 1" },
		{ "1/ck/a2", "2", "new 2" } } },
};
#define NSCENARIOS (sizeof(scenarios) / sizeof(*scenarios))

static void fresh(const struct scenario *s)
{
	static const char *const dirs[] = { "0", "0/ck", "1", "1/ck", "2",
		"2/ck", "2/ck/sub" };

	ofs_publish_clear(AT_FDCWD, scratch);
	mkdir(scratch, 0755);
	for (size_t i = 0; i < sizeof(dirs) / sizeof(*dirs); i++)
		if (mkdir(in_scratch(dirs[i]), 0755) == -1)
			bail_out("%s: %s", dirs[i], strerror(errno));
	scratch_put("0/ck/index", "old");
	scratch_put("0/ck/a0", "0");
	scratch_put("1/ck/a1", "1");
	scratch_put("1/ck/c1", "c");
	scratch_put("1/ck/both", "both");
	scratch_put("2/ck/both", "both");
	scratch_put("2/ck/a2", "2");
	scratch_put("2/ck/sub/x", "x");
	if (s->more != NULL)
		scratch_run(s->more);
}

static bool is_state(const struct scenario *s, bool new)
{
	for (size_t i = 0; i < 12 && s->file[i].rel != NULL; i++)
		if (!scratch_has(s->file[i].rel,
			new ? s->file[i].new : s->file[i].old))
			return false;
	return true;
}

/* Is there no stage beside any directory? */
static bool is_clean(void)
{
	char path[96];
	int n = 0;

	for (int r = 0; r < NRANKS; r++) {
		snprintf(path, sizeof(path), "%s/%d/.ck.optimfs", scratch, r);
		n += access(path, F_OK) == 0;
	}
	return n == 0;
}

static bool is_decided(void)
{
	return access(in_scratch("0/.ck.optimfs/decision"), F_OK) == 0;
}

/* The calls that change a disk, where note_call() is told of them. */
static char order[4096];

/* A job offers a checkpoint for writing, which settles what an earlier commit
 * left. Then rank 0 publishes, if publish is set. */
struct job {
	struct fakegroup *f;
	const struct scenario *s;
	bool publish;
	uint32_t directories;
	int offered, ret;
	size_t published; /* length of order then */
	struct optimfs_error err;
	struct optimfs_error other; /* of rank 1, which must not write */
};

static struct fakegroup *current;

static int publish(struct job *j, struct ofs_coordinator *c, int stage)
{
	struct ofs_publish *p = ofs_publish_begin_all(c, stage, &j->err);
	int ret = -1;

	if (p != NULL && j->s->change(p, &j->err) == 0)
		ret = ofs_publish_commit(p, &j->err);
	ofs_publish_free(p);
	if (ret == 0)
		(void)ofs_coordinator_forget(c, NULL);
	return ret;
}

/* Publishes what the mount for writing has begun, without the mount. */
static void write_all(struct job *j, struct optimfs_group *w)
{
	struct ofs_manifest *s = ofs_group_manifest(w, each_rank, NULL);

	j->directories = s->writing->coordinator->n;
	if (j->publish)
		j->ret = publish(j, s->writing->coordinator,
		    ofs_stage_beside(s->writing->stage));
	j->published = strlen(order);
	/* nothing is staged, so the stage may be removed */
	ofs_stage_close(s->writing->stage, false);
	s->writing->stage = NULL;
}

static void run_rank(struct fakegroup *f, int rank, void *ctx)
{
	struct job *j = ctx;
	bool worker[NRANKS] = { true, true, true };
	struct optimfs_options o = { .rw = true };
	struct optimfs_error err;
	struct optimfs_group *w;
	int ret;

	w = ofs_group_new(&fakegroup_ops, 1, ofs_group_services, &err);
	if (w == NULL)
		bail_out("%s", err.text);
	fakegroup_meet(f);
	ret = optimfs_group_offer(w, each_rank, false, &o, &err);
	fakegroup_meet(f);
	if (rank == 0 && ret == 0)
		write_all(j, w);
	else if (rank == 0)
		j->err = err;
	if (rank == 1 && ret == 0) {
		o.group = w;
		optimfs_close(optimfs_open(each_rank, &o, &j->other));
	}
	if (rank == 0)
		j->offered = ret;
	fakegroup_meet(f);
	fakegroup_mute(f, rank, 0);
	fakegroup_kill(f, rank, 0);
	fakegroup_meet(f);
	optimfs_group_leave(w, worker);
}

static void run_job(struct job *j)
{
	j->offered = j->ret = -1;
	current = j->f = fakegroup_new(NRANKS);
	fakegroup_run(j->f, run_rank, j);
	fakegroup_free(j->f);
}

/* Runs the next job, which finishes or reverts what the last one left. */
static int settle(const struct scenario *s, struct optimfs_error *err)
{
	struct job j = { .s = s };

	run_job(&j);
	*err = j.err;
	return j.offered;
}

static void test_works(const struct scenario *s)
{
	struct job j = { .s = s, .publish = true };
	struct optimfs_error err;

	fresh(s);
	ok(is_state(s, false),
	    "%s: the old files are in place before the commit", s->name);
	run_job(&j);
	if (!is_int(j.ret, 0, "%s: the commit is published", s->name))
		diag("%s", j.err.text);
	is_error(j.other, EROFS, "OFS842",
	    "%s: a rank other than 0 may not write", s->name);
	is_u64(j.directories, s->directories,
	    "%s: number of directories that take part", s->name);
	ok(is_state(s, true), "%s: the new files are in all directories",
	    s->name);
	if (s == &scenarios[0])
		ok(scratch_has("1/ck/a1", NULL),
		    "a removed file is gone after the commit");
	ok(is_clean(), "%s: no stage is left after the commit", s->name);
	is_int(settle(s, &err), 0, "%s: a later job has nothing to settle",
	    s->name);
}

/* Lets call number fail_at of all that change a disk, on any rank, fail. */
static atomic_int calls;
static int fail_at, fail_code, gone;
static bool die;
static atomic_bool happened;

static char failed[32];

static int fault(const char *call)
{
	if (atomic_fetch_add(&calls, 1) + 1 != fail_at)
		return 0;
	if (die)
		_exit(9);
	atomic_store(&happened, true);
	snprintf(failed, sizeof(failed), "%s", call);
	if (gone != 0) {
		fakegroup_kill(current, gone, 1);
		return 0;
	}
	return fail_code;
}

/* If the commit returned -1, everything is old; otherwise everything is new
 * once the next job has settled it. */
static bool check_outcome(const struct scenario *s, const struct job *j)
{
	struct optimfs_error err = { 0 };
	bool new = j->ret != -1, good;
	int later;

	good = j->ret == 1 || is_state(s, new);
	later = settle(s, &err);
	good &= later == 0 && is_state(s, new) && is_clean() &&
	    (j->ret == 0 || j->err.code != 0);
	if (!good)
		diag("call %d, %s: %d (%s) then %d (%s)%s%s", fail_at, failed,
		    j->ret, j->err.text, later, err.text,
		    is_state(s, new) ? "" : ", another state",
		    is_clean() ? "" : ", something left");
	return good;
}

/* Lets each call fail in turn (rows W04 and W05), or with gone set kills a rank
 * there (row W29). */
static void test_faults(const struct scenario *s, const char *what)
{
	int points = 0, wrong = 0;

	for (fail_at = 1; fail_at < MAX_CALLS; fail_at++) {
		struct job j = { .s = s, .publish = true };

		fresh(s);
		atomic_store(&calls, 0);
		atomic_store(&happened, false);
		ofs_sys_fault = fault;
		run_job(&j);
		ofs_sys_fault = NULL;
		if (!atomic_load(&happened))
			break;
		points++;
		wrong += !check_outcome(s, &j);
	}
	ok(wrong == 0 && points > 20,
	    "%s: old or new after %s at each of %d calls", s->name, what,
	    points);
}

/* Kills all ranks at each call in turn. Among the calls are W30, between the
 * decision and the end, and W31, while old files are removed. */
static void test_kills(const struct scenario *s)
{
	int points = 0, wrong = 0, status = 0;

	for (fail_at = 1; fail_at < MAX_CALLS; fail_at++) {
		struct job j = { .s = s, .publish = true };
		struct optimfs_error err = { 0 };
		bool old, new, decided;
		pid_t pid;
		int ret;

		fresh(s);
		fflush(stdout);
		pid = fork();
		if (pid == 0) {
			atomic_store(&calls, 0);
			die = true;
			ofs_sys_fault = fault;
			run_job(&j);
			_exit(0);
		}
		if (pid == -1 || waitpid(pid, &status, 0) != pid)
			bail_out("fork");
		if (status == 0)
			break;
		points++;
		old = is_state(s, false);
		new = is_state(s, true);
		decided = is_decided();
		ret = settle(s, &err);
		if (ret == -1 || is_state(s, true) != (new || decided) ||
		    is_state(s, false) == (new || decided) ||
		    (!old && !new && !decided) || !is_clean()) {
			diag("killed at call %d: %s%s, then %d %s", fail_at,
			    old       ? "old"
				: new ? "new"
				      : "mixed",
			    decided ? " decided" : "", ret, err.text);
			wrong++;
		}
	}
	ok(wrong == 0 && points > 20,
	    "%s: old or new after a kill at each of %d calls", s->name, points);
}

/* The records of all directories are removed for good before the decision is,
 * because a record without a decision is reverted. The directories do that at
 * the same time. */
static int note_call(const char *call)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

	pthread_mutex_lock(&lock);
	if (strlen(order) + strlen(call) + 2 < sizeof(order)) {
		strcat(order, call);
		strcat(order, " ");
	}
	pthread_mutex_unlock(&lock);
	return 0;
}

/* Are the calls in text an unlink and a fsync for each of n records, and then
 * the same for the decision? */
static bool forgets(const char *text, unsigned n)
{
	unsigned unlinks = 0, fsyncs = 0;

	for (; unlinks + fsyncs < 2 * n; text += strcspn(text, " ") + 1) {
		if (strncmp(text, "unlink ", 7) == 0)
			unlinks++;
		else if (strncmp(text, "fsync ", 6) == 0)
			fsyncs++;
		else
			return false;
		if (unlinks < fsyncs)
			return false;
	}
	return unlinks == n && strcmp(text, "unlink fsync ") == 0;
}

static void test_forgets(const struct scenario *s)
{
	const size_t len =
	    (NRANKS + 1) * (strlen("unlink ") + strlen("fsync "));
	struct job j = { .s = s, .publish = true };

	fresh(s);
	order[0] = '\0';
	ofs_sys_fault = note_call;
	run_job(&j);
	ofs_sys_fault = NULL;
	order[j.published] = '\0';
	ok(j.published > len && forgets(order + j.published - len, NRANKS),
	    "%s: each record is removed and synced, the decision last (%s)",
	    s->name, order);
}

/* Other writers. */

static void test_locked(void)
{
	struct job j = { .s = &scenarios[0], .publish = true };
	struct optimfs_error err;
	struct ofs_beside b;
	char path[96];

	fresh(j.s);
	snprintf(path, sizeof(path), "%s/2/ck", scratch);
	if (ofs_beside_take(path, &b, &err) == -1)
		bail_out("%s", err.text);
	run_job(&j);
	is_int(j.ret, -1,
	    "a commit fails if another process writes a directory");
	is_error(j.err, EBUSY, "OFS259 rank 2",
	    "the commit fails with the rank whose directory is in use");
	ofs_beside_drop(&b);
	ok(is_state(j.s, false), "the failed commit changes nothing");
}

static void die_decided(const struct scenario *s)
{
	struct job j = { .s = s, .publish = true };
	int status;

	for (fail_at = MAX_CALLS; fail_at > 0; fail_at--) {
		fresh(s);
		fflush(stdout);
		if (fork() == 0) {
			atomic_store(&calls, 0);
			die = true;
			ofs_sys_fault = fault;
			run_job(&j);
			_exit(0);
		}
		wait(&status);
		if (is_decided() && !is_state(s, true))
			return;
	}
	bail_out("no call is behind the decision");
}

/* A commit that was decided cannot be finished without all directories. */
static void test_alone(void)
{
	const struct scenario *s = &scenarios[1];
	struct optimfs_error err = { 0 };
	struct ofs_beside b;
	char path[96];
	int dir;

	die_decided(s);
	snprintf(path, sizeof(path), "%s/1/ck", scratch);
	dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir == -1 || ofs_beside_take(path, &b, &err) == -1)
		bail_out("%s", err.text);
	is_int(ofs_publish_recover(path, dir, b.dir, &err), -1,
	    "a single directory of a decided commit is not recovered");
	is_error(err, EBUSY, "OFS840", "a single directory fails with OFS840");
	ofs_beside_drop(&b);
	close(dir);

	scratch_run("mv 1 hidden");
	is_int(settle(s, &err), -1,
	    "a job without one of the directories does not settle");
	is_error(err, EBUSY, "OFS841",
	    "a job without one of the directories fails with OFS841");
	ok(is_decided(), "the decision is kept until the commit is finished");
	scratch_run("mv hidden 1");
	if (!is_int(settle(s, &err), 0, "a job with all directories settles"))
		diag("%s", err.text);
	ok(is_state(s, true) && is_clean(), "the decided commit is finished");
}

static int die_renaming(const char *call)
{
	static int renames;

	if (strcmp(call, "rename") == 0 && ++renames == 2)
		_exit(9);
	return 0;
}

/* Kills a commit to the single directory at path between its renames. */
static void die_alone(const char *path)
{
	struct optimfs_error err;
	struct ofs_publish *p;
	struct ofs_beside b;
	pid_t pid;
	int status, dir;

	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (ofs_beside_take(path, &b, &err) == -1)
			_exit(1);
		p = ofs_publish_begin(path, dir, b.dir, &err);
		ofs_sys_fault = die_renaming;
		if (p != NULL && add(p, "b1", NULL, "B", &err) == 0 &&
		    add(p, "a1", NULL, "new 1", &err) == 0)
			ofs_publish_commit(p, &err);
		_exit(0);
	}
	if (pid == -1 || waitpid(pid, &status, 0) != pid ||
	    WEXITSTATUS(status) != 9)
		bail_out("a commit to one directory");
}

/* An unfinished commit to a single directory is finished by a mount of that
 * directory, not by a job. */
static void test_single(void)
{
	const struct scenario *s = &scenarios[1];
	struct optimfs_error err = { 0 };
	struct ofs_beside b;
	char path[96];
	int dir;

	fresh(s);
	snprintf(path, sizeof(path), "%s/1/ck", scratch);
	die_alone(path);
	is_int(settle(s, &err), -1,
	    "a job with an unfinished commit to a single directory fails");
	is_error(err, EBUSY, "OFS843",
	    "an unfinished commit to a single directory fails with OFS843");
	dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir == -1 || ofs_beside_take(path, &b, &err) == -1)
		bail_out("%s", err.text);
	if (!ok(ofs_publish_recover(path, dir, b.dir, &err) != -1,
		"a mount of the directory finishes its commit"))
		diag("%s", err.text);
	is_int(ofs_publish_forget(b.dir, &err), 0,
	    "the record of the finished commit is removed");
	ofs_beside_drop(&b);
	close(dir);
	if (!is_int(settle(s, &err), 0,
		"the directories can be shared again afterwards"))
		diag("%s", err.text);
}

/* A file that changed since it was mounted must not be replaced. */
static int change_late(struct ofs_publish *p, struct optimfs_error *err)
{
	scratch_put("2/ck/a2", "somebody's");
	return change_files(p, err);
}

static void test_changed(void)
{
	static const struct scenario late = { .name = "late",
		.more = NULL,
		.change = change_late,
		.file = { { "0/ck/a0", "0", "" }, { "1/ck/a1", "1", "" },
		    { "2/ck/a2", "somebody's", "" } } };
	struct job j = { .s = &late, .publish = true };

	fresh(&late);
	run_job(&j);
	is_int(j.ret, -1, "a commit that would replace a changed file fails");
	is_error(j.err, ESTALE, "OFS805 rank 2",
	    "a changed file fails with OFS805 and its rank");
	ok(is_state(&late, false) && is_clean(),
	    "the commit that found a changed file changes nothing");
}

int main(void)
{
	scratch_make(true); /* there are thousands of syncs */
	snprintf(each_rank, sizeof(each_rank), "%s/%%r/ck", scratch);
	for (size_t i = 0; i < NSCENARIOS; i++)
		test_works(&scenarios[i]);
	for (size_t i = 0; i < 2; i++) {
		fail_code = EIO;
		test_faults(&scenarios[i], "EIO");
		for (gone = 1; gone < NRANKS; gone++)
			test_faults(&scenarios[i], "the death of a rank");
		gone = 0;
		test_kills(&scenarios[i]);
		test_forgets(&scenarios[i]);
	}
	test_locked();
	test_alone();
	test_single();
	test_changed();
	scratch_remove();
	return done_testing();
}
