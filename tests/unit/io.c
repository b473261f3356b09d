/* io.c - files that are opened inside the checkpoint only */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tap.h"

static char scratch[] = "/tmp/optimfs-io-XXXXXX";

static void put(const char *name, const char *text)
{
	int fd = open(name, O_WRONLY | O_CREAT | O_EXCL, 0600);

	if (fd == -1 || write(fd, text, strlen(text)) == -1)
		bail_out("%s: %m", name);
	close(fd);
}

static void must(int ret, const char *what)
{
	if (ret == -1)
		bail_out("%s: %m", what);
}

static void put_socket(const char *name)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	strcpy(a.sun_path, name);
	must(bind(fd, (struct sockaddr *)&a, sizeof(a)), "bind");
	close(fd);
}

/* ck/ is the checkpoint. What is beside it must not be reached. */
static void make_tree(void)
{
	if (mkdtemp(scratch) == NULL || chdir(scratch) == -1)
		bail_out("%s: %m", scratch);
	put("secret", "s");
	must(mkdir("ck", 0700) | mkdir("ck/sub", 0700) | mkdir("out", 0700),
	    "mkdir");
	put("out/f", "o");
	put("ck/f", "hello");
	put("ck/sub/f", "there");
	must(link("ck/f", "ck/same"), "link");
	must(symlink("f", "ck/inside") | symlink("../secret", "ck/outside") |
		symlink("sub", "ck/subway") | symlink("../out", "ck/exit") |
		symlink("/proc/self/mem", "ck/memory") |
		symlink("sub/../f", "ck/around") | symlink("loop", "ck/loop"),
	    "symlink");
	must(mkfifo("ck/fifo", 0600), "mkfifo");
	put_socket("ck/socket");
	must(truncate("ck/same", 5), "truncate");
	put("ck/sparse", "");
	must(truncate("ck/sparse", (off_t)1 << 40), "truncate");
}

static void remove_tree(void)
{
	char command[64];

	snprintf(command, sizeof(command), "rm -rf %s", scratch);
	if (chdir("/") == -1 || system(command) != 0)
		diag("%s is left", scratch);
}

struct row {
	const char *rel;
	int code; /* 0: the file opens */
	const char *part;
};

/* Results without -o follow. */
static const struct row strict[] = {
	{ "f", 0, "" },
	{ "same", 0, "" },
	{ "sub/f", 0, "" },
	{ "sparse", 0, "" },
	{ "none", ENOENT, "OFS140 none" },
	{ "f/none", ENOENT, "OFS140" },
	{ "none/f", ENOENT, "OFS140" },
	{ "", EPERM, "OFS620" },
	{ ".", EPERM, "OFS620" },
	{ "..", EPERM, "OFS620" },
	{ "/", EPERM, "OFS620" },
	{ "/etc/passwd", EPERM, "OFS620 path '/etc/passwd' leaves" },
	{ "../secret", EPERM, "OFS620" },
	{ "sub/../../secret", EPERM, "OFS620" },
	{ "sub/..", EPERM, "OFS620" },
	{ "sub/../f", EPERM, "OFS620" },
	{ "./f", EPERM, "OFS620" },
	{ "sub//f", EPERM, "OFS620" },
	{ "sub/", EPERM, "OFS620" },
	{ "inside", EPERM, "OFS621" },
	{ "outside", EPERM, "OFS621" },
	{ "around", EPERM, "OFS621" },
	{ "loop", EPERM, "OFS621" },
	{ "memory", EPERM, "OFS621" },
	{ "subway/f", EPERM, "OFS621" },
	{ "exit/f", EPERM, "OFS621" },
	{ "sub", EUCLEAN, "OFS602 sub: not a regular file" },
	{ "fifo", EUCLEAN, "OFS602" },
	{ "socket", EUCLEAN, "OFS602" },
};

/* Results with -o follow. */
static const struct row follow[] = {
	{ "f", 0, "" },
	{ "inside", 0, "" },
	{ "around", 0, "" },
	{ "subway/f", 0, "" },
	{ "outside", EPERM, "OFS620" },
	{ "exit/f", EPERM, "OFS620" },
	{ "memory", EPERM, "OFS620" },
	{ "loop", EPERM, "OFS621" },
	{ "../secret", EPERM, "OFS620" },
	{ "fifo", EUCLEAN, "OFS602" },
};

static bool row_holds(const struct ofs_dir *dir, const struct row *r)
{
	struct optimfs_error err = { 0 };
	struct stat st;
	int fd = ofs_dir_open_file(dir, r->rel, &st, &err);

	if (fd != -1)
		close(fd);
	if (r->code == 0 ? fd != -1
			 : fd == -1 && err.code == r->code &&
		    strstr(err.text, r->part) != NULL)
		return true;
	diag("'%s': %d %s", r->rel, err.code, err.text);
	return false;
}

