/* terminal.c - does a person see what is written? */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "cli/terminal.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "optimfs/optimfs.h"

#define LEVELS 16 /* of scripts between mpirun and this process */

/* What the descriptor of a process is. False: that cannot be found out. */
static bool target(pid_t pid, int fd, char path[PATH_MAX])
{
	char link[64];
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/%d/fd/%d", (int)pid, fd);
	n = readlink(link, path, PATH_MAX - 1);
	path[n < 0 ? 0 : n] = '\0';
	return n > 0;
}

/* 0: unknown */
static pid_t parent_of(pid_t pid)
{
	char name[64], line[512] = "";
	const char *end;
	int parent = 0;
	FILE *f;

	snprintf(name, sizeof(name), "/proc/%d/stat", (int)pid);
	f = fopen(name, "re");
	if (f == NULL)
		return 0;
	if (fgets(line, sizeof(line), f) == NULL)
		line[0] = '\0';
	fclose(f);
	end = strrchr(line, ')'); /* of its name, which can have any bytes */
	if (end == NULL || sscanf(end, ") %*c %d", &parent) != 1)
		return 0;
	return parent;
}

static bool names_terminal(const char *path)
{
	return strncmp(path, "/dev/pts/", 9) == 0 ||
	    strncmp(path, "/dev/tty", 8) == 0 ||
	    strcmp(path, "/dev/console") == 0;
}

bool ofs_is_terminal(int fd)
{
	char own[PATH_MAX], other[PATH_MAX];
	pid_t pid = getppid();

	if (isatty(fd) != 1)
		return false;
	if (!optimfs_group_launched() || !target(getpid(), fd, own))
		return true;
	for (int i = 0; i < LEVELS && pid > 1; i++) {
		if (!target(pid, fd, other))
			return true;
		if (strcmp(own, other) != 0)
			return names_terminal(other);
		pid = parent_of(pid);
	}
	return true;
}
