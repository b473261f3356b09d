/* state.c - a section of the tree as the nested dicts that a program saves */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "format/state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "map.h"

struct child_key {
	uint32_t parent, key;
};

static bool same_child(const void *ctx, uint32_t index, const void *key,
    size_t n)
{
	const struct ofs_state_node *v =
	    &((const struct ofs_state *)ctx)->node[index];
	const struct child_key *k = key;

	(void)n;
	return v->parent == k->parent && v->key == k->key;
}

static uint32_t new_node(struct ofs_state *s, uint32_t parent, uint32_t key,
    struct optimfs_error *err)
{
	struct ofs_state_node *grown, *up;

	if (s->n == s->cap) {
		uint32_t cap = s->cap == 0 ? 64 : s->cap * 2;

		grown = reallocarray(s->node, cap, sizeof(*grown));
		if (grown == NULL) {
			optimfs_fail(err, ENOMEM, "state of a view");
			return OFS_NONE;
		}
		s->node = grown;
		s->cap = cap;
	}
	s->node[s->n] = (struct ofs_state_node){ key, OFS_NONE, parent,
		OFS_NONE, OFS_NONE, OFS_NONE, false, false };
	if (parent != OFS_NONE) {
		up = &s->node[parent];
		if (up->child == OFS_NONE)
			up->child = s->n;
		else
			s->node[up->last].next = s->n;
		up->last = s->n;
	}
	return s->n++;
}

/* The child of parent called key, made when there is none. */
static uint32_t child_of(struct ofs_state *s, struct ofs_map *map,
    uint32_t parent, uint32_t key, struct optimfs_error *err)
{
	struct child_key k = { parent, key };
	uint32_t hash = ofs_map_hash(&k, sizeof(k));
	uint32_t i = ofs_map_find(map, hash, same_child, s, &k, sizeof(k));

	if (i != UINT32_MAX)
		return i;
	i = new_node(s, parent, key, err);
	if (i != OFS_NONE && !ofs_map_add(map, hash, i)) {
		optimfs_fail(err, ENOMEM, "state of a view");
		return OFS_NONE;
	}
	return i;
}

static int add_entry(struct ofs_state *s, struct ofs_map *map, uint32_t entry,
    struct optimfs_error *err)
{
	const struct ofs_entry *e = &s->cat->entries[entry];
	uint32_t n, at = 0;
	const uint32_t *c = ofs_catalog_components(s->cat, e->tree, &n);

	for (uint32_t i = 1; i < n; i++) {
		if (s->node[at].entry != OFS_NONE)
			goto clash;
		at = child_of(s, map, at, c[i], err);
		if (at == OFS_NONE)
			return -1;
	}
	if (s->node[at].child != OFS_NONE || s->node[at].entry != OFS_NONE)
		goto clash;
	s->node[at].entry = entry;
	return 0;
clash:
	optimfs_fail(err, EUCLEAN,
	    "OFS449 another entry has the same key, or a part of it");
	return ofs_render_blame(s->cat, e, err);
}

static struct ofs_str key_of(const struct ofs_state *s, uint32_t node)
{
	return ofs_catalog_string(s->cat, OFS_PATH_STR(s->node[node].key));
}

/* A decimal number in its one spelling that fits. */
static bool number(struct ofs_str s, uint32_t *v)
{
	*v = 0;
	if (s.len == 0 || s.len > 9 || (s.len > 1 && s.p[0] == '0'))
		return false;
	for (uint32_t i = 0; i < s.len; i++) {
		if (s.p[i] < '0' || s.p[i] > '9')
			return false;
		*v = *v * 10 + (uint32_t)(s.p[i] - '0');
	}
	return true;
}

static bool key_is(const struct ofs_state *s, uint32_t node, const char *word)
{
	struct ofs_str k;

	if (node == 0)
		return false;
	k = key_of(s, node);
	return k.len == strlen(word) && memcmp(k.p, word, k.len) == 0;
}

struct numbered {
	uint32_t number, node;
};

static int by_number(const void *a, const void *b)
{
	const struct numbered *x = a, *y = b;

	return x->number < y->number ? -1 : x->number > y->number;
}

/* Children by number, when those are 0, 1, ... without a gap. */
static int sort_list(struct ofs_state *s, uint32_t node, uint32_t n,
    struct optimfs_error *err)
{
	struct numbered *v = malloc(n * sizeof(*v));
	uint32_t k = 0;

	if (v == NULL)
		return optimfs_fail(err, ENOMEM, "state of a view");
	for (uint32_t i = s->node[node].child; i != OFS_NONE;
	     i = s->node[i].next) {
		v[k].node = i;
		number(key_of(s, i), &v[k++].number);
	}
	qsort(v, n, sizeof(*v), by_number);
	s->node[node].list = v[n - 1].number == n - 1;
	s->node[node].child = v[0].node;
	s->node[node].last = v[n - 1].node;
	for (k = 0; k < n; k++)
		s->node[v[k].node].next = k + 1 < n ? v[k + 1].node : OFS_NONE;
	free(v);
	return 0;
}

/* Which containers are lists, and which dicts have integers for keys: the tree
 * has names for both. Groups are a list always; state's keys are IDs where all
 * of them are numbers. */
static int classify(struct ofs_state *s, uint32_t node,
    struct optimfs_error *err)
{
	bool numbers = true, indexes = true;
	uint32_t n = 0, v;

