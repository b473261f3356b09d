/* curl.h - the parts of the module optimfs-http.so */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_STORE_CURL_H
#define OFS_STORE_CURL_H

#include "store/http/module.h"

/* elements.c: see struct ofs_http_ops. */
int ofs_curl_parse(const void *xml, size_t n,
    const struct ofs_http_elements *elements, struct optimfs_error *err);

#endif
