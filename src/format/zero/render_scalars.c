/* render_scalars.c - state of parameters without dimensions */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "format/zero/render.h"

/* The exp_avg of a 0-dim parameter, such as a temperature, is a 0-dim tensor
 * like step. But ZeRO cuts it: it is one element of the flat group. Whether a
 * state is cut follows from its name, as parameters with dimensions show. */

/* Most state names of one optimizer. */
#define NAMES_MAX 64

struct names {
	const char *name[NAMES_MAX];
	unsigned int n;
};

static bool has(const struct names *names, const char *name)
{
	for (unsigned int i = 0; i < names->n; i++)
		if (strcmp(names->name[i], name) == 0)
			return true;
	return false;
}

static bool is_tensor(const struct ofs_zero_new *z, uint32_t entry)
{
	return entry != OFS_NONE &&
	    z->m.cat->entries[entry].kind == OFS_ENTRY_TENSOR;
}

/* Is this the state directory of a parameter without dimensions? */
static bool is_scalar(const struct ofs_zero_new *z, uint32_t dir)
{
	uint32_t param = ofs_optim_groups_id(&z->m.groups,
	    ofs_state_key(&z->m.optim, dir), NULL);

	return param != OFS_NONE &&
	    ofs_flat_tensor(&z->m, z->m.param[param].model)->ndim == 0;
}

static void learn(const struct ofs_zero_new *z, uint32_t dir,
    struct names *names)
{
	const struct ofs_state_node *v = z->m.optim.node;

	for (uint32_t k = v[dir].child; k != OFS_NONE; k = v[k].next) {
		const char *name = ofs_state_key(&z->m.optim, k).p;

		if (is_tensor(z, v[k].entry) && names->n < NAMES_MAX &&
		    ofs_flat_tensor(&z->m, v[k].entry)->ndim > 0 &&
		    !has(names, name))
			names->name[names->n++] = name;
	}
}

static void mark(struct ofs_zero_new *z, uint32_t dir,
    const struct names *names)
{
	const struct ofs_state_node *v = z->m.optim.node;

	for (uint32_t k = v[dir].child; k != OFS_NONE; k = v[k].next)
		if (is_tensor(z, v[k].entry) &&
		    has(names, ofs_state_key(&z->m.optim, k).p))
			z->m.scalar[v[k].entry] = true;
}

int ofs_zero_new_scalars(struct ofs_zero_new *z, struct optimfs_error *err)
{
	const struct ofs_state_node *v = z->m.optim.node;
	uint32_t state = ofs_state_child(&z->m.optim, 0, "state");
	uint32_t first = state == OFS_NONE ? OFS_NONE : v[state].child;
	struct names names = { .n = 0 };
	bool any = false;

	for (uint32_t i = first; i != OFS_NONE; i = v[i].next) {
		bool scalar = is_scalar(z, i);

		any = any || scalar;
		if (!scalar)
			learn(z, i, &names);
	}
	if (!any)
		return 0;
	z->m.scalar = calloc(z->m.cat->nentries + 1ull, sizeof(*z->m.scalar));
	if (z->m.scalar == NULL)
		return ofs_no_memory(err);
	for (uint32_t i = first; i != OFS_NONE; i = v[i].next)
		if (is_scalar(z, i))
			mark(z, i, &names);
	return 0;
}
