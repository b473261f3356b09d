/* child.h - waiting for a program that was started */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FUSE_CHILD_H
#define OFS_FUSE_CHILD_H

#include <sys/types.h>

#include "optimfs/error.h"

/* Waits for the end of a child process; *status is as of waitpid(2), and may be
 * NULL. ETIMEDOUT after half a minute: it goes on, or hangs, without us. name is
 * for messages. */
int ofs_child_wait(pid_t pid, const char *name, int *status,
    struct optimfs_error *err);

#endif
