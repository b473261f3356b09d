/* plan.h - elements of a tensor -> segments of stored objects */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_PLAN_H
#define OFS_PLAN_H

#include <stddef.h>
#include <stdint.h>

#include "optimfs/error.h"

#include "catalog/catalog.h"

/* n runs of len bytes. Run i comes from src + i * src_pitch of what the
 * extent holds (the object itself when codec is OFS_PLAIN: src then counts
 * from the object's first byte; what the extent decodes to otherwise) and goes
 * to dst + i * dst_pitch of the caller's buffer. Runs of all segments of a plan
 * are disjoint in the destination. */
struct ofs_segment {
	uint32_t object;
	uint8_t codec; /* enum ofs_codec */
	uint8_t fix;   /* enum ofs_fix, for who asked, not for the transport */
	uint8_t dtype; /* that fix needs */
	uint64_t ext_off, ext_len; /* the encoded extent, with a codec */
	uint64_t src, dst, len, n;
	int64_t src_pitch, dst_pitch;
};

struct ofs_plan {
	struct ofs_segment *seg;
	size_t n, cap;
	/* Bytes of the destination that are zeros where no segment goes, which
	 * only a tensor with OFS_TENSOR_ZERO has. */
	struct ofs_plan_zeros {
		uint64_t dst, len;
	} * zero;
	size_t nzeros, zero_cap;
};

void ofs_plan_fini(struct ofs_plan *plan);
/* Make it empty. */
static inline void ofs_plan_clear(struct ofs_plan *plan)
{
	plan->n = plan->nzeros = 0;
}
/* Add a copy; ENOMEM. */
int ofs_plan_add(struct ofs_plan *plan, const struct ofs_segment *seg,
    struct optimfs_error *err);

/* Where the elements of a shard's box lie, once its extent has been looked
 * into: element (i0, i1, ...) of the box starts at byte
 * base + sum(i * stride) of the object or of what the extent decodes to. */
struct ofs_place {
	uint64_t base;
	uint64_t ext_off, ext_len;
	uint32_t object;
	uint8_t codec, fix;
	int64_t stride[]; /* bytes, grid_ndim of them */
};

/* Give the place of shard s (an index of cat->shards), which stays valid
 * while ctx lives. It may read; the plan itself does not. NULL: err says why. */
typedef const struct ofs_place *ofs_place_fn(void *ctx,
    const struct ofs_tensor *t, uint32_t s, struct optimfs_error *err);

/* Elements [first, first + count) of t, in C order of its shape, as segments
 * that fill dst .. dst + count * itemsize exactly once. Only shards that
 * overlap the range are asked for. EIO (OFS607) names the first element that
 * no shard holds, where that is not zero; a tensor with an error fails with that. On failure plan is
 * as it was. */
int ofs_plan_elements(const struct ofs_catalog *cat, const struct ofs_tensor *t,
    uint64_t first, uint64_t count, uint64_t dst, ofs_place_fn *place,
    void *ctx, struct ofs_plan *plan, struct optimfs_error *err);

/* The same for the elements of a box of t, in C order of the box; box is
 * offsets then sizes in the grid, or NULL for the whole tensor. */
int ofs_plan_box(const struct ofs_catalog *cat, const struct ofs_tensor *t,
    const uint64_t *box, uint64_t first, uint64_t count, uint64_t dst,
    ofs_place_fn *place, void *ctx, struct ofs_plan *plan,
    struct optimfs_error *err);

/* The indexes of the shards that overlap the range, in the order of
 * cat->shards: calls each until it returns non-zero, and returns that. A
 * tensor with an error has none. */
int ofs_plan_shards(const struct ofs_catalog *cat, const struct ofs_tensor *t,
    uint64_t first, uint64_t count, int (*each)(void *ctx, uint32_t s),
    void *ctx);

#endif
