/* locate.h - where in its stored extent a shard's elements lie */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_READ_LOCATE_H
#define OFS_READ_LOCATE_H

#include "catalog/catalog.h"
#include "pickle/pickle.h"
#include "plan/plan.h"
#include "store/transport.h"

/* Looks into extents on first touch and remembers. Any thread may use it. */
struct ofs_locator;

/* cat and t must outlive it; NULL: ENOMEM. */
struct ofs_locator *ofs_locator_new(const struct ofs_catalog *cat,
    struct ofs_transport *t, struct optimfs_error *err);
void ofs_locator_free(struct ofs_locator *l);

/* An ofs_place_fn; ctx is the locator. Checks what the extent says of itself
 * against the catalog: dtype and shape (OFS615), record size (OFS527), view
 * inside its storage (OFS528). */
const struct ofs_place *ofs_locate(void *ctx, const struct ofs_tensor *t,
    uint32_t shard, struct optimfs_error *err);

/* The same for a copy of a shard, not remembered: the caller's to free. */
struct ofs_place *ofs_locate_replica(struct ofs_locator *l,
    const struct ofs_tensor *t, const struct ofs_replica *copy,
    struct optimfs_error *err);

/* The value of an item: reads its extent and parses the pickle. The document
 * is the caller's. */
struct ofs_pickle *ofs_locate_item(struct ofs_locator *l,
    const struct ofs_item *item, struct optimfs_error *err);

#endif
