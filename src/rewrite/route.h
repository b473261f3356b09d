/* route.h - where in a pickle a path of the source leads */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_REWRITE_ROUTE_H
#define OFS_REWRITE_ROUTE_H

#include "base/buf.h"
#include "rewrite/rewrite_impl.h"

/* Paths are looked up in doc, which is the caller's; all else is route.c's
 * and begins as zeros: the keys of dicts that were looked into, by their
 * texts. */
struct ofs_route_dict;
struct ofs_routes {
	const struct ofs_pickle *doc;
	struct ofs_route_dict *dicts;
	size_t ndicts, cap;
	struct ofs_buf text;
};

/* How far a path leads. */
struct ofs_route {
	uint32_t node, item; /* the container and the item of the last step */
	uint32_t depth;      /* steps that there are */
	uint32_t value;      /* what stands there */
};
struct ofs_route ofs_route(struct ofs_routes *r, const struct ofs_key *key,
    uint32_t n);
void ofs_routes_fini(struct ofs_routes *r);

#endif
