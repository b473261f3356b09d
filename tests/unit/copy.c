/* copy.c - a file is copied whole or not at all, and nothing else is left */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "optimfs/optimfs.h"

#include "fs/fs.h"

#include "sample.h"
#include "support/scratch.h"
#include "tap.h"

static bool refuse; /* O_TMPFILE */

/* Replaces the function that the library calls. */
int open(const char *path, int flags, ...)
{
	va_list ap;
	mode_t mode;

	va_start(ap, flags);
	mode = va_arg(ap, mode_t);
	va_end(ap);
	if (refuse && (flags & O_TMPFILE) == O_TMPFILE) {
		errno = EOPNOTSUPP;
		return -1;
	}
	return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

static void dies(void *ctx, uint64_t bytes, const char *name)
{
	(void)ctx;
	(void)bytes;
	(void)name;
	raise(SIGKILL);
}

/* Copies model/w in a process that is killed after it has written its bytes. */
static bool is_killed(struct optimfs *fs, const char *dest)
{
	struct optimfs_copy how = { .copied = dies };
	pid_t pid = fork();
	int status;

	if (pid == 0)
		_exit(optimfs_copy(fs, "model/w", dest, &how, NULL) == 0 ? 0
									 : 1);
	return pid != -1 && waitpid(pid, &status, 0) == pid &&
	    WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
}

static bool is_whole(const struct sample *s, const char *name)
{
	char got[sizeof(s->w) + 1];
	int fd = open(in_scratch(name), O_RDONLY | O_CLOEXEC, 0);
	ssize_t n = read(fd, got, sizeof(got));

	close(fd);
	return n == sizeof(s->w) && memcmp(got, s->w, sizeof(s->w)) == 0;
}

static bool are_all(const char *names)
{
	char command[100];

	snprintf(command, sizeof(command), "test \"$(ls -A | xargs)\" = '%s'",
	    names);
	return scratch_shell(command);
}

static void copies(struct sample *s, const char *what)
{
	struct optimfs_copy how = { 0 };
	struct optimfs_error err = { 0 };
	struct stat st;

	ok(optimfs_copy(s->fs, "model/w", in_scratch("new"), &how, &err) == 0 &&
		is_whole(s, "new"),
	    "%s: a new file: %s", what, err.text);
	ok(stat(in_scratch("new"), &st) == 0 && (st.st_mode & 0777) == 0640,
	    "%s: its mode follows the umask", what);
	scratch_put("old", "old");
	scratch_run("chmod 600 old");
	ok(optimfs_copy(s->fs, "model/w", in_scratch("old"), &how, &err) == 0 &&
		is_whole(s, "old"),
	    "%s: a file is replaced", what);
	ok(stat(in_scratch("old"), &st) == 0 && (st.st_mode & 0777) == 0600,
	    "%s: the new file has the mode of the old one", what);
	scratch_put("old", "old");
	ok(optimfs_copy(s->fs, "model/bad", in_scratch("old"), &how, &err) ==
		    -1 &&
		scratch_has("old", "old"),
	    "%s: a tensor that cannot be read replaces nothing", what);
	ok(are_all("new old"), "%s: nothing else is left", what);
	scratch_run("rm new old");
}

static bool copy(struct sample *s, const char *dest, struct optimfs_error *err)
{
	struct optimfs_copy how = { 0 };

	return optimfs_copy(s->fs, "model/w", dest, &how, err) == 0;
}

static void links(struct sample *s, const char *what)
{
	struct optimfs_error err = { 0 };

	scratch_put("old", "old");
	scratch_run(
	    "ln -s old link; ln -s none lost; ln -s /proc/version refused");
	ok(copy(s, in_scratch("link"), &err) && is_whole(s, "old") &&
		scratch_shell("test -L link"),
	    "%s: a symbolic link is followed: %s", what, err.text);
	ok(!copy(s, in_scratch("lost"), &err) && err.code == ENOENT &&
		strstr(err.text, "lost: a dangling symbolic link") != NULL,
	    "%s: a dangling symbolic link is refused: %s", what, err.text);
	ok(!copy(s, in_scratch("refused"), &err) &&
		strstr(err.text, "/refused: ") != NULL,
	    "%s: the message has the name that was given: %s", what, err.text);
	ok(are_all("link lost old refused"), "%s: nothing else is left", what);
	scratch_run("rm link lost old refused");
}

/* As "optimfs cp CK model/w /dev/stdout >old". */
static void descriptors(struct sample *s, const char *what)
{
	struct optimfs_error err = { 0 };
	char got[sizeof(s->w)] = "", self[32], command[60];
	int fd;

	scratch_put("old", "old");
	fd = open(in_scratch("old"), O_RDWR | O_CLOEXEC, 0);
	snprintf(self, sizeof(self), "/proc/%d/fd/%d", (int)getpid(), fd);
	snprintf(command, sizeof(command), "ln -s %s out", self);
	scratch_run(command);
	ok(copy(s, in_scratch("out"), &err) && is_whole(s, "old") &&
		scratch_shell("test -L out"),
	    "%s: a link to an open file: %s", what, err.text);
	/* the descriptor has the old file, which has no name any more */
	ok(copy(s, in_scratch("out"), &err) &&
		pread(fd, got, sizeof(got), 0) == sizeof(got) &&
		memcmp(got, s->w, sizeof(got)) == 0,
	    "%s: a link to an open file that was deleted: %s", what, err.text);
	ok(are_all("old out"), "%s: nothing else is left", what);
	close(fd);
	scratch_run("rm old out");
}

static void owners(struct sample *s, const char *what)
{
	struct optimfs_error err = { 0 };
	struct stat st;

	if (geteuid() != 0) {
		skip(1, "only root can give files away");
		return;
	}
	scratch_put("old", "old");
	scratch_run("chmod 640 old && chown 1234:2345 old");
	ok(copy(s, in_scratch("old"), &err) &&
		stat(in_scratch("old"), &st) == 0 && st.st_uid == 1234 &&
		st.st_gid == 2345 && (st.st_mode & 0777) == 0640,
	    "%s: the new file has the owner and group of the old one: %s", what,
	    err.text);
	scratch_run("rm old");
}

/* The mode of a new file, without a umask, of a source that has this one. */
static mode_t made_of(struct sample *s, uint32_t mode)
{
	struct ofs_access *now = &s->fs->now->access.now;
	const struct ofs_access was = *now;
	struct optimfs_error err;
	struct stat st = { 0 };
	mode_t mask = umask(0);

	now->mode = mode;
	if (!copy(s, in_scratch("new"), &err) ||
	    stat(in_scratch("new"), &st) == -1)
		diag("%s", err.text);
	*now = was;
	umask(mask);
	scratch_run("rm -f new");
	return st.st_mode & 0777;
}

static void modes(struct sample *s, const char *what)
{
	is_int(made_of(s, 0444), 0666,
	    "%s: a file of a checkpoint for all has the usual mode", what);
	is_int(made_of(s, 0400), 0600,
	    "%s: one of a private checkpoint is private", what);
}

static void killed(struct sample *s)
{
	ok(is_killed(s->fs, in_scratch("new")) && are_all(""),
	    "a copy that is killed leaves nothing");
	scratch_put("old", "old");
	ok(is_killed(s->fs, in_scratch("old")) && are_all("old") &&
		scratch_has("old", "old"),
	    "a copy that is killed leaves the file that it would replace");
	scratch_run("rm -f old");
}

static void all(struct sample *s, const char *what)
{
	copies(s, what);
	links(s, what);
	descriptors(s, what);
	owners(s, what);
	modes(s, what);
}

/* Has the file system of the scratch directory files without a name? */
static bool has_unnamed(void)
{
	int fd = open(scratch, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);

	if (fd != -1)
		close(fd);
	return fd != -1;
}

int main(void)
{
	struct sample s;
	struct optimfs_error err;

	umask(027);
	sample_init(&s, NULL, &err);
	if (s.fs == NULL)
		bail_out("%s", err.text);
	scratch_make(true);
	all(&s, "with O_TMPFILE");
	if (has_unnamed())
		killed(&s);
	else
		skip(2, "the file system has no O_TMPFILE");
	refuse = true;
	all(&s, "without O_TMPFILE");
	scratch_remove();
	sample_fini(&s);
	return done_testing();
}
