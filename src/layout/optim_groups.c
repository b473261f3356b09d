/* optim_groups.c - an optimizer's groups, and the IDs of its parameters */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "layout/optim_groups.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "pickle/pickle.h"
#include "text/id_names.h"

static bool same_name(const void *ctx, uint32_t index, const void *key,
    size_t n)
{
	struct ofs_str s = ((const struct ofs_optim_groups *)ctx)->name[index];

	return s.len == n && memcmp(s.p, key, n) == 0;
}

uint32_t ofs_optim_groups_id(const struct ofs_optim_groups *g,
    struct ofs_str name)
{
	return ofs_map_find(&g->map, ofs_map_hash(name.p, name.len), same_name,
	    g, name.p, name.len);
}

void ofs_optim_groups_fini(struct ofs_optim_groups *g)
{
	free(g->v);
	free(g->name);
	ofs_arena_fini(&g->arena);
	ofs_map_fini(&g->map);
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
	uint32_t cap;
	struct optimfs_error *err;
};

/* Give the next ID to a name, which is copied. */
static int add_name(struct builder *b, const void *p, size_t n)
{
	struct ofs_optim_groups *g = b->g;
	char *copy = ofs_arena_strndup(&g->arena, p, n);

	if (copy == NULL)
		return ofs_no_memory(b->err);
	if (ofs_grow(g->name, g->nnames, b->cap, b->err) == -1)
		return -1;
	g->name[g->nnames] = (struct ofs_str){ copy, (uint32_t)n };
	if (ofs_optim_groups_id(g, g->name[g->nnames]) != OFS_NONE)
		return optimfs_fail(b->err, EUCLEAN,
		    "OFS451 %.120s is in the optimizer's groups twice", copy);
	if (!ofs_map_add(&g->map, ofs_map_hash(p, n), g->nnames))
		return ofs_no_memory(b->err);
	g->nnames++;
	return 0;
}

/* Add an item of params: a name, or a number for which ids= may have a name. */
static int add_item(struct builder *b, const struct ofs_pickle *doc,
    uint32_t node)
{
	struct ofs_str s = ofs_pk_str(doc, node);
	struct ofs_buf text = { 0 };
	int64_t id;
	int ret;

	if (ofs_pk_kind(doc, node) == OFS_PK_STR ||
	    ofs_id_name(b->s->cat, doc, node, &s))
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
		ret = add_item(b, doc, ofs_pk_item(doc, list, i));
	ofs_render_release(b->s->cat, e, doc);
	return ret;
}

static int read_list(struct builder *b, uint32_t node)
{
	struct ofs_optim_groups *g = b->g;

	for (uint32_t i = b->s->node[node].child; i != OFS_NONE;
	     i = b->s->node[i].next) {
		struct ofs_optim_group *v = &g->v[g->n++];

		*v = (struct ofs_optim_group){ .node = i, .first = g->nnames };
		if (add_params(b, i) == -1)
			return -1;
		v->n = g->nnames - v->first;
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

struct options {
	struct ofs_buf text;
	size_t *end; /* of each group: end of its options in text */
	struct ofs_map map;
};

static bool same_options(const void *ctx, uint32_t index, const void *key,
    size_t n)
{
	const struct options *o = ctx;
	size_t start = index == 0 ? 0 : o->end[index - 1];

	return o->end[index] - start == n &&
	    memcmp(o->text.data + start, key, n) == 0;
}

/* The group of a parameter with these options; OFS_NONE on failure. */
static uint32_t group_of(struct builder *b, struct options *o, uint32_t node)
{
	struct ofs_optim_groups *g = b->g;
	size_t start = o->text.len, n;
	uint32_t hash, found;
	const uint8_t *key;

	if (put_options(b, node, &o->text) == -1)
		return OFS_NONE;
	if (o->text.bad) {
		ofs_no_memory(b->err);
		return OFS_NONE;
	}
	n = o->text.len - start;
	key = o->text.data + start;
	hash = ofs_map_hash(key, n);
	found = ofs_map_find(&o->map, hash, same_options, o, key, n);
	if (found != OFS_NONE) {
		o->text.len = start;
		return found;
	}
	o->end[g->n] = o->text.len;
	g->v[g->n] = (struct ofs_optim_group){ .node = node };
	if (!ofs_map_add(&o->map, hash, g->n)) {
		ofs_no_memory(b->err);
		return OFS_NONE;
	}
	return g->n++;
}

/* Add the names sorted by group. */
static int add_by_group(struct builder *b, uint32_t node, const uint32_t *group)
{
	struct ofs_optim_groups *g = b->g;

	for (uint32_t k = 0; k < g->n; k++) {
		uint32_t nth = 0;

		g->v[k].first = g->nnames;
		for (uint32_t i = b->s->node[node].child; i != OFS_NONE;
		     i = b->s->node[i].next) {
			struct ofs_str s = ofs_state_key(b->s, i);

			if (group[nth++] == k && add_name(b, s.p, s.len) == -1)
				return -1;
		}
		g->v[k].n = g->nnames - g->v[k].first;
	}
	return 0;
}

static int read_flattened(struct builder *b, uint32_t node, uint32_t n)
{
	struct options o = { 0 };
	uint32_t *group = calloc(n + 1ull, sizeof(*group)), nth = 0;
	int ret = 0;

	o.end = calloc(n + 1ull, sizeof(*o.end));
	if (group == NULL || o.end == NULL)
		ret = ofs_no_memory(b->err);
	for (uint32_t i = b->s->node[node].child; i != OFS_NONE && ret == 0;
	     i = b->s->node[i].next) {
		group[nth] = group_of(b, &o, i);
		if (group[nth++] == OFS_NONE)
			ret = -1;
	}
	if (ret == 0)
		ret = add_by_group(b, node, group);
	ofs_buf_fini(&o.text);
	ofs_map_fini(&o.map);
	free(o.end);
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
	ofs_arena_init(&g->arena, 0);
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
