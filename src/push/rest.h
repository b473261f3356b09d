/* rest.h - write what files of a layout have besides tensors in their place */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_PUSH_REST_H
#define OFS_PUSH_REST_H

#include "engine/engine.h"
#include "fs/view.h"

/* A push writes the files of a view in two steps: mkfs writes all of them but the
 * elements of tensors, which remain holes, and the commit, when the elements have
 * been written in their place, writes all but those: values, 0-dim tensors, which
 * are texts in the tree, and checksums. Zero-initialise. */
struct ofs_rest {
	struct ofs_snapshot *snap;
	struct ofs_at view;
	int dir; /* where the files are */
	/* What has written the elements; NULL: there are none. */
	const struct ofs_overlay *filled;
	/* Called now and then with the number of bytes; name may be "". -1:
	 * stop. */
	int (*tick)(void *ctx, uint64_t done, uint64_t total, const char *name,
	    struct optimfs_error *err);
	void *ctx;

	struct ofs_engine engine; /* from here on private, but for its files */
	struct ofs_files *files;
};

/* Lays out the view; the members above are set. */
int ofs_rest_open(struct ofs_rest *r, struct optimfs_error *err);
void ofs_rest_close(struct ofs_rest *r);
void ofs_rest_name(const struct ofs_rest *r, uint32_t file,
    char name[OFS_FILE_NAME]);
/* Are the elements of all tensors where the view has them? Not if a value takes
 * more or fewer bytes than the one for which the files were made. 1; 0; -1:
 * failed. */
int ofs_rest_fits(struct ofs_rest *r, struct optimfs_error *err);
/* Writes the files, whose directories exist, and syncs all. */
int ofs_rest_write(struct ofs_rest *r, struct optimfs_error *err);

#endif
