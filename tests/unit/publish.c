/* publish.c - atomic publication, with a failure or death at each system
 * call */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "journal/publish.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/copy.h"
#include "base/sys.h"
#include "tap.h"

#define MAX_CALLS 400

/* The checkpoint: file "index" names the files that belong to it, and each file
 * has a text. */

static char top[64];

static void path_of(char *out, size_t size, const char *rel)
{
	snprintf(out, size, "%s/ck/%s", top, rel);
}

static void put(const char *rel, const char *text)
{
	char path[256];
	FILE *f;

	path_of(path, sizeof(path), rel);
	f = fopen(path, "w");
	if (f == NULL || fputs(text, f) == EOF || fclose(f) != 0)
		bail_out("%s: %s", path, strerror(errno));
}

static bool says(const char *rel, const char *text)
{
	char path[256], buf[256] = "";
	FILE *f;

	path_of(path, sizeof(path), rel);
	f = fopen(path, "r");
	if (f == NULL)
		return false;
	buf[fread(buf, 1, sizeof(buf) - 1, f)] = '\0';
	fclose(f);
	return strcmp(buf, text) == 0;
}

static bool is_there(const char *rel)
{
	struct stat st;
	char path[256];

	path_of(path, sizeof(path), rel);
	return lstat(path, &st) == 0;
}

static void run(const char *command)
{
	char all[512];

	snprintf(all, sizeof(all), "mkdir -p '%s' && cd '%s' && %s", top, top,
	    command);
	if (system(all) != 0)
		bail_out("%s", all);
}

/* A kind of commit, with checks for the old and the new state. */
struct scenario {
	const char *name;
	int (*change)(struct ofs_publish *p, struct optimfs_error *err);
	bool (*is_old)(void);
	bool (*is_new)(void);
	bool (*clean)(void); /* and no other file is there */
};

static int add(struct ofs_publish *p, const char *rel, const char *like,
    const char *text, struct optimfs_error *err)
{
	int fd;

	if (ofs_publish_file(p, rel, like, &fd, err) == -1)
		return -1;
	return ofs_write_all(fd, text, strlen(text), 0, err);
}

/* New files, one replaced index, and a removed file. */
static int change_index(struct ofs_publish *p, struct optimfs_error *err)
{
	if (add(p, "b1", "a0", "B", err) == -1 ||
	    add(p, "sub/b2", "a0", "BB", err) == -1 ||
	    add(p, "index", NULL, "b1 sub/b2 c", err) == -1)
		return -1;
	return ofs_publish_remove(p, "a0", err);
}

static bool index_old(void)
{
	return says("index", "a0 c") && says("a0", "A") && says("c", "C");
}

static bool index_new(void)
{
	return says("index", "b1 sub/b2 c") && says("b1", "B") &&
	    says("sub/b2", "BB") && says("c", "C");
}

static bool index_clean(void)
{
	bool new = index_new();

	return is_there("a0") != new &&is_there("b1") ==
	    new &&is_there("sub/b2") == new;
}

/* The same with new directories. */
static int change_below(struct ofs_publish *p, struct optimfs_error *err)
{
	if (add(p, "b1", "a0", "B", err) == -1 ||
	    add(p, "fresh/er/b2", "a0", "BB", err) == -1)
		return -1;
	return add(p, "index", NULL, "b1 fresh/er/b2 c", err);
}

static bool below_new(void)
{
	return says("index", "b1 fresh/er/b2 c") && says("b1", "B") &&
	    says("fresh/er/b2", "BB") && says("c", "C");
}

static bool below_clean(void)
{
	bool new = below_new();

	return is_there("b1") == new &&is_there("fresh/er/b2") == new;
}

/* Several replaced files, and a file in a new directory. */
static int change_wide(struct ofs_publish *p, struct optimfs_error *err)
{
	if (add(p, "a0", NULL, "new A", err) == -1 ||
	    add(p, "sub/d", NULL, "new D", err) == -1)
		return -1;
	return add(p, "fresh/e", "a0", "E", err);
}

static bool wide_old(void)
{
	return says("a0", "A") && says("sub/d", "D") && !is_there("fresh/e");
}

static bool wide_new(void)
{
	return says("a0", "new A") && says("sub/d", "new D") &&
	    says("fresh/e", "E");
}

