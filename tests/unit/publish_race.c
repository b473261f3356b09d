/* publish_race.c - another program saves into the checkpoint during a commit */
/* SPDX-License-Identifier: Apache-2.0 */

/* An intruder does one thing that a trainer does, right before one of the system
 * calls of a commit; each run has it at another call. Then what it has saved is
 * in its place, and the rest of the checkpoint is the new one if the commit
 * returned 0, otherwise the old one. Then the same with a commit that is killed
 * some calls later, and a recovery. */
#include "config.h"

#include <dirent.h>
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
#include "journal/publish.h"
#include "support/scratch.h"
#include "tap.h"

#define MAX_CALLS 500

/* The directory in which the test runs has the checkpoint ck and the stage. */
static void write_to(int at, const char *rel, int flags, const char *text)
{
	int fd = openat(at, rel, O_WRONLY | flags, 0644);

	if (fd == -1 || write(fd, text, strlen(text)) != (ssize_t)strlen(text))
		bail_out("%s: %s", rel, strerror(errno));
	close(fd);
}

static void put(const char *rel, const char *text)
{
	write_to(AT_FDCWD, rel, O_CREAT | O_TRUNC, text);
}

static void save(const char *rel, const char *text)
{
	put("ck/saving", text);
	if (rename("ck/saving", rel) == -1)
		bail_out("%s: %s", rel, strerror(errno));
}

/* Files that a commit changes: old and new contents; NULL: no such file. */
struct file {
	const char *rel, *old, *new;
};

static const struct file index_changes[] = {
	{ "a", "A", NULL },
	{ "b", NULL, "new B" },
	{ "index", "I", "new I" },
	{ NULL, NULL, NULL },
};

static const struct file many_change[] = {
	{ "a", "A", NULL },
	{ "b", NULL, "new B" },
	{ "sub/d", "D", "new D" },
	{ "index", "I", "new I" },
	{ NULL, NULL, NULL },
};

static const struct scenario {
	const char *name;
	const struct file *file;
	bool copies; /* the file system has no hard links */
} scenarios[] = {
	{ "an index", index_changes, false },
	{ "many files", many_change, false },
	{ "many files, copied", many_change, true },
};

static int held; /* a descriptor of the intruder */
static bool lost_dir;

static void new_file(void)
{
	put("ck/notes", "mine");
}

static void new_file_below(void)
{
	put("ck/sub/notes", "mine");
}

static void new_directory(void)
{
	if (mkdir("ck/step4", 0755) == -1 || mkdir("ck/step4/deep", 0755) == -1)
		bail_out("step4: %s", strerror(errno));
	put("ck/step4/rank0", "mine");
	put("ck/step4/deep/rank1", "mine");
}

static void kept_replaced(void)
{
	save("ck/kept", "mine");
}

static void kept_removed(void)
{
	unlink("ck/kept");
}

static void kept_written(void)
{
	put("ck/kept", "mine");
}

static void index_replaced(void)
{
	save("ck/index", "mine");
}

static void index_written(void)
{
	put("ck/index", "mine");
}

static void old_replaced(void)
{
	save("ck/a", "mine");
}

static void new_name_taken(void)
{
	save("ck/b", "mine");
}

static void index_opened(void)
{
	held = open("ck/index", O_WRONLY);
	if (held == -1)
		bail_out("index: %s", strerror(errno));
}

static void note_opened(void)
{
	held = open("ck/notes", O_WRONLY | O_CREAT, 0644);
	if (held == -1)
		bail_out("notes: %s", strerror(errno));
}

/* The directory that was opened before may be removed by now: then the program
 * gets an error. */
static void note_in_opened(void)
{
	int fd = openat(held, "notes", O_WRONLY | O_CREAT, 0644);

	lost_dir = fd == -1;
	if (lost_dir)
		return;
	if (write(fd, "mine", 4) != 4)
		bail_out("notes: %s", strerror(errno));
	close(fd);
}

