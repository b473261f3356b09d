/* transport.h - segments of files of this machine and of other ranks' */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_CLUSTER_TRANSPORT_H
#define OFS_CLUSTER_TRANSPORT_H

#include <stdint.h>

#include "optimfs/error.h"

#include "catalog/catalog.h"
#include "cluster/manifest.h"
#include "store/transport.h"

/* For a catalog of a shared directory: what is here is read here, the rest is
 * asked for. cat and manifest must outlive it; cache as for a local one. Its
 * counters are those of what came from other ranks. */
struct ofs_transport *ofs_transport_group(const struct ofs_catalog *cat,
    struct ofs_manifest *manifest, uint64_t cache, struct optimfs_error *err);
/* The local transport that t consists of beside; NULL where t is another. */
struct ofs_transport *ofs_transport_group_local(struct ofs_transport *t);

#endif
