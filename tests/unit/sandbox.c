/* sandbox.c - what a sandboxed thread can open, and what it cannot */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "cli/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "cli/syscalls.h"
#include "tap.h"

/* Files below one directory:
 *
 *     secret  run/ck/a  run/ck/sub/b  run/other  run/file  upper/  tmp/ */
static char top[] = "/tmp/optimfs-sandbox.XXXXXX";

static const char *at(const char *name)
{
	static _Thread_local char path[8][256];
	static _Thread_local unsigned turn;
	char *p = path[turn++ % 8];

	snprintf(p, sizeof(path[0]), "%s/%s", top, name);
	return p;
}

static void put(const char *name)
{
	int fd = open(at(name), O_CREAT | O_WRONLY | O_CLOEXEC, 0644);

	if (fd == -1 || write(fd, "x", 1) != 1)
		bail_out("%s: %s", name, strerror(errno));
	close(fd);
}

static void make_files(void)
{
	if (mkdtemp(top) == NULL || mkdir(at("run"), 0755) == -1 ||
	    mkdir(at("run/ck"), 0755) == -1 ||
	    mkdir(at("run/ck/sub"), 0755) == -1 ||
	    mkdir(at("run/.ck.optimfs"), 0755) == -1 ||
	    mkdir(at("upper"), 0755) == -1 || mkdir(at("out"), 0755) == -1 ||
	    mkdir(at("tmp"), 0755) == -1)
		bail_out("%s: %s", top, strerror(errno));
	put("secret");
	put("run/ck/a");
	put("run/ck/sub/b");
	put("run/other");
	put("run/theirs");
	if (geteuid() == 0 && chown(at("run/theirs"), 1234, 1234) == -1)
		bail_out("%s: %s", top, strerror(errno));
	put("run/file");
	put("run/file.index.json");
	setenv("TMPDIR", at("tmp"), 1);
}

/* Opens path; returns 0 or errno. */
static int opens(const char *path, int flags)
{
	int fd = open(path, flags | O_CLOEXEC, 0600);

	if (fd == -1)
		return errno;
	close(fd);
	return 0;
}

static void *no_run(void *arg)
{
	return arg;
}

/* The version of Landlock. */
static long landlock(void)
{
	return syscall(444, NULL, 0, 1);
}

/* Tries each of the calls, with arguments with which it does nothing. */
static unsigned tried(const int *call, int *other)
{
	unsigned n = 0;

	for (; *call != -1; call++, n++)
		if (syscall(*call, -1, -1, -1, -1, -1, -1) != -1 ||
		    errno != EPERM)
			*other = *call;
	return n;
}

/* Made before the thread is confined: a socket, and the abstract address of
 * another one. */
static int to_nowhere = -1;
static struct sockaddr_un abstract = { .sun_family = AF_UNIX };
#define ABSTRACT_LENGTH (sizeof(sa_family_t) + 24)
static pthread_t starter;

static void make_sockets(void)
{
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	to_nowhere = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	snprintf(abstract.sun_path + 1, 24, "optimfs-%d", (int)getpid());
	if (fd == -1 || to_nowhere == -1 ||
	    bind(fd, (struct sockaddr *)&abstract, ABSTRACT_LENGTH) == -1 ||
	    sendto(to_nowhere, "x", 1, 0, (struct sockaddr *)&abstract,
		ABSTRACT_LENGTH) != 1)
		bail_out("sockets: %s", strerror(errno));
}

/* 0 or errno. */
static int result(long ret)
{
	return ret == -1 ? errno : 0;
}

