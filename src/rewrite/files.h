/* files.h - the new files of a commit, as compositions */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_REWRITE_FILES_H
#define OFS_REWRITE_FILES_H

#include <pthread.h>

#include "optimfs/error.h"

#include "archive/zip_sums.h"
#include "journal/publish.h"
#include "layout/render.h"
#include "plan/composition.h"
#include "plan/sums.h"

struct ofs_commit;
struct ofs_commit_task;

/* A new file. Its composition is filled before ofs_commit_write. Boxes are of
 * tensors of the catalog of added ones (ofs_commit_added). */
struct ofs_commit_file {
	struct ofs_composition comp;
	/* If there are any: the items that make up the file. They are written
	 * compressed; stored is called with the length of each, in any
	 * thread. */
	struct ofs_spans items;
	void (*stored)(void *ctx, uint64_t ref, uint64_t len);
	/* For an index that says how long compressed items are: fills comp when
	 * all other files are written. May be NULL. */
	int (*make)(void *ctx, struct ofs_composition *comp,
	    struct optimfs_error *err);
	void (*release)(void *ctx); /* NULL: ctx is borrowed */
	void *ctx;
	/* private */
	const struct ofs_commit *commit;
	char *rel, *like;
	char key[OFS_PUBLISH_KEY]; /* "": it is not kept */
	struct ofs_commit_summed *summed;
	size_t nsummed;
	struct ofs_sums sums;
	pthread_mutex_t lock; /* held while a sum is computed */
};

/* Adds the new file rel, which inherits from like (journal/publish.h); it is
 * valid until ofs_commit_write. NULL: failed. */
struct ofs_commit_file *ofs_commit_file(struct ofs_commit *c, const char *rel,
    const char *like, struct optimfs_error *err);
/* Removes a file, whose name is copied. */
int ofs_commit_remove(struct ofs_commit *c, const char *rel,
    struct optimfs_error *err);
/* Adds a file with all bytes of an object and what is staged over them. rel NULL:
 * it replaces the object; checksums of archives in it are computed again. */
int ofs_commit_whole(struct ofs_commit *c, uint32_t object, const char *rel,
    struct optimfs_error *err);
/* Appends bytes [off, off + n) of an extent, decoded, with new checksums at
 * those of sums that are among them. Their offsets are in the extent. */
int ofs_commit_stored(struct ofs_composition *comp, const struct ofs_extent *at,
    uint64_t off, uint64_t n, struct ofs_zip_sums *sums,
    struct optimfs_error *err);
/* Finds the checksums of an archive that is all of an extent, whose offsets are
 * in the extent. touched: bytes that change; NULL: those of edits. */
int ofs_commit_sums(const struct ofs_commit *c, const struct ofs_extent *at,
    const struct ofs_ranges *touched, struct ofs_zip_sums *sums,
    struct optimfs_error *err);
/* The number of a task's tensor, all of whose elements are known, in the catalog
 * of added ones, c->added; OFS_NONE: failed. EINVAL (OFS301): some elements were
 * not written. */
uint32_t ofs_commit_added(struct ofs_commit *c, const struct ofs_commit_task *t,
    struct optimfs_error *err);

/* The composition is complete: it can be read. */
int ofs_commit_file_seal(struct ofs_commit_file *f, struct optimfs_error *err);
/* Reads bytes of a new file, in any thread; as the read of struct
 * ofs_engine_ops. */
int ofs_commit_file_read(void *file, void *buf, uint64_t len, uint64_t off,
    struct optimfs_error *err);
void ofs_commit_files_fini(struct ofs_commit *c);

/* files_write.c */

/* Opens a file of the checkpoint. ESTALE (OFS805): it is not the one that was
 * mounted. */
int ofs_commit_open(const struct ofs_commit *c, uint32_t object, int *fd,
    struct optimfs_error *err);
/* Is it a file of another rank? */
bool ofs_commit_elsewhere(const struct ofs_commit *c, uint32_t object);

/* The bytes of all files that were added. */
uint64_t ofs_commit_size(const struct ofs_commit *c);
/* Writes all files that were added, and forgets them. */
int ofs_commit_write(struct ofs_commit *c, struct optimfs_error *err);

#endif
