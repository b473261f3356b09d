/* source.h - checkpoints named by their mount point */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_SOURCE_H
#define OFS_SOURCE_H

#include "optimfs/optimfs.h"

#include "cli/options.h"

struct ofs_tool_source {
	char *path;      /* of the mounted checkpoint */
	char *inner;     /* path inside the mount, "" for the root */
	char staged[80]; /* uncommitted changes: "3 files, 1.28 GB", or "" */
	/* The mount options that describe the checkpoint. */
	struct optimfs_options open;
	struct ofs_options options; /* owns the strings */
};

/* Is given a mount point of optimfs, or a path in such a mount? 1: yes; 0: no,
 * or in a view, which is another checkpoint; -1: out of memory. */
int ofs_source_find(const char *given, struct ofs_tool_source *s);
void ofs_source_fini(struct ofs_tool_source *s);
/* Completes open with the options of the mount. */
void ofs_source_apply(const struct ofs_tool_source *s,
    struct optimfs_options *open);

#endif
