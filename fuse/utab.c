/* utab.c - what umount(8) has to know of a mount */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "fuse/utab.h"

#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mount_line.h"
#include "fuse/child.h"

extern char **environ;

/* Runs a program of util-linux, which locks and replaces the file. Its output
 * is discarded. */
static bool run_helper(const char *const *argv)
{
	posix_spawn_file_actions_t actions;
	int status = -1;
	pid_t pid;

	if (posix_spawn_file_actions_init(&actions) != 0)
		return false;
	if (posix_spawn_file_actions_addopen(&actions, STDERR_FILENO,
		"/dev/null", O_WRONLY, 0) == 0 &&
	    posix_spawnp(&pid, argv[0], &actions, NULL, (char *const *)argv,
		environ) == 0 &&
	    ofs_child_wait(pid, argv[0], &status, NULL) == -1)
		status = -1;
	posix_spawn_file_actions_destroy(&actions);
	return status == 0;
}

/* "SRC=/ckpt TARGET=/mnt/ck ROOT=/ OPTS=helper=fuse.optimfs" */
static bool is_line_of(char *line, const char *source, const char *point)
{
	bool at = false, from = source == NULL;
	char *save, *word = strtok_r(line, " \n", &save);

	for (; word != NULL; word = strtok_r(NULL, " \n", &save)) {
		ofs_mount_unescape(word);
		if (strncmp(word, "TARGET=", 7) == 0)
			at = strcmp(word + 7, point) == 0;
		else if (source != NULL && strncmp(word, "SRC=", 4) == 0)
			from = strcmp(word + 4, source) == 0;
	}
	return at && from;
}

bool ofs_utab_has(const char *source, const char *point)
{
	FILE *f = fopen("/run/mount/utab", "re");
	char *line = NULL;
	size_t cap = 0;
	bool found = false;

	if (f == NULL)
		return false;
	while (!found && getline(&line, &cap, f) != -1)
		found = is_line_of(line, source, point);
	free(line);
	fclose(f);
	return found;
}

void ofs_utab_add(const char *source, const char *point)
{
	/* -f: mounts nothing */
	const char *const argv[] = { "mount", "-i", "-f", "-c", "-t",
		"fuse.optimfs", "-o", "helper=fuse.optimfs", "--", source,
		point, NULL };

	/* fusermount3 leaves the line of a mount */
	if (geteuid() == 0 && access("/sbin/umount.fuse.optimfs", X_OK) == 0 &&
	    !ofs_utab_has(source, point))
		(void)run_helper(argv);
}

bool ofs_utab_unmount(const char *point, bool lazy)
{
	const char *const argv[] = { "umount", lazy ? "-icl" : "-ic", "--",
		point, NULL };

	return run_helper(argv);
}
