/* unit_order.h - the parameter of each integer ID */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FORMAT_FSDP_UNIT_ORDER_H
#define OFS_FORMAT_FSDP_UNIT_ORDER_H

#include <stdbool.h>
#include <stdint.h>

#include "optimfs/error.h"

#include "catalog/catalog.h"

/* An optimizer numbers its parameters in the order of its groups. Within a
 * group they are usually in the order of model.named_parameters(). A file's
 * units give that order only in part: a unit's own parameters are in order, and
 * so are the units. But a unit's parameters stand together at an unknown place
 * among those of the unit that contains it. The search tries every order that
 * lists modules as named_parameters() does, and in which each ID's state fits
 * its parameter. */

struct ofs_order_unit {
	struct ofs_str prefix; /* of its module; a nested module's is longer */
	const struct ofs_str *fqn; /* NULL: the order is known */
	uint32_t nparams;
};

/* May ID id (numbered from 0 over all groups) be parameter param of unit? */
typedef bool ofs_order_fits_fn(const void *ctx, uint32_t id, uint32_t unit,
    uint32_t param);

struct ofs_order {
	const struct ofs_order_unit *unit;
	uint32_t nunits;
	/* of each group: the number of IDs */
	const uint32_t *group;
	uint32_t ngroups;
	/* The order is complete: one unit lists all parameters in the model's
	 * order. */
	bool known;
	ofs_order_fits_fn *fits;
	const void *ctx;
};

/* The parameter of an ID. unit is OFS_NONE if orders that fit give the ID
 * different parameters. */
struct ofs_order_name {
	uint32_t unit, param;
};

/* *twice gets a parameter that n names have twice; its unit is OFS_NONE if there
 * is none. ENOMEM. */
int ofs_order_repeated(const struct ofs_order_name *name, uint32_t n,
    struct ofs_order_name *twice, struct optimfs_error *err);

/* Fills name[], one per ID. EINVAL (OFS164): no order fits, or the search is
 * too large. */
int ofs_order_find(const struct ofs_order *o, struct ofs_order_name *name,
    struct optimfs_error *err);

#endif
