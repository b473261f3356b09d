/* manifest_impl.h - declarations for the agreement on a manifest */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_CLUSTER_MANIFEST_IMPL_H
#define OFS_CLUSTER_MANIFEST_IMPL_H

#include <stdint.h>

#include "optimfs/error.h"

#include "base/buf.h"
#include "base/cursor.h"
#include "catalog/catalog.h"
#include "cluster/manifest.h"

/* The offer of a rank, without its list of files. Strings point into its
 * message. */
struct ofs_offer {
	const char *path, *rel; /* rel: "": a directory */
	bool there;
	uint32_t nfiles;
	uint64_t digest[2]; /* digest of its list */
	/* Of an interrupted commit: the id prepared here, and the id decided by
	 * the writer if it is here. */
	const char *pending, *decided;
	int leader; /* lowest rank with the same list; -1: no files */
};

/* An entry of a list of files. */
struct ofs_offer_line {
	struct ofs_object o;
	int leader;
	uint32_t index;
	bool unlike; /* contents of this path have to be compared */
};

struct ofs_agreement {
	struct ofs_manifest *s; /* NULL: this rank failed */
	struct optimfs_group *w;
	struct ofs_offer *offer; /* by rank */
	struct ofs_offer_line *line;
	uint32_t nlines;
	bool unlike; /* some are */
	struct optimfs_error *err;
};

/* manifest_offer.c: an offer and a list as bytes, and back. */
/* The files of this rank; empty if s is NULL. */
void ofs_offer_put_list(const struct ofs_manifest *s, struct ofs_buf *list);
void ofs_offer_put(const struct ofs_manifest *s, const char *path,
    const struct ofs_buf *list, struct ofs_buf *b);
/* Parses the offers of all ranks; p NULL: none, the rank has died. The bytes must
 * live as long as a. */
int ofs_offer_take_all(struct ofs_agreement *a, struct ofs_cursor *by_rank);
/* Parses their lists: for each digest that of the leader. */
int ofs_offer_take_lists(struct ofs_agreement *a, struct ofs_cursor *by_rank);
/* Reports an invalid message of rank: -1. */
int ofs_offer_malformed(struct ofs_agreement *a, int rank);

#endif
