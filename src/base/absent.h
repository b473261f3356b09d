/* absent.h - a path that a user gave and that does not exist */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_BASE_ABSENT_H
#define OFS_BASE_ABSENT_H

#include "optimfs/error.h"

/* Fails with OFS019 (ENOENT), and what to do: path is an address, is on another
 * machine, or a directory of it does not exist. */
int ofs_fail_absent(const char *path, struct optimfs_error *err);

#endif
