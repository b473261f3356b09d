/* faultlib.h - shared declarations of faultlib.c and the test that loads it */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FAULTLIB_H
#define FAULTLIB_H

/* A write to this descriptor puts a mark into the trace; see faultlib.c. */
#define FAULT_MARK_FD 99
/* Marks between which a checkpoint is locked. */
#define FAULT_OPEN "open"
#define FAULT_DONE "done"

/* What happens at a call. */
enum fault {
	FAULT_NONE,
	FAULT_KILL,  /* the process dies before it */
	FAULT_TORN,  /* it writes half, and the process dies */
	FAULT_SHORT, /* it writes half, and returns that count */
	FAULT_ERROR, /* it fails */
	FAULT_FROM,  /* it fails, and so do all later calls of its kind */
	FAULT_STOP,  /* while it has the lock, the process stops before it, and
		      * before each later call that changes something */
	FAULT_INTERRUPT, /* the process gets SIGINT, and the call is made */
	FAULT_WAIT,      /* it waits until the file FAULT_GATE exists */
};

#endif
