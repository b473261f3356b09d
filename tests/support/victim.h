/* victim.h - what a writer does while tests/integration/faults.c lets its calls
 * fail */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VICTIM_H
#define VICTIM_H

#include <stdint.h>

/* How a victim ends, when it is not killed. */
enum {
	VICTIM_DONE = 0,
	VICTIM_FAILED = 1, /* told of a failure: nothing was published */
	VICTIM_EARLY = 2,  /* it did not come as far as that */
	VICTIM_UNSYNCED = 6,
};

/* The name of the directory that a checkpoint is written to anew. */
#define VICTIM_OUT "%s-out"

/* VERB CK [LAYOUT]. Marks in the trace, and in what FAULT_MARK_FD leads to:
 * "open" (the lock is taken), "staged" (all is safe but not published), "done"
 * (status 0 or 6).
 *
 *     edit     changes something of each kind, and commits
 *     stage    the same, and dies instead
 *     recover  commits what another has staged
 *     reshard  writes CK to LAYOUT
 *     mkfs     makes a template like CK
 *     fill     copies CK into it, and commits
 *     change   the same with another value in it
 */
int victim_main(int argc, char **argv);

/* All paths of a checkpoint and what its files say, as a number; 0: it cannot
 * be opened. problems: what fsck --data finds. */
uint64_t victim_digest(const char *ck, uint64_t *problems);

#endif
