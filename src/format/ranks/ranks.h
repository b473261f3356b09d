/* ranks.h - the rank files of one job, joined */
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

/* A rank set has one file for each rank, with equal names except for the number
 * of the rank. Leaves of all files are collected first; then those with one
 * path are merged into one entry. docs/formats/ranks.md has the rules. */

/* A file. Files are sorted by rank, and no rank occurs twice. */
struct ofs_ranks_file {
	const char *rel;
	int rank; /* -1: a single file of unknown rank */
	const struct ofs_pickle *doc;
	struct ofs_torch_archive at; /* its extent has the object */
	struct ofs_torch_leaves leaves;
	uint32_t nleaves;
	bool surplus; /* of a rank beyond those of the job: not used */
	/* from sharded tensors in it; unknown: 0, -1 */
	int said_world, said_rank;
	bool
	    /* said_world is that of a part of the job, and may be too low */
	    said_part;
	struct ofs_torch_file source;
};

/* A leaf of one file. */
struct ofs_ranks_leaf {
	uint32_t path; /* in the catalog, with the prefix of the part */
	uint32_t file; /* index of struct ofs_ranks_file */
	uint32_t node; /* in its doc */
};

/* All leaves with one path: leaf[first] .. leaf[first + n - 1], sorted by file,
 * at most one of each file. */
struct ofs_ranks_group {
	uint32_t path;
	uint32_t first, n;
	bool taken;   /* its entry has been added */
	bool partial; /* some ranks lack it by intent */
};

struct ofs_ranks {
	struct ofs_catalog *cat;
	struct ofs_ranks_file *file;
	struct ofs_ranks_leaf *leaf;
	/* in the order of the state dict of the first rank that has them */
	struct ofs_ranks_group *group;
	uint32_t nfiles, nleaves, ngroups;
	uint32_t leaf_cap; /* capacity */
	/* the ranks of files that cannot be read; -1: unknown */
	int *damaged;
	uint32_t ndamaged, damaged_cap;
	size_t expected;          /* number of files */
	struct optimfs_error why; /* of the first one */
	/* The number of ranks: from ShardedTensors and meshes, else the highest
	 * rank plus one; 0 for a single file that does not have it. */
	int world;
	/* 1: there is a key for a model or an optimizer; -1: there is none; 0:
	 * not yet looked up */
	int trained;
	/* Plain tensors of the model are buffers, which each rank may have its
	 * own of: those of the first rank are the model's. */
	bool local_buffers;
};

/* Functions for code that takes groups before the merge, and for the merge. */

/* Is the leaf, or node of its document, a strided tensor? Returns the same as
 * ofs_torch_tensor; *at is the extent of its storage, against which *t was
 * checked. */
int ofs_ranks_tensor(struct ofs_ranks *set, const struct ofs_ranks_leaf *leaf,
    uint32_t node, struct ofs_torch_tensor *t, struct ofs_extent *at,
    struct optimfs_error *err);
/* The checksum in the archive of the storage of t, from ofs_ranks_tensor, if t
 * is all of it; 0: there is none. */
uint32_t ofs_ranks_checksum(struct ofs_ranks *set,
    const struct ofs_ranks_leaf *leaf, struct ofs_torch_tensor *t);
/* Add t, from ofs_ranks_tensor, as a shard; box is the offsets and sizes in the
 * dims of the catalog. t->offset, shape and stride may have been changed to
 * those of a part. The next tensor that is added must be the shard's. */
int ofs_ranks_shard(struct ofs_ranks *set, const struct ofs_ranks_leaf *leaf,
    struct ofs_torch_tensor *t, const struct ofs_extent *at, uint32_t box,
    struct optimfs_error *err);
/* Add an entry at path that fails with why when it is opened, and the version
 * of each rank below .optimfs/rank/<r>/. Sets taken. */
int ofs_ranks_apart(struct ofs_ranks *set, struct ofs_ranks_group *group,
    const struct optimfs_error *why, struct optimfs_error *err);
