/* faultlog.h - system calls of a victim, checked for a safe order */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FAULTLOG_H
#define FAULTLOG_H

#include <stddef.h>

/* A call, as tests/support/faultlib.c records it. */
struct fault_call {
	long at;
	char class;
	char name[24];
	/* The last two components of its path, with # for numbers. */
	char object[80];
};

struct fault_calls {
	struct fault_call *v;
	size_t n, cap;
};

/* The calls of a trace. Freed by free(calls->v). */
void faultlog_read(const char *trace, struct fault_calls *calls);

/* Would the calls of a trace survive a power failure at any moment? Only an
 * fsync makes the bytes of a file, or the names in a directory, durable; what
 * was not synced may be lost or not. These rules must hold:
 *
 *   - nothing is written to a file of the checkpoint
 *   - a file or directory is completely synced before it gets a name in the
 *     checkpoint, or becomes the checkpoint
 *   - the publishing rename comes after all other names are durable
 *   - old files and the journal are removed after that rename is durable
 *   - the mark "staged" comes when all staged data is durable, "done" when the
 *     new names are */
struct faultlog;
/* The directory in which all calls are made, before the first of them. */
struct faultlog *faultlog_begin(const char *dir);
/* Prints violations of the rules with diag, and returns their number. renames
 * gets the number of publishing renames. Frees log. */
unsigned faultlog_end(struct faultlog *log, const char *trace,
    unsigned *renames);

#endif
