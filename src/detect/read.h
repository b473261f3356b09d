/* read.h - a checkpoint read into a catalog */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_DETECT_READ_H
#define OFS_DETECT_READ_H

#include <stddef.h>

#include "optimfs/error.h"
#include "optimfs/optimfs.h"

#include "catalog/catalog.h"
#include "format/part.h"

/* An opened directory, and the file in it that was named; "": none was. */
struct ofs_checkpoint {
	struct ofs_dir dir;
	char *rel;
};

/* Open what path names on this machine: a directory or a file. */
int ofs_checkpoint_open(struct ofs_checkpoint *in, const char *path,
    const struct optimfs_options *opt, struct optimfs_error *err);
void ofs_checkpoint_close(struct ofs_checkpoint *in);

/* What parts there are. */
int ofs_checkpoint_parts(struct ofs_checkpoint *in,
    const struct optimfs_options *opt, struct ofs_parts *parts,
    struct optimfs_error *err);
/* Detect, read, name the leaves (naming/naming.h) and finish. The catalog is
 * the caller's. It is that which there would be with the files of the directory
 * upper, which is open (-1: none), in their places, and without the n files
 * gone. */
struct ofs_catalog *ofs_checkpoint_read(struct ofs_checkpoint *in, int upper,
    const char *const *gone, size_t n, const struct optimfs_options *opt,
    struct optimfs_error *err);

#endif
