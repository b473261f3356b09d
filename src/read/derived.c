/* derived.c - elements that are computed when they are read */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "read/derived.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

/* Runs with small gaps between them are computed together with the gaps, so many
 * bytes at a time. */
#define WINDOW (UINT64_C(256) << 10)
/* Longer gaps are not computed. */
#define GAP_MAX (UINT64_C(16) << 10)

static int prepare(struct ofs_reader *r, const struct ofs_tensor *t,
    const struct ofs_shard *s, struct optimfs_error *err)
{
	const struct ofs_derived_ops *ops = r->cat->derived[s->view].ops;
	_Atomic(void *) *slot = &r->prepared[s->view];
	void *known = NULL, *made;

	if (ops->prepare == NULL || atomic_load(slot) != NULL)
		return 0;
	made = ops->prepare(r, t, s, err);
	if (made == NULL)
		return -1;
	/* another thread may have been first */
	if (!atomic_compare_exchange_strong(slot, &known, made))
		free(made);
	return 0;
}

int ofs_derived_place(struct ofs_reader *r, const struct ofs_tensor *t,
    const struct ofs_shard *s, struct ofs_place *place,
    struct optimfs_error *err)
{
	uint64_t lo[OFS_MAX_DIMS], size[OFS_MAX_DIMS];
	uint64_t bytes = ofs_dtype_size(t->dtype);

	if (prepare(r, t, s, err) == -1)
		return -1;
	ofs_shard_box(r->cat, t, s, lo, size);
	for (unsigned i = t->grid_ndim; i-- > 0;) {
		place->stride[i] = (int64_t)bytes;
		bytes *=
		    size[i]; /* no overflow: a part of a tensor that fits */
	}
	place->base = 0;
	place->codec = OFS_COMPUTED;
	place->ext_off = s->view;
	place->ext_len = bytes;
	return 0;
}

/* Computes bytes [from, from + n), whole elements. */
static int compute(struct ofs_reader *r, const struct ofs_segment *seg,
    uint64_t from, uint64_t n, void *buf, struct optimfs_error *err)
{
	const struct ofs_derived *d = &r->cat->derived[seg->ext_off];
	size_t item = ofs_dtype_size(seg->dtype);

	return d->ops->read(r, d, atomic_load(&r->prepared[seg->ext_off]),
	    from / item, n / item, buf, err);
}

/* Each run by itself. */
static int compute_runs(struct ofs_reader *r, const struct ofs_segment *seg,
    uint8_t *dst, struct optimfs_error *err)
{
	for (uint64_t i = 0; i < seg->n; i++)
		if (compute(r, seg, seg->src + i * (uint64_t)seg->src_pitch,
			seg->len, dst + (int64_t)i * seg->dst_pitch, err) == -1)
			return -1;
	return 0;
}

/* As many runs at a time as a window holds. */
static int compute_windows(struct ofs_reader *r, const struct ofs_segment *seg,
    uint8_t *dst, struct optimfs_error *err)
{
	uint64_t pitch = (uint64_t)seg->src_pitch;
	uint64_t most = 1 + (WINDOW - seg->len) / pitch, k;
	uint8_t *window = malloc(WINDOW);
	int ret = 0;

	if (window == NULL)
		return ofs_no_memory(err);
	for (uint64_t i = 0; i < seg->n && ret == 0; i += k) {
		k = seg->n - i < most ? seg->n - i : most;
		ret = compute(r, seg, seg->src + i * pitch,
		    (k - 1) * pitch + seg->len, window, err);
		for (uint64_t j = 0; ret == 0 && j < k; j++)
			memcpy(dst + (int64_t)(i + j) * seg->dst_pitch,
			    window + j * pitch, seg->len);
	}
	free(window);
	return ret;
}

int ofs_derived_fetch(struct ofs_reader *r, const struct ofs_segment *seg,
    void *buf, struct optimfs_error *err)
{
	uint8_t *dst = (uint8_t *)buf + seg->dst;
	bool near = seg->n > 1 && seg->len <= WINDOW / 4 &&
	    seg->src_pitch > 0 &&
	    (uint64_t)seg->src_pitch <= seg->len + GAP_MAX;

	return near ? compute_windows(r, seg, dst, err)
		    : compute_runs(r, seg, dst, err);
}