static int change_one(struct ofs_publish *p, struct optimfs_error *err)
{
	return add(p, "a0", NULL, "new A", err);
}

static bool one_old(void)
{
	return says("a0", "A") && says("c", "C") && says("index", "a0 c");
}

static bool one_new(void)
{
	return says("a0", "new A") && says("c", "C") && says("index", "a0 c");
}

static bool nothing_else(void)
{
	return !is_there("b1") && !is_there("sub/b2");
}

static int change_many(struct ofs_publish *p, struct optimfs_error *err)
{
	if (add(p, "a0", NULL, "new A", err) == -1 ||
	    add(p, "sub/d", NULL, "new D", err) == -1 ||
	    add(p, "sub/e", "a0", "E", err) == -1)
		return -1;
	return ofs_publish_remove(p, "c", err);
}

static bool many_old(void)
{
	return says("a0", "A") && says("sub/d", "D") && says("c", "C") &&
	    says("link", "A") && !is_there("sub/e");
}

static bool many_new(void)
{
	return says("a0", "new A") && says("sub/d", "new D") &&
	    !is_there("c") && says("link", "new A") && says("sub/e", "E") &&
	    says("index", "a0 c");
}

/* The same, with files that a commit which was killed may have finished. */
static int finish(struct ofs_publish *p, const char *rel, const char *like,
    const char *text, struct optimfs_error *err)
{
	int ret = ofs_publish_again(p, rel, like, text, err);

	if (ret != 0)
		return ret == -1 ? -1 : 0;
	if (add(p, rel, like, text, err) == -1)
		return -1;
	ofs_publish_finished(p, rel, text);
	return 0;
}

static int change_finished(struct ofs_publish *p, struct optimfs_error *err)
{
	if (finish(p, "a0", NULL, "new A", err) == -1 ||
	    finish(p, "sub/d", NULL, "new D", err) == -1 ||
	    finish(p, "sub/e", "a0", "E", err) == -1)
		return -1;
	return ofs_publish_remove(p, "c", err);
}

/* The replaced file is in a subdirectory, as iter_3/.metadata is. */
static int change_deep(struct ofs_publish *p, struct optimfs_error *err)
{
	return add(p, "sub/d", NULL, "new D", err);
}

static bool deep_old(void)
{
	return says("sub/d", "D") && says("a0", "A");
}

static bool deep_new(void)
{
	return says("sub/d", "new D") && says("a0", "A");
}

static const struct scenario scenarios[] = {
	{ "index", change_index, index_old, index_new, index_clean },
	{ "index with new directories", change_below, index_old, below_new,
	    below_clean },
	{ "many files and a new directory", change_wide, wide_old, wide_new,
	    nothing_else },
	{ "one file", change_one, one_old, one_new, nothing_else },
	{ "many files", change_many, many_old, many_new, nothing_else },
	{ "many finished files", change_finished, many_old, many_new,
	    nothing_else },
	{ "file in a subdirectory", change_deep, deep_old, deep_new,
	    nothing_else },
};

static void fresh(void)
{
	run("rm -rf ck stage && mkdir -p ck/sub stage");
	put("a0", "A");
	put("c", "C");
	put("sub/d", "D");
	put("index", "a0 c");
	run("ln -s a0 ck/link && chmod 640 ck/a0");
}

static int open_dir(const char *rel)
{
	char path[256];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", top, rel);
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd == -1)
		bail_out("%s: %s", path, strerror(errno));
	return fd;
}

static int publish(const struct scenario *s, struct optimfs_error *err)
{
	int dir = open_dir("ck"), stage = open_dir("stage"), ret = -1;
	struct ofs_publish *p;
	char source[128];

	snprintf(source, sizeof(source), "%s/ck", top);
	p = ofs_publish_begin(source, dir, stage, err);
	if (p != NULL && s->change(p, err) == 0)
		ret = ofs_publish_commit(p, err);
	ofs_publish_free(p);
	close(dir);
	close(stage);
	return ret;
}

static int recover(struct optimfs_error *err)
{
	int dir = open_dir("ck"), stage = open_dir("stage"), ret;
	char source[128];

	snprintf(source, sizeof(source), "%s/ck", top);
	ret = ofs_publish_recover(source, dir, stage, err);
	close(dir);
	close(stage);
	return ret;
}

