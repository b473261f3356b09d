/* optim_groups.c - an optimizer's groups, and the IDs of its parameters */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "layout/optim_groups.h"

#include <errno.h>
#include <stdlib.h>

#include "base/memory.h"
#include "pickle/pickle.h"
#include "text/id_names.h"

uint32_t ofs_optim_groups_id(const struct ofs_optim_groups *g,
    struct ofs_str name, struct optimfs_error *err)
{
	uint32_t id = ofs_keys_find(&g->names, name.p, name.len);

	if (id == OFS_NONE)
		optimfs_fail(err, EUCLEAN,
		    "OFS452 %.120s has state, but no group of the optimizer "
		    "lists it, so that it has no ID",
		    name.p);
	return id;
}

void ofs_optim_groups_fini(struct ofs_optim_groups *g)
{
	free(g->v);
	ofs_keys_fini(&g->names);
	*g = (struct ofs_optim_groups){ 0 };
}

uint32_t ofs_optim_groups_of(const struct ofs_state *s, uint32_t node)
{
	return ofs_state_child(s, node, "param_groups");
}

struct builder {
	struct ofs_optim_groups *g;
	const struct ofs_state *s;
	const struct ofs_render *from;
	struct optimfs_error *err;
};

/* Give the next ID to a name, which is copied. */
static int add_name(struct builder *b, const void *p, size_t n)
{
	uint32_t known = b->g->names.n;
	uint32_t id = ofs_keys_copy(&b->g->names, p, n, b->err);

	if (id == OFS_NONE)
		return -1;
	if (id < known)
		return optimfs_fail(b->err, EUCLEAN,
		    "OFS451 %.120s is in the optimizer's groups twice",
		    b->g->names.v[id].p);
	return 0;
}

/* Add an item of params: a name, or a number which may have a name. */
static int add_item(struct builder *b, const struct ofs_entry *e,
    const struct ofs_pickle *doc, uint32_t node)
{
	struct ofs_str s = ofs_pk_str(doc, node);
	struct ofs_buf text = { 0 };
	int64_t id;
	int ret;

	if (ofs_pk_kind(doc, node) == OFS_PK_STR ||
	    ofs_id_name(b->s->cat, ofs_id_names_of(b->s->cat, e), doc, node,
		&s))
		return add_name(b, s.p, s.len);
	if (!ofs_pk_int(doc, node, &id))
		return optimfs_fail(b->err, EUCLEAN,
		    "OFS451 params of a group has something that is neither a "
		    "name nor a number");
	ofs_buf_printf(&text, "%lld", (long long)id);
	ret =
	    text.bad ? ofs_no_memory(b->err) : add_name(b, text.data, text.len);
	ofs_buf_fini(&text);
	return ret;
}

static int add_params(struct builder *b, uint32_t node)
{
	uint32_t params = ofs_state_child(b->s, node, "params");
	const struct ofs_entry *e;
	const struct ofs_pickle *doc;
	uint32_t list;
	int ret = 0;

	if (params == OFS_NONE || b->s->node[params].entry == OFS_NONE)
		return optimfs_fail(b->err, EUCLEAN,
		    "OFS451 a group of the optimizer does not list its "
		    "parameters (params)");
	e = &b->s->cat->entries[b->s->node[params].entry];
	if (e->kind == OFS_ENTRY_TENSOR)
		return optimfs_fail(b->err, EUCLEAN,
		    "OFS451 params of a group is a tensor");
	if (ofs_render_value(b->from, e, &doc, &list, b->err) == -1)
		return ofs_render_fail_in(b->s->cat, e, b->err);
	for (uint32_t i = 0; i < ofs_pk_len(doc, list) && ret == 0; i++)
		ret = add_item(b, e, doc, ofs_pk_item(doc, list, i));
	ofs_render_release(b->s->cat, e, doc);
	return ret;
}

static int read_list(struct builder *b, uint32_t node)
{
	struct ofs_optim_groups *g = b->g;

	for (uint32_t i = b->s->node[node].child; i != OFS_NONE;
	     i = b->s->node[i].next) {
		struct ofs_optim_group *v = &g->v[g->n++];

		*v = (struct ofs_optim_group){ .node = i, .first = g->names.n };
		if (add_params(b, i) == -1)
			return -1;
		v->n = g->names.n - v->first;
	}
	return 0;
}

/* Append the options of one parameter: keys and pickled values. */
static int put_options(struct builder *b, uint32_t node, struct ofs_buf *out)
{
	struct ofs_state_pickler p;

	ofs_state_pickler_init(&p, b->s, b->from, out, NULL, b->err);
	return ofs_state_put(&p, node);
}