/* The latter, for the entry of this index. */
int ofs_ranks_variants(struct ofs_ranks *set, const struct ofs_ranks_group *g,
    uint32_t entry, struct optimfs_error *err);

/* src/format/ranks/own.c. May the value at the group's path differ between
 * ranks, because it belongs to neither model nor optimizer? _each adds an entry
 * for each rank, at the path and "rankR". Sets taken. */
bool ofs_ranks_is_own(struct ofs_ranks *set, const struct ofs_ranks_group *g);
int ofs_ranks_each(struct ofs_ranks *set, struct ofs_ranks_group *group,
    struct optimfs_error *err);

/* The stages of reading the files of ranks: _begin makes room for n files,
 * _open adds one, _collect collects the leaves below a node of its document. */
int ofs_ranks_begin(struct ofs_ranks *set, struct ofs_catalog *cat, size_t n,
    struct optimfs_error *err);
/* rel must outlive the set. After a failure for which _must_fail is false the set
 * can be used without the file. */
int ofs_ranks_open(struct ofs_ranks *set, const char *rel, int rank, bool bare,
    struct optimfs_error *err);
/* Is it out of memory, a limit that the user can raise, or an interrupt
 * (ENOMEM, E2BIG, ECANCELED), rather than a fault of the file? */
bool ofs_ranks_must_fail(const struct optimfs_error *why);
/* Like _open, but a file that cannot be read is noted and left out: 1. -1: only
 * errors for which _must_fail is true. */
int ofs_ranks_try(struct ofs_ranks *set, const char *rel, int rank, bool bare,
    struct optimfs_error *err);
int ofs_ranks_collect(struct ofs_ranks *set, uint32_t file, uint32_t node,
    const uint32_t *prefix, size_t npref, struct optimfs_error *err);
/* Add one leaf. */
int ofs_ranks_leaf(struct ofs_ranks *set, uint32_t path, uint32_t file,
    uint32_t node, struct optimfs_error *err);
/* Make groups of the leaves. */
int ofs_ranks_group(struct ofs_ranks *set, struct optimfs_error *err);
/* Pass the documents that values need to the catalog. _fini frees the rest. */
int ofs_ranks_end(struct ofs_ranks *set, struct optimfs_error *err);
void ofs_ranks_fini(struct ofs_ranks *set);

/* Add an entry at path for a value that is in no file: the pickle in b, whose
 * bytes are taken. */
int ofs_ranks_value(struct ofs_ranks *set, uint32_t path, struct ofs_buf *b,
    struct optimfs_error *err);

/* The stages of reading, each in its own file. */
/* world.c: find the files that belong together, and drop the leaves of the
 * others. */
int ofs_ranks_check(struct ofs_ranks *set, struct optimfs_error *err);
/* The n files in use, sorted by rank; malloc'ed and the caller's. NULL when
 * memory is exhausted. */
struct ofs_ranks_file **ofs_ranks_sorted(const struct ofs_ranks *set,
    uint32_t *n);
/* lost.c: note the ranks without a file. _lost, after the merge: unless all
 * tensors of the catalog from index tensors on are whole without them. */
int ofs_ranks_absent(struct ofs_ranks *set, struct optimfs_error *err);
int ofs_ranks_lost(struct ofs_ranks *set, uint32_t tensors,
    struct optimfs_error *err);
/* merge.c: the entries [first, end) are in the order of the first file, if that
 * says anything. */
void ofs_ranks_ordered(struct ofs_ranks *set, uint32_t first, uint32_t end);
/* Add an entry for each group that is not taken; for one group. */
int ofs_ranks_merge(struct ofs_ranks *set, struct optimfs_error *err);
int ofs_ranks_merge_one(struct ofs_ranks *set, struct ofs_ranks_group *g,
    struct optimfs_error *err);
/* sharded.c: add the entry of a group with ShardedTensors or DTensors. */
int ofs_ranks_join(struct ofs_ranks *set, const struct ofs_ranks_group *g,
    struct optimfs_error *err);

#endif
