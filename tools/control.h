/* control.h - what a mounted checkpoint says of its changes, and is told */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_CONTROL_H
#define OFS_CONTROL_H

#include <stdbool.h>
#include <stdint.h>

#include "optimfs/error.h"

#include "cli/progress.h"
#include "fuse/mountinfo.h"

/* The checkpoint that is mounted at point; EINVAL: there is none. */
int ofs_control_find(const char *point, struct ofs_mountinfo *m,
    struct optimfs_error *err);

/* What .optimfs/control says. */
struct ofs_control {
	bool committing, dirty;
	bool explicit_commit, scratch; /* unmounting would not commit */
	bool unsynced;    /* the last commit was published, but not synced */
	char state[80];   /* "dirty 3 files 1.2G" */
	unsigned percent; /* of a commit under way, */
	uint64_t done, total; /* of bytes that it writes */
	char doing[80];
	char words[244]; /* why the last commit failed; or "" */
};
int ofs_control_read(const char *point, struct ofs_control *c,
    struct optimfs_error *err);
/* Give an order and wait until it has been carried out. 0; 1: what was
 * committed may not survive a crash of the machine; -1 with the daemon's words.
 * After an interrupt, which stops a commit as long as nothing has been
 * published, ECANCELED or what it came to. */
int ofs_control_write(const char *point, const char *order,
    struct optimfs_error *err);
/* The same for a commit, whose progress is shown. */
int ofs_control_commit(const char *point, struct ofs_progress *progress,
    struct optimfs_error *err);

#endif
