/* local.h - segments of files of this machine */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_STORE_LOCAL_H
#define OFS_STORE_LOCAL_H

#include "store/transport.h"

/* Files beneath cat->dir; cat must outlive it. cache is the budget in bytes for
 * decoded extents; decoded bytes beyond it go to an unlinked temporary file. */
struct ofs_transport *ofs_transport_local(const struct ofs_catalog *cat,
    uint64_t cache, struct optimfs_error *err);

/* The same of files that lie beneath cat->dir here or elsewhere. */
struct ofs_transport *ofs_transport_of(const struct ofs_catalog *cat,
    uint64_t cache, struct optimfs_error *err);

#endif
