/* render.h - a DCP checkpoint being laid out */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FORMAT_DCP_RENDER_H
#define OFS_FORMAT_DCP_RENDER_H

#include "base/buf.h"
#include "layout/render.h"

/* An entry as DCP stores it: a value, or a tensor cut along dim 0. */
struct ofs_dcp_leaf {
	uint32_t entry;
	uint32_t nchunks;         /* 0: a value */
	uint64_t rows;            /* of every chunk but the last; 0: not cut */
	uint64_t full, last;      /* sizes of their items; a value's is last */
	uint64_t pickle, npickle; /* of a value: in pickles */
	bool copied;              /* that is all of its item, not a pickle */
};

struct ofs_dcp_files {
	struct ofs_files files;
	const struct ofs_catalog *cat;
	struct ofs_layout to;
	uint32_t nranks;
	bool source; /* keys are the source's, not the tree's */
	struct ofs_dcp_leaf *leaf;
	uint32_t nleaves;
	struct ofs_buf pickles;
	uint32_t *most; /* chunks of one leaf, among those near it */
	/* Where items are compressed: the length of each, once it is known, and
	 * which is the first of a leaf. NULL otherwise. */
	uint64_t *stored, *item;
};

/* render_walk.c: what a rank stores, in the order of leaves. Walking all
 * ranks costs what they store and little more, however many there are. */
struct ofs_dcp_walk {
	const struct ofs_dcp_files *f;
	uint32_t chunk, copy;   /* of leaves that are cut */
	uint64_t whole, cut;    /* the next of either kind */
	uint32_t leaf, of_leaf; /* what was found, and which chunk of it */
};
/* What leaves to find. */
enum ofs_dcp_kind { OFS_DCP_VALUES, OFS_DCP_TENSORS };

/* Once leaves are laid out. */
int ofs_dcp_walk_init(struct ofs_dcp_files *f, struct optimfs_error *err);
/* From leaf on; false: there are no more. */
void ofs_dcp_walk_begin(struct ofs_dcp_walk *w, const struct ofs_dcp_files *f,
    uint32_t rank, uint32_t leaf);
bool ofs_dcp_walk_next(struct ofs_dcp_walk *w, enum ofs_dcp_kind kind);

/* Its item's size; its offsets and sizes. */
uint64_t ofs_dcp_item_size(const struct ofs_dcp_leaf *l, uint32_t chunk);
/* The same as the index has it. */
uint64_t ofs_dcp_stored_size(const struct ofs_dcp_files *f, uint32_t leaf,
    uint32_t chunk);
void ofs_dcp_chunk_box(const struct ofs_dcp_files *f, uint32_t leaf,
    uint32_t chunk, uint64_t *offsets, uint64_t *sizes);
/* The components of a leaf's key. */
const uint32_t *ofs_dcp_leaf_path(const struct ofs_dcp_files *f, uint32_t leaf,
    uint32_t *n);
/* The same, joined by dots. */
void ofs_dcp_leaf_key(const struct ofs_dcp_files *f, uint32_t leaf,
    struct ofs_buf *out);

/* render_index.c: .metadata, as the members of struct ofs_files_ops. */
int ofs_dcp_index_spans(const struct ofs_dcp_files *f, struct ofs_spans *out,
    struct optimfs_error *err);
int ofs_dcp_index_make(const struct ofs_dcp_files *f,
    const struct ofs_span *span, struct ofs_composition *c,
    struct optimfs_error *err);

/* render_blob.c, for dcp-st: the spans behind a rank's values, which are
 * those of a header and then of boxes, as those of other items are. */
int ofs_dcp_blob_spans(const struct ofs_dcp_files *f, uint32_t rank,
    struct ofs_spans *out, struct optimfs_error *err);
/* Is it a part of a header? */
bool ofs_dcp_blob_is(const struct ofs_span *span);
int ofs_dcp_blob_make(const struct ofs_dcp_files *f, uint32_t rank,
    const struct ofs_span *span, struct ofs_composition *c,
    struct optimfs_error *err);
/* EOPNOTSUPP (OFS448): a type that safetensors has not. */
int ofs_dcp_blob_takes(enum ofs_dtype dtype, struct optimfs_error *err);

int ofs_dcp_render(const struct ofs_render *from, const struct ofs_layout *to,
    struct ofs_files **out, struct optimfs_error *err);

#endif
