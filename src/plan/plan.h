/* plan.h - elements of a tensor -> segments of stored objects */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_PLAN_H
#define OFS_PLAN_H

#include <stddef.h>
#include <stdint.h>

#include "optimfs/error.h"

#include "catalog/catalog.h"

/* n runs of len bytes. Run i is copied from src + i * src_pitch to dst + i *
 * dst_pitch of the caller's buffer. src is an offset in the object, or with a
 * codec in the decoded extent. In the destination the runs of all segments of a
 * plan are disjoint. */
struct ofs_segment {
	uint32_t object;
	uint8_t codec; /* enum ofs_codec */
	/* enum ofs_fix: applied by the caller, not by the transport */
	uint8_t fix;
	uint8_t dtype;             /* element type for the fix */
	uint64_t ext_off, ext_len; /* with a codec: the encoded extent */
	uint64_t src, dst, len, n;
	int64_t src_pitch, dst_pitch;
};

struct ofs_plan {
	struct ofs_segment *seg;
	size_t n, cap;
	/* Bytes of the destination to set to zero, where a tensor with
	 * OFS_TENSOR_ZERO has no shard. */
	struct ofs_plan_zeros {
		uint64_t dst, len;
	} * zero;
	size_t nzeros, zero_cap;
	size_t most; /* segments; 0: any number */
};

void ofs_plan_fini(struct ofs_plan *plan);
/* Make it empty. */
static inline void ofs_plan_clear(struct ofs_plan *plan)
{
	plan->n = plan->nzeros = 0;
}
/* Append a copy of seg; ENOMEM, or E2BIG: there are plan->most. */
int ofs_plan_add(struct ofs_plan *plan, const struct ofs_segment *seg,
    struct optimfs_error *err);

/* The place of the elements of a shard: element (i0, i1, ...) of its box is at
 * byte base + sum(i * stride) of the object, or with a codec of the decoded
 * extent. */
struct ofs_place {
	uint64_t base;
	uint64_t ext_off, ext_len;
	uint32_t object;
	uint8_t codec, fix;
	int64_t stride[]; /* bytes; grid_ndim of them */
};

/* Return the place of shard s (an index of cat->shards), which is valid as long
 * as ctx. It may read; planning itself does not. NULL with err. */
typedef const struct ofs_place *ofs_place_fn(void *ctx,
    const struct ofs_tensor *t, uint32_t s, struct optimfs_error *err);

/* Plan elements [first, first + count) of t, in C order of its shape: segments
 * that fill the first count * itemsize bytes of the buffer exactly once. place
 * is called only for shards that overlap the range. EIO (OFS607) names the first
 * element without a shard, unless such are zeros; a tensor with an error fails
 * with that. On failure plan is unchanged. */
int ofs_plan_elements(const struct ofs_catalog *cat, const struct ofs_tensor *t,
    uint64_t first, uint64_t count, ofs_place_fn *place, void *ctx,
    struct ofs_plan *plan, struct optimfs_error *err);

/* As above, for the elements of a box of t, in C order of the box, from byte
 * dst of the buffer on. box is offsets, then sizes, in the grid; NULL for the
 * whole tensor. */
int ofs_plan_box(const struct ofs_catalog *cat, const struct ofs_tensor *t,
    const uint64_t *box, uint64_t first, uint64_t count, uint64_t dst,
    ofs_place_fn *place, void *ctx, struct ofs_plan *plan,
    struct optimfs_error *err);

/* Call each for the shards that overlap the range, in the order of cat->shards,
 * until it returns non-zero; returns that value, or 0. A tensor with an error
 * has no shards. */
int ofs_plan_shards(const struct ofs_catalog *cat, const struct ofs_tensor *t,
    uint64_t first, uint64_t count, int (*each)(void *ctx, uint32_t s),
    void *ctx);

#endif
