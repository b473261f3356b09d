/* item_view.h - a box that is part of a torch.save item */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_ARCHIVE_ITEM_VIEW_H
#define OFS_ARCHIVE_ITEM_VIEW_H

#include <stdint.h>

#include "optimfs/error.h"

#include "archive/torch.h"
#include "catalog/catalog.h"

/* A shard of OFS_TORCH_ITEM with a view is a part of its item: the view counts
 * the elements of the item in C order, whatever the strides of the stored
 * tensor. For a box of ndim dimensions, size and the strides of view (>= 0),
 * element (i0, i1, ...) is *first + sum(i * stride) elements after element 0 of
 * the stored tensor, which is at tt->offset of its storage. EUCLEAN: the item
 * has another number of elements than the view (OFS615), or the box is not
 * inside it (OFS528). EOPNOTSUPP (OFS536): with the strides of the tensor, a
 * dimension of the box has no single stride. */
int ofs_item_view(const struct ofs_torch_tensor *tt,
    const struct ofs_view *view, const int64_t *view_stride,
    const uint64_t *size, unsigned int ndim, uint64_t *first, int64_t *stride,
    struct optimfs_error *err);

#endif
