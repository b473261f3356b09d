/* utab.c - what umount(8) has to know of a mount */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "fuse/utab.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fuse/mountinfo.h"

extern char **environ;

/* Runs a program of util-linux, which locks and replaces the file; what it says
 * is not shown. */
static bool run(const char *const *argv)
{
	posix_spawn_file_actions_t actions;
	int status = -1;
	pid_t pid;

	if (posix_spawn_file_actions_init(&actions) != 0)
		return false;
	if (posix_spawn_file_actions_addopen(&actions, STDERR_FILENO,
		"/dev/null", O_WRONLY, 0) == 0 &&
	    posix_spawnp(&pid, argv[0], &actions, NULL, (char *const *)argv,
		environ) == 0)
		while (waitpid(pid, &status, 0) == -1 && errno == EINTR)
			continue;
	posix_spawn_file_actions_destroy(&actions);
	return status == 0;
}

void ofs_utab_add(const char *source, const char *point)
{
	/* -f: mounts nothing */
	const char *const argv[] = { "mount", "-i", "-f", "-c", "-t",
		"fuse.optimfs", "-o", "helper=fuse.optimfs", "--", source,
		point, NULL };

	if (geteuid() == 0)
		(void)run(argv);
}

/* "SRC=/ckpt TARGET=/mnt/ck ROOT=/ OPTS=helper=fuse.optimfs" */
static bool is_line_of(char *line, const char *point)
{
	static const char key[] = "TARGET=";
	char *save, *word = strtok_r(line, " \n", &save);

	while (word != NULL && strncmp(word, key, strlen(key)) != 0)
		word = strtok_r(NULL, " \n", &save);
	if (word == NULL)
		return false;
	ofs_mountinfo_unescape(word);
	return strcmp(word + strlen(key), point) == 0;
}

bool ofs_utab_has(const char *point)
{
	FILE *f = fopen("/run/mount/utab", "re");
	char *line = NULL;
	size_t cap = 0;
	bool found = false;

	if (f == NULL)
		return false;
	while (!found && getline(&line, &cap, f) != -1)
		found = is_line_of(line, point);
	free(line);
	fclose(f);
	return found;
}

bool ofs_utab_unmount(const char *point, bool lazy)
{
	const char *const argv[] = { "umount", lazy ? "-icl" : "-ic", "--",
		point, NULL };

	return run(argv);
}