/* The group of a parameter with the options of node; OFS_NONE on failure. */
static uint32_t group_of(struct builder *b, struct ofs_keys *options,
    uint32_t node)
{
	struct ofs_optim_groups *g = b->g;
	struct ofs_buf text = { 0 };
	uint32_t group = OFS_NONE;

	if (put_options(b, node, &text) == 0) {
		if (text.bad)
			ofs_no_memory(b->err);
		else
			group =
			    ofs_keys_copy(options, text.data, text.len, b->err);
	}
	ofs_buf_fini(&text);
	if (group == g->n)
		g->v[g->n++] = (struct ofs_optim_group){ .node = node };
	return group;
}

/* Add the names sorted by group. */
static int add_by_group(struct builder *b, uint32_t node, const uint32_t *group)
{
	struct ofs_optim_groups *g = b->g;

	for (uint32_t k = 0; k < g->n; k++) {
		uint32_t nth = 0;

		g->v[k].first = g->names.n;
		for (uint32_t i = b->s->node[node].child; i != OFS_NONE;
		     i = b->s->node[i].next) {
			struct ofs_str s = ofs_state_key(b->s, i);

			if (group[nth++] == k && add_name(b, s.p, s.len) == -1)
				return -1;
		}
		g->v[k].n = g->names.n - g->v[k].first;
	}
	return 0;
}

static int read_flattened(struct builder *b, uint32_t node, uint32_t n)
{
	struct ofs_keys options = { 0 };
	uint32_t *group = calloc(n + 1ull, sizeof(*group)), nth = 0;
	int ret = 0;

	if (group == NULL)
		ret = ofs_no_memory(b->err);
	for (uint32_t i = b->s->node[node].child; i != OFS_NONE && ret == 0;
	     i = b->s->node[i].next) {
		group[nth] = group_of(b, &options, i);
		if (group[nth++] == OFS_NONE)
			ret = -1;
	}
	if (ret == 0)
		ret = add_by_group(b, node, group);
	ofs_keys_fini(&options);
	free(group);
	return ret;
}

int ofs_optim_groups_build(struct ofs_optim_groups *g,
    const struct ofs_state *s, uint32_t node, const struct ofs_render *from,
    struct optimfs_error *err)
{
	struct builder b = { .g = g, .s = s, .from = from, .err = err };
	uint32_t n = 0;
	int ret;

	*g = (struct ofs_optim_groups){ .flattened = !s->node[node].list };
	for (uint32_t i = s->node[node].child; i != OFS_NONE;
	     i = s->node[i].next)
		n++;
	g->v = calloc(n + 1ull, sizeof(*g->v));
	if (g->v == NULL)
		ret = ofs_no_memory(err);
	else if (g->flattened)
		ret = read_flattened(&b, node, n);
	else
		ret = read_list(&b, node);
	if (ret == -1)
		ofs_optim_groups_fini(g);
	return ret;
}

/* Does ofs_optim_groups_check for one optimizer. */
static int check_ids(const struct ofs_state *s, uint32_t optim,
    const struct ofs_render *from, struct optimfs_error *err)
{
	uint32_t state = ofs_state_child(s, optim, "state");
	uint32_t groups = ofs_optim_groups_of(s, optim), i;
	struct optimfs_error why = { 0 };
	struct ofs_optim_groups g;
	int ret = 0;

	if (state == OFS_NONE || groups == OFS_NONE ||
	    !s->node[state].numbers || !s->node[groups].list)
		return 0;
	/* groups that are not understood are written as they are */
	if (ofs_optim_groups_build(&g, s, groups, from, &why) == -1)
		return why.code == EUCLEAN ? 0 : optimfs_fail_with(err, &why);
	for (i = s->node[state].child; i != OFS_NONE && ret == 0;
	     i = s->node[i].next) {
		struct ofs_str id = ofs_state_key(s, i);
		uint32_t v; /* other keys are state of the optimizer itself */

		if (ofs_str_number(id, &v) && !ofs_keys_has(&g.names, id))
			ret = optimfs_fail(err, EUCLEAN,
			    "OFS644 there is state of parameter ID %.*s, which "
			    "no group of the optimizer lists: if ranks saved "
			    "optimizers of their own (a pipeline) by ID, they "
			    "stored one over the other",
			    OFS_STR_ARGS(id, 20));
	}
	ofs_optim_groups_fini(&g);
	return ret;
}

int ofs_optim_groups_check(const struct ofs_state *s,
    const struct ofs_render *from, struct optimfs_error *err)
{
	int ret = check_ids(s, 0, from, err);

	for (uint32_t i = s->node[0].child; i != OFS_NONE && ret == 0;
	     i = s->node[i].next)
		ret = check_ids(s, i, from, err);
	return ret;
}
