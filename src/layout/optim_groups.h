/* optim_groups.h - an optimizer's groups, and the IDs of its parameters */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_LAYOUT_OPTIM_GROUPS_H
#define OFS_LAYOUT_OPTIM_GROUPS_H

#include "base/keys.h"
#include "layout/state_dict.h"

/* PyTorch numbers the parameters of an optimizer in the order of its groups. A
 * group is a dict of options and a list of parameters. A flattened optimizer
 * state has options for every parameter instead; parameters with equal options
 * form a group. */
struct ofs_optim_groups {
	struct ofs_optim_group {
		/* in the state; its children are the options */
		uint32_t node;
		uint32_t first, n; /* its run of names */
	} * v;
	uint32_t n;
	bool flattened;
	struct ofs_keys names; /* of all groups; the number is the ID */
};

/* If node is an optimizer, the node of its param_groups; else OFS_NONE. */
uint32_t ofs_optim_groups_of(const struct ofs_state *s, uint32_t node);
/* Read the groups at node, which is a param_groups. EUCLEAN (OFS451): a group
 * does not list its parameters, or a parameter is in two groups. On failure *g
 * needs no _fini. */
int ofs_optim_groups_build(struct ofs_optim_groups *g,
    const struct ofs_state *s, uint32_t node, const struct ofs_render *from,
    struct optimfs_error *err);
/* Does a list of some group have each integer ID with state? EUCLEAN (OFS644),
 * if not: the checkpoint that the view writes could not be read. */
int ofs_optim_groups_check(const struct ofs_state *s,
    const struct ofs_render *from, struct optimfs_error *err);
void ofs_optim_groups_fini(struct ofs_optim_groups *g);
/* The ID of a parameter with state; OFS_NONE, with EUCLEAN (OFS452): no group
 * lists it. */
uint32_t ofs_optim_groups_id(const struct ofs_optim_groups *g,
    struct ofs_str name, struct optimfs_error *err);

#endif
