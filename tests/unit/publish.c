/* journal/publish.c - every call of a commit fails, or is its last: old or new */
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

/* A checkpoint is its file "index", which names the files that belong to it:
 * one a line, and what each has to say. */

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

/* What a kind of commit does, and how either state looks. */
struct scenario {
	const char *name;
	int (*change)(struct ofs_publish *p, struct optimfs_error *err);
	bool (*is_old)(void);
	bool (*is_new)(void);
	bool (*clean)(void); /* and nothing else is there */
};

static int add(struct ofs_publish *p, const char *rel, const char *like,
    const char *text, struct optimfs_error *err)
{
	int fd;

	if (ofs_publish_file(p, rel, like, &fd, err) == -1)
		return -1;
	return ofs_write_all(fd, text, strlen(text), 0, err);
}

/* New names, then one file that is replaced, then what nobody needs. */
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

/* The same in directories that are new. */
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

/* Many files, of which one is in a new directory. */
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

/* iter_3/.metadata: what is replaced lies deeper. */
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
	{ "an index", change_index, index_old, index_new, index_clean },
	{ "new directories", change_below, index_old, below_new, below_clean },
	{ "many files, and a new directory", change_wide, wide_old, wide_new,
	    nothing_else },
	{ "one file", change_one, one_old, one_new, nothing_else },
	{ "many files", change_many, many_old, many_new, nothing_else },
	{ "a file deeper", change_deep, deep_old, deep_new, nothing_else },
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
	ok(s->is_old(), "%s: before", s->name);
	is_int(publish(s, &err), 0, "%s: is published (%s)", s->name, err.text);
	ok(s->is_new() && s->clean(), "%s: as a whole", s->name);
	ok(stage_is_empty(), "%s: the stage is clean", s->name);
	is_int(recover(&err), 1, "%s: that it was is known until forgotten",
	    s->name);
	path_of(path, sizeof(path), is_there("b1") ? "b1" : "a0");
	ok(stat(path, &st) == 0 && (st.st_mode & 0777) == 0640,
	    "%s: modes stay", s->name);
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

/* What lies in a new directory is lost with its name: that is safe before
 * anything is published. Who may read the checkpoint may read it. */
static void test_directories(void)
{
	struct optimfs_error err = { 0 };
	struct stat st;
	char path[256];

	fresh();
	run("chmod 751 ck");
	order[0] = '\0';
	ofs_sys_fault = note_call;
	is_int(publish(&scenarios[1], &err), 0, "new directories: published");
	ofs_sys_fault = NULL;
	ok(strstr(order,
	       "mkdir fchmod fsync fsync "
	       "mkdir fchmod fsync fsync rename fsync rename fsync ") != NULL,
	    "new directories: synced before what is in them (%s)", order);
	path_of(path, sizeof(path), "fresh/er");
	ok(stat(path, &st) == 0 && (st.st_mode & 0777) == 0751,
	    "new directories: as open as the checkpoint (%o)",
	    st.st_mode & 0777);
}

/* Each call fails once: -1 means old, 1 means new, and 0 that it is complete.
 */
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
		    (ret != 0 && err.code == 0) || !stage_is_empty()) {
			diag("call %d, %s: ret %d then %d: %s", fail_at, failed,
			    ret, later, err.text);
			wrong++;
		}
	}
	ok(wrong == 0 && points > 5, "%s: each of %d calls fails with %s",
	    s->name, points, strerror(code));
}

/* Each call is the last one. */
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
		if (ret != new || s->is_new() != new || !s->clean() ||
		    !stage_is_empty()) {
			diag("killed at call %d: %s, recover says %d %s",
			    fail_at, new ? "new" : "old", ret, err.text);
			wrong++;
		}
	}
	ok(wrong == 0 && points > 5, "%s: killed at each of %d calls", s->name,
	    points);
}

/* A file of the checkpoint that stands for another inode by then is not ours
 * to remove. */
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
	    "a file of others stays");
}

/* A commit that was cut off after its rename is not safe before the directory
 * of that name is synced: whoever finishes it says so. */
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
		is_int(publish(s, &err), 0, "published");
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
	    "a commit that is finished syncs both directories (%d)", points);
}

/* The nth call of a name fails, or the first one after all renames. */
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

/* What a failure is called, and what it leaves: rows W04 to W07. */
static void test_words(void)
{
	static const struct {
		const char *name, *call;
		int scenario, nth, renames, code, ret, as;
		const char *text;
	} cases[] = {
		{ "W04: a new file is not safe", "fsync", 0, 1, 0, EIO, -1, EIO,
		    "OFS802" },
		{ "W05: nor is a name, before the rename", "fsync", 0, 1, 2,
		    EIO, -1, EIO, "OFS802" },
		{ "W06: nor is it after the rename", "fsync", 0, 1, 3, EIO, 1,
		    EIO, "OFS803" },
		{ "W07: what is one file is renamed", "rename", 3, 1, 0, EXDEV,
		    -1, EXDEV, "OFS802" },
		{ "W07: directories are exchanged, or nothing is", "rename", 4,
		    4, 0, EINVAL, -1, EOPNOTSUPP, "OFS824" },
		{ "W07: the same where the kernel does not know it", "rename",
		    4, 4, 0, ENOSYS, -1, EOPNOTSUPP, "OFS824" },
		{ "no directory can be made", "mkdir", 0, 1, 0, ENOSPC, -1,
		    ENOSPC, "OFS821" },
		{ "nor one in the checkpoint", "mkdir", 1, 3, 0, EDQUOT, -1,
		    EDQUOT, "OFS821" },
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
		is_int(publish(s, &err), cases[i].ret, "%s", cases[i].name);
		ofs_sys_fault = NULL;
		is_error(err, cases[i].as, cases[i].text, "%s", cases[i].text);
		ok(cases[i].ret == -1 ? s->is_old() && s->clean() : s->is_new(),
		    "%s",
		    cases[i].ret == -1 ? "all is as it was"
				       : "what is new is there");
	}
}

/* A directory that is exchanged takes along what else is in it, if it can. */
static void test_fifo(void)
{
	const struct scenario *s = &scenarios[4];
	struct optimfs_error err = { 0 };

	fresh();
	run("mkfifo ck/pipe");
	is_int(publish(s, &err), -1, "a pipe");
	is_error(err, EOPNOTSUPP, "OFS823 pipe", "is not carried over");
	ok(s->is_old() && is_there("pipe"), "all is as it was");
}

int main(void)
{
	snprintf(top, sizeof(top), "/tmp/optimfs-publish-%d", (int)getpid());
	for (size_t i = 0; i < sizeof(scenarios) / sizeof(*scenarios); i++) {
		test_works(&scenarios[i]);
		test_errors(&scenarios[i], EIO);
		test_errors(&scenarios[i], ENOSPC);
		test_kills(&scenarios[i]);
	}
	test_directories();
	test_foreign();
	test_finish();
	test_words();
	test_fifo();
	run("cd / && rm -rf \"$OLDPWD\"");
	return done_testing();
}
