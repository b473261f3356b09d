/* route.h - follow a path of the source through a pickle */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_REWRITE_ROUTE_H
#define OFS_REWRITE_ROUTE_H

#include "base/buf.h"
#include "rewrite/rewrite_impl.h"

/* Looks up paths in doc, which is borrowed. The other members belong to route.c
 * and start as zeros: indexes of the dicts seen so far, by key text. */
struct ofs_route_dict;
struct ofs_routes {
	const struct ofs_pickle *doc;
	struct ofs_route_dict *dicts;
	size_t ndicts, cap;
	struct ofs_buf text;
};

/* The end of a path, or where it stops. */
struct ofs_route {
	uint32_t node, item; /* container and item of the last step */
	uint32_t depth;      /* number of steps that exist */
	uint32_t value;      /* the value there */
};
struct ofs_route ofs_route(struct ofs_routes *r, const struct ofs_key *key,
    uint32_t n);
void ofs_routes_fini(struct ofs_routes *r);

#endif
