/* torch_leaf.h - what ofs_torch_add is made of: tensors and values it found */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_TORCH_LEAF_H
#define OFS_TORCH_LEAF_H

#include "format/torch.h"

/* What tensors have said of one storage so far. */
struct ofs_torch_use {
	uint64_t bytes;
	uint8_t dtype; /* OFS_DTYPE_NONE: untyped */
	bool seen, conflict;
};

/* Adds leaves of one document to a catalog. */
struct ofs_torch_leaves {
	struct ofs_catalog *cat;
	const struct ofs_pickle *doc;
	const struct ofs_torch_archive *at; /* NULL: no storages */
	/* of each record or storage of at */
	struct ofs_torch_use *use;
	size_t nuse;
	/* of each tensor added, from first on: its storage, or OFS_NONE */
	uint32_t first, *storage;
	size_t nstorage, cap;
	/* what is known of each node of doc, so that a value that is referred
	 * to a million times is looked into once */
	uint8_t *known; /* enum ofs_torch_known */
	bool quantized; /* said so */
};

enum ofs_torch_known {
	OFS_TORCH_WALKED = 1,   /* it was seen whether it */
	OFS_TORCH_NESTS = 2,    /* becomes a directory */
	OFS_TORCH_SEARCHED = 4, /* it was seen whether it */
	OFS_TORCH_HIDES = 8,    /* has tensors inside */
};

int ofs_torch_leaves_init(struct ofs_torch_leaves *l, struct ofs_catalog *cat,
    const struct ofs_pickle *doc, const struct ofs_torch_archive *at,
    struct optimfs_error *err);
void ofs_torch_leaves_fini(struct ofs_torch_leaves *l);
/* Add node, whatever it is, at path. What is wrong with the node itself is
 * the leaf's error, not a failure. */
int ofs_torch_leaf(struct ofs_torch_leaves *l, uint32_t node, uint32_t path,
    struct optimfs_error *err);
/* After the last one: tensors that disagree about a storage get an error. */
int ofs_torch_leaves_end(struct ofs_torch_leaves *l, struct optimfs_error *err);

#endif
