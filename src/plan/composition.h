/* composition.h - a virtual file as literal bytes and boxes of tensors */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_PLAN_COMPOSITION_H
#define OFS_PLAN_COMPOSITION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "catalog/catalog.h"
#include "plan/plan.h"

/* What every virtual file is: pieces laid end to end. */
struct ofs_piece {
	enum ofs_piece_kind {
		OFS_PIECE_BYTES, /* literal */
		OFS_PIECE_BOX, /* a box of a tensor, its elements in C order */
		OFS_PIECE_CRC, /* four bytes: CRC-32 of other bytes of the file */
	} kind;
	uint64_t off, len; /* in the file */
	union {
		const uint8_t *bytes;
		struct {
			uint32_t tensor;
			uint8_t dtype; /* of its elements in the file */
			/* offsets then sizes in the tensor's grid, 2 *
			 * grid_ndim numbers; NULL for the whole tensor */
			const uint64_t *box;
			uint64_t first; /* element of the box */
		};
		struct {
			uint64_t from, n;
		} crc;
	};
};

/* Built by appending, then const. Bytes and boxes are copied into the arena. */
struct ofs_composition {
	struct ofs_arena arena;
	struct ofs_piece *piece;
	size_t n, cap;
	uint64_t size;
	/* Boxes that are added have their floating elements in this type
	 * (plan/cast.h); OFS_DTYPE_NONE, the default: as they are stored. */
	enum ofs_dtype cast;
	bool casts; /* some are in another type */
};

void ofs_composition_init(struct ofs_composition *c);
void ofs_composition_fini(struct ofs_composition *c);
int ofs_composition_bytes(struct ofs_composition *c, const void *p, uint64_t n,
    struct optimfs_error *err);
int ofs_composition_box(struct ofs_composition *c,
    const struct ofs_catalog *cat, uint32_t tensor, const uint64_t *box,
    struct optimfs_error *err);
/* All of a tensor in another type that ofs_cast makes of its own; the file must
 * not become longer than a file may be. */
int ofs_composition_box_as(struct ofs_composition *c,
    const struct ofs_catalog *cat, uint32_t tensor, enum ofs_dtype dtype,
    struct optimfs_error *err);
/* count elements of the whole tensor from first on, in C order; inside it. */
int ofs_composition_elements(struct ofs_composition *c,
    const struct ofs_catalog *cat, uint32_t tensor, uint64_t first,
    uint64_t count, struct optimfs_error *err);

/* The CRC-32, little-endian, of n bytes that begin at from in the file, which
 * is whoever opened it who knows them: a plan leaves zeros there. */
int ofs_composition_crc(struct ofs_composition *c, uint64_t from, uint64_t n,
    struct optimfs_error *err);

/* Bytes [off, off + len) of the file, which must lie inside it, into buf:
 * literal bytes are copied, the rest becomes segments of plan, whose dst
 * counts from buf. Elements that the range cuts are the caller's business:
 * the range must begin and end at element bounds of the boxes it touches
 * (ofs_composition_align gives the nearest such range),
 * and no box whose elements are stored in another type. */
int ofs_composition_plan(const struct ofs_composition *c,
    const struct ofs_catalog *cat, uint64_t off, uint64_t len, void *buf,
    ofs_place_fn *place, void *ctx, struct ofs_plan *plan,
    struct optimfs_error *err);
/* The first piece that ends behind off. */
size_t ofs_composition_find(const struct ofs_composition *c, uint64_t off);
/* Widen [*off, *off + *len) to element bounds. */
void ofs_composition_align(const struct ofs_composition *c, uint64_t *off,
    uint64_t *len);

#endif
