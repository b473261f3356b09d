/* control.h - the control file of a mounted checkpoint */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_CONTROL_H
#define OFS_CONTROL_H

#include <stdbool.h>
#include <stdint.h>

#include "optimfs/error.h"

#include "cli/progress.h"
#include "fuse/mountinfo.h"

/* The checkpoint mounted at point; EINVAL: none. */
int ofs_control_find(const char *point, struct ofs_mountinfo *m,
    struct optimfs_error *err);

/* The contents of .optimfs/control. Changes are "3 files, 1.28 GB". */
struct ofs_control {
	bool committing;
	bool explicit_commit, scratch; /* an unmount would not commit */
	bool unsynced;        /* the last commit was published but not synced */
	char dirty[80];       /* what is not committed, or "" */
	unsigned percent;     /* of a running commit */
	uint64_t done, total; /* bytes written by it */
	char doing[80];
	char words[244]; /* error of the last commit, or "" */
};
int ofs_control_read(const char *point, struct ofs_control *c,
    struct optimfs_error *err);
/* Sends a command and waits for its end. 0; 1: committed, but may not survive a
 * power failure; -1: failed, with the daemon's message. An interrupt stops a
 * commit while nothing is published: ECANCELED, or the result. */
int ofs_control_write(const char *point, const char *order,
    struct optimfs_error *err);
/* As above for a commit, with progress. */
int ofs_control_commit(const char *point, struct ofs_progress *progress,
    struct optimfs_error *err);

#endif