/* Other processes and machines are out of reach. */
static void isolated(const char *what)
{
	struct rlimit limit;
	int code, other = -1;
	unsigned n = tried(ofs_syscalls_refused(0), &other) +
	    tried(ofs_syscalls_refused(1), &other);

	ok(n > 100 && other == -1, "%s: %u system calls are refused (not: %d)",
	    what, n, other);
	is_int(result(fork()), EPERM, "%s: a process cannot be made", what);
	is_int(result(kill(getppid(), SIGCONT)), EPERM,
	    "%s: another process gets no signal", what);
	is_int(result(syscall(SYS_tgkill, getppid(), getppid(), SIGCONT)),
	    EPERM, "%s: nor do its threads", what);
	code = result(kill(getppid(), 0));
	ok(code == 0 || code == EPERM,
	    "%s: whether a process exists can be asked", what);
	is_int(result(kill(INT_MAX, 0)), ESRCH,
	    "%s: a process that is gone is known to be", what);
	is_int(pthread_kill(starter, 0), 0,
	    "%s: a thread of this process gets signals", what);
	is_int(result(chmod(at("secret"), 0600)), EPERM,
	    "%s: the mode of a file elsewhere cannot be changed", what);
	is_int(result(utimensat(AT_FDCWD, at("secret"), NULL, 0)), EPERM,
	    "%s: nor its times", what);
	is_int(result(prlimit(getppid(), RLIMIT_NOFILE, NULL, &limit)), EPERM,
	    "%s: limits of another process cannot be read", what);
	is_int(result(prlimit(0, RLIMIT_NOFILE, NULL, &limit)), 0,
	    "%s: its own can", what);
	is_int(result(ioctl(STDIN_FILENO, TIOCSTI, "x")), EPERM,
	    "%s: no input for a terminal can be forged", what);
	/* before Linux 6.12 they are not restricted */
	code = result(sendto(to_nowhere, "x", 1, 0,
	    (struct sockaddr *)&abstract, ABSTRACT_LENGTH));
	ok(code == EPERM || (code == 0 && landlock() < 6),
	    "%s: an abstract socket cannot be reached: %s", what,
	    strerror(code));
}

/* Restrictions of every sandbox for run/ck. */
static void confined(const char *what)
{
	char line[256];
	FILE *f;
	bool set = false;
	pthread_t child;

	is_int(opens("/etc/passwd", O_RDONLY), EACCES,
	    "%s: /etc/passwd cannot be opened", what);
	is_int(opens(at("secret"), O_RDONLY), EACCES,
	    "%s: a file outside the checkpoint cannot be opened", what);
	is_int(opens(at("new"), O_RDWR | O_CREAT), EACCES,
	    "%s: a file outside cannot be created", what);
	is_int(opens(at("tmp"), O_TMPFILE | O_RDWR), 0,
	    "%s: an unnamed temporary file can be created", what);
	isolated(what);
	ok(execl("/bin/true", "true", NULL) == -1 && errno == EPERM,
	    "%s: a program cannot be executed", what);
	ok(mount("none", at("tmp"), "tmpfs", 0, NULL) == -1 && errno == EPERM,
	    "%s: a file system cannot be mounted", what);
	f = fopen("/proc/thread-self/status", "re");
	while (f != NULL && fgets(line, sizeof(line), f) != NULL)
		set |= strcmp(line, "NoNewPrivs:\t1\n") == 0;
	if (f != NULL)
		fclose(f);
	ok(set, "%s: no_new_privs is set", what);
	ok(pthread_create(&child, NULL, no_run, NULL) == 0 &&
		pthread_join(child, NULL) == 0,
	    "%s: a thread can be started", what);
}

static bool keeps(unsigned capability)
{
	unsigned long long effective = 0;
	char line[256];
	FILE *f = fopen("/proc/thread-self/status", "re");

	while (f != NULL && fgets(line, sizeof(line), f) != NULL)
		sscanf(line, "CapEff: %llx", &effective);
	if (f != NULL)
		fclose(f);
	return (effective >> capability & 1) != 0;
}

/* Exactly these, of a process that has all. */
static bool keeps_only(unsigned long long capabilities)
{
	for (unsigned i = 0; i < 41; i++)
		if (keeps(i) !=
		    ((capabilities >> i & 1) != 0 && geteuid() == 0))
			return false;
	return true;
}

enum {
	READING = 1 << 2, /* DAC_READ_SEARCH */
	WRITING = READING | 1 << 0 | 1 << 1 | 1 << 3 | 1 << 4 | 1 << 28,
	PASSING = 1 << 21, /* SYS_ADMIN */
};

/* Without rights to write, names and attributes of no file can be changed. */
static void read_only(const char *what)
{
	int other = -1;
	unsigned n = tried(ofs_syscalls_refused(2), &other);

	ok(n > 10 && other == -1,
	    "%s: %u calls that change names and attributes are refused (not: "
	    "%d)",
	    what, n, other);
	n = tried(ofs_syscalls_refused(3), &other);
	ok(n > 0 && other == -1, "%s: no connection can be accepted", what);
	ok(keeps_only(READING), "%s: root keeps DAC_READ_SEARCH only", what);
}

