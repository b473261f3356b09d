/* trees.h - the opened checkpoints of a run, and the numbers of their nodes */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_RUN_TREES_H
#define OFS_RUN_TREES_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "optimfs/optimfs.h"

#include "base/keys.h"

/* A tree of a run is what one checkpoint shows, or what is computed from some.
 * It is opened when somebody looks into it; of those that nobody uses, only the
 * last few stay open. Every open file and every call has a reference to the
 * struct optimfs that it uses, so that dropping one disturbs nobody.
 *
 * The nodes of a tree have numbers as in fs.h, a space and an index. In the run
 * each space of each tree has a number of its own, from 1 on, given when it is
 * first seen, and forever: 0 are the nodes of the run itself. A tree that is
 * opened again has the same nodes under the same numbers, if it shows the same
 * files; otherwise its version changes, and the old numbers are ESTALE. Views
 * are numbered anew in each opening, so they are known by their names. */

struct ofs_run_dir;

/* Who knows what a tree is: steps/, delta/, ... (places.h). */
struct ofs_run_source {
	/* Opens the tree of a name. */
	struct optimfs *(*open)(struct ofs_run_dir *run, const char *name,
	    struct optimfs_error *err);
	/* The path of the files of a name, malloc'ed; NULL: they are those of
	 * several checkpoints. */
	char *(*path)(const struct ofs_run_dir *run, const char *name,
	    struct optimfs_error *err);
	/* A number that changes when the files that it is made of do, from
	 * what the run knows of them. */
	uint64_t (*version)(struct ofs_run_dir *run, const char *name);
	/* Attributes of its root: mode, owner, time. Nothing is opened. */
	int (*attr)(struct ofs_run_dir *run, const char *name,
	    struct optimfs_attr *attr, struct optimfs_error *err);
};

struct ofs_run_trees {
	struct ofs_run_dir *run;
	pthread_mutex_t lock;
	pthread_cond_t opened;
	struct ofs_run_tree **v; /* by the numbers of names */
	uint32_t cap;
	struct ofs_keys names; /* of sources and names */
	struct ofs_keys spaces;
	struct ofs_run_space *space; /* by their numbers, less 1 */
	uint32_t space_cap;
	uint32_t nopen, limit;
	uint64_t clock;
};

void ofs_run_trees_init(struct ofs_run_trees *t, struct ofs_run_dir *run,
    uint32_t limit);
void ofs_run_trees_fini(struct ofs_run_trees *t);

/* The number of the tree that source has under name; OFS_NONE: ENOMEM. source
 * is borrowed. */
uint32_t ofs_run_tree(struct ofs_run_trees *t,
    const struct ofs_run_source *source, const char *name,
    struct optimfs_error *err);
/* A reference to the opened tree, for optimfs_close. The error of a tree that
 * cannot be opened is kept until its version changes. */
struct optimfs *ofs_run_tree_open(struct ofs_run_trees *t, uint32_t tree,
    struct optimfs_error *err);
/* Attributes of its root, with its node. Nothing is opened. */
int ofs_run_tree_attr(struct ofs_run_trees *t, uint32_t tree,
    struct optimfs_attr *attr, struct optimfs_error *err);
/* As path above. */
int ofs_run_tree_path(struct ofs_run_trees *t, uint32_t tree, char **path,
    struct optimfs_error *err);
uint32_t ofs_run_nopen(struct ofs_run_trees *t);

/* A node of a tree, with a reference to the tree. */
struct ofs_run_at {
	struct optimfs *fs;    /* NULL: the root of a tree; nothing is opened */
	uint32_t tree, space;  /* space: its number in the run */
	uint64_t node;         /* in fs */
	uint32_t epoch, opens; /* of the tree, for trees.c */
};
/* Finds a node by its number in the run, and opens its tree; not for its root,
 * unless whole is set. ENOENT: no such number; ESTALE. */
int ofs_run_enter(struct ofs_run_trees *t, uint64_t node, bool whole,
    struct ofs_run_at *at, struct optimfs_error *err);
void ofs_run_leave(struct ofs_run_at *at);
/* The number in the run of a node of the tree that was entered at at; name is
 * its name. 0: ENOMEM. */
uint64_t ofs_run_node(struct ofs_run_trees *t, const struct ofs_run_at *at,
    uint64_t node, const char *name, struct optimfs_error *err);
/* The inode number in the run: trees of one model have the same numbers. */
uint64_t ofs_run_ino(struct ofs_run_trees *t, uint32_t tree, uint64_t ino);

#endif