static void rows(const struct ofs_dir *dir, const struct row *r, size_t n,
    const char *what)
{
	for (size_t i = 0; i < n; i++)
		ok(row_holds(dir, &r[i]), "%s: '%s' gives %s", what, r[i].rel,
		    r[i].code == 0 ? "a file" : r[i].part);
}

/* Lets every later call of a system call fail with this error. */
static bool forbid(unsigned int call, unsigned int error)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
		    offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { 4, filter };

	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

/* Runs the rows in a child; the number that fail, 255 without seccomp. */
static int without_openat2(const struct ofs_dir *dir, unsigned int error)
{
	struct optimfs_error err = { 0 };
	int status = 0, bad = 0;
	struct ofs_dir sub;
	struct stat st;
	pid_t pid;

	pid = fork();

	if (pid == 0) {
		if (!forbid(__NR_openat2, error))
			_exit(255);
		for (size_t i = 0; i < sizeof(strict) / sizeof(*strict); i++)
			bad += !row_holds(dir, &strict[i]);
		if (ofs_dir_open_sub(dir, "subway", &sub, &err) != -1 ||
		    err.code != EPERM)
			bad++;
		if (!ofs_dir_stat(dir, "inside", &st) || !S_ISLNK(st.st_mode))
			bad++;
		_exit(bad);
	}
	if (pid == -1 || waitpid(pid, &status, 0) == -1 || !WIFEXITED(status))
		return -1;
	return WEXITSTATUS(status);
}

static void fallback(const struct ofs_dir *dir)
{
	int bad = without_openat2(dir, ENOSYS);

	if (bad == 255) {
		skip(2, "no seccomp here");
		return;
	}
	is_int(bad, 0, "all rows hold where openat2 fails with ENOSYS");
	is_int(without_openat2(dir, EPERM), 0,
	    "all rows hold where a sandbox lets openat2 fail with EPERM");
}

static void paths(void)
{
	char deep[2 * 300], too_long[5001];

	for (size_t i = 0; i < sizeof(deep); i++)
		deep[i] = i % 2 == 0 ? 'a' : '/';
	memset(too_long, 'a', sizeof(too_long));
	ok(ofs_path_stays("a/b.c/..d/...", 13),
	    "names that begin with dots are accepted");
	ok(!ofs_path_stays("a\0b", 3), "a path with a NUL is refused");
	ok(!ofs_path_stays(too_long, 5000), "a path of 5000 bytes is refused");
	ok(ofs_path_stays(too_long, 4096), "a path of 4096 bytes is accepted");
	ok(!ofs_path_stays(deep, 2 * 256 - 1),
	    "a path of 256 components is refused");
	ok(ofs_path_stays(deep, 2 * 255 - 1),
	    "a path of 255 components is accepted");
}

static void reading(const struct ofs_dir *dir)
{
	struct optimfs_error err = { 0 };
	uint8_t *bytes = NULL, buf[8];
	struct stat st;
	uint64_t len;
	int fd;

	is_int(ofs_dir_read_file(dir, "f", 5, &bytes, &len, &err), 0,
	    "a file of the size of the limit is read");
	is_u64(len, 5, "the file is read completely");
	is_mem(bytes, "hello\0", 6, "a NUL follows the bytes of the file");
	free(bytes);
	is_int(ofs_dir_read_file(dir, "f", 4, &bytes, &len, &err), -1,
	    "a file larger than the limit is refused");
	is_error(err, E2BIG, "OFS440 f: 5 bytes, limit 4",
	    "a file larger than the limit fails with its size and the limit");
	fd = ofs_dir_open_file(dir, "f", &st, &err);
	is_int(ofs_pread_all(fd, buf, 8, 2, &err), -1,
	    "reading past the end of a file fails");
	is_error(err, EIO, "OFS603 3 of 8 bytes at 2",
	    "reading past the end fails with the number of bytes there");
	is_int(ofs_pread_all(fd, buf, 1, UINT64_MAX, &err), -1,
	    "reading at offset 2^64-1 fails");
	is_error(err, EIO, "OFS603",
	    "reading at offset 2^64-1 fails with OFS603");
	is_int(ofs_pread_all(fd, buf, 0, 5, &err), 0,
	    "reading 0 bytes at the end succeeds");
	close(fd);
	ok(!ofs_dir_stat(dir, "none", &st), "stat of an absent name fails");
	ok(ofs_dir_stat(dir, "fifo", &st) && S_ISFIFO(st.st_mode),
	    "stat of a FIFO succeeds");
	ok(ofs_dir_stat(dir, "inside", &st) && S_ISLNK(st.st_mode),
	    "stat of a symbolic link describes the link");
	ok(!ofs_dir_stat(dir, "exit/f", &st),
	    "stat of a path through a symbolic link fails");
}

