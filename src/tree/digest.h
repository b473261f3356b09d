/* digest.h - a digest of what a tree shows */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_TREE_DIGEST_H
#define OFS_TREE_DIGEST_H

#include "tree/tree.h"

/* A hash of the content of each node of tree, computed without reading shards:
 * path; dtype, shape and places in files of a tensor; text of a value; stored
 * bytes of an item; errors. malloc'ed and the caller's; NULL with ENOMEM. */
uint64_t *ofs_tree_digests(const struct ofs_tree *tree,
    const struct ofs_catalog *cat, struct optimfs_error *err);
/* That of one node; false: ENOMEM. space is zero-initialised and used again from
 * node to node; the caller's to free. */
bool ofs_tree_digest(const struct ofs_tree *tree, const struct ofs_catalog *cat,
    uint32_t node, struct ofs_buf *space, uint64_t *hash);

#endif
