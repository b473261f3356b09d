/* composition.c - pieces of a virtual file, and the plan of a range of them */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "plan/composition.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/memory.h"
#include "base/search.h"
#include "plan/cast.h"

void ofs_composition_fini(struct ofs_composition *c)
{
	ofs_arena_fini(&c->arena);
	free(c->piece);
	*c = (struct ofs_composition){ 0 };
}

/* Append a piece and set its off. Empty pieces are dropped. */
static int add_piece(struct ofs_composition *c, struct ofs_piece *piece,
    struct optimfs_error *err)
{
	uint64_t size;

	if (piece->len == 0)
		return 0;
	if (!ofs_add_u64(c->size, piece->len, &size) || size > INT64_MAX)
		return optimfs_fail(err, EFBIG,
		    "OFS606 size overflow: the file would have more bytes than "
		    "a file can");
	if (ofs_grow(c->piece, c->n, c->cap, err) == -1)
		return -1;
	piece->off = c->size;
	c->piece[c->n++] = *piece;
	c->size = size;
	return 0;
}

int ofs_composition_bytes(struct ofs_composition *c, const void *p, uint64_t n,
    struct optimfs_error *err)
{
	struct ofs_piece piece = { .kind = OFS_PIECE_BYTES, .len = n };
	uint8_t *copy = n > SIZE_MAX ? NULL : ofs_arena_alloc(&c->arena, n);

	if (copy == NULL)
		return ofs_no_memory(err);
	if (n > 0)
		memcpy(copy, p, n);
	piece.bytes = copy;
	return add_piece(c, &piece, err);
}

int ofs_composition_buf(struct ofs_composition *c, const struct ofs_buf *b,
    struct optimfs_error *err)
{
	return b->bad ? ofs_no_memory(err)
		      : ofs_composition_bytes(c, b->data, b->len, err);
}

int ofs_composition_crc(struct ofs_composition *c, uint64_t from, uint64_t n,
    struct optimfs_error *err)
{
	struct ofs_piece piece = { .kind = OFS_PIECE_CRC, .len = 4 };

	piece.crc.from = from;
	piece.crc.n = n;
	return add_piece(c, &piece, err);
}

int ofs_composition_buf_crc(struct ofs_composition *c, const struct ofs_buf *b,
    uint64_t at, uint64_t from, uint64_t n, struct optimfs_error *err)
{
	if (b->bad)
		return ofs_no_memory(err);
	if (ofs_composition_bytes(c, b->data, at, err) == -1 ||
	    ofs_composition_crc(c, from, n, err) == -1)
		return -1;
	return ofs_composition_bytes(c, b->data + at + 4, b->len - at - 4, err);
}

static void set_dtype(struct ofs_composition *c, struct ofs_piece *piece,
    const struct ofs_tensor *t)
{
	piece->dtype = (uint8_t)ofs_cast_type(t, c->cast);
	if (piece->dtype != t->dtype)
		c->casts = true;
}

int ofs_composition_box(struct ofs_composition *c,
    const struct ofs_catalog *cat, uint32_t tensor, const uint64_t *box,
    struct optimfs_error *err)
{
	const struct ofs_tensor *t = &cat->tensors[tensor];
	struct ofs_piece piece = { .kind = OFS_PIECE_BOX };
	size_t size = 2 * t->grid_ndim * sizeof(*box);
	uint64_t n = ofs_tensor_numel(cat, t);
	uint64_t *copy;

	piece.tensor = tensor;
	set_dtype(c, &piece, t);
	if (box != NULL) {
		/* it is inside the tensor, so it cannot overflow */
		ofs_numel(box + t->grid_ndim, t->grid_ndim, &n);
		copy = ofs_arena_alloc(&c->arena, size);
		if (copy == NULL)
			return ofs_no_memory(err);
		memcpy(copy, box, size);
		piece.box = copy;
	}
	piece.len = n * ofs_dtype_size(piece.dtype);
	return add_piece(c, &piece, err);
}

int ofs_composition_box_as(struct ofs_composition *c,
    const struct ofs_catalog *cat, uint32_t tensor, enum ofs_dtype dtype,
    struct optimfs_error *err)
{
	struct ofs_piece piece = {
		.kind = OFS_PIECE_BOX,
		.tensor = tensor,
		.dtype = (uint8_t)dtype,
		.len = ofs_tensor_numel(cat, &cat->tensors[tensor]) *
		    ofs_dtype_size(dtype),
	};

	c->casts = true;
	return add_piece(c, &piece, err);
}

int ofs_composition_elements(struct ofs_composition *c,
    const struct ofs_catalog *cat, uint32_t tensor, uint64_t first,
    uint64_t count, struct optimfs_error *err)
{
	struct ofs_piece piece = { .kind = OFS_PIECE_BOX };

	piece.tensor = tensor;
	piece.first = first;
	set_dtype(c, &piece, &cat->tensors[tensor]);
	piece.len = count * ofs_dtype_size(piece.dtype);
	return add_piece(c, &piece, err);
}