static void listing(const struct ofs_dir *dir)
{
	struct optimfs_error err = { 0 };
	struct ofs_names names;
	struct ofs_dir sub;

	is_int(ofs_dir_list(dir, &names, &err), 0,
	    "listing a directory succeeds");
	is_u64(names.n, 13, "all names of the directory are listed");
	is_str(names.name[0], "around",
	    "the first of the listed names is the smallest");
	is_str(names.name[12], "subway",
	    "the last of the listed names is the largest");
	ofs_names_free(&names);
	is_int(ofs_dir_list(dir, &names, &err), 0,
	    "a directory can be listed again");
	is_u64(names.n, 13, "the second list also has all names");
	ofs_names_free(&names);
	is_int(ofs_dir_open_sub(dir, "sub", &sub, &err), 0,
	    "a subdirectory opens");
	is_int(ofs_dir_list(&sub, &names, &err), 0,
	    "listing a subdirectory succeeds");
	is_str(names.name[0], "f", "the list of a subdirectory has its file");
	ofs_names_free(&names);
	ofs_dir_close(&sub);
	is_int(ofs_dir_open_sub(dir, "subway", &sub, &err), -1,
	    "opening a symbolic link as a subdirectory fails");
	is_error(err, EPERM, "OFS621",
	    "opening a symbolic link as a subdirectory fails with OFS621");
	is_int(ofs_dir_open_sub(dir, "f", &sub, &err), -1,
	    "opening a file as a subdirectory fails");
	is_error(err, ENOENT, "OFS140",
	    "opening a file as a subdirectory fails with OFS140");
	is_int(ofs_dir_open("none", &sub, &err), -1,
	    "opening a directory that does not exist fails");
	is_error(err, EIO, "none",
	    "opening a directory that does not exist fails with its name");
}

/* sub/f stays where subf, a file beside sub, is removed. */
static void removed(const struct ofs_dir *dir)
{
	static const char *const rel[] = { "subf", "sub/g" };
	struct ofs_gone gone = { rel, 2, strlen("ck") };
	struct optimfs_error err = { 0 };
	struct ofs_dir with = *dir;
	struct ofs_names names;

	put("ck/subf", "");
	put("ck/sub/g", "");
	with.gone = &gone;
	is_int(ofs_dir_list_sub(&with, "sub", &names, &err), 0,
	    "a directory with removed files is listed");
	is_u64(names.n, 1, "a removed file is not listed");
	is_str(names.name[0], "f",
	    "a file is listed though a removed one has the same letters");
	ofs_names_free(&names);
	is_int(ofs_dir_list(&with, &names, &err), 0,
	    "the directory above it is listed");
	is_u64(names.n, 13, "without the file that is removed there");
	ofs_names_free(&names);
	must(unlink("ck/subf") | unlink("ck/sub/g"), "unlink");
}

static void empty(void)
{
	int status = 0;
	pid_t pid;

	is_int(ofs_dir_empty("ck"), 0, "a directory with files is not empty");
	must(mkdir("none", 0700), "mkdir");
	is_int(ofs_dir_empty("none"), 1, "a new directory is empty");
	must(rmdir("none"), "rmdir");
	is_int(ofs_dir_empty("none"), -1, "what does not exist is not empty");
	pid = fork();
	if (pid == 0) {
		if (!forbid(__NR_getdents64, EIO))
			_exit(255);
		_exit(ofs_dir_empty("ck") == -1 && errno == EIO ? 0 : 1);
	}
	if (pid == -1 || waitpid(pid, &status, 0) == -1)
		bail_out("fork: %m");
	if (WEXITSTATUS(status) == 255)
		skip(1, "no seccomp here");
	else
		is_int(status, 0,
		    "a directory that cannot be read is not taken as empty");
}

/* The descriptor stays with the directory when that is renamed. */
static void moved(const struct ofs_dir *dir)
{
	struct row here = { "f", 0, "" };

	must(rename("ck", "old"), "rename");
	must(mkdir("ck", 0700), "mkdir");
	ok(row_holds(dir, &here), "files of a renamed directory still open");
	must(rmdir("ck") | rename("old", "ck"), "rename");
}

int main(void)
{
	struct optimfs_error err = { 0 };
	struct ofs_dir dir;

	make_tree();
	if (ofs_dir_open("ck", &dir, &err) == -1)
		bail_out("%s", err.text);
	rows(&dir, strict, sizeof(strict) / sizeof(*strict), "strict");
	fallback(&dir);
	paths();
	reading(&dir);
	listing(&dir);
	removed(&dir);
	empty();
	moved(&dir);
	dir.follow = true;
	rows(&dir, follow, sizeof(follow) / sizeof(*follow), "follow");
	ofs_dir_close(&dir);
	remove_tree();
	return done_testing();
}