static const struct intruder {
	const char *name;
	void (*act)(void);
	const char *rel, *text; /* afterwards */
	bool writes, needs_dir; /* held */
} intruders[] = {
	{ "makes a file", new_file, "notes", "mine", false, false },
	{ "makes a file in a directory", new_file_below, "sub/notes", "mine",
	    false, false },
	{ "makes a directory", new_directory, "step4/deep/rank1", "mine", false,
	    false },
	{ "replaces a file that stays", kept_replaced, "kept", "mine", false,
	    false },
	{ "removes a file that stays", kept_removed, "kept", NULL, false,
	    false },
	{ "writes to a file that stays", kept_written, "kept", "mine", false,
	    false },
	{ "replaces the index", index_replaced, "index", "mine", false, false },
	{ "writes to the index", index_written, "index", "mine", false, false },
	{ "replaces a file that goes", old_replaced, "a", "mine", false,
	    false },
	{ "takes the name of a new file", new_name_taken, "b", "mine", false,
	    false },
	{ "has the index open", index_opened, "index", "mine", true, false },
	{ "has its new file open", note_opened, "notes", "mine", true, false },
	{ "makes a file in the directory that it had open", note_in_opened,
	    "notes", "mine", false, true },
};

static void fresh(const struct intruder *who)
{
	ofs_publish_clear(AT_FDCWD, "ck");
	ofs_publish_clear(AT_FDCWD, "stage");
	if (mkdir("ck", 0755) == -1 || mkdir("ck/sub", 0755) == -1 ||
	    mkdir("stage", 0755) == -1)
		bail_out("%s", strerror(errno));
	put("ck/a", "A");
	put("ck/index", "I");
	put("ck/kept", "K");
	put("ck/sub/d", "D");
	held = who->needs_dir ? open("ck", O_RDONLY | O_DIRECTORY) : -1;
}

static int calls, act_at, die_at;
static bool acted, copies;
static const struct intruder *now;

static int on_call(const char *call)
{
	calls++;
	if (calls == die_at)
		_exit(9);
	if (calls == act_at) {
		acted = true;
		now->act();
	}
	return copies && strcmp(call, "link") == 0 ? EPERM : 0;
}

static int change(struct ofs_publish *p, const struct file *f,
    struct optimfs_error *err)
{
	int fd;

	if (f->new == NULL)
		return ofs_publish_remove(p, f->rel, err);
	if (ofs_publish_file(p, f->rel, NULL, &fd, err) == -1)
		return -1;
	return ofs_write_all(fd, f->new, strlen(f->new), 0, err);
}

