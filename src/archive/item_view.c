/* item_view.c - a box that is part of a torch.save item */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "archive/item_view.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>

#include "base/checked.h"

/* A dimension of the stored tensor with more than one element. A step along it
 * advances pitch elements of the item, in C order, and stride elements of the
 * storage. at is the index of the box's last element. */
struct item_dim {
	uint64_t n, pitch, at;
	int64_t stride;
};

struct item {
	struct item_dim dim[OFS_MAX_DIMS];
	unsigned int n;
	bool plain; /* in C order in the storage, too */
};

/* Cannot overflow: ofs_torch_check has checked the tensor. */
static void open_item(const struct ofs_torch_tensor *tt, struct item *item)
{
	uint64_t pitch = 1;

	item->n = 0;
	item->plain = true;
	for (unsigned int i = tt->ndim; i-- > 0;) {
		if (tt->shape[i] == 1)
			continue;
		item->dim[item->n++] = (struct item_dim){ .n = tt->shape[i],
			.pitch = pitch,
			.stride = tt->stride[i] };
		item->plain = item->plain && tt->stride[i] == (int64_t)pitch;
		pitch *= tt->shape[i];
	}
}

/* Find the dimension for a step of the view: the outermost one whose pitch is
 * not larger than the step. Innermost dimensions come first. */
static int walk(struct item *item, uint64_t step, uint64_t size,
    int64_t *stride)
{
	struct item_dim *d = NULL;
	uint64_t steps, last;

	for (unsigned int i = 0; i < item->n && item->dim[i].pitch <= step; i++)
		d = &item->dim[i];
	if (d == NULL || step % d->pitch != 0)
		return -1;
	steps = step / d->pitch;
	if (!ofs_mul_u64(steps, size - 1, &last) ||
	    !ofs_add_u64(d->at, last, &last) || last >= d->n)
		return -1;
	d->at = last;
	*stride = (int64_t)steps * d->stride;
	return 0;
}

static uint64_t locate_first(struct item *item, uint64_t offset)
{
	uint64_t first = 0;

	for (unsigned int i = item->n; i-- > 0;) {
		struct item_dim *d = &item->dim[i];

		d->at = offset / d->pitch;
		offset %= d->pitch;
		first += d->at * (uint64_t)d->stride;
	}
	return first;
}

/* Is the last element of the box inside the item? */
static bool is_inside(const struct ofs_view *view, const int64_t *step,
    const uint64_t *size, unsigned int ndim)
{
	uint64_t last = view->offset, n;

	for (unsigned int i = 0; i < ndim; i++)
		if (size[i] > 1 &&
		    (step[i] < 0 ||
			!ofs_mul_u64((uint64_t)step[i], size[i] - 1, &n) ||
			!ofs_add_u64(last, n, &last)))
			return false;
	return last < view->numel;
}

int ofs_item_view(const struct ofs_torch_tensor *tt,
    const struct ofs_view *view, const int64_t *view_stride,
    const uint64_t *size, unsigned int ndim, uint64_t *first, int64_t *stride,
    struct optimfs_error *err)
{
	struct item item;
	uint64_t numel;

	if (!ofs_numel(tt->shape, tt->ndim, &numel) || numel != view->numel)
		return optimfs_fail(err, EUCLEAN,
		    "OFS615 the item does not have the %" PRIu64
		    " elements that its index says",
		    view->numel);
	if (!is_inside(view, view_stride, size, ndim))
		return optimfs_fail(err, EUCLEAN,
		    "OFS528 a part of an item reaches past its %" PRIu64
		    " elements",
		    numel);
	open_item(tt, &item);
	*first = locate_first(&item, view->offset);
	for (unsigned int i = 0; i < ndim; i++) {
		stride[i] = 0;
		if (size[i] == 1)
			continue;
		if (item.plain)
			stride[i] = view_stride[i];
		else if (walk(&item, (uint64_t)view_stride[i], size[i],
			     &stride[i]) == -1)
			return optimfs_fail(err, EOPNOTSUPP,
			    "OFS536 a part of an item whose strides allow none "
			    "for dim %u of the part",
			    i);
	}
	return 0;
}
