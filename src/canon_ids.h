/* canon_ids.h - names for integer IDs; only canon_ids*.c include this */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_CANON_IDS_H
#define OFS_CANON_IDS_H

#include "canon_impl.h"

/* IDs are places in this list: 0, 1, ... over all groups. */
struct ofs_ids {
	const char *file;
	struct ofs_id {
		uint32_t name; /* string; OFS_NONE: not known */
		uint32_t line, group;
	} * v;
	uint32_t n, cap;
	uint32_t ngroups;
	uint32_t line; /* while it is read */
	bool blank;    /* a blank line ended a group */
};

/* Do they fit the optimizer c->ids_root? EINVAL with the line. */
int ofs_canon_check_ids(struct canon *c, const struct ofs_ids *ids,
    struct optimfs_error *err);
/* ids=model: fill *ids from the order of the model's tensors. */
int ofs_canon_ids_of_model(struct canon *c, struct ofs_ids *ids,
    struct optimfs_error *err);

#endif
