/* duplicates.c - an optimizer that is stored twice, by name and by ID */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdlib.h>

#include "base/map.h"
#include "base/memory.h"
#include "base/str.h"
#include "naming/naming_impl.h"

/* A job may leave its optimizer twice, keyed by name and keyed by ID, each in a
 * file. They must not be shown as two optimizers: the one with names is kept,
 * the other goes to extra/. They are the same if the names, types and shapes of
 * their states are equal. The weights that DeepSpeed keeps with the states do
 * not count: in a view of its files only the optimizer with names has them. */

struct signature {
	uint64_t n, sum; /* of the tensors, independent of their order */
	bool names, numbers;
};

static void count(const struct naming *c, uint32_t entry, struct signature *s)
{
	const struct ofs_entry *e = &c->cat->entries[entry];
	struct naming_rest rest = ofs_naming_rest(c, entry);
	uint32_t what[3];

	if (rest.c == NULL || rest.n < 3 ||
	    OFS_PATH_STR(rest.c[0]) != c->keyword[NAMING_STATES] ||
	    e->kind != OFS_ENTRY_TENSOR ||
	    ofs_str_is(ofs_catalog_string(c->cat,
			   OFS_PATH_STR(rest.c[rest.n - 1])),
		"fp32"))
		return;
	if (ofs_str_all_digits(ofs_catalog_string(c->cat, rest.c[1])))
		s->numbers = true;
	else
		s->names = true;
	what[0] = OFS_PATH_STR(rest.c[rest.n - 1]);
	what[1] = c->cat->tensors[e->ref].shape;
	what[2] = c->cat->tensors[e->ref].dtype;
	s->sum += ofs_map_hash(what, sizeof(what));
	s->n++;
}

static bool are_duplicates(const struct signature *named,
    const struct signature *id)
{
	return named->n > 0 && named->n == id->n && named->sum == id->sum &&
	    named->names && !named->numbers && id->numbers && !id->names;
}

static int drop(struct naming *c, uint32_t root, struct optimfs_error *err)
{
	const struct naming_candidate *r = &c->root[root];
	struct ofs_str last = { "", 0 };

	if (r->n > 0)
		last = ofs_catalog_string(c->cat, r->c[r->n - 1]);
	c->root[root].accepted = false;
	for (uint32_t i = 0; i < c->cat->nentries; i++)
		if (c->slot[i].root == root)
			c->slot[i] = (struct naming_slot){ OFS_NONE, 0 };
	return ofs_catalog_note(c->cat, OFS_NOTE_WARNING, 0, err,
	    "OFS643 '%.*s' has a second copy of the optimizer, by parameter ID: "
	    "it is shown below extra/ (-o optim_key= shows it instead)",
	    OFS_STR_ARGS(last, 200));
}

int ofs_naming_drop_duplicates(struct naming *c, uint32_t *naccepted,
    struct optimfs_error *err)
{
	struct signature *s = calloc(c->nroots, sizeof(*s));
	int ret = 0;

	if (s == NULL)
		return ofs_no_memory(err);
	for (uint32_t i = 0; i < c->cat->nentries; i++)
		if (c->slot[i].root != OFS_NONE)
			count(c, i, &s[c->slot[i].root]);
	for (uint32_t a = 0; a < c->nroots; a++)
		for (uint32_t b = 0; b < c->nroots && ret == 0; b++) {
			if (!c->root[a].accepted || !c->root[b].accepted ||
			    !are_duplicates(&s[a], &s[b]))
				continue;
			ret = drop(c, b, err);
			--*naccepted;
		}
	free(s);
	return ret;
}
