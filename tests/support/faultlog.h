/* faultlog.h - the calls that a victim made, and whether their order is safe */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FAULTLOG_H
#define FAULTLOG_H

#include <stddef.h>

/* A call, as tests/support/faultlib.c writes it down. */
struct fault_call {
	long at;
	char class;
	char name[24];
	/* What it is about: the last two components of a path, with # for
	 * numbers. */
	char object[80];
};

struct fault_calls {
	struct fault_call *v;
	size_t n, cap;
};

/* The calls of a trace. Freed by free(calls->v). */
void faultlog_read(const char *trace, struct fault_calls *calls);

/* Would what a trace says survive that the machine's power goes, at any moment?
 * An fsync makes the bytes of a file last, or the names in a directory; nothing
 * else does, and what was not synced may be there or not. These must hold:
 *
 *   - nothing is written to a file of the checkpoint
 *   - what gets a name in the checkpoint, or becomes it, is synced whole before
 *   - the name that publishes comes after all others are safe
 *   - what was superseded, and the journal, go after that name is safe
 *   - "staged" is said when all that is staged is safe, "done" when the new
 *     names are */
struct faultlog;
/* The directory that all of it happens in, as it is before. */
struct faultlog *faultlog_begin(const char *dir);
/* Says with diag what is wrong with the order, and returns how much. renames:
 * how many published something. Frees log. */
unsigned faultlog_end(struct faultlog *log, const char *trace,
    unsigned *renames);

#endif
