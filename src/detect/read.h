/* read.h - read a checkpoint into a catalog */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_DETECT_READ_H
#define OFS_DETECT_READ_H

#include <stddef.h>

#include "optimfs/error.h"
#include "optimfs/optimfs.h"

#include "catalog/catalog.h"
#include "format/part.h"

/* An open directory, and the file in it that the user named; "": none. With
 * join=, the directory above two paths, which are rel and other. */
struct ofs_checkpoint {
	struct ofs_dir dir;
	char *rel, *other;
	/* Called when its index was read, to add notes; NULL: none. */
	int (*look)(const void *ctx, struct ofs_catalog *cat,
	    struct optimfs_error *err);
	const void *ctx;
};

/* Opens the directory or file at path on this machine. */
int ofs_checkpoint_open(struct ofs_checkpoint *in, const char *path,
    const struct optimfs_options *opt, struct optimfs_error *err);
void ofs_checkpoint_close(struct ofs_checkpoint *in);

/* Finds its parts. */
int ofs_checkpoint_parts(struct ofs_checkpoint *in,
    const struct optimfs_options *opt, struct ofs_parts *parts,
    struct optimfs_error *err);
/* Detects the format, reads the index, names the leaves (naming/naming.h) and
 * finishes the catalog, which the caller owns. The files of the open directory
 * upper (-1: none) replace those of the checkpoint, and the n files gone are
 * ignored. */
struct ofs_catalog *ofs_checkpoint_read(struct ofs_checkpoint *in, int upper,
    const char *const *gone, size_t n, const struct optimfs_options *opt,
    struct optimfs_error *err);

#endif
