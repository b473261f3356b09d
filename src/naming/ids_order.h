/* ids_order.h - parameters of IDs by the order of the model */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_NAMING_IDS_ORDER_H
#define OFS_NAMING_IDS_ORDER_H

#include <stdbool.h>
#include <stdint.h>

#include "optimfs/error.h"

/* An optimizer numbers its parameters group after group, and within a group in the
 * order of the model. So if that order is known, a group is a subsequence of it, in
 * which the state of each ID must fit its parameter. The groups share nothing: a
 * parameter has one ID. Who asks knows which states fit, and what the parameters
 * are called. */

/* May ID id, counted from 0 over all groups, be parameter at of the model? */
typedef bool ofs_ids_fits_fn(const void *ctx, uint32_t id, uint32_t at);

struct ofs_ids_order {
	uint32_t n;            /* parameters of the model */
	const uint32_t *group; /* of each group: the number of IDs */
	uint32_t ngroups;
	ofs_ids_fits_fn *fits;
	const void *ctx;
};

/* The first and the last parameter that an ID can be. If they are equal it is that
 * one, whatever the others are. */
struct ofs_ids_range {
	uint32_t first, last;
};

/* Fills range[], one per ID. 1: there is no way, and *id is an ID for which nothing
 * is left, after those before it in its group got their first parameters; -1:
 * ENOMEM. */
int ofs_ids_order_find(const struct ofs_ids_order *o,
    struct ofs_ids_range *range, uint32_t *id, struct optimfs_error *err);

#endif
