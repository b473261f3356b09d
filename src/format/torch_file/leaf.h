/* leaf.h - what ofs_torch_add is made of: tensors and values it found */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FORMAT_TORCH_FILE_LEAF_H
#define OFS_FORMAT_TORCH_FILE_LEAF_H

#include "archive/torch.h"

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
	/* the tensors added, and which record or storage each lies in */
	struct ofs_torch_placed {
		uint32_t tensor, storage;
	} * placed;
	size_t nplaced, cap;
	/* what is known of each node of doc, so that a value that is referred
	 * to a million times is looked into once */
	uint8_t *known; /* enum ofs_torch_known */
	bool quantized; /* said so */
	bool values;    /* some were added: doc must outlive cat */
};

enum ofs_torch_known {
	OFS_TORCH_SEARCHED = 1, /* it was seen whether it */
	OFS_TORCH_HIDES = 2,    /* has tensors inside */
};

int ofs_torch_leaves_init(struct ofs_torch_leaves *l, struct ofs_catalog *cat,
    const struct ofs_pickle *doc, const struct ofs_torch_archive *at,
    struct optimfs_error *err);
void ofs_torch_leaves_fini(struct ofs_torch_leaves *l);
/* Add node, whatever it is, at path. What is wrong with the node itself is
 * the leaf's error, not a failure. */
int ofs_torch_leaf(struct ofs_torch_leaves *l, uint32_t node, uint32_t path,
    struct optimfs_error *err);
/* The same without an entry: what it would refer to. */
int ofs_torch_leaf_ref(struct ofs_torch_leaves *l, uint32_t node, uint8_t *kind,
    uint32_t *ref, struct optimfs_error *err);
/* Where the storage of t, which is a tensor of l's document, is: *at is its
 * extent, and *number the record's or storage's. EIO when it is not there, and
 * whatever ofs_torch_check says. */
int ofs_torch_place(struct ofs_torch_leaves *l,
    const struct ofs_torch_tensor *t, struct ofs_extent *at, uint32_t *number,
    struct optimfs_error *err);
/* Remember that the tensor, an index of the catalog, has the storage of t. */
int ofs_torch_use(struct ofs_torch_leaves *l, const struct ofs_torch_tensor *t,
    uint32_t number, uint32_t tensor, struct optimfs_error *err);
/* Index of a struct ofs_view of t, or *view is OFS_NONE where t is its whole
 * storage in C order. t->fix is completed. */
int ofs_torch_view(struct ofs_torch_leaves *l, struct ofs_torch_tensor *t,
    uint32_t *view, struct optimfs_error *err);
/* An item at which reading fails with why. */
int ofs_torch_damaged(struct ofs_torch_leaves *l,
    const struct optimfs_error *why, uint32_t *ref, struct optimfs_error *err);
/* After the last one: tensors that disagree about a storage get an error. */
int ofs_torch_leaves_end(struct ofs_torch_leaves *l, struct optimfs_error *err);

#endif
