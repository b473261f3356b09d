/* local.h - segments of files of this machine */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_STORE_LOCAL_H
#define OFS_STORE_LOCAL_H

#include "store/pins.h"
#include "store/transport.h"

/* A transport for files beneath cat->dir; cat must outlive it. cache is the
 * budget in bytes for decoded extents; more decoded bytes go to an unlinked
 * temporary file. NULL with ENOMEM. */
struct ofs_transport *ofs_transport_local(const struct ofs_catalog *cat,
    uint64_t cache, struct optimfs_error *err);

/* As above, for objects that are where pins says; ctx is for its new. */
struct ofs_transport *ofs_transport_pinned(const struct ofs_catalog *cat,
    const struct ofs_pins_ops *pins, void *ctx, uint64_t cache,
    struct optimfs_error *err);

/* As above, for files beneath cat->dir that may be remote. */
struct ofs_transport *ofs_transport_of(const struct ofs_catalog *cat,
    uint64_t cache, struct optimfs_error *err);

#endif
