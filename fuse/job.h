/* job.h - a mount by several ranks */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FUSE_JOB_H
#define OFS_FUSE_JOB_H

#include "fuse/opts.h"

/* ofs_mount on one of several ranks: those in m->mount_ranks mount, and all
 * serve each other until the last one unmounts. Prints errors; returns an exit
 * status. */
int ofs_mount_job(const char *source, const char *point,
    struct ofs_mount_options *m);

#endif
