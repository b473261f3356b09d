/* syscalls.h - system calls that threads which parse can do without */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_CLI_SYSCALLS_H
#define OFS_CLI_SYSCALLS_H

#include <stdbool.h>

#include "optimfs/error.h"

/* The calling thread, and threads that it starts, get EPERM from calls that run
 * programs, make processes or sockets, mount, trace or signal other processes,
 * load code into the kernel, gain other rights or change attributes of files that
 * are not open; without write also from those that make or rename files or change
 * attributes; without accept from those that accept connections. no_new_privs must
 * be set. Cannot be undone. EOPNOTSUPP: not for this kernel or processor. */
int ofs_syscalls_limit(bool write, bool accept, struct optimfs_error *err);

/* For tests: the lists of calls that are refused whatever their arguments, each
 * ended by -1: 0 and 1: always; 2: without write; 3: without accept. NULL: no such
 * list. */
const int *ofs_syscalls_refused(unsigned list);

#endif
