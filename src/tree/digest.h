/* digest.h - what a tree shows, in few bytes */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_TREE_DIGEST_H
#define OFS_TREE_DIGEST_H

#include "tree/tree.h"

/* For each node of tree a hash of what it shows, made without reading a shard:
 * its path; of a tensor its dtype and shape, and which bytes of which files it
 * is; the text of a value; the bytes that an item is; what cannot be read.
 * Malloc'ed; NULL: ENOMEM. */
uint64_t *ofs_tree_digests(const struct ofs_tree *tree,
    const struct ofs_catalog *cat, struct optimfs_error *err);

#endif
