/* victim.h - writers whose system calls are made to fail */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VICTIM_H
#define VICTIM_H

#include <stdint.h>

/* The exit status of a victim that is not killed. */
enum {
	VICTIM_DONE = 0,
	VICTIM_FAILED = 1, /* it got an error: nothing was published */
	VICTIM_EARLY = 2,  /* it failed before the commit began */
	VICTIM_UNSYNCED = 6,
};

/* The name of the directory for new checkpoints. */
#define VICTIM_OUT "%s-out"

/* VERB CK [LAYOUT]. Writes marks to the trace and to FAULT_MARK_FD: "open" (the
 * lock is taken), "staged" (everything is durable but not published), "done"
 * (status 0 or 6).
 *
 *     edit     makes one change of each kind, and commits
 *     stage    makes the same changes, and dies
 *     recover  commits what another victim has staged
 *     reshard  writes CK to LAYOUT
 *     mkfs     makes a template like CK
 *     fill     copies CK into the template, and commits
 *     change   does the same with one value changed
 */
int victim_main(int argc, char **argv);

/* A hash of all paths of a checkpoint and the contents of its files; 0: it
 * cannot be opened. problems: the number that fsck --data finds. */
uint64_t victim_digest(const char *ck, uint64_t *problems);

#endif
