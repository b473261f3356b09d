/* guard.h - a process that unmounts when the daemon dies */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FUSE_GUARD_H
#define OFS_FUSE_GUARD_H

#include <sys/types.h>

#include "optimfs/error.h"

/* A launcher such as mpirun kills all processes of a job a second after one of
 * them has died, with a signal that cannot be caught. The mount would be left
 * with "Transport endpoint is not connected". This process does not belong to
 * the job and detaches the mount; if that fails for ten seconds, syslog(3) says
 * so, and it goes on. auto_unmount would not do: fusermount3 may not
 * be installed, and detaches nothing where / is not a mount point (a chroot). */
struct ofs_guard {
	pid_t pid;
	int fd; /* of a socket, whose end of file means that we died */
};

/* Starts it. Must precede MPI, which does not allow a fork. */
int ofs_guard_start(struct ofs_guard *g, struct optimfs_error *err);
/* Sets the mount point to detach, a path without symbolic links. */
void ofs_guard_watch(struct ofs_guard *g, const char *point);
/* Ends it after the mount was removed. */
void ofs_guard_end(struct ofs_guard *g);

#endif
