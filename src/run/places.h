/* places.h - the directories in the root of a run */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_RUN_PLACES_H
#define OFS_RUN_PLACES_H

#include "run/run.h"

/* What a name in a place is: a tree; or a link, with the number of a member. */
struct ofs_run_found {
	uint32_t tree; /* trees.h; OFS_NONE: a link */
	uint32_t link;
};

/* Called for the names of a place; a result other than 0 ends the listing.
 * position: see optimfs_readdir. */
typedef int ofs_run_each_fn(void *ctx, const char *name,
    const struct ofs_run_found *found, uint64_t position);

/* A directory whose names are trees. Its line in the table ofs_run_places is all
 * that the root, readdir and RUN:NAME need to know of it. */
struct ofs_run_place {
	const char *name;
	/* 1; 0: no such name, which err says (ENOENT: OFS851, OFS853, OFS863);
	 * -1. */
	int (*find)(struct ofs_run_dir *run, const char *name,
	    struct ofs_run_found *found, struct optimfs_error *err);
	/* NULL: names are not listed, but can be looked up. */
	int (*list)(struct ofs_run_dir *run, uint64_t start,
	    ofs_run_each_fn *each, void *ctx, struct optimfs_error *err);
};

/* combined.c: checkpoints that are computed from others. */
extern const struct ofs_run_place ofs_run_avg, ofs_run_delta, ofs_run_ema,
    ofs_run_lerp;

/* Sorted by name. */
extern const struct ofs_run_place *const ofs_run_places[];
extern const uint32_t ofs_run_nplaces;

/* The place called name; NULL: none. */
const struct ofs_run_place *ofs_run_place(const char *name);

/* The target of link i, relative to the root of the run, malloc'ed. */
char *ofs_run_link(struct ofs_run_dir *run, uint32_t i,
    struct optimfs_error *err);
/* The member that latest (or first) is; OFS_NONE: none, or more than one, which
 * err says (OFS851). */
uint32_t ofs_run_end(struct ofs_run_dir *run, bool latest,
    struct optimfs_error *err);
/* The member with this step; OFS_NONE: as above. */
uint32_t ofs_run_at_step(struct ofs_run_dir *run, uint64_t step,
    struct optimfs_error *err);
/* The tree of member i; OFS_NONE: ENOMEM. */
uint32_t ofs_run_member_tree(struct ofs_run_dir *run, uint32_t i,
    struct optimfs_error *err);
/* The name in a place, or "latest", "first", a step, that words name, which may
 * have more words after it: *rest gets them. found->tree is set. 1; 0: words
 * begin with none of these; -1. */
int ofs_run_resolve_name(struct ofs_run_dir *run, const char *words,
    const char **rest, struct ofs_run_found *found, struct optimfs_error *err);
/* Fails: name is no name of a checkpoint (OFS851). */
int ofs_run_no_name(const struct ofs_run_dir *run, const char *name,
    struct optimfs_error *err);

#endif
