/* transport.h - the objects of a catalog, on a server */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_STORE_HTTP_TRANSPORT_H
#define OFS_STORE_HTTP_TRANSPORT_H

#include "store/http/site.h"
#include "store/transport.h"

/* See struct ofs_namespace_ops. */
struct ofs_transport *ofs_http_transport(const struct ofs_namespace *names,
    const struct ofs_catalog *cat, uint64_t cache, struct optimfs_error *err);

#endif
