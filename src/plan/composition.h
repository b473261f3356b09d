/* composition.h - a file as literal bytes, boxes of tensors and stored bytes */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_PLAN_COMPOSITION_H
#define OFS_PLAN_COMPOSITION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "catalog/catalog.h"
#include "plan/plan.h"

/* A virtual file is a sequence of pieces. */
struct ofs_piece {
	enum ofs_piece_kind {
		OFS_PIECE_BYTES, /* literal bytes */
		OFS_PIECE_BOX, /* a box of a tensor, its elements in C order */
		/* four bytes: the CRC-32 of other bytes of the file */
		OFS_PIECE_CRC,
		/* bytes of a stored file, with what is staged over them */
		OFS_PIECE_STORED,
	} kind;
	uint64_t off, len; /* in the file */
	union {
		const uint8_t *bytes;
		struct {
			uint32_t tensor;
			uint8_t dtype; /* of the elements in the file */
			/* grid_ndim offsets, then grid_ndim sizes, in the grid
			 * of the tensor; NULL for the whole tensor */
			const uint64_t *box;
			uint64_t first; /* index of an element in the box */
		};
		struct {
			uint64_t from, n;
		} crc;
		struct {
			/* with a codec: of its decoded bytes */
			const struct ofs_extent *at;
			uint64_t from; /* offset in the extent */
		} stored;
	};
};

/* Built by appending, then const. Bytes, box coordinates and extents are copied
 * into the arena. */
struct ofs_composition {
	struct ofs_arena arena;
	struct ofs_piece *piece;
	size_t n, cap;
	uint64_t size;
	/* Convert floating elements of boxes that are added to this type
	 * (plan/cast.h); OFS_DTYPE_NONE, the default: do not convert. */
	enum ofs_dtype cast;
	bool casts; /* some box is converted */
};

void ofs_composition_fini(struct ofs_composition *c);
int ofs_composition_bytes(struct ofs_composition *c, const void *p, uint64_t n,
    struct optimfs_error *err);
/* The bytes of b. */
int ofs_composition_buf(struct ofs_composition *c, const struct ofs_buf *b,
    struct optimfs_error *err);
/* A CRC-32, little-endian: that of n bytes from offset from of the file. A plan
 * leaves zeros for it; the caller, who reads those bytes, fills it in. */
int ofs_composition_crc(struct ofs_composition *c, uint64_t from, uint64_t n,
    struct optimfs_error *err);
/* The bytes of b, with such a CRC-32 in place of the 4 bytes at at. */
int ofs_composition_buf_crc(struct ofs_composition *c, const struct ofs_buf *b,
    uint64_t at, uint64_t from, uint64_t n, struct optimfs_error *err);
int ofs_composition_box(struct ofs_composition *c,
    const struct ofs_catalog *cat, uint32_t tensor, const uint64_t *box,
    struct optimfs_error *err);
/* Append a whole tensor, converted to a type to which ofs_cast can convert its
 * own. The file must fit in off_t. */
int ofs_composition_box_as(struct ofs_composition *c,
    const struct ofs_catalog *cat, uint32_t tensor, enum ofs_dtype dtype,
    struct optimfs_error *err);
/* Append count elements of the whole tensor from first on, in C order; they
 * must be inside it. */
int ofs_composition_elements(struct ofs_composition *c,
    const struct ofs_catalog *cat, uint32_t tensor, uint64_t first,
    uint64_t count, struct optimfs_error *err);

/* Append bytes [from, from + n) of an extent, decoded; they must be inside it. */
int ofs_composition_stored(struct ofs_composition *c,
    const struct ofs_extent *at, uint64_t from, uint64_t n,
    struct optimfs_error *err);

/* Plan bytes [off, off + len) of the file, which must be inside it: literal
 * bytes are copied to buf, the others become segments of plan, with dst
 * relative to buf. The range must begin and end at elements
 * (ofs_composition_align widens it so) and must have no box that is
 * converted. What is staged over stored bytes is left to the caller
 * (read/patch.h). On failure plan is unchanged. */
int ofs_composition_plan(const struct ofs_composition *c,
    const struct ofs_catalog *cat, uint64_t off, uint64_t len, void *buf,
    ofs_place_fn *place, void *ctx, struct ofs_plan *plan,
    struct optimfs_error *err);
/* The index of the piece at off. */
size_t ofs_composition_find(const struct ofs_composition *c, uint64_t off);
/* Widen [*off, *off + *len) to whole elements. */
void ofs_composition_align(const struct ofs_composition *c, uint64_t *off,
    uint64_t *len);

#endif
