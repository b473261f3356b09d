/* faultrun.h - victims that meet a fault, and which faults there are */
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

/* What can happen at these calls, or some of it: one point of each
 * kind of call, as long as there are less than most, and the syncs that come
 * after the last rename. Freed by free(p->v). */
void faultrun_points(const struct fault_calls *calls, size_t most,
    struct fault_points *p);

struct faultrun {
	const char *scratch, *ck, *to;
	char trace[300]; /* what faultrun_trace has written */
};

/* Find the library, or skip all tests. */
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
/* Nothing happens, and r->trace tells the calls. */
struct outcome faultrun_trace(struct faultrun *r, const char *verb);
/* It stops before each call that changes something, while it has the lock;
 * look is called, and it goes on. */
struct outcome faultrun_still(struct faultrun *r, const char *verb,
    void (*look)(void *ctx), void *ctx);

/* Say with diag which point it was, and what the victim said. */
void faultrun_tell(const struct faultrun *r, const char *scene,
    const struct fault_point *p, const struct outcome *o);

#endif
