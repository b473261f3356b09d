/* agree.h - the copies of a shard that several ranks stored */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_READ_AGREE_H
#define OFS_READ_AGREE_H

#include "plan/plan.h"
#include "read/reader.h"

/* Compares the copies of a shard of a tensor with OFS_TENSOR_DOUBT, once: all of
 * them are read. EPROTO (OFS674): they differ. Copies that cannot be read are
 * left out. place is that of the shard. */
int ofs_copies_agree(struct ofs_reader *r, const struct ofs_tensor *t,
    uint32_t shard, const struct ofs_place *place, struct optimfs_error *err);

#endif