static bool stage_is_empty(void)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/stage/new", top);
	if (access(path, F_OK) == 0)
		return false;
	snprintf(path, sizeof(path), "%s/stage/gen", top);
	return access(path, F_OK) != 0;
}

static bool is_finished(const char *key)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/stage/finished/%s", top, key);
	return access(path, F_OK) == 0;
}

static int calls, fail_at, fail_code;
static bool die;
static char failed[32];

static int fault(const char *call)
{
	if (++calls != fail_at)
		return 0;
	if (die)
		_exit(9);
	snprintf(failed, sizeof(failed), "%s", call);
	return fail_code;
}

static void test_works(const struct scenario *s)
{
	struct optimfs_error err = { 0 };
	struct stat st;
	char path[256];

	fresh();
	ok(s->is_old(), "%s: the checkpoint is old before", s->name);
	is_int(publish(s, &err), 0, "%s: publication succeeds (%s)", s->name,
	    err.text);
	ok(s->is_new() && s->clean(), "%s: the checkpoint is completely new",
	    s->name);
	ok(stage_is_empty() && !is_finished(""),
	    "%s: the stage is clean after publication", s->name);
	is_int(recover(&err), 1,
	    "%s: recovery reports the finished publication", s->name);
	path_of(path, sizeof(path), is_there("b1") ? "b1" : "a0");
	ok(stat(path, &st) == 0 && (st.st_mode & 0777) == 0640,
	    "%s: a new file has the old mode", s->name);
}

static char order[1024];

static int note_call(const char *call)
{
	if (strlen(order) + strlen(call) + 2 < sizeof(order)) {
		strcat(order, call);
		strcat(order, " ");
	}
	return 0;
}

/* A new directory must be synced before its contents, and has the mode of the
 * checkpoint. */
static void test_directories(void)
{
	struct optimfs_error err = { 0 };
	struct stat st;
	char path[256];

	fresh();
	run("chmod 751 ck");
	order[0] = '\0';
	ofs_sys_fault = note_call;
	is_int(publish(&scenarios[1], &err), 0,
	    "new directories are published");
	ofs_sys_fault = NULL;
	ok(strstr(order,
	       "mkdir fchmod fsync fsync "
	       "mkdir fchmod fsync fsync rename fsync rename fsync ") != NULL,
	    "a new directory is synced before its contents (%s)", order);
	path_of(path, sizeof(path), "fresh/er");
	ok(stat(path, &st) == 0 && (st.st_mode & 0777) == 0751,
	    "a new directory has the checkpoint's mode (%o)",
	    st.st_mode & 0777);
}

/* With each call failing once, the result of the commit agrees with the state:
 * -1 is old, 1 is new and not synced, 0 is complete. */
static void test_errors(const struct scenario *s, int code)
{
	int points = 0, wrong = 0;

	for (fail_at = 1; fail_at < MAX_CALLS; fail_at++) {
		struct optimfs_error err = { 0 };
		int ret, later;

		fresh();
		calls = 0;
		fail_code = code;
		*failed = '\0';
		ofs_sys_fault = fault;
		ret = publish(s, &err);
		ofs_sys_fault = NULL;
		if (*failed == '\0')
			break;
		points++;
		later = recover(&err);
		if ((ret == -1 &&
			(!s->is_old() || !s->clean() || later != 0)) ||
		    (ret != -1 && (!s->is_new() || later != 1)) ||
		    (ret != 0 && err.code == 0) || !stage_is_empty() ||
		    is_finished("")) {
			diag("call %d, %s: ret %d then %d: %s", fail_at, failed,
			    ret, later, err.text);
			wrong++;
		}
	}
	ok(wrong == 0 && points > 5,
	    "%s: old or new after each of %d calls fails with %s", s->name,
	    points, strerror(code));
}

/* Killed before each call, the checkpoint is completely old or new after
 * recovery, and new after another commit. */
