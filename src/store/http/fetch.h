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

/* The same for one who reads them once, in the order of their dst: returns while they
 * are on their way, and reads wait for them. They are kept in little memory
 * (store/http/blocks.h). NULL: that is not possible. */
struct ofs_http_stream *ofs_http_stream(struct ofs_http_site *s,
    const struct ofs_segment *segs, size_t n);
/* Nobody reads them any more. */
void ofs_http_stream_end(struct ofs_http_stream *st);

#endif
