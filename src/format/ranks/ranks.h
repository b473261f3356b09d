/* ranks.h - the files that the ranks of one job left, put together */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FORMAT_RANKS_H
#define OFS_FORMAT_RANKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "optimfs/error.h"
#include "optimfs/optimfs.h"

#include "archive/torch.h"
#include "base/buf.h"
#include "catalog/catalog.h"
#include "format/torch_file/file.h"
#include "format/torch_file/leaf.h"
#include "pickle/pickle.h"

/* A rank set is one file of each rank, all with the same name but for the
 * rank's number. Their leaves are collected first, then all that stand at one
 * path are merged into one entry. docs/formats/ranks.md has the rules. */

/* One file; they are in the order of ranks, no rank twice. */
struct ofs_ranks_file {
	const char *rel;
	int rank; /* -1: a file alone, of which nobody knows the rank */
	const struct ofs_pickle *doc;
	struct ofs_torch_archive at; /* its extent names the object */
	struct ofs_torch_leaves leaves;
	uint32_t nleaves;
	bool surplus; /* of a rank that the job did not have: left out */
	int said_world, said_rank; /* by what is sharded in it; 0, -1 */
	bool
	    said_part; /* said_world is of a part of the job, and may be less */
	struct ofs_torch_file source;
};

/* What one file has at one path. */
struct ofs_ranks_leaf {
	uint32_t path; /* of the catalog, the part's prefix included */
	uint32_t file; /* index of struct ofs_ranks_file */
	uint32_t node; /* of its doc */
};

/* All leaves with one path: leaf[first] .. leaf[first + n - 1], in the order of
 * files, each file at most once. */
struct ofs_ranks_group {
	uint32_t path;
	uint32_t first, n;
	bool taken;   /* somebody has added what it stands for */
	bool partial; /* some ranks lack it by intent */
};

struct ofs_ranks {
	struct ofs_catalog *cat;
	struct ofs_ranks_file *file;
	struct ofs_ranks_leaf *leaf;
	/* in the order in which the state dict of the first rank that has them
	 * lists them */
	struct ofs_ranks_group *group;
	uint32_t nfiles, nleaves, ngroups;
	uint32_t leaf_cap; /* that there is room for */
	/* Ranks of the job: what ShardedTensors and meshes say, or else the
	 * highest rank there is and one; 0 for a file alone that says
	 * nothing. */
	int world;
	int trained; /* 1: has a model or optimizer as such; -1: not; 0: unseen */
};

/* For whoever takes groups before the merge, and for the merge. */

/* Is the leaf, or node of its document, a strided tensor? As ofs_torch_tensor;
 * and where its bytes are: *at is its storage's extent, *t is held against it.
 */
int ofs_ranks_tensor(struct ofs_ranks *set, const struct ofs_ranks_leaf *leaf,
    uint32_t node, struct ofs_torch_tensor *t, struct ofs_extent *at,
    struct optimfs_error *err);
/* The checksum, as the archive has it, of the storage that t, which
 * ofs_ranks_tensor gave, is all of; 0: nobody knows. */
uint32_t ofs_ranks_checksum(struct ofs_ranks *set,
    const struct ofs_ranks_leaf *leaf, struct ofs_torch_tensor *t);
/* Add what t, which ofs_ranks_tensor gave, is in its storage as a shard; box is
 * offsets and sizes in the catalog's dims. t->offset may have been moved, and
 * shape and stride cut, before. The next tensor that is added must be the
 * shard's. */
int ofs_ranks_shard(struct ofs_ranks *set, const struct ofs_ranks_leaf *leaf,
    struct ofs_torch_tensor *t, const struct ofs_extent *at, uint32_t box,
    struct optimfs_error *err);
/* Add an entry at path whose opening fails with why, and below
 * .optimfs/rank/<r>/ what each rank has at the group's path. Sets taken. */
int ofs_ranks_apart(struct ofs_ranks *set, struct ofs_ranks_group *group,
    const struct optimfs_error *why, struct optimfs_error *err);

/* May each rank have something else at the group's path, as it is neither the
 * model's nor the optimizer's? Then an entry for each, "rankR" behind the path.
 * Sets taken. src/format/ranks/own.c */
bool ofs_ranks_is_own(struct ofs_ranks *set, const struct ofs_ranks_group *g);
int ofs_ranks_each(struct ofs_ranks *set, struct ofs_ranks_group *group,
    struct optimfs_error *err);

/* The stages of reading files of ranks. A set is begun with
 * room for n files, each opened (then there is one more of them), and what
 * stands below a node of its document collected. */
int ofs_ranks_begin(struct ofs_ranks *set, struct ofs_catalog *cat, size_t n,
    struct optimfs_error *err);
/* rel must outlive the set. After a failure that is neither ENOMEM nor E2BIG
 * the set may be used on without the file. */
int ofs_ranks_open(struct ofs_ranks *set, const char *rel, int rank, bool bare,
    struct optimfs_error *err);
int ofs_ranks_collect(struct ofs_ranks *set, uint32_t file, uint32_t node,
    const uint32_t *prefix, size_t npref, struct optimfs_error *err);
/* One leaf. */
int ofs_ranks_leaf(struct ofs_ranks *set, uint32_t path, uint32_t file,
    uint32_t node, struct optimfs_error *err);
/* Make groups of the leaves. */
int ofs_ranks_group(struct ofs_ranks *set, struct optimfs_error *err);
/* Hand what values need to the catalog; then free the rest. */
int ofs_ranks_end(struct ofs_ranks *set, struct optimfs_error *err);
void ofs_ranks_fini(struct ofs_ranks *set);

/* A value that is not in any file: the pickle in b, which is taken, as an
 * entry at path. */
int ofs_ranks_value(struct ofs_ranks *set, uint32_t path, struct ofs_buf *b,
    struct optimfs_error *err);

/* The stages of reading, each in a file of its own. */
/* world.c: which of the files belong together. The leaves of the others
 * go. */
int ofs_ranks_check(struct ofs_ranks *set, struct optimfs_error *err);
/* The n files that are left, in the order of their ranks; the caller's. NULL:
 * no memory. */
struct ofs_ranks_file **ofs_ranks_sorted(const struct ofs_ranks *set,
    uint32_t *n);
/* lost.c: note the ranks that have no file; after the merge, for where
 * tensors, which begin there in the catalog, are whole without them that is no
 * loss. */
int ofs_ranks_lost(struct ofs_ranks *set, uint32_t tensors,
    struct optimfs_error *err);
/* merge.c: an entry for each group that is not taken; for one. */
int ofs_ranks_merge(struct ofs_ranks *set, struct optimfs_error *err);
int ofs_ranks_merge_one(struct ofs_ranks *set, struct ofs_ranks_group *g,
    struct optimfs_error *err);
/* sharded.c: one for a group in which somebody has a ShardedTensor or a
 * DTensor. */
int ofs_ranks_join(struct ofs_ranks *set, const struct ofs_ranks_group *g,
    struct optimfs_error *err);

#endif