static void test_kills(const struct scenario *s)
{
	int points = 0, wrong = 0, status = 0;

	for (fail_at = 1; fail_at < MAX_CALLS; fail_at++) {
		struct optimfs_error err = { 0 };
		bool new;
		pid_t pid;
		int ret;

		fresh();
		fflush(stdout);
		pid = fork();
		if (pid == 0) {
			calls = 0;
			die = true;
			ofs_sys_fault = fault;
			publish(s, &err);
			_exit(0);
		}
		if (pid == -1 || waitpid(pid, &status, 0) != pid)
			bail_out("fork");
		if (status == 0)
			break;
		points++;
		new = s->is_new();
		ret = new == s->is_old() ? -2 : recover(&err);
		ret = ret == new && s->is_new() == new && s->clean() &&
			stage_is_empty() && (new || publish(s, &err) == 0) &&
			s->is_new()
		    ? ret
		    : -2;
		if (ret == -2 || !stage_is_empty() || is_finished("")) {
			diag("killed at call %d: %s, recover says %d %s",
			    fail_at, new ? "new" : "old", ret, err.text);
			wrong++;
		}
	}
	ok(wrong == 0 && points > 5,
	    "%s: old or new after death at each of %d calls", s->name, points);
}

/* A commit that is killed before it publishes; kept: a file that it finished. */
static int die_unpublished(struct stat *kept)
{
	struct optimfs_error err = { 0 };
	char path[256];
	pid_t pid;

	fresh();
	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		struct ofs_publish *p = ofs_publish_begin("ck", open_dir("ck"),
		    open_dir("stage"), &err);

		_exit(p == NULL || change_finished(p, &err) == -1);
	}
	if (pid == -1 || waitpid(pid, NULL, 0) != pid)
		bail_out("fork");
	snprintf(path, sizeof(path), "%s/stage/finished/new A", top);
	return recover(&err) == 0 && stat(path, kept) == 0 ? 0 : -1;
}

/* What a killed commit has finished is what the next one publishes, if its keys
 * are the same. */
static void test_finished(void)
{
	struct optimfs_error err = { 0 };
	struct stat kept = { 0 }, now = { 0 };
	char path[256];

	is_int(die_unpublished(&kept), 0,
	    "a commit that is killed keeps what it has finished");
	ok(is_finished("new D") && is_finished("E"), "all of it");
	path_of(path, sizeof(path), "a0");
	is_int(publish(&scenarios[4], &err), 0, "another commit succeeds");
	ok(many_new() && stat(path, &now) == 0 && now.st_ino != kept.st_ino &&
		!is_finished(""),
	    "it removes what it does not need");
	is_int(die_unpublished(&kept), 0, "a commit is killed again");
	is_int(publish(&scenarios[5], &err), 0, "the same commit succeeds");
	ok(many_new() && stat(path, &now) == 0 && now.st_ino == kept.st_ino &&
		now.st_nlink == 1 && (now.st_mode & 0777) == 0640,
	    "it takes what was finished");
}

/* After a kill, another program has replaced the new file b1. Recovery must not
 * remove it. */
static void test_foreign(void)
{
	struct optimfs_error err = { 0 };
	int status;
	pid_t pid;

	fresh();
	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		calls = 0;
		die = true;
		for (fail_at = 12; fail_at > 0; fail_at = 0) {
			ofs_sys_fault = fault;
			publish(&scenarios[0], &err);
		}
		_exit(0);
	}
	waitpid(pid, &status, 0);
	run("rm -f ck/b1");
	put("b1", "somebody's");
	ok(recover(&err) == 0 && says("b1", "somebody's"),
	    "recovery keeps a file that another program replaced");
}

/* A commit that was interrupted after its rename is durable only when both
 * directories are synced. Recovery must sync them and report a failure. */
static void test_finish(void)
{
	const struct scenario *s = NULL;
	struct optimfs_error err = { 0 };
	int wrong = 0, points = 0;

	for (size_t i = 0; i < sizeof(scenarios) / sizeof(*scenarios); i++)
		if (scenarios[i].change == change_deep)
			s = &scenarios[i];
	for (fail_at = 1; fail_at < MAX_CALLS; fail_at++) {
		fresh();
		is_int(publish(s, &err), 0,
		    "failure point %d: publication succeeds", fail_at);
		calls = 0;
		fail_code = EIO;
		*failed = '\0';
		ofs_sys_fault = fault;
		wrong += recover(&err) != (*failed == '\0' ? 1 : -1);
		ofs_sys_fault = NULL;
		if (*failed == '\0')
			break;
		points++;
	}
	ok(points == 2 && wrong == 0,
	    "recovery syncs both directories after the rename (%d)", points);
}

