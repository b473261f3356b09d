/* fsdp_dtensor.h - shared declarations of the keys of Megatron-FSDP */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FORMAT_FSDP_DTENSOR_H
#define OFS_FORMAT_FSDP_DTENSOR_H

#include <stdbool.h>
#include <stdint.h>

#include "optimfs/error.h"

#include "base/keys.h"
#include "catalog/catalog.h"
#include "store/transport.h"

/* docs/formats/fsdp_dtensor.md. Megatron-FSDP saves DCP checkpoints in which
 * each parameter has its own options, where other optimizers have groups, and in
 * which fused parameters are in parts. This code gives them groups, and joins
 * the parts, before naming. It reads values, but no data of tensors. */

/* Called for every DCP checkpoint, whose entries begin at first: does nothing
 * where there is no param_to_group_meta. */
int ofs_fsdp_dtensor_entries(struct ofs_catalog *cat, uint32_t first,
    struct optimfs_error *err);

/* A parameter with options in an optimizer. */
struct ofs_dtensor_param {
	uint32_t root, name; /* a path; a string */
	uint32_t group;      /* a number; OFS_NONE: it is not known */
	uint32_t step;       /* the entry of its group's step; OFS_NONE */
};

struct ofs_dtensor {
	struct ofs_catalog *cat;
	uint32_t first, n; /* its entries are [first, n) */
	bool *gone;        /* of each of them: it is not shown */
	uint32_t meta, groups, params, state, step; /* strings */
	struct ofs_dtensor_param *param; /* in the order of entries */
	uint32_t nparams, param_cap;
	struct ofs_keys keys;   /* of each param: root and name */
	struct ofs_keys fused;  /* names without "module." before them */
	struct ofs_keys values; /* small stored values, by their bytes */
	struct ofs_transport *t;
	struct optimfs_error *err;
};

/* name without every "module." that it begins with. */
struct ofs_str ofs_dtensor_clean(struct ofs_str name);
/* The number of the value of an entry, a small item or a tensor without dimensions:
 * equal ones of one kind and type have equal numbers. 0: it cannot be compared, and why
 * says so; -1. */
int ofs_dtensor_value(struct ofs_dtensor *d, uint32_t entry, uint32_t *number,
    struct optimfs_error *why);
/* Shows entry[0] only, in place of n entries: tensors are joined along their
 * first dimension; of equal values each is a copy, which a commit changes,
 * too. */
int ofs_dtensor_join(struct ofs_dtensor *d, const uint32_t *entry, uint32_t n);

/* groups.c: makes groups of parameters with equal options. */
int ofs_dtensor_groups(struct ofs_dtensor *d);
/* steps.c: gives each parameter's state the step of its group. Paths must be
 * final. */
int ofs_dtensor_steps(struct ofs_dtensor *d);
/* parts.c: joins the parts of fused parameters, and of their state. */
int ofs_dtensor_parts(struct ofs_dtensor *d);

#endif
