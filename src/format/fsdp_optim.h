/* fsdp_optim.h - one raw optimizer; only fsdp_optim.c and fsdp_ids.c use it */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FSDP_OPTIM_H
#define OFS_FSDP_OPTIM_H

#include "format/fsdp.h"

/* State of one ID under one name: a group of the set. */
struct ofs_fsdp_state {
	uint32_t id, group;
	bool tensor; /* of at least one dimension */
};

/* One optimizer: a mapping with "state", by integer IDs, and "param_groups".
 * IDs are counted from 0 over all groups, whatever integers they are. */
struct ofs_fsdp_optim {
	struct ofs_fsdp *f;
	uint32_t *parent; /* its path */
	uint32_t nparent;
	uint32_t *params; /* groups of the set: each list of IDs */
	uint32_t *size;   /* of each list */
	uint32_t nlists;
	struct number {
		int64_t value;
		uint32_t id;
	} * number; /* sorted by value */
	uint32_t nids;
	struct ofs_fsdp_state *state; /* in order of id */
	uint32_t nstates;
	uint32_t *first;             /* of each ID: its run of states */
	struct ofs_order_name *name; /* of each ID */
	bool packed;                 /* an ID is a unit, not a parameter */
	uint8_t *dims;               /* what each list has, with by_dims */
	bool by_dims;
};

static inline const struct ofs_ranks_leaf *ofs_fsdp_leaf(const struct ofs_fsdp
							     *f,
    const struct ofs_ranks_group *g)
{
	return &f->set->leaf[g->first];
}
/* Is leaf a tensor? Then *t is it. */
bool ofs_fsdp_shape(const struct ofs_fsdp *f, const struct ofs_ranks_leaf *leaf,
    struct ofs_torch_tensor *t);
/* Is t all of a parameter, as under NO_SHARD? */
bool ofs_fsdp_is_whole(const struct ofs_fsdp *f, struct ofs_order_name at,
    const struct ofs_torch_tensor *t);
/* Fill o->name and o->packed. EINVAL (OFS164): it cannot be told. */
int ofs_fsdp_match(struct ofs_fsdp_optim *o, struct optimfs_error *err);

#endif
