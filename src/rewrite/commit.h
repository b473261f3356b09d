/* commit.h - write the changes to a new generation of the checkpoint */
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

struct ofs_commit;
struct ofs_part;

/* A part of the checkpoint, and how its format lays out what a commit changes
 * (format/format.h); update may be NULL. */
struct ofs_commit_part {
	const struct ofs_part *part;
	int (*update)(struct ofs_commit *c, const struct ofs_part *part,
	    struct optimfs_error *err);
};

/* The input of a commit; all of it is borrowed. */
struct ofs_commit_job {
	const char *source; /* for messages */
	struct ofs_reader *reader;
	const struct ofs_tree *tree; /* to name entries in messages */
	const struct optimfs_options *options;
	struct ofs_overlay *overlay; /* NULL: only changes */
	const struct ofs_changes *changes;
	const struct ofs_commit_part *part;
	size_t nparts;
	struct ofs_publish *publish; /* ofs_publish_begin was called */
	int stage;                   /* the staging directory */
	bool many;                   /* several directories are published */
	/* Cancelled? Called regularly until the point of no return; true:
	 * ECANCELED. May be NULL. */
	bool (*stop)(void *ctx);
	void *stop_ctx;
	/* Are the index files unchanged? -1: err. */
	int (*same)(void *ctx, struct optimfs_error *err);
	/* Reads the checkpoint again, with the files in directory upper over
	 * its own and without the n files gone. NULL: err. */
	struct ofs_catalog *(*reread)(void *ctx, int upper,
	    const char *const *gone, size_t n, struct optimfs_error *err);
	void *ctx;
};

/* Writes a new generation of the checkpoint with all changes and publishes it
 * (docs/architecture.md, "A commit"). 0: done and durable; 1: published, but
 * possibly not durable (err, OFS803); -1: nothing has changed. All changes are
 * checked before anything is written; the first one that the format cannot hold
 * is reported (OFS826). The catalog describes the old generation, which may no
 * longer be on disk. */
int ofs_commit_run(const struct ofs_commit_job *job, struct optimfs_error *err);

/* The first steps: lays out all new files, and names those to remove; nothing is
 * written. job has to live as long as c. */
void ofs_commit_init(struct ofs_commit *c, const struct ofs_commit_job *job);
int ofs_commit_lay_out(struct ofs_commit *c, struct optimfs_error *err);
void ofs_commit_fini(struct ofs_commit *c);

/* ECANCELED if the commit was cancelled. */
int ofs_commit_go_on(const struct ofs_commit *c, struct optimfs_error *err);
/* Adds bytes to the progress. */
void ofs_commit_did(struct ofs_commit *c, uint64_t bytes);
/* Shows what it is doing: the name of a file, or a phrase. */
void ofs_commit_doing(const struct ofs_commit *c, const char *what);

#endif
