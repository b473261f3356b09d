/* transport.h - fetch segments from this machine and other ranks */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_CLUSTER_TRANSPORT_H
#define OFS_CLUSTER_TRANSPORT_H

#include <stdint.h>

#include "optimfs/error.h"

#include "catalog/catalog.h"
#include "cluster/manifest.h"
#include "store/transport.h"

/* A transport for the catalog of a shared directory: reads local files here and
 * requests the rest. cat and manifest must outlive it; cache as for a local
 * transport. Its counters count bytes from other ranks. */
struct ofs_transport *ofs_transport_group(const struct ofs_catalog *cat,
    struct ofs_manifest *manifest, uint64_t cache, struct optimfs_error *err);
/* The local transport inside t; NULL if t is of another kind. */
struct ofs_transport *ofs_transport_group_local(struct ofs_transport *t);

#endif
