/* leaf.h - leaves of a pickled object: tensors and values */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FORMAT_TORCH_FILE_LEAF_H
#define OFS_FORMAT_TORCH_FILE_LEAF_H

#include "archive/torch.h"

/* What the tensors of a storage have declared so far. */
struct ofs_torch_use {
	uint64_t bytes;
	uint8_t dtype; /* OFS_DTYPE_NONE: untyped */
	bool seen, conflict;
};

/* Adds leaves of a document to a catalog. */
struct ofs_torch_leaves {
	struct ofs_catalog *cat;
	const struct ofs_pickle *doc;
	const struct ofs_torch_archive *at; /* NULL: there are no storages */
	/* of each record or storage of at */
	struct ofs_torch_use *use;
	size_t nuse;
	/* the tensors that were added, with their records or storages */
	struct ofs_torch_placed {
		uint32_t tensor, storage;
	} * placed;
	size_t nplaced, cap;
	/* of each node of doc, so that a value with a million references is
	 * searched once */
	uint8_t *known; /* enum ofs_torch_known */
	bool quantized; /* a note on quantized tensors was made */
	bool values;    /* values were added: doc must outlive cat */
};

enum ofs_torch_known {
	OFS_TORCH_SEARCHED = 1, /* it was searched for tensors */
	OFS_TORCH_HIDES = 2,    /* it has some */
};

int ofs_torch_leaves_init(struct ofs_torch_leaves *l, struct ofs_catalog *cat,
    const struct ofs_pickle *doc, const struct ofs_torch_archive *at,
    struct optimfs_error *err);
void ofs_torch_leaves_fini(struct ofs_torch_leaves *l);
/* Add node, of any kind, at path. A fault of the node is an error of the leaf,
 * not a failure. */
int ofs_torch_leaf(struct ofs_torch_leaves *l, uint32_t node, uint32_t path,
    struct optimfs_error *err);
/* As above, without an entry: *kind and *ref are those of the entry. */
int ofs_torch_leaf_ref(struct ofs_torch_leaves *l, uint32_t node, uint8_t *kind,
    uint32_t *ref, struct optimfs_error *err);
/* Find the storage of t, a tensor of the document: *at is its extent, *number
 * that of its record or storage. EIO when it does not exist; errors of
 * ofs_torch_check. */
int ofs_torch_place(struct ofs_torch_leaves *l,
    const struct ofs_torch_tensor *t, struct ofs_extent *at, uint32_t *number,
    struct optimfs_error *err);
/* Record that tensor, an index of the catalog, uses the storage of t. */
int ofs_torch_use(struct ofs_torch_leaves *l, const struct ofs_torch_tensor *t,
    uint32_t number, uint32_t tensor, struct optimfs_error *err);
/* Find or add the struct ofs_view of t; *view is OFS_NONE when t is all of its
 * storage in C order. Completes t->fix. */
int ofs_torch_view(struct ofs_torch_leaves *l, struct ofs_torch_tensor *t,
    uint32_t *view, struct optimfs_error *err);
/* Add an item that fails with why when it is read. */
int ofs_torch_damaged(struct ofs_torch_leaves *l,
    const struct optimfs_error *why, uint32_t *ref, struct optimfs_error *err);
/* Call after the last leaf: tensors that disagree about a storage get an
 * error. */
int ofs_torch_leaves_end(struct ofs_torch_leaves *l, struct optimfs_error *err);

#endif
