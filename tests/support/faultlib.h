/* faultlib.h - what a program and the library that makes it fail share */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FAULTLIB_H
#define FAULTLIB_H

/* What is written there marks the trace; see faultlib.c. */
#define FAULT_MARK_FD 99
/* Marks between which a checkpoint is locked. */
#define FAULT_OPEN "open"
#define FAULT_DONE "done"

/* What happens at a call. */
enum fault {
	FAULT_NONE,
	FAULT_KILL,  /* the process dies before it */
	FAULT_TORN,  /* it writes half, and the process dies */
	FAULT_SHORT, /* it writes half, and says so */
	FAULT_ERROR, /* it fails */
	FAULT_FROM,  /* it fails, and so do all like it from then on */
	FAULT_STOP,  /* the process stops before it, and before each one after
		      * it that changes something, while it has the lock */
	FAULT_INTERRUPT, /* the process gets SIGINT, and the call is made */
	FAULT_WAIT,      /* it waits until the file FAULT_GATE is there */
};

#endif