static void *reader(void *arg)
{
	confined(arg);
	read_only(arg);
	is_int(opens(at("run/ck/a"), O_RDONLY), 0,
	    "directory: a file of the checkpoint can be read");
	is_int(opens(at("run/ck/sub/b"), O_RDONLY), 0,
	    "directory: a file of a subdirectory can be read");
	is_int(opens(at("run/ck"), O_RDONLY | O_DIRECTORY), 0,
	    "directory: the checkpoint can be listed");
	is_int(opens(at("run/ck/a"), O_RDWR), EACCES,
	    "directory: a file of the checkpoint cannot be written");
	is_int(opens(at("run/ck/new"), O_RDWR | O_CREAT), EACCES,
	    "directory: a file cannot be created in the checkpoint");
	is_int(opens(at("run/other"), O_RDONLY), EACCES,
	    "directory: a file beside the checkpoint cannot be read");
	is_int(opens("/proc/self/statm", O_RDONLY), 0,
	    "directory: /proc/self can be read");
	return NULL;
}

static void *file_reader(void *arg)
{
	confined(arg);
	is_int(opens(at("run/file"), O_RDONLY), 0,
	    "file: the file can be read");
	is_int(opens(at("run"), O_RDONLY | O_DIRECTORY), 0,
	    "file: its directory can be listed");
	is_int(opens(at("run/other"), O_RDONLY), EACCES,
	    "file: another file beside it cannot be read");
	is_int(opens(at("run/ck/a"), O_RDONLY), EACCES,
	    "file: a file in a subdirectory cannot be read");
	return NULL;
}

static void *index_reader(void *arg)
{
	confined(arg);
	is_int(opens(at("run/other"), O_RDONLY), 0,
	    "index: a file beside the index can be read");
	is_int(opens(at("run/other"), O_RDWR), EACCES,
	    "index: a file beside the index cannot be written");
	return NULL;
}

/* A commit finds out that another user is writing a file: the kernel refuses the
 * lease for that reason, and not because the file is not ours. */
static void sees_writer(void)
{
	const char *path = at("run/theirs");
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	int writer;

	is_int(result(fcntl(fd, F_SETLEASE, F_RDLCK)), 0,
	    "rw: a file of another user that nobody writes can be leased");
	is_int(result(fcntl(fd, F_SETLEASE, F_UNLCK)), 0,
	    "rw: the lease can be returned");
	writer = open(path, O_WRONLY | O_CLOEXEC);
	is_int(result(fcntl(fd, F_SETLEASE, F_RDLCK)), EAGAIN,
	    "rw: one that is being written is seen");
	close(writer);
	close(fd);
}

/* Makes the calls of a commit that changes several files. */
static void *writer(void *arg)
{
	int fd;

	confined(arg);
	is_int(mkdir(at("run/.ck.optimfs/gen"), 0755), 0,
	    "rw: a directory can be made in the stage");
	is_int(opens(at("run/.ck.optimfs/gen/a"), O_RDWR | O_CREAT), 0,
	    "rw: a file can be made in the stage");
	ok(renameat2(AT_FDCWD, at("run/.ck.optimfs/gen"), AT_FDCWD,
	       at("run/ck"), RENAME_EXCHANGE) == 0,
	    "rw: the stage can be exchanged with the checkpoint: %s",
	    strerror(errno));
	is_int(opens(at("run/ck/a"), O_RDWR | O_TRUNC), 0,
	    "rw: a file of the new checkpoint can be written");
	is_int(unlink(at("run/.ck.optimfs/gen/a")), 0,
	    "rw: a file of the old checkpoint can be removed");
	is_int(opens(at("upper/data"), O_RDWR | O_CREAT), 0,
	    "rw: a file can be made in upper=");
	ok(rename(at("upper/data"), at("run/ck/b")) == 0,
	    "rw: a file can be moved from upper= to the checkpoint");
	fd = open(at("run/ck/b"), O_RDWR | O_CLOEXEC);
	is_int(result(fchmod(fd, 0640)), 0,
	    "rw: the mode of a new file can be set");
	is_int(result(futimens(fd, NULL)), 0, "rw: its times can be set");
	close(fd);
	fd = open(at("secret"), O_PATH | O_CLOEXEC);
	is_int(result(fchmod(fd, 0640)), EBADF,
	    "rw: not of a file that is found, but cannot be opened");
	close(fd);
	ok(keeps_only(WRITING), "rw: root keeps what new files need");
	sees_writer();
	return NULL;
}

