/* faultrun.h - victims run with faults, and the list of possible faults */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FAULTRUN_H
#define FAULTRUN_H

#include <stdbool.h>
#include <stddef.h>

#include "support/faultlib.h"
#include "support/faultlog.h"

struct fault_point {
	long at; /* the call's number */
	enum fault how;
	int code; /* errno */
	const struct fault_call *call;
};

struct fault_points {
	struct fault_point *v;
	size_t n, cap;
};

/* The faults that are possible at these calls, or a selection of at most most:
 * one for each kind of call, and the syncs after the last rename. Freed by
 * free(p->v). */
void faultrun_points(const struct fault_calls *calls, size_t most,
    struct fault_points *p);

struct faultrun {
	const char *scratch, *ck, *to;
	char trace[300]; /* written by faultrun_trace */
};

/* Finds the preloaded library, or skips all tests. */
void faultrun_find(void);
/* scratch: a directory for files of our own. The strings are borrowed. */
void faultrun_init(struct faultrun *r, const char *scratch, const char *ck,
    const char *to);

struct outcome {
	int status;         /* exit status; -1: killed; 128 and more: crashed */
	bool staged, done;  /* the marks (victim.h) */
	bool said_unsynced; /* OFS803 */
};

struct outcome faultrun_go(struct faultrun *r, const char *verb,
    struct fault_point p);
/* Runs without a fault; r->trace gets the calls. */
struct outcome faultrun_trace(struct faultrun *r, const char *verb);
/* While the victim has the lock, it stops before each call that changes
 * something; then look is called, and the victim continues. */
struct outcome faultrun_still(struct faultrun *r, const char *verb,
    void (*look)(void *ctx), void *ctx);

/* Prints with diag which fault it was, and the output of the victim. */
void faultrun_tell(const struct faultrun *r, const char *scene,
    const struct fault_point *p, const struct outcome *o);

#endif