	for (uint32_t i = s->node[node].child; i != OFS_NONE;
	     i = s->node[i].next, n++) {
		numbers = numbers && number(key_of(s, i), &v);
		indexes = indexes && (s->node[i].key & OFS_PATH_INDEX) != 0;
	}
	if (n == 0 || !numbers)
		return 0;
	s->node[node].numbers = key_is(s, node, "state");
	if (indexes || key_is(s, node, "param_groups"))
		return sort_list(s, node, n, err);
	return 0;
}

int ofs_state_build(struct ofs_state *s, const struct ofs_render *from,
    const struct ofs_layout *to, const char *section, struct optimfs_error *err)
{
	struct ofs_map map = { 0 };
	uint32_t *entries = NULL, n = 0;
	int ret;

	*s = (struct ofs_state){ .cat = from->cat };
	ret = ofs_render_entries(from, to, section, &entries, &n, err);
	if (ret == 0 && new_node(s, OFS_NONE, 0, err) == OFS_NONE)
		ret = -1;
	for (uint32_t i = 0; i < n && ret == 0; i++)
		ret = add_entry(s, &map, entries[i], err);
	for (uint32_t i = 0; i < s->n && ret == 0; i++)
		ret = classify(s, i, err);
	ofs_map_fini(&map);
	free(entries);
	if (ret == -1)
		ofs_state_fini(s);
	return ret;
}

void ofs_state_fini(struct ofs_state *s)
{
	free(s->node);
	*s = (struct ofs_state){ 0 };
}

struct pickler {
	const struct ofs_state *s;
	const struct ofs_render *from;
	const struct ofs_layout *to;
	struct ofs_pkw w;
	struct ofs_torch_new *a;
	struct optimfs_error *err;
};

static int put_tensor(struct pickler *p, const struct ofs_entry *e)
{
	const struct ofs_tensor *t = &p->s->cat->tensors[e->ref];
	struct ofs_torch_part whole = { .tensor = e->ref };
	uint64_t storage = p->a->nstorages;

	if (ofs_render_sound(p->s->cat, e, p->err) == -1)
		return -1;
	whole.count = ofs_tensor_numel(p->s->cat, t);
	if (ofs_torch_new_storage(p->a, p->err) == -1 ||
	    ofs_torch_new_part(p->a, p->s->cat, &whole, p->err) == -1)
		return -1;
	return ofs_pkw_tensor(&p->w, ofs_render_dtype(p->to, t), storage,
	    ofs_tensor_shape(p->s->cat, t), t->ndim, p->err);
}

static int put_leaf(struct pickler *p, const struct ofs_entry *e)
{
	const struct ofs_pickle *doc;
	uint32_t node;
	int ret;

	if (e->kind == OFS_ENTRY_TENSOR) {
		ret = put_tensor(p, e);
	} else {
		ret = ofs_render_value(p->from, e, &doc, &node, p->err);
		if (ret == 0) {
			ret = ofs_render_put(&p->w, p->s->cat, e, doc, node,
			    p->err);
			ofs_render_release(e, doc);
		}
	}
	return ret == -1 ? ofs_render_blame(p->s->cat, e, p->err) : 0;
}

static void put_key(struct pickler *p, uint32_t node)
{
	const struct ofs_state_node *up = &p->s->node[p->s->node[node].parent];
	struct ofs_str key = key_of(p->s, node);
	uint32_t v;

	if (up->list)
		return;
	if (up->numbers && number(key, &v))
		ofs_pkw_int(&p->w, v);
	else
		ofs_pkw_str(&p->w, key.p, key.len);
}

static void open_container(struct pickler *p, uint32_t node)
{
	const struct ofs_state_node *v = &p->s->node[node];

	ofs_pkw_op_put(&p->w, v->list ? OFS_PKW_LIST : OFS_PKW_DICT);
	if (v->child != OFS_NONE)
		ofs_pkw_op(&p->w, OFS_PKW_MARK);
}

static void close_container(struct pickler *p, uint32_t node)
{
	const struct ofs_state_node *v = &p->s->node[node];

	if (v->child != OFS_NONE)
		ofs_pkw_op(&p->w, v->list ? OFS_PKW_APPENDS : OFS_PKW_SETITEMS);
}

/* Depth first, by the links alone: a path has as many components as its file
 * says. */
static int put_all(struct pickler *p)
{
	const struct ofs_state_node *v = p->s->node;
	uint32_t at = 0;

	for (;;) {
		if (v[at].entry != OFS_NONE) {
			if (put_leaf(p, &p->s->cat->entries[v[at].entry]) == -1)
				return -1;
		} else {
			open_container(p, at);
			if (v[at].child != OFS_NONE) {
				at = v[at].child;
				put_key(p, at);
				continue;
			}
		}
		while (at != 0 && v[at].next == OFS_NONE) {
			at = v[at].parent;
			close_container(p, at);
		}
		if (at == 0)
			return 0;
		at = v[at].next;
		put_key(p, at);
	}
}

int ofs_state_pickle(const struct ofs_state *s, const struct ofs_render *from,
    const struct ofs_layout *to, struct ofs_buf *out, struct ofs_torch_new *a,
    struct optimfs_error *err)
{
	struct pickler p = {
		.s = s,
		.from = from,
		.to = to,
		.w = { .out = out },
		.a = a,
		.err = err,
	};

	ofs_pkw_begin(&p.w);
	if (put_all(&p) == -1)
		return -1;
	ofs_pkw_op(&p.w, OFS_PKW_STOP);
	return out->bad ? optimfs_fail(err, ENOMEM, "pickle of a view") : 0;
}
