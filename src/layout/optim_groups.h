/* optim_groups.h - an optimizer's groups, and the IDs of its parameters */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_LAYOUT_OPTIM_GROUPS_H
#define OFS_LAYOUT_OPTIM_GROUPS_H

#include "base/arena.h"
#include "base/map.h"
#include "layout/state_dict.h"

/* PyTorch numbers the parameters of an optimizer in the order of its groups.
 * A group is a dict of options and a list of parameters; a flattened optimizer
 * state has the options of every parameter instead, and the parameters whose
 * options are alike were a group. */
struct ofs_optim_groups {
	struct ofs_optim_group {
		uint32_t node;     /* of the state: its children are options */
		uint32_t first, n; /* names */
	} * v;
	uint32_t n;
	bool flattened;
	struct ofs_str *name; /* of all groups: ID is the index */
	uint32_t nnames;
	struct ofs_arena arena;
	struct ofs_map map;
};

/* Is node an optimizer: has it param_groups? Then the node of those. */
uint32_t ofs_optim_groups_of(const struct ofs_state *s, uint32_t node);
/* The groups at node, which is called param_groups. EUCLEAN (OFS451): a group
 * does not list its parameters, or one is in two. On failure nothing is left to
 * free. */
int ofs_optim_groups_build(struct ofs_optim_groups *g,
    const struct ofs_state *s, uint32_t node, const struct ofs_render *from,
    struct optimfs_error *err);
void ofs_optim_groups_fini(struct ofs_optim_groups *g);
/* The ID of a parameter; OFS_NONE. */
uint32_t ofs_optim_groups_id(const struct ofs_optim_groups *g,
    struct ofs_str name);

#endif
