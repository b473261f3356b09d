/* run.h - a directory of checkpoints as one tree */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_RUN_H
#define OFS_RUN_H

#include "optimfs/run.h"

#include "base/buf.h"
#include "fs/fs.h"
#include "run/members.h"
#include "run/trees.h"

/* A run is a struct optimfs whose calls on files and directories are those of
 * this component. Its own snapshot is that of an empty catalog: what does not
 * know of runs sees an empty, read-only checkpoint.
 *
 *     name in the root -> place (places.c) -> tree (trees.c) -> struct optimfs
 *
 * members.c knows which checkpoints there are; a place gives names to trees:
 * steps/ and by-name/ to those of the members, others to what is computed from
 * them; trees.c opens a tree when something in it is used. */

/* How the caller of this component opens one checkpoint: as optimfs_open. */
typedef struct optimfs *ofs_run_opener(const char *path,
    const struct optimfs_options *options, struct optimfs_error *err);

struct ofs_run_dir {
	struct optimfs *fs;
	char *path; /* absolute */
	ofs_run_opener *open;
	struct optimfs_options options; /* of its checkpoints */
	struct ofs_run_members members;
	struct ofs_run_trees trees;
};

/* run.c */
/* Opens path as a run, read-only. ENOENT (OFS852): it holds no checkpoints. */
struct optimfs *ofs_run_open(const char *path,
    const struct optimfs_options *options, ofs_run_opener *open,
    struct optimfs_error *err);
/* The path of a member, malloc'ed. */
char *ofs_run_member_path(const struct ofs_run_dir *run, const char *name,
    struct optimfs_error *err);

/* nodes.c: the calls on the nodes of a run. */
extern const struct ofs_node_ops ofs_nodes_of_run;

/* files.c: the generated files in .optimfs of a run. */
struct ofs_run_file {
	const char *name;
	void (*text)(struct ofs_run_dir *run, struct ofs_buf *out);
};
extern const struct ofs_run_file ofs_run_files[];
extern const uint32_t ofs_run_nfiles;

/* list.c */
/* What is known of the run without reading indexes, as JSON. */
int ofs_run_info(struct ofs_run_dir *run, struct ofs_buf *out,
    struct optimfs_error *err);
/* optimfs_summary: of the run, a table of its checkpoints, all of which are
 * opened; or of a path in one of them. */
char *ofs_run_summary(struct optimfs *fs, const char *path,
    enum optimfs_summary_form form, struct optimfs_error *err);

#endif
