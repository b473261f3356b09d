/* optim.h - one raw optimizer: what fsdp_*.c share of it */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FORMAT_FSDP_OPTIM_H
#define OFS_FORMAT_FSDP_OPTIM_H

#include "format/fsdp/fsdp.h"

/* Raw optimizer.state_dict() of each rank. */
int ofs_fsdp_optims(struct ofs_fsdp *f, struct optimfs_error *err);

/* State of one ID under one name: a group of the set. */
struct ofs_fsdp_state {
	uint32_t id, group;
	bool tensor; /* of at least one dimension */
	bool nested; /* below the name that the optimizer gave it */
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
	/* of each ID: its name where it is in no unit; else p is NULL */
	struct ofs_str *ignored;
	bool packed;   /* an ID is a unit, not a parameter */
	uint8_t *dims; /* what each list has, with by_dims */
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
/* Is each rank's tensor of g, which is a state, what that rank must have of
 * the parameter, or of its unit when o->packed? */
bool ofs_fsdp_fits(const struct ofs_fsdp_optim *o,
    const struct ofs_ranks_group *g, struct ofs_order_name at);

/* optim_ids.c: fill o->name, o->ignored and o->packed. EINVAL (OFS164, OFS635):
 * it cannot be told. */
int ofs_fsdp_match(struct ofs_fsdp_optim *o, struct optimfs_error *err);
/* optim_named.c: by names that somebody wrote down, in the units file or in that
 * of ids=. 1: nobody did. */
int ofs_fsdp_match_names(struct ofs_fsdp_optim *o, struct optimfs_error *err);
/* optim_ids.c: does the state of id allow for that parameter? */
bool ofs_fsdp_may_be(const struct ofs_fsdp_optim *o, uint32_t id,
    struct ofs_order_name at);

/* optim_state.c: add the entries of all that has a name now. */
int ofs_fsdp_states(struct ofs_fsdp_optim *o, struct optimfs_error *err);

#endif
