/* item_view.h - a box that is a part of a torch.save item */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_ARCHIVE_ITEM_VIEW_H
#define OFS_ARCHIVE_ITEM_VIEW_H

#include <stdint.h>

#include "optimfs/error.h"

#include "archive/torch.h"
#include "catalog/catalog.h"

/* A shard of OFS_TORCH_ITEM with a view is a part of its item: the view counts
 * the item's elements in C order, whatever the strides of the stored tensor
 * are. Element (i0, i1, ...) of a box of ndim dims, so sized, at the strides
 * of view (which are >= 0), lies *first + sum(i * stride) elements behind
 * element 0 of the storage's tensor, less tt->offset. EUCLEAN: the item has
 * another number of elements than the view knows of (OFS615), or the box
 * sticks out of it (OFS528). EOPNOTSUPP (OFS536): the tensor's own strides
 * leave no single stride for a dimension of the box. */
int ofs_item_view(const struct ofs_torch_tensor *tt,
    const struct ofs_view *view, const int64_t *view_stride,
    const uint64_t *size, unsigned int ndim, uint64_t *first, int64_t *stride,
    struct optimfs_error *err);

#endif