static void open_both(int *dir, int *stage)
{
	*dir = open("ck", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	*stage = open("stage", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (*dir == -1 || *stage == -1)
		bail_out("%s", strerror(errno));
}

static int commit(const struct scenario *s, struct optimfs_error *err)
{
	struct ofs_publish *p;
	int dir, stage, ret = 0;

	open_both(&dir, &stage);
	p = ofs_publish_begin("ck", dir, stage, err);
	if (p == NULL)
		bail_out("%s", err->text);
	for (const struct file *f = s->file; f->rel != NULL && ret == 0; f++)
		ret = change(p, f, err);
	if (ret == -1)
		bail_out("%s", err->text);
	calls = 0;
	acted = false;
	copies = s->copies;
	ofs_sys_fault = on_call;
	ret = ofs_publish_commit(p, err);
	ofs_publish_free(p);
	ofs_sys_fault = NULL;
	close(dir);
	close(stage);
	return ret;
}

static int recover(struct optimfs_error *err)
{
	int dir, stage, ret;

	open_both(&dir, &stage);
	ret = ofs_publish_recover("ck", dir, stage, err);
	close(dir);
	close(stage);
	return ret;
}

static bool has(const char *rel, const char *text)
{
	char path[64];

	snprintf(path, sizeof(path), "ck/%s", rel);
	return scratch_has(path, text);
}

/* Is the rest of the checkpoint the new one, or the old one? */
static bool is_rest(const struct scenario *s, bool new)
{
	for (const struct file *f = s->file; f->rel != NULL; f++)
		if (strcmp(f->rel, now->rel) != 0 &&
		    !has(f->rel, new ? f->new : f->old))
			return false;
	return strcmp(now->rel, "kept") == 0 || has("kept", "K");
}

/* What the intruder still has open is written now. */
static void let_go(void)
{
	if (held == -1)
		return;
	if (now->writes &&
	    (ftruncate(held, 0) == -1 || write(held, "mine", 4) != 4))
		bail_out("%s", strerror(errno));
	close(held);
	held = -1;
}

static unsigned names_in(const char *dir, const char *part)
{
	DIR *d = opendir(dir);
	struct dirent *e;
	unsigned n = 0;

	while (d != NULL && (e = readdir(d)) != NULL)
		n += e->d_name[0] != '.' && strstr(e->d_name, part) != NULL;
	if (d != NULL)
		closedir(d);
	return n;
}

/* Nothing is left in the stage, and nothing was kept beside. */
static bool is_clean(void)
{
	return names_in("stage", "") == names_in("stage", "publish") &&
	    names_in("ck", ".kept-") == 0;
}

/* The directory that the intruder had open may be removed by now, which it sees
 * as an error. */
static bool is_saved(void)
{
	return has(now->rel, now->text) ||
	    (now->needs_dir && lost_dir && has(now->rel, NULL));
}

static bool is_right(const struct scenario *s, int ret,
    const struct optimfs_error *err)
{
	return is_saved() && is_rest(s, ret != -1) && is_clean() &&
	    (ret == 0 || (ret == -1 && err->number == 805));
}

static void test_commits(const struct scenario *s)
{
	int points = 0, wrong = 0, refused = 0;

	for (act_at = 1; act_at < MAX_CALLS; act_at++) {
		struct optimfs_error err = { 0 };
		int ret;

		fresh(now);
		ret = commit(s, &err);
		let_go();
		if (!acted)
			break;
		points++;
		refused += ret == -1;
		if (is_right(s, ret, &err))
			continue;
		wrong++;
		diag("at call %d: %d %s%s%s%s", act_at, ret, err.text,
		    is_saved() ? "" : ", the other's file is lost",
		    is_rest(s, ret != -1) ? "" : ", ours is neither",
		    is_clean() ? "" : ", something is left");
	}
	ok(wrong == 0 && points > 5,
	    "%s, another program %s: nothing is lost at any of %d calls, "
	    "%d refused",
	    s->name, now->name, points, refused);
}

/* false: the commit has ended before anybody did anything. */
static bool run_killed(const struct scenario *s)
{
	struct optimfs_error err = { 0 };
	int status;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		commit(s, &err);
		_exit(acted ? 0 : 1);
	}
	if (pid == -1 || waitpid(pid, &status, 0) != pid)
		bail_out("fork");
	return WIFEXITED(status) && WEXITSTATUS(status) != 1;
}

static void test_kills(const struct scenario *s)
{
	static const int later[] = { 1, 2, 4, 8 };
	int points = 0, wrong = 0;

	for (size_t i = 0; i < sizeof(later) / sizeof(*later); i++)
		for (act_at = 1; act_at < MAX_CALLS; act_at++) {
			struct optimfs_error err = { 0 };
			int ret;

			fresh(now);
			die_at = act_at + later[i];
			if (!run_killed(s))
				break;
			points++;
			ret = recover(&err);
			if (ret != -1 && is_saved() && is_rest(s, ret == 1) &&
			    is_clean())
				continue;
			wrong++;
			diag("at call %d, killed at %d: recovery %d %s%s%s%s",
			    act_at, die_at, ret, err.text,
			    is_saved() ? "" : ", the other's file is lost",
			    is_rest(s, ret == 1) ? "" : ", ours is neither",
			    is_clean() ? "" : ", something is left");
		}
	die_at = 0;
	ok(wrong == 0 && points > 5,
	    "%s, another program %s, and the commit is killed: nothing is lost "
	    "at any of %d calls",
	    s->name, now->name, points);
}

int main(void)
{
	scratch_make(true);
	if (chdir(scratch) == -1)
		bail_out("%s: %s", scratch, strerror(errno));
	for (size_t i = 0; i < sizeof(scenarios) / sizeof(*scenarios); i++)
		for (size_t k = 0; k < sizeof(intruders) / sizeof(*intruders);
		     k++) {
			now = &intruders[k];
			test_commits(&scenarios[i]);
			/* what it has open dies with it */
			if (!now->writes && !now->needs_dir)
				test_kills(&scenarios[i]);
		}
	scratch_remove();
	return done_testing();
}
