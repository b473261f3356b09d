/* source.h - a checkpoint that is named by where it is mounted */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_SOURCE_H
#define OFS_SOURCE_H

#include "optimfs/optimfs.h"

#include "cli/options.h"

struct ofs_source {
	char *path;  /* of the checkpoint that is mounted */
	char *inner; /* what was named in the mount, "" for all of it */
	char staged[64]; /* written and not committed: "3 files 1.2G"; "" */
	/* How it was mounted: what the checkpoint is, where it does not say. */
	struct optimfs_options open;
	struct ofs_options options; /* has the strings */
};

/* given is a mount point of optimfs, or a path in such a mount: 1; any other
 * path: 0. A view is a checkpoint of its own, and no such path. -1: out of
 * memory. */
int ofs_source_find(const char *given, struct ofs_source *s);
void ofs_source_fini(struct ofs_source *s);
/* Where open says nothing, what the mount says. */
void ofs_source_apply(const struct ofs_source *s, struct optimfs_options *open);

#endif