/* Makes the nth call of this name fail, counted after this number of
 * renames. */
static struct {
	const char *call;
	int nth, renames;
} only;

static int fault_only(const char *call)
{
	if (strcmp(call, "rename") == 0)
		only.renames--;
	if (strcmp(call, only.call) != 0 || only.renames > 0 || --only.nth != 0)
		return 0;
	return fail_code;
}

/* Error codes of failed calls, and the state after them. */
static void test_codes(void)
{
	static const struct {
		const char *name, *call;
		int scenario, nth, renames, code, ret, as;
		const char *text;
	} cases[] = {
		{ "a new file that cannot be synced", "fsync", 0, 1, 0, EIO, -1,
		    EIO, "OFS802" },
		{ "a directory that cannot be synced before the rename",
		    "fsync", 0, 1, 2, EIO, -1, EIO, "OFS802" },
		{ "a directory that cannot be synced after the rename", "fsync",
		    0, 1, 3, EIO, 1, EIO, "OFS803" },
		{ "a file renamed across devices", "rename", 3, 1, 0, EXDEV, -1,
		    EXDEV, "OFS802" },
		{ "an exchange in the stage that fails with EINVAL", "rename",
		    4, 1, 0, EINVAL, -1, EOPNOTSUPP, "OFS824" },
		{ "an exchange of directories that fails with EINVAL", "rename",
		    4, 5, 0, EINVAL, -1, EOPNOTSUPP, "OFS824" },
		{ "an exchange of directories that fails with ENOSYS", "rename",
		    4, 5, 0, ENOSYS, -1, EOPNOTSUPP, "OFS824" },
		{ "a new directory that cannot be made", "mkdir", 0, 1, 0,
		    ENOSPC, -1, ENOSPC, "OFS821" },
		{ "a new directory in the checkpoint that cannot be made",
		    "mkdir", 1, 3, 0, EDQUOT, -1, EDQUOT, "OFS821" },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		const struct scenario *s = &scenarios[cases[i].scenario];
		struct optimfs_error err = { 0 };

		fresh();
		only.call = cases[i].call;
		only.nth = cases[i].nth;
		only.renames = cases[i].renames;
		fail_code = cases[i].code;
		ofs_sys_fault = fault_only;
		is_int(publish(s, &err), cases[i].ret, "%s: result",
		    cases[i].name);
		ofs_sys_fault = NULL;
		is_error(err, cases[i].as, cases[i].text,
		    "%s: error code and text", cases[i].name);
		ok(cases[i].ret == -1 ? s->is_old() && s->clean() : s->is_new(),
		    "%s: the checkpoint is %s", cases[i].name,
		    cases[i].ret == -1 ? "old" : "new");
	}
}

/* An exchanged directory must keep unrelated entries; a pipe cannot be
 * copied. */
static void test_fifo(void)
{
	const struct scenario *s = &scenarios[4];
	struct optimfs_error err = { 0 };

	fresh();
	run("mkfifo ck/pipe");
	is_int(publish(s, &err), -1,
	    "a checkpoint directory with a pipe cannot be exchanged");
	is_error(err, EOPNOTSUPP, "OFS823 pipe",
	    "a checkpoint directory with a pipe: error text");
	ok(s->is_old() && is_there("pipe"),
	    "a refused exchange leaves the old checkpoint");
}

int main(void)
{
	snprintf(top, sizeof(top), "%s/optimfs-publish-XXXXXX", tap_tmpdir());
	if (mkdtemp(top) == NULL)
		bail_out("%s: %s", top, strerror(errno));
	for (size_t i = 0; i < sizeof(scenarios) / sizeof(*scenarios); i++) {
		test_works(&scenarios[i]);
		test_errors(&scenarios[i], EIO);
		test_errors(&scenarios[i], ENOSPC);
		test_kills(&scenarios[i]);
	}
	test_directories();
	test_finished();
	test_foreign();
	test_finish();
	test_codes();
	test_fifo();
	run("cd / && rm -rf \"$OLDPWD\"");
	return done_testing();
}
