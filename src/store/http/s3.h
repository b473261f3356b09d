/* s3.h - buckets of S3 */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_STORE_HTTP_S3_H
#define OFS_STORE_HTTP_S3_H

#include "store/http/client.h"
#include "store/http/site.h"

/* Did the request fail because the bucket is in another region, which the server
 * named? Then the site and all later ones ask there. Once for each bucket: a server
 * that names another one then is not believed. Nobody else may use the site: for
 * the first request of one. */
bool ofs_http_s3_moves(struct ofs_http_site *s, const struct ofs_http_get *g);

#endif
