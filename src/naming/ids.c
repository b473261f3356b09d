/* ids.c - integer parameter IDs, and the names that they have */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "naming/ids.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/memory.h"
#include "base/step.h"
#include "base/str.h"
#include "naming/naming_impl.h"

/* optimizer.state_dict() has numbers for parameters. A name needs evidence, and
 * there are three kinds, of which the first that applies decides (docs/naming.md,
 * "Integer IDs"):
 *
 *     ofs_ids_of_file     a person names them: ids=FILE
 *     ofs_ids_of_groups   the optimizer was given names: param_names
 *     ofs_ids_of_model    the model's tensors, in order or by shape: ids=model,
 *                         or if a trainer is known to have them all
 *
 * Without evidence IDs stay what they are. A wrong name is worse than none: state
 * of equal shapes can be exchanged, and training goes on with it. */

/* In a pickle the keys of optimizer.state_dict() are integers, and names are
 * text, even those of a ParameterList: "0", "1". Where all keys are text, a
 * number is the name that a parameter has. */
bool ofs_naming_is_id(const struct naming *c, uint32_t root, struct ofs_str key,
    uint32_t *id)
{
	return ofs_str_number(key, id) &&
	    (c->root[root].integers || !ofs_keys_has(&c->fqns, key));
}

void ofs_naming_integers(struct naming *c)
{
	for (uint32_t i = 0; i < c->cat->nentries; i++)
		if (c->slot[i].root != OFS_NONE &&
		    ofs_naming_key(c, i).integer)
			c->root[c->slot[i].root].integers = true;
}

/* Note the first number and the first name among the keys of an optimizer's
 * state. */
static void note_key(struct naming *c, uint32_t entry,
    const struct naming_key *key)
{
	struct naming_candidate *r = &c->root[c->slot[entry].root];
	uint32_t id;

	if (ofs_naming_is_id(c, c->slot[entry].root, key->id.s, &id)) {
		if (!r->numbers)
			r->first_number = entry;
		r->numbers = true;
		r->sound |= ofs_entry_error(c->cat, &c->cat->entries[entry]) ==
		    OFS_NONE;
		if (id > r->max_id)
			r->max_id = id;
		return;
	}
	if (!r->names)
		r->first_name = entry;
	r->names = true;
}

static struct ofs_str id_of(const struct naming *c, uint32_t entry)
{
	return ofs_naming_key(c, entry).id.s;
}

/* An optimizer may keep other state under a name beside its parameters' IDs, as
 * PyTorch allows. Where the keys were split by the rules above, the split may
 * be wrong instead. */
static int mixed(struct naming *c, const struct naming_candidate *r,
    struct optimfs_error *err)
{
	struct ofs_str number = id_of(c, r->first_number);
	struct ofs_str name = id_of(c, r->first_name);
	bool text = (c->slot[r->first_number].at & SLOT_TEXT) != 0;

	return ofs_catalog_note(c->cat, OFS_NOTE_WARNING, EUCLEAN, err,
	    "OFS637 the optimizer's state has integer and string keys: first "
	    "integer %.*s, first string \"%.*s\"%s",
	    OFS_STR_ARGS(number, 100), OFS_STR_ARGS(name, 100),
	    text ? " (or the dotted keys were split wrongly)" : "");
}

static int look_at_keys(struct naming *c, struct optimfs_error *err)
{
	for (uint32_t i = 0; i < c->cat->nentries; i++) {
		struct naming_key key = ofs_naming_key(c, i);

		if (key.kind == NAMING_STATE &&
		    (c->slot[i].at & SLOT_UNMATCHED) == 0)
			note_key(c, i, &key);
	}
	for (uint32_t i = 0; i < c->nroots; i++) {
		struct naming_candidate *r = &c->root[i];

		/* unreadable state under a number may have a name */
		if (r->names && !r->sound)
			r->numbers = false;
		if (r->accepted && r->numbers && r->names &&
		    mixed(c, r, err) == -1)
			return -1;
	}
	return 0;
}

/* Which optimizer ids= is for. */

static int several(struct naming *c, uint32_t first, uint32_t n,
    struct optimfs_error *err)
{
	struct ofs_buf b = { 0 };

	ofs_naming_join(c, c->root[first].c, c->root[first].n, '.', &b);
	ofs_buf_putc(&b, 0);
	optimfs_fail(err, EINVAL,
	    "OFS635 ids=: %u optimizers have integer parameter IDs, and a file "
	    "has the names of one: choose it with optim_key=, such as "
	    "optim_key=%.100s",
	    n, b.bad ? "" : (char *)b.data);
	ofs_buf_fini(&b);
	return -1;
}

/* The optimizers with integer keys; unnamed: only those without names. *first
 * gets the first one. */
static uint32_t numbered(const struct naming *c, bool unnamed, uint32_t *first)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < c->nroots; i++)
		if (c->root[i].accepted && c->root[i].numbers &&
		    (!unnamed || c->root[i].ids == OFS_NONE) && n++ == 0)
			*first = i;
	return n;
}

/* The only optimizer, if it has no state: its groups may still list IDs. */
static uint32_t only_optimizer(const struct naming *c)
{
	uint32_t n = 0, only = OFS_NONE;

	for (uint32_t i = 0; i < c->nroots; i++)
		if (c->root[i].accepted) {
			only = i;
			n++;
		}
	return n == 1 && !c->root[only].names ? only : OFS_NONE;
}

/* *root = the optimizer for ids=: the only one with integer keys, or the only
 * one. OFS_NONE, with a note, when there is none. */
static int choose_root(struct naming *c, uint32_t *root,
    struct optimfs_error *err)
{
	uint32_t n = numbered(c, true, root);

