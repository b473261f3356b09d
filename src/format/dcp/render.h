/* render.h - a layout as a DCP checkpoint */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FORMAT_DCP_RENDER_H
#define OFS_FORMAT_DCP_RENDER_H

#include "base/buf.h"
#include "layout/archive.h"
#include "layout/render.h"

/* An entry in the form of DCP: a value, or a tensor cut along dim 0. */
struct ofs_dcp_leaf {
	uint32_t entry;
	uint32_t nkey;    /* components of its key, which begins its path */
	uint32_t nchunks; /* 0: it is a value */
	uint64_t rows;    /* of each chunk but the last; 0: not cut */
	/* item sizes of a full and of the last chunk; a value has last only */
	uint64_t full, last;
	/* place of a value's pickle in pickles; of a tensor, index + 1 of its
	 * scale, or 0 */
	uint64_t pickle, npickle;
	bool copied;    /* pickle is the whole item, copied */
	uint32_t tuple; /* number + 1 of the archive of a tuple, or 0 */
};

/* Views: items are archives of torch.save, or tensors are in safetensors
 * blobs. */
enum { OFS_DCP_ARCHIVES, OFS_DCP_BLOBS };

#define OFS_DCP_ALIKE 64u

struct ofs_dcp_files {
	struct ofs_files files;
	const struct ofs_catalog *cat;
	struct ofs_layout to;
	uint32_t nranks;
	bool source; /* keys are those of the source, not of the tree */
	bool groups; /* ofs_dcp_lists_groups */
	struct ofs_dcp_leaf *leaf;
	uint32_t nleaves;
	struct ofs_buf pickles;
	struct ofs_pkw_scale *scale; /* of quantized tensors */
	size_t nscales, scale_cap;
	struct ofs_torch_new *tuple;
	uint32_t ntuples, tuple_cap;
	/* leaf + 1 of recent tensors, by their shape and dimensions modulo
	 * size */
	uint32_t alike[OFS_DCP_ALIKE];
	uint32_t *most; /* largest number of chunks among NEAR leaves */
	/* If items are compressed: the length of each, once known, and the
	 * index of each leaf's first. Else NULL. */
	uint64_t *stored, *item;
};

/* render_walk.c: iterate over the items of a rank's file, in their order: values,
 * the header of a blob (without a leaf), and tensors, each in the order of leaves.
 * A walk over all ranks takes little more time than there are items, for any
 * number of ranks. */
enum ofs_dcp_kind { OFS_DCP_VALUES, OFS_DCP_HEADER, OFS_DCP_TENSORS };
struct ofs_dcp_walk {
	const struct ofs_dcp_files *f;
	uint32_t rank;
	uint32_t chunk, copy; /* of this rank, for leaves that are cut */
	uint64_t whole, cut;  /* next leaf of either kind */
	uint64_t end;         /* of the items so far, in the file */
	/* result: a leaf, and its chunk; offset of the item, or of the blob that
	 * has it */
	enum ofs_dcp_kind kind;
	uint32_t leaf, of_leaf;
	uint64_t off;
};

/* Called after leaves are laid out. */
int ofs_dcp_walk_init(struct ofs_dcp_files *f, struct optimfs_error *err);
/* Begin at a leaf, with values or tensors; the items before end at end. _next
 * returns false after the last. */
void ofs_dcp_walk_begin(struct ofs_dcp_walk *w, const struct ofs_dcp_files *f,
    uint32_t rank, enum ofs_dcp_kind kind, uint32_t leaf, uint64_t end);
bool ofs_dcp_walk_next(struct ofs_dcp_walk *w);

/* The size of the item of a chunk. */
uint64_t ofs_dcp_item_size(const struct ofs_dcp_leaf *l, uint32_t chunk);
/* Its stored size, which the index has; then offsets and sizes of its box. */
uint64_t ofs_dcp_stored_size(const struct ofs_dcp_files *f, uint32_t leaf,
    uint32_t chunk);
void ofs_dcp_chunk_box(const struct ofs_dcp_files *f, uint32_t leaf,
    uint32_t chunk, uint64_t *offsets, uint64_t *sizes);
static inline const struct ofs_tensor *ofs_dcp_leaf_tensor(const struct
    ofs_dcp_files *f,
    uint32_t leaf)
{
	return &f->cat->tensors[f->cat->entries[f->leaf[leaf].entry].ref];
}
/* The path of an entry. */
const uint32_t *ofs_dcp_entry_path(const struct ofs_dcp_files *f,
    uint32_t entry, uint32_t *n);
/* The components of the key of a leaf. */
const uint32_t *ofs_dcp_leaf_path(const struct ofs_dcp_files *f, uint32_t leaf,
    uint32_t *n);
/* The key of a leaf, joined by dots. */
void ofs_dcp_leaf_key(const struct ofs_dcp_files *f, uint32_t leaf,
    struct ofs_buf *out);

/* render_leaves.c: makes the leaves of n entries: sets entry, the first one of
 * each, and nkey. */
void ofs_dcp_leaves(struct ofs_dcp_files *f, const uint32_t *entry, uint32_t n);

/* render_value.c: leaves that are values. */
int ofs_dcp_value_lay(struct ofs_dcp_files *f, const struct ofs_render *from,
    uint32_t leaf, const struct ofs_entry *e, struct optimfs_error *err);
/* A tuple with tensors or dicts in it, or a list of such tuples, whose items are
 * n entries, is one value. */
int ofs_dcp_tuple_lay(struct ofs_dcp_files *f, const struct ofs_render *from,
    uint32_t leaf, const uint32_t *entries, uint32_t n,
    struct optimfs_error *err);
int ofs_dcp_value_make(const struct ofs_dcp_files *f,
    const struct ofs_dcp_leaf *l, uint64_t at, struct ofs_composition *c,
    struct optimfs_error *err);

/* render_index.c: .metadata, as in struct ofs_files_ops. */
int ofs_dcp_index_spans(const struct ofs_dcp_files *f, struct ofs_spans *out,
    struct optimfs_error *err);
int ofs_dcp_index_make(const struct ofs_dcp_files *f,
    const struct ofs_span *span, struct ofs_composition *c,
    struct optimfs_error *err);
/* Are paths those of the tree, where all parameter groups are numbers? To
 * PyTorch they are a list then. Called after leaves are made. */
bool ofs_dcp_lists_groups(const struct ofs_dcp_files *f);

/* render_blob.c, for dcp-st: the spans of a header, which comes between the
 * values and the tensors of a rank. */
int ofs_dcp_blob_spans(const struct ofs_dcp_files *f, uint32_t rank,
    struct ofs_spans *out, struct optimfs_error *err);
/* Is the span a part of a header? */
bool ofs_dcp_blob_is(const struct ofs_span *span);
int ofs_dcp_blob_make(const struct ofs_dcp_files *f, uint32_t rank,
    const struct ofs_span *span, struct ofs_composition *c,
    struct optimfs_error *err);
/* EOPNOTSUPP (OFS448) for a type that safetensors does not have. */
int ofs_dcp_blob_takes(enum ofs_dtype dtype, struct optimfs_error *err);

extern const struct ofs_files_ops ofs_dcp_render;

#endif
