/* cgroup.h - how much memory the process may use */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_BASE_CGROUP_H
#define OFS_BASE_CGROUP_H

#include <stdint.h>

/* The smallest memory limit, in bytes, of the control groups of this process:
 * memory.max and memory.high (version 2) and memory.limit_in_bytes (version 1) of
 * its group and of all groups above it that are mounted. UINT64_MAX: none. root is
 * put before all paths: "", or a directory that a test has made. */
uint64_t ofs_cgroup_memory(const char *root);

#endif
