/* sandbox.c - what a sandboxed thread can open, and what it cannot */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "fuse/sandbox.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tap.h"

/* Files below one directory:
 *
 *     secret  run/ck/a  run/ck/sub/b  run/other  run/file  upper/  tmp/ */
static char top[] = "/tmp/optimfs-sandbox.XXXXXX";

static const char *at(const char *name)
{
	static _Thread_local char path[4][256];
	static _Thread_local unsigned turn;
	char *p = path[turn++ % 4];

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
	    mkdir(at("upper"), 0755) == -1 || mkdir(at("tmp"), 0755) == -1)
		bail_out("%s: %s", top, strerror(errno));
	put("secret");
	put("run/ck/a");
	put("run/ck/sub/b");
	put("run/other");
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
	ok(execl("/bin/true", "true", NULL) == -1 && errno == EACCES,
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

static void tcp(void)
{
	struct sockaddr_in to = { .sin_family = AF_INET,
		.sin_port = htons(9),
		.sin_addr = { htonl(INADDR_LOOPBACK) } };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), code;

	if (fd == -1) {
		skip(1, "no TCP sockets here");
		return;
	}
	code =
	    connect(fd, (struct sockaddr *)&to, sizeof(to)) == -1 ? errno : 0;
	/* Kernels before 6.7 cannot restrict TCP. */
	ok(code == EACCES || code == ECONNREFUSED || code == ENETUNREACH,
	    "directory: a TCP connection is refused: %s", strerror(code));
	close(fd);
}

static void *reader(void *arg)
{
	confined(arg);
	tcp();
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
	ok(!keeps(21) && !keeps(19) && !keeps(17),
	    "directory: SYS_ADMIN, SYS_PTRACE and SYS_RAWIO are dropped");
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

/* Makes the calls of a commit that changes several files. */
static void *writer(void *arg)
{
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
	return NULL;
}

static void *with_passthrough(void *arg)
{
	confined(arg);
	ok(keeps(21) == (geteuid() == 0), "passthrough: root keeps SYS_ADMIN");
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

	if (ofs_sandbox_new(config, &s, &err) == -1)
		bail_out("%s: %s", what, err.text);
	e.sandbox = s;
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
	config.source = at("run/ck");
	if (ofs_sandbox_new(&config, &s, &err) == -1) {
		remove_files();
		skip_all("%s", err.text);
	}
	ofs_sandbox_free(s);
	run("directory", &config, reader);
	config.passthrough = true;
	run("passthrough", &config, with_passthrough);
	config.passthrough = false;
	config.source = at("run/file");
	run("file", &config, file_reader);
	config.source = at("run/file.index.json");
	run("index", &config, index_reader);
	config.source = at("run/ck");
	config.upper = at("upper");
	config.write = true;
	run("rw", &config, writer);
	remove_files();
	return done_testing();
}
