/* optim.h - one raw optimizer, shared by the files that read it */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FORMAT_FSDP_OPTIM_H
#define OFS_FORMAT_FSDP_OPTIM_H

#include "format/fsdp/fsdp.h"

/* Adds each rank's raw optimizer.state_dict(). */
int ofs_fsdp_optims(struct ofs_fsdp *f, struct optimfs_error *err);

/* A state of an ID: a group of the set. */
struct ofs_fsdp_state {
	uint32_t id, group;
	bool tensor; /* at least one dimension */
	bool nested; /* below the optimizer's name of the state */
};

/* One optimizer: a mapping with "state", by integer IDs, and "param_groups".
 * Here IDs are numbered from 0 over all groups, independent of the file's
 * integers. */
struct ofs_fsdp_optim {
	struct ofs_fsdp *f;
	uint32_t *parent;
	uint32_t nparent;
	uint32_t *params; /* groups of the set, each a list of IDs */
	uint32_t *size;   /* of each list */
	uint32_t nlists;
	struct number {
		int64_t value;
		uint32_t id;
	} * number; /* sorted by value */
	uint32_t nids;
	struct ofs_fsdp_state *state; /* sorted by id */
	uint32_t nstates;
	uint32_t *first;             /* of each ID: its first state */
	struct ofs_unit_place *name; /* of each ID */
	/* of each ID that is in no unit: its name; else p is NULL */
	struct ofs_str *ignored;
	bool packed;   /* an ID is a unit, not a parameter */
	uint8_t *dims; /* of each list: matrices or vectors, with by_dims */
	bool by_dims;
};

/* optim_ids.c: is leaf a tensor? If so, *t is set. */
bool ofs_fsdp_shape(const struct ofs_fsdp *f, const struct ofs_ranks_leaf *leaf,
    struct ofs_torch_tensor *t);
/* Is t a whole parameter, as under NO_SHARD? */
bool ofs_fsdp_is_whole(const struct ofs_fsdp *f, struct ofs_unit_place at,
    const struct ofs_torch_tensor *t);
/* Is each rank's tensor of g, a state, as large as that rank's slice of the
 * parameter, or of its unit if o->packed? */
bool ofs_fsdp_fits(const struct ofs_fsdp_optim *o,
    const struct ofs_ranks_group *g, struct ofs_unit_place at);

/* optim_ids.c: fills o->name, o->ignored and o->packed. EINVAL (OFS164,
 * OFS635): the names cannot be determined. */
int ofs_fsdp_match(struct ofs_fsdp_optim *o, struct optimfs_error *err);
/* optim_named.c: the same, from names in the units file or in the file of ids=.
 * 1: neither has names. */
int ofs_fsdp_match_names(struct ofs_fsdp_optim *o, struct optimfs_error *err);
/* optim_named.c: *twice gets a parameter that n names have twice; its unit is
 * OFS_NONE if there is none. ENOMEM. */
int ofs_fsdp_repeated(const struct ofs_unit_place *name, uint32_t n,
    struct ofs_unit_place *twice, struct optimfs_error *err);
/* optim_ids.c: does the state of id fit this parameter? */
bool ofs_fsdp_may_be(const struct ofs_fsdp_optim *o, uint32_t id,
    struct ofs_unit_place at);

/* optim_state.c: adds the entries of all named state. */
int ofs_fsdp_states(struct ofs_fsdp_optim *o, struct optimfs_error *err);

#endif
