/* steps.c - the step of a group, for each of its parameters */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "base/keys.h"
#include "format/fsdp_dtensor/fsdp_dtensor.h"

/* TransformerEngine's optimizers count steps in each group. Other frameworks
 * have a step beside each parameter's moments, and so the tree gets these,
 * too: other names of the group's value. */

struct steps {
	struct ofs_dtensor *d;
	struct ofs_keys states; /* paths of directories of states, in order */
	struct ofs_keys have;   /* those with a step */
};

/* Notes the directory of a state: ROOT state NAME. */
static int note_state(struct steps *s, uint32_t entry)
{
	struct ofs_dtensor *d = s->d;
	uint32_t n, dir,
	    *c = ofs_catalog_copy_components(d->cat,
		d->cat->entries[entry].path, &n, d->err);
	int ret = 0;

	if (c != NULL && n > 3 && c[n - 3] == d->state) {
		dir = ofs_catalog_path(d->cat, c, n - 1, d->err);
		if (dir == OFS_NONE ||
		    ofs_keys_copy(&s->states, &dir, sizeof(dir), d->err) ==
			OFS_NONE ||
		    (c[n - 1] == d->step &&
			ofs_keys_copy(&s->have, &dir, sizeof(dir), d->err) ==
			    OFS_NONE))
			ret = -1;
	}
	ret = c == NULL ? -1 : ret;
	free(c);
	return ret;
}

/* The step of the group of the parameter with this state, c[0..n). */
static int find_step(struct ofs_dtensor *d, const uint32_t *c, uint32_t n,
    uint32_t *step)
{
	uint32_t key[] = { ofs_catalog_path(d->cat, c, n - 2, d->err),
		c[n - 1] },
		 i = ofs_keys_find(&d->keys, key, sizeof(key));

	*step = i == OFS_NONE ? OFS_NONE : d->param[i].step;
	return key[0] == OFS_NONE ? -1 : 0;
}

static int add_step(struct ofs_dtensor *d, uint32_t dir)
{
	uint32_t n, path, step,
	    *c = ofs_catalog_copy_components(d->cat, dir, &n, d->err);
	const struct ofs_entry *e;
	int ret;

	if (c == NULL)
		return -1;
	ret = find_step(d, c, n, &step);
	if (ret == 0 && step != OFS_NONE) {
		e = &d->cat->entries[step];
		if (e->kind == OFS_ENTRY_TENSOR)
			d->cat->tensors[e->ref].flags |= OFS_TENSOR_TIED;
		path = ofs_catalog_below(d->cat, c, n,
		    ofs_catalog_string(d->cat, d->step), d->err);
		ret = ofs_catalog_add(d->cat, path, e->kind, e->ref,
		    OFS_KEY_FIXED, d->err);
	}
	free(c);
	return ret;
}

int ofs_dtensor_steps(struct ofs_dtensor *d)
{
	struct steps s = { .d = d };
	uint32_t dir;
	int ret = 0;

	for (uint32_t i = d->first; i < d->n && ret == 0; i++)
		if (!d->gone[i - d->first])
			ret = note_state(&s, i);
	for (uint32_t i = 0; i < s.states.n && ret == 0; i++) {
		memcpy(&dir, s.states.v[i].p, sizeof(dir));
		if (ofs_keys_find(&s.have, &dir, sizeof(dir)) == OFS_NONE)
			ret = add_step(d, dir);
	}
	ofs_keys_fini(&s.states);
	ofs_keys_fini(&s.have);
	return ret;
}
