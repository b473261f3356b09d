/* scratch.c - a directory for the files of one test */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "support/scratch.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tap.h"

char scratch[64];

void scratch_make(bool memory)
{
	const char *tmp = tap_tmpdir();

	if (memory && getenv("TMPDIR") == NULL &&
	    access("/dev/shm", W_OK) == 0)
		tmp = "/dev/shm";
	snprintf(scratch, sizeof(scratch), "%s/optimfs-test-XXXXXX", tmp);
	if (mkdtemp(scratch) == NULL)
		bail_out("%s: %s", scratch, strerror(errno));
}

void scratch_remove(void)
{
	scratch_run("rm -rf \"$PWD\"");
}

char *in_scratch(const char *rel)
{
	static char path[4][512];
	static unsigned i;

	i = (i + 1) % 4;
	snprintf(path[i], sizeof(path[i]), "%s/%s", scratch, rel);
	return path[i];
}

bool scratch_shell(const char *command)
{
	char line[2048];

	snprintf(line, sizeof(line), "cd '%s' && %s", scratch, command);
	return system(line) == 0;
}

void scratch_run(const char *command)
{
	if (!scratch_shell(command))
		bail_out("%s", command);
}

void scratch_put(const char *rel, const char *text)
{
	const char *path = in_scratch(rel);
	FILE *f = fopen(path, "w");

	if (f == NULL || fputs(text, f) == EOF || fclose(f) != 0)
		bail_out("%s: %s", path, strerror(errno));
}

bool scratch_has(const char *rel, const char *text)
{
	char buf[256] = "";
	FILE *f = fopen(in_scratch(rel), "r");

	if (f == NULL)
		return text == NULL;
	buf[fread(buf, 1, sizeof(buf) - 1, f)] = '\0';
	fclose(f);
	return text != NULL && strcmp(buf, text) == 0;
}
