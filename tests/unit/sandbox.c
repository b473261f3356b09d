/* sandbox.c - what a thread in the sandbox can open, and what it cannot */
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

/* All below one directory:
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

/* 0, or errno. */
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

/* What every thread in a sandbox for run/ck has in common. */
static void confined(const char *what)
{
	char line[256];
	FILE *f;
	bool set = false;
	pthread_t child;

	is_int(opens("/etc/passwd", O_RDONLY), EACCES, "%s: no /etc/passwd",
	    what);
	is_int(opens(at("secret"), O_RDONLY), EACCES, "%s: no other file",
	    what);
	is_int(opens(at("new"), O_RDWR | O_CREAT), EACCES,
	    "%s: none is made elsewhere", what);
	is_int(opens(at("tmp"), O_TMPFILE | O_RDWR), 0,
	    "%s: a file without a name is", what);
	ok(execl("/bin/true", "true", NULL) == -1 && errno == EACCES,
	    "%s: no program is run", what);
	ok(mount("none", at("tmp"), "tmpfs", 0, NULL) == -1 && errno == EPERM,
	    "%s: nothing is mounted", what);
	f = fopen("/proc/thread-self/status", "re");
	while (f != NULL && fgets(line, sizeof(line), f) != NULL)
		set |= strcmp(line, "NoNewPrivs:\t1\n") == 0;
	if (f != NULL)
		fclose(f);
	ok(set, "%s: no new privileges", what);
	ok(pthread_create(&child, NULL, no_run, NULL) == 0 &&
		pthread_join(child, NULL) == 0,
	    "%s: threads are started", what);
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
		skip(1, "no TCP here");
		return;
	}
	code =
	    connect(fd, (struct sockaddr *)&to, sizeof(to)) == -1 ? errno : 0;
	/* a kernel before 6.7 does not know of it */
	ok(code == EACCES || code == ECONNREFUSED || code == ENETUNREACH,
	    "a TCP connection is refused: %s", strerror(code));
	close(fd);
}

static void *reader(void *arg)
{
	confined(arg);
	tcp();
	is_int(opens(at("run/ck/a"), O_RDONLY), 0, "the checkpoint is read");
	is_int(opens(at("run/ck/sub/b"), O_RDONLY), 0, "and what is deeper");
	is_int(opens(at("run/ck"), O_RDONLY | O_DIRECTORY), 0, "and listed");
	is_int(opens(at("run/ck/a"), O_RDWR), EACCES, "not written");
	is_int(opens(at("run/ck/new"), O_RDWR | O_CREAT), EACCES,
	    "nor added to");
	is_int(opens(at("run/other"), O_RDONLY), EACCES, "nothing beside it");
	is_int(opens("/proc/self/statm", O_RDONLY), 0, "its own numbers");
	ok(!keeps(21) && !keeps(19) && !keeps(17),
	    "neither SYS_ADMIN, SYS_PTRACE nor SYS_RAWIO");
	return NULL;
}

static void *file_reader(void *arg)
{
	confined(arg);
	is_int(opens(at("run/file"), O_RDONLY), 0, "the file is read");
	is_int(opens(at("run"), O_RDONLY | O_DIRECTORY), 0,
	    "names beside it are listed");
	is_int(opens(at("run/other"), O_RDONLY), EACCES,
	    "files beside it are not read");
	is_int(opens(at("run/ck/a"), O_RDONLY), EACCES, "nor what is below");
	return NULL;
}

static void *index_reader(void *arg)
{
	confined(arg);
	is_int(opens(at("run/other"), O_RDONLY), 0,
	    "an index names files beside it");
	is_int(opens(at("run/other"), O_RDWR), EACCES, "to be read");
	return NULL;
}

/* As a commit that changes several files does. */
static void *writer(void *arg)
{
	confined(arg);
	is_int(mkdir(at("run/.ck.optimfs/gen"), 0755), 0, "a stage is made");
	is_int(opens(at("run/.ck.optimfs/gen/a"), O_RDWR | O_CREAT), 0,
	    "and filled");
	ok(renameat2(AT_FDCWD, at("run/.ck.optimfs/gen"), AT_FDCWD,
	       at("run/ck"), RENAME_EXCHANGE) == 0,
	    "and exchanged: %s", strerror(errno));
	is_int(opens(at("run/ck/a"), O_RDWR | O_TRUNC), 0,
	    "what is there now is read and written");
	is_int(unlink(at("run/.ck.optimfs/gen/a")), 0, "the old one goes");
	is_int(opens(at("upper/data"), O_RDWR | O_CREAT), 0,
	    "upper= is written");
	ok(rename(at("upper/data"), at("run/ck/b")) == 0, "and moved from");
	return NULL;
}

static void *with_passthrough(void *arg)
{
	confined(arg);
	ok(keeps(21) == (geteuid() == 0),
	    "who gives files to the kernel keeps SYS_ADMIN");
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
	/* a string of ours, for messages */
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
	    "%s: the thread that started it is free", what);
}

static void remove_files(void)
{
	char command[64];

	snprintf(command, sizeof(command), "rm -r %s", top);
	if (system(command) != 0)
		diag("%s is left", top);
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
