/* no_fuse.c - mounting verbs of a program built without FUSE */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tap.h"
#include "tools/verbs.h"

/* Runs a verb, with its standard error in said; returns its exit status. */
static int run(const struct ofs_verb *verb, char *said, size_t size)
{
	char *argv[] = { (char *)verb->name, (char *)"ck", (char *)"mnt",
		NULL };
	FILE *f = tmpfile();
	int was = dup(STDERR_FILENO), status;
	size_t n;

	if (f == NULL || was == -1 || dup2(fileno(f), STDERR_FILENO) == -1)
		bail_out("no temporary file");
	status = verb->run(verb, 3, argv);
	fflush(stderr);
	dup2(was, STDERR_FILENO);
	close(was);
	rewind(f);
	n = fread(said, 1, size - 1, f);
	said[n] = '\0';
	fclose(f);
	return status;
}

int main(void)
{
	static const struct ofs_verb *const verbs[] = { &ofs_verb_mount,
		&ofs_verb_umount, &ofs_verb_commit, &ofs_verb_abort };
	char said[600];

	for (size_t i = 0; i < 4; i++) {
		is_int(run(verbs[i], said, sizeof(said)), OFS_EXIT_UNSUPPORTED,
		    "%s fails as unsupported", verbs[i]->name);
		ok(strstr(said, verbs[i]->name) != NULL &&
			strstr(said, "built without FUSE") != NULL,
		    "the message names the verb and the missing FUSE: %s",
		    said);
	}
	return done_testing();
}