	if (n == 0)
		n = numbered(c, false, root);
	if (n > 1)
		return several(c, *root, n, err);
	if (n == 0)
		*root = only_optimizer(c);
	if (*root != OFS_NONE || c->cat->ids_used)
		return 0;
	return ofs_catalog_note(c->cat, OFS_NOTE_WARNING, 0, err,
	    "OFS635 ids= has no effect: no optimizer here has integer parameter IDs");
}

/* The names that were found. */

/* A person may know better than the checkpoint, but should see it. */
static int note_conflict(struct naming *c, const struct ofs_id_names *had,
    const struct ofs_ids *ids, struct optimfs_error *err)
{
	for (uint32_t i = 0; i < ids->n && i < had->n; i++)
		if (ids->v[i].name != had->name[i])
			return ofs_catalog_note(c->cat, OFS_NOTE_WARNING, 0,
			    err,
			    "OFS634 %s: line %u: ID %u is called %.150s, and "
			    "param_names of the optimizer has %.150s",
			    ids->file, ids->v[i].line, i,
			    ofs_catalog_string(c->cat, ids->v[i].name).p,
			    ofs_catalog_string(c->cat, had->name[i]).p);
	return 0;
}

static int store(struct naming *c, const struct ofs_ids *ids,
    struct optimfs_error *err)
{
	struct naming_candidate *r = &c->root[ids->root];
	uint32_t *v = ofs_arena_alloc(&c->cat->arena, ids->n * sizeof(*v));
	struct ofs_id_names *names;

	if (v == NULL)
		return ofs_no_memory(err);
	for (uint32_t i = 0; i < ids->n; i++)
		v[i] = ids->v[i].name;
	if (r->ids == OFS_NONE)
		r->ids = c->cat->nid_names++;
	else if (note_conflict(c, &c->cat->id_names[r->ids], ids, err) == -1)
		return -1;
	names = &c->cat->id_names[r->ids];
	*names = (struct ofs_id_names){ r->name, ids->n, v };
	return 0;
}

typedef int evidence_fn(struct naming *c, struct ofs_ids *ids,
    struct optimfs_error *err);

/* A program may number parameters in another order than that of the model: from
 * the last layer to the first, or adapters before the rest. Then each name may
 * have the state of another parameter of its shape. */
static int note_order(struct naming *c, const struct ofs_ids *ids,
    struct optimfs_error *err)
{
	return ofs_catalog_note(c->cat, OFS_NOTE_WARNING, 0, err,
	    "OFS631 ids=model: %u ID%s named by the order of the model alone, "
	    "as others have the same shape: wrong if the optimizer was not "
	    "given its parameters in this order",
	    ids->by_order, ids->by_order == 1 ? " is" : "s are");
}

static int name_ids(struct naming *c, uint32_t root, evidence_fn *evidence,
    struct optimfs_error *err)
{
	struct ofs_ids ids = { .root = root };
	int ret = evidence(c, &ids, err);

	if (ret == 0)
		ret = store(c, &ids, err);
	if (ret == 0 && ids.by_order > 0)
		ret = note_order(c, &ids, err);
	free(ids.v);
	return ret == -1 ? -1 : 0;
}

/* The names of ids=. Those of param_names are known by then: there is nothing
 * more to find for ids=model. */
static int asked_for(struct naming *c, struct optimfs_error *err)
{
	bool model = strcmp(c->opt->ids, "model") == 0;
	uint32_t root = OFS_NONE;

	if (choose_root(c, &root, err) == -1)
		return -1;
	if (root == OFS_NONE || (model && c->root[root].ids != OFS_NONE))
		return 0;
	return name_ids(c, root, model ? ofs_ids_of_model : ofs_ids_of_file,
	    err);
}

/* The names that ids=model would give, if no one has to decide anything: the
 * only optimizer has as many parameters as the model, and each has one that
 * fits. */
static int assume_model(struct naming *c, struct optimfs_error *err)
{
	struct optimfs_error why = { 0 };
	struct ofs_ids ids = { 0 };
	int ret = 0;

	if (!c->cat->ids_of_model || numbered(c, true, &ids.root) != 1)
		return 0;
	if (ofs_ids_of_model(c, &ids, &why) == 0)
		ret = ids.whole ? store(c, &ids, err) : 0;
	else if (ofs_must_stop(&why))
		ret = optimfs_fail_with(err, &why);
	free(ids.v);
	return ret;
}

int ofs_naming_ids(struct naming *c, struct optimfs_error *err)
{
	if (look_at_keys(c, err) == -1)
		return -1;
	c->cat->id_names = ofs_arena_alloc(&c->cat->arena,
	    (c->nroots + 1ull) * sizeof(*c->cat->id_names));
	if (c->cat->id_names == NULL)
		return ofs_no_memory(err);
	for (uint32_t i = 0; i < c->nroots; i++) {
		c->root[i].ids = OFS_NONE;
		if (c->root[i].accepted &&
		    name_ids(c, i, ofs_ids_of_groups, err) == -1)
			return -1;
	}
	return c->opt->ids == NULL ? assume_model(c, err) : asked_for(c, err);
}

uint32_t ofs_naming_id_name(const struct naming *c, uint32_t root,
    struct ofs_str id)
{
	const struct ofs_id_names *names;
	uint32_t number;

	if (c->root[root].ids == OFS_NONE ||
	    !ofs_naming_is_id(c, root, id, &number))
		return OFS_NONE;
	names = &c->cat->id_names[c->root[root].ids];
	return number < names->n ? names->name[number] : OFS_NONE;
}
