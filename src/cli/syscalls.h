/* syscalls.h - system calls that threads which parse can do without */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_CLI_SYSCALLS_H
#define OFS_CLI_SYSCALLS_H

#include <stdbool.h>

#include "optimfs/error.h"

/* The calling thread, and threads that it starts, get EPERM from calls that run
 * programs, make processes or sockets, mount, trace or signal other processes,
 * load code into the kernel or gain other rights; without write also from those
 * that make, rename or change attributes of files. no_new_privs must be set.
 * Cannot be undone. EOPNOTSUPP: not for this kernel or processor. */
int ofs_syscalls_limit(bool write, struct optimfs_error *err);

/* For tests: the numbers of the calls that are refused whatever their
 * arguments, ended by -1. */
const int *ofs_syscalls_refused(bool write);

#endif
