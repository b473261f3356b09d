/* unit_order.h - which parameter is meant by which integer ID */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FORMAT_FSDP_UNIT_ORDER_H
#define OFS_FORMAT_FSDP_UNIT_ORDER_H

#include <stdbool.h>
#include <stdint.h>

#include "optimfs/error.h"

#include "catalog/catalog.h"

/* An optimizer numbers its parameters in the order of its groups, and within
 * a group they are in the order of model.named_parameters(), as a rule. Which
 * order that is, the units of a file say but in part: a unit's own parameters
 * and the units themselves are in order, and a unit's parameters stand
 * together somewhere among those of the unit that it is nested in. Every order
 * is tried that puts modules one after the other as named_parameters() does
 * and in which each ID's state fits its parameter. */

struct ofs_order_unit {
	struct ofs_str prefix;     /* of its module; a nested one's is longer */
	const struct ofs_str *fqn; /* NULL where the order is known */
	uint32_t nparams;
};

/* May ID id (counted from 0 over all groups) be parameter param of unit? */
typedef bool ofs_order_fits_fn(const void *ctx, uint32_t id, uint32_t unit,
    uint32_t param);

struct ofs_order {
	const struct ofs_order_unit *unit;
	uint32_t nunits;
	/* of each group: how many IDs */
	const uint32_t *group;
	uint32_t ngroups;
	/* The units' order is known to be all there is to know: one unit that
	 * lists everything in the model's order. */
	bool known;
	ofs_order_fits_fn *fits;
	const void *ctx;
};

/* Where an ID leads; unit is OFS_NONE for one that several orders that fit
 * take for different parameters. */
struct ofs_order_name {
	uint32_t unit, param;
};

/* Fill name[], one of each ID. EINVAL (OFS164): no order fits, or there is too
 * much to try. */
int ofs_order_find(const struct ofs_order *o, struct ofs_order_name *name,
    struct optimfs_error *err);

#endif
