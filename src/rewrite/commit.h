/* commit.h - what a writer changed becomes the checkpoint */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_REWRITE_COMMIT_H
#define OFS_REWRITE_COMMIT_H

#include <stdbool.h>

#include "optimfs/error.h"
#include "optimfs/optimfs.h"

#include "journal/publish.h"
#include "overlay/overlay.h"
#include "read/reader.h"
#include "tree/tree.h"

struct ofs_part;
struct ofs_update_ops;

/* A part of the checkpoint, and what its format does: rewrite/update.h. ops
 * may be NULL. */
struct ofs_commit_part {
	const struct ofs_part *part;
	const struct ofs_update_ops *ops;
};

/* What a commit works on; all of it is borrowed. */
struct ofs_commit_job {
	const char *source; /* for messages */
	struct ofs_reader *reader;
	const struct ofs_tree *tree; /* to name entries in messages */
	const struct optimfs_options *options;
	struct ofs_overlay *overlay; /* NULL: there are changes alone */
	const struct ofs_changes *changes;
	const struct ofs_commit_part *part;
	size_t nparts;
	struct ofs_publish *publish; /* begun */
	int stage;                   /* the staging directory */
	bool many;                   /* several directories are published to */
	/* Is it no more wanted? Asked now and then until the point of no return
	 * (ECANCELED). NULL: it is. */
	bool (*stop)(void *ctx);
	void *stop_ctx;
	/* Are the files that the catalog was made of the same (-1: err)? */
	int (*same)(void *ctx, struct optimfs_error *err);
	/* The checkpoint with the files of the directory upper in their places,
	 * and without the n files gone; NULL: err. */
	struct ofs_catalog *(*reread)(void *ctx, int upper,
	    const char *const *gone, size_t n, struct optimfs_error *err);
	void *ctx;
};

/* Make a new generation of the checkpoint with all changes, and publish it
 * (docs/architecture.md, "A commit"). 0: done and safe; 1: published, but not
 * known to be safe (err, OFS803); -1: nothing has changed. Before anything is
 * written all changes are looked at, and the first that the format has no
 * place for is named (OFS826). The catalog is that of the old generation, which
 * may be gone from the disk. */
int ofs_commit_run(const struct ofs_commit_job *job, struct optimfs_error *err);

/* For what makes the new files of one. */
struct ofs_commit;
/* ECANCELED when whoever asked for the commit does not want it any more. */
int ofs_commit_go_on(const struct ofs_commit *c, struct optimfs_error *err);
/* So many bytes of the total are done. */
void ofs_commit_did(struct ofs_commit *c, uint64_t bytes);
/* ofs_publish_file for a commit, which says so. */
int ofs_commit_make(struct ofs_commit *c, const char *rel, const char *like,
    int *fd, struct optimfs_error *err);
/* ofs_copy_file for a commit: it is told, and can be stopped. */
int ofs_commit_copy(struct ofs_commit *c, int in, uint64_t size, int out,
    struct optimfs_error *err);

#endif
