/* derived.c - elements that are computed when they are read */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "read/derived.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/memory.h"
#include "catalog/shards.h"
#include "store/gather.h"

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
	const struct ofs_derived_part *part = r->cat->derived[s->view].part;
	const struct ofs_view *v = ofs_shard_view(r->cat, s);
	uint64_t lo[OFS_MAX_DIMS], size[OFS_MAX_DIMS];
	uint64_t item = ofs_dtype_size(t->dtype), bytes = item;

	for (unsigned i = 0; v != NULL && i < t->grid_ndim; i++)
		place->stride[i] =
		    (int64_t)(r->cat->dims[v->stride + i] * item);
	if (part != NULL) {
		t = &r->cat->tensors[part->tensor];
		s = &part->of;
	}
	if (prepare(r, t, s, err) == -1)
		return -1;
	ofs_shard_box(r->cat, t, s, lo, size);
	for (unsigned i = t->grid_ndim; i-- > 0;) {
		if (v == NULL)
			place->stride[i] = (int64_t)bytes;
		bytes *=
		    size[i]; /* no overflow: a part of a tensor that fits */
	}
	place->base = v == NULL ? 0 : v->offset * item;
	place->codec = OFS_COMPUTED;
	place->ext_off = s->view;
	place->ext_len = bytes;
	return 0;
}

/* To ofs_gather, what is computed is a source of bytes like a file: runs with
 * small gaps between them are computed together with the gaps. */
struct computing {
	struct ofs_reader *r;
	uint32_t derived;
	size_t item; /* bytes of an element: all offsets are multiples */
};

static int compute(const struct ofs_source *s, struct iovec *iov, int n,
    uint64_t off, struct optimfs_error *err)
{
	const struct computing *c = s->ctx;
	const struct ofs_derived *d = &c->r->cat->derived[c->derived];
	const void *prepared = atomic_load(&c->r->prepared[c->derived]);

	for (int i = 0; i < n; off += iov[i++].iov_len)
		if (d->ops->read(c->r, d, prepared, off / c->item,
			iov[i].iov_len / c->item, iov[i].iov_base, err) == -1)
			return -1;
	return 0;
}

int ofs_derived_fetch(struct ofs_reader *r, const struct ofs_segment *seg,
    size_t n, void *buf, struct optimfs_error *err)
{
	struct computing c = { r, (uint32_t)seg->ext_off,
		ofs_dtype_size(seg->dtype) };
	struct ofs_source s = {
		.readv = compute, .ctx = &c, .size = seg->ext_len
	};
	struct iovec one = { (uint8_t *)buf + seg->dst, seg->len };
	uint8_t *scratch;
	int ret;

	err = OFS_SOME_ERROR(err);
	if (n == 1 && seg->n == 1)
		return compute(&s, &one, 1, seg->src, err);
	scratch = malloc(OFS_SCRATCH);
	ret = scratch == NULL ? ofs_no_memory(err)
			      : ofs_gather(&s, seg, n, buf, scratch, err);
	free(scratch);
	return ret;
}