/* optimfs diff, which reads two checkpoints. */
static void *two_reader(void *arg)
{
	confined(arg);
	read_only(arg);
	is_int(opens(at("run/ck/a"), O_RDONLY), 0,
	    "two: a file of the first can be read");
	is_int(opens(at("run/file"), O_RDONLY), 0, "two: the second can");
	is_int(opens(at("run/other"), O_RDONLY), EACCES,
	    "two: another file beside them cannot");
	return NULL;
}

/* optimfs reshard. */
static void *maker(void *arg)
{
	confined(arg);
	is_int(mkdir(at("out/.new.optimfs"), 0755), 0,
	    "output: a directory can be made beside it");
	is_int(opens(at("out/.new.optimfs/a"), O_RDWR | O_CREAT), 0,
	    "output: a file in that");
	ok(rename(at("out/.new.optimfs"), at("out/new")) == 0,
	    "output: it gets its name");
	is_int(opens(at("run/ck/a"), O_RDWR), EACCES,
	    "output: the source cannot be written");
	is_int(opens(at("run/ck/new"), O_RDWR | O_CREAT), EACCES,
	    "output: no file can be made in the source");
	return NULL;
}

/* optimfs serve, which has its socket. */
static void *server(void *arg)
{
	confined(arg);
	is_int(result(accept4(-1, NULL, NULL, 0)), EBADF,
	    "serve: a connection can be accepted");
	is_int(result(socket(AF_INET, SOCK_STREAM, 0)), EPERM,
	    "serve: no other socket can be made");
	ok(keeps_only(READING), "serve: root keeps DAC_READ_SEARCH only");
	return NULL;
}

static void *with_passthrough(void *arg)
{
	confined(arg);
	ok(keeps_only(READING | PASSING),
	    "passthrough: root keeps SYS_ADMIN, too");
	return NULL;
}

struct entry {
	const struct ofs_sandbox *sandbox;
	void *(*run)(void *);
	const char *what;
};

static void *enter(void *arg)
{
	const struct entry *e = arg;
	struct optimfs_error err = { 0 };

	if (ofs_sandbox_enter(e->sandbox, &err) == -1)
		bail_out("%s", err.text);
	/* what is a string literal, used in descriptions only */
	return e->run((void *)(uintptr_t)e->what);
}

static void run(const char *what, const struct ofs_sandbox_config *config,
    void *(*thread)(void *))
{
	struct entry e = { .run = thread, .what = what };
	struct ofs_sandbox *s;
	struct optimfs_error err;
	pthread_t t;

	if (ofs_sandbox_new(config, &s, &err) != 0)
		bail_out("%s: %s", what, err.text);
	e.sandbox = s;
	starter = pthread_self();
	if (pthread_create(&t, NULL, enter, &e) != 0)
		bail_out("cannot start a thread");
	pthread_join(t, NULL);
	ofs_sandbox_free(s);
	is_int(opens("/etc/passwd", O_RDONLY), 0,
	    "%s: the starting thread is not restricted", what);
}

static void remove_files(void)
{
	char command[64];

	snprintf(command, sizeof(command), "rm -r %s", top);
	if (system(command) != 0)
		diag("%s could not be removed", top);
}

int main(void)
{
	struct ofs_sandbox_config config = { .memory = -1 };
	struct ofs_sandbox *s;
	struct optimfs_error err;

	make_files();
	config.source[0] = at("run/ck");
	if (ofs_sandbox_new(&config, &s, &err) != 0) {
		remove_files();
		skip_all("%s", err.text);
	}
	ofs_sandbox_free(s);
	make_sockets();
	run("directory", &config, reader);
	config.passthrough = true;
	run("passthrough", &config, with_passthrough);
	config.passthrough = false;
	config.accept = true;
	run("serve", &config, server);
	config.accept = false;
	config.source[0] = at("run/file");
	run("file", &config, file_reader);
	config.source[0] = at("run/file.index.json");
	run("index", &config, index_reader);
	config.source[0] = at("run/ck");
	config.source[1] = at("run/file");
	run("two", &config, two_reader);
	config.source[1] = NULL;
	config.output = at("out/new");
	run("output", &config, maker);
	config.output = NULL;
	config.upper = at("upper");
	config.write = true;
	run("rw", &config, writer);
	remove_files();
	return done_testing();
}
