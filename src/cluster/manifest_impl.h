/* manifest_impl.h - what the files of an agreement on who has what share */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_CLUSTER_MANIFEST_IMPL_H
#define OFS_CLUSTER_MANIFEST_IMPL_H

#include <stdint.h>

#include "optimfs/error.h"

#include "base/buf.h"
#include "base/cursor.h"
#include "catalog/catalog.h"
#include "cluster/manifest.h"

/* What a rank offers, in short. Strings are in the bytes that it said. */
struct ofs_offer {
	const char *path, *rel;
	uint8_t kind;
	uint32_t nfiles;
	uint64_t digest[2]; /* of its list */
	/* Of a commit that was cut short: what is prepared here, and what was
	 * decided by who is the writer here. */
	const char *pending, *decided;
	int leader; /* the lowest rank with the same list; -1: no files */
};

/* A line of a list. */
struct ofs_offer_line {
	struct ofs_object o;
	int leader;
	uint32_t index;
};

struct ofs_agreement {
	struct ofs_manifest *s; /* NULL: we failed */
	struct optimfs_group *w;
	struct ofs_offer *offer; /* of each rank */
	struct ofs_offer_line *line;
	uint32_t nlines;
	struct optimfs_error *err;
};

/* manifest_offer.c: an offer and a list as bytes, and back. */
/* The list of what is here: nothing where s is NULL. */
void ofs_offer_put_list(const struct ofs_agreement *a, struct ofs_buf *list);
void ofs_offer_put(const struct ofs_agreement *a, const char *path,
    const struct ofs_buf *list, struct ofs_buf *b);
/* What all have said, of each rank; p NULL: nothing, as it has died. The bytes
 * stay where they are as long as a. */
int ofs_offer_take_all(struct ofs_agreement *a, const struct ofs_cursor *said);
/* Their lists: one of each digest is looked at, that of the leader. */
int ofs_offer_take_lists(struct ofs_agreement *a,
    const struct ofs_cursor *said);
/* What rank said makes no sense: -1. */
int ofs_offer_malformed(struct ofs_agreement *a, int rank);

/* manifest_agree.c */
/* Files and owners of s, of all lines. */
int ofs_agreement_merge(struct ofs_agreement *a);
void ofs_agreement_fini(struct ofs_agreement *a);

#endif
