/* guard.h - a process that takes a mount away when its daemon dies */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FUSE_GUARD_H
#define OFS_FUSE_GUARD_H

#include <sys/types.h>

#include "optimfs/error.h"

/* A launcher like mpirun ends all processes of a job a second after one has
 * died, by a signal that cannot be caught. Then "Transport endpoint is not
 * connected" would be what is left of a mount; this process, which belongs to
 * no job, detaches it. */
struct ofs_guard {
	pid_t pid;
	int fd; /* of a pipe; its end tells that we have died */
};

/* Start it. Before MPI is, which does not bear a fork. */
int ofs_guard_start(struct ofs_guard *g, struct optimfs_error *err);
/* What is to be detached: the path of a mount point, without links. */
void ofs_guard_watch(struct ofs_guard *g, const char *point);
/* The mount is gone. */
void ofs_guard_end(struct ofs_guard *g);

#endif