int ofs_composition_stored(struct ofs_composition *c,
    const struct ofs_extent *at, uint64_t from, uint64_t n,
    struct optimfs_error *err)
{
	struct ofs_piece piece = { .kind = OFS_PIECE_STORED, .len = n };
	struct ofs_extent *copy = ofs_arena_alloc(&c->arena, sizeof(*copy));

	if (copy == NULL)
		return ofs_no_memory(err);
	*copy = *at;
	piece.stored.at = copy;
	piece.stored.from = from;
	return add_piece(c, &piece, err);
}

OFS_COMPARE_KEY(compare_off, uint64_t, struct ofs_piece, off)

/* The piece at byte off, which is inside the file. */
size_t ofs_composition_find(const struct ofs_composition *c, uint64_t off)
{
	size_t behind = ofs_upper_bound(&off, c->piece, c->n, sizeof(*c->piece),
	    compare_off);

	return behind == 0 ? 0 : behind - 1;
}

/* Plan bytes [from, to) of a piece of stored bytes. */
static int plan_stored(const struct ofs_piece *piece, uint64_t from,
    uint64_t to, uint64_t dst, struct ofs_plan *plan, struct optimfs_error *err)
{
	const struct ofs_extent *at = piece->stored.at;
	struct ofs_segment seg = {
		.object = at->object,
		.codec = at->codec,
		.src = piece->stored.from + from,
		.dst = dst,
		.len = to - from,
		.n = 1,
	};

	if (from == to)
		return 0;
	if (at->codec == OFS_PLAIN) {
		seg.src += at->off;
	} else {
		seg.ext_off = at->off;
		seg.ext_len = at->len;
	}
	return ofs_plan_add(plan, &seg, err);
}

/* Plan bytes [from, to) of one piece; dst is the place of from in buf. */
static int plan_piece(const struct ofs_piece *piece,
    const struct ofs_catalog *cat, uint64_t from, uint64_t to, uint64_t dst,
    uint8_t *buf, ofs_place_fn *place, void *ctx, struct ofs_plan *plan,
    struct optimfs_error *err)
{
	const struct ofs_tensor *t;
	uint64_t item;

	if (piece->kind == OFS_PIECE_BYTES) {
		memcpy(buf + dst, piece->bytes + from, to - from);
		return 0;
	}
	if (piece->kind == OFS_PIECE_CRC) {
		memset(buf + dst, 0, to - from);
		return 0;
	}
	if (piece->kind == OFS_PIECE_STORED)
		return plan_stored(piece, from, to, dst, plan, err);
	t = &cat->tensors[piece->tensor];
	assert(piece->dtype == t->dtype);
	item = ofs_dtype_size(t->dtype);
	assert(from % item == 0 && to % item == 0);
	return ofs_plan_box(cat, t, piece->box, piece->first + from / item,
	    (to - from) / item, dst, place, ctx, plan, err);
}

int ofs_composition_plan(const struct ofs_composition *c,
    const struct ofs_catalog *cat, uint64_t off, uint64_t len, void *buf,
    ofs_place_fn *place, void *ctx, struct ofs_plan *plan,
    struct optimfs_error *err)
{
	size_t start = plan->n, nzeros = plan->nzeros;
	uint64_t end = off + len;

	if (len == 0)
		return 0;
	for (size_t i = ofs_composition_find(c, off); i < c->n; i++) {
		const struct ofs_piece *p = &c->piece[i];
		uint64_t from = p->off > off ? p->off : off;
		uint64_t to = end - p->off < p->len ? end : p->off + p->len;

		if (p->off >= end)
			break;
		if (plan_piece(p, cat, from - p->off, to - p->off, from - off,
			buf, place, ctx, plan, err) == -1) {
			plan->n = start;
			plan->nzeros = nzeros;
			return -1;
		}
	}
	return 0;
}

void ofs_composition_align(const struct ofs_composition *c, uint64_t *off,
    uint64_t *len)
{
	const struct ofs_piece *p;
	uint64_t end = *off + *len, item, over;

	if (*len == 0)
		return;
	p = &c->piece[ofs_composition_find(c, *off)];
	if (p->kind == OFS_PIECE_BOX)
		*off -= (*off - p->off) % ofs_dtype_size(p->dtype);
	p = &c->piece[ofs_composition_find(c, end - 1)];
	if (p->kind == OFS_PIECE_BOX) {
		item = ofs_dtype_size(p->dtype);
		over = (end - p->off) % item;
		end += over == 0 ? 0 : item - over;
	}
	*len = end - *off;
}
