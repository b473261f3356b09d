/* links.h - the names in a listing */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_STORE_HTTP_LINKS_H
#define OFS_STORE_HTTP_LINKS_H

#include "optimfs/error.h"

#include "store/http/answer.h"

struct ofs_http_link {
	const char
	    *name; /* not escaped; of a directory, it may end in a slash */
	bool is_dir;
	struct ofs_http_version is; /* as far as the listing tells */
};
typedef int ofs_http_link_fn(void *ctx, const struct ofs_http_link *link,
    struct optimfs_error *err);

/* Calls each for the links of a page of HTML, but for those with a query or a
 * fragment, and those to other servers. */
int ofs_http_links_html(const void *p, size_t n, ofs_http_link_fn *each,
    void *ctx, struct optimfs_error *err);
/* The same for an array of objects with name or path, type, size and mtime, as
 * nginx and the Hub make it, and etag, as optimfs serve does. EUCLEAN: it is
 * none. */
int ofs_http_links_json(const void *p, size_t n, ofs_http_link_fn *each,
    void *ctx, struct optimfs_error *err);

#endif
