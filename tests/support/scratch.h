/* scratch.h - a directory for the files of one test */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SCRATCH_H
#define SCRATCH_H

#include <stdbool.h>

extern char scratch[64]; /* its path */

/* Makes it below $TMPDIR; memory: in memory if possible, for tests that sync
 * much. Here and below, a failure of the test's own files ends the test. */
void scratch_make(bool memory);
void scratch_remove(void);

/* The path of a file in it; valid until the fourth call after this one. */
char *in_scratch(const char *rel);
/* Runs a command in it. Does it succeed? */
bool scratch_shell(const char *command);
/* As above, for a command that has to succeed. */
void scratch_run(const char *command);

void scratch_put(const char *rel, const char *text);
/* Has the file this text, of less than 256 bytes? text NULL: is it missing? */
bool scratch_has(const char *rel, const char *text);

#endif
