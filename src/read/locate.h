/* locate.h - the position of a shard's elements in its stored extent */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_READ_LOCATE_H
#define OFS_READ_LOCATE_H

#include "catalog/catalog.h"
#include "pickle/pickle.h"
#include "plan/plan.h"
#include "read/reader.h"

/* An ofs_place_fn; ctx is the struct ofs_reader. Opens the extent when it is
 * first used, and stores the result. Checks the extent against the catalog:
 * dtype and shape (OFS615), size of the record (OFS527), view inside its
 * storage (OFS528). */
const struct ofs_place *ofs_locate_shard(void *ctx, const struct ofs_tensor *t,
    uint32_t shard, struct optimfs_error *err);
/* As above, for whoever reads the elements: if nothing says that the copies of
 * several ranks are equal, they are compared first (read/agree.h). */
const struct ofs_place *ofs_locate(void *ctx, const struct ofs_tensor *t,
    uint32_t shard, struct optimfs_error *err);

/* As above, for a replica. The result is not stored; the caller frees it. */
struct ofs_place *ofs_locate_replica(struct ofs_reader *r,
    const struct ofs_tensor *t, const struct ofs_replica *copy,
    struct optimfs_error *err);

/* What one rank has: its copy of a shard, or the shard itself. */
struct ofs_rank_place {
	struct ofs_reader *reader;
	int rank;                /* -1: the shard itself */
	struct ofs_place *place; /* of a copy */
	uint32_t shard;          /* whose copy it is */
};
/* An ofs_place_fn; ctx is a struct ofs_rank_place, whose place is freed by the
 * caller. A place of a copy is valid until the next call. */
const struct ofs_place *ofs_locate_rank(void *ctx, const struct ofs_tensor *t,
    uint32_t shard, struct optimfs_error *err);

/* The value of an item: reads its extent and parses the pickle. The document is
 * the caller's. */
struct ofs_pickle *ofs_locate_item(struct ofs_reader *r,
    const struct ofs_item *item, struct optimfs_error *err);
/* Append the stored bytes of an item, decoded, to out; at most max (E2BIG). */
int ofs_locate_item_bytes(struct ofs_reader *r, const struct ofs_item *item,
    uint64_t max, struct ofs_buf *out, struct optimfs_error *err);
/* Add the file and the offset of an extent to an error about its contents. */
void ofs_locate_fail_in(const struct ofs_catalog *cat,
    const struct ofs_extent *at, struct optimfs_error *err);
/* The scale of a quantized tensor, which may have to be read from its first
 * shard: 1; 0: there is none. */
int ofs_locate_scale(struct ofs_reader *r, uint32_t tensor,
    struct ofs_scale *scale, struct optimfs_error *err);

#endif
