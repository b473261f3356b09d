/* fetch.h - segments of files on a server, by few requests */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_STORE_HTTP_FETCH_H
#define OFS_STORE_HTTP_FETCH_H

#include "store/http/site.h"

/* Reads segments, whose objects are the numbers of files and which are inside
 * them. */
int ofs_http_read(struct ofs_http_site *s, const struct ofs_segment *segs,
    size_t n, void *buf, struct optimfs_error *err);
/* The same without a buffer: keeps them for reads that follow soon, as far as
 * there is room. */
void ofs_http_want(struct ofs_http_site *s, const struct ofs_segment *segs,
    size_t n);

#endif
