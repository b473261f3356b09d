/* state_dict_pickle.c - nested dicts as a pickle, and as a torch archive */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "layout/inner.h"
#include "layout/optim_groups.h"
#include "layout/state_dict.h"
#include "plan/cast.h"
#include "text/key.h"

void ofs_state_pickler_init(struct ofs_state_pickler *p,
    const struct ofs_state *s, const struct ofs_render *from,
    struct ofs_buf *out, struct ofs_torch_new *a, struct optimfs_error *err)
{
	*p = (struct ofs_state_pickler){
		.s = s,
		.from = from,
		.w = { .out = out, .copies = true },
		.a = a,
		.optim = OFS_NONE,
		.err = err,
	};
}

/* For comparisons only. */
static void put_number(struct ofs_state_pickler *p, uint32_t number)
{
	ofs_pkw_op(&p->w, OFS_PKW_UNIT);
	ofs_pkw_int(&p->w, number);
}

static int put_tensor(struct ofs_state_pickler *p, const struct ofs_entry *e)
{
	const struct ofs_tensor *t = &p->s->cat->tensors[e->ref];
	struct ofs_torch_part whole = { .tensor = e->ref };
	struct ofs_pkw_scale scale;
	enum ofs_dtype dtype;
	uint64_t storage;
	int ret;

	if (p->a == NULL) {
		put_number(p, e->ref);
		return 0;
	}
	if (ofs_render_sound(p->s->cat, e, p->err) == -1)
		return -1;
	whole.count = ofs_tensor_numel(p->s->cat, t);
	dtype = ofs_cast_type(t, p->a->cast);
	storage = p->a->nstorages;
	if (ofs_torch_new_storage(p->a, p->err) == -1 ||
	    ofs_torch_new_part(p->a, p->s->cat, &whole, p->err) == -1)
		return -1;
	if (ofs_render_scale(p->from, e->ref, &scale, p->err) == -1)
		return -1;
	p->w.scale = &scale;
	ret = ofs_pkw_tensor(&p->w, dtype, storage,
	    ofs_tensor_shape(p->s->cat, t), t->ndim, p->err);
	p->w.scale = NULL;
	return ret;
}

static int put_value(struct ofs_state_pickler *p, const struct ofs_entry *e)
{
	struct ofs_inner inner = { .from = p->from, .e = e, .a = p->a };
	const struct ofs_pickle *doc;
	uint32_t node;
	int ret = ofs_render_value(p->from, e, &doc, &node, p->err);

	if (ret == -1)
		return -1;
	p->w.storage = ofs_inner_put;
	p->w.storage_ctx = &inner;
	ret = ofs_render_put(&p->w, p->s->cat, e, doc, node, p->err);
	p->w.storage = NULL;
	ofs_inner_fini(&inner);
	ofs_render_release(p->s->cat, e, doc);
	return ret;
}

int ofs_state_put_entry(struct ofs_state_pickler *p, const struct ofs_entry *e)
{
	int ret;

	p->w.foreign = false;
	if (ofs_render_is_value(p->s->cat, e))
		ret = put_value(p, e);
	else
		ret = put_tensor(p, e);
	if (ret == 0 && p->w.foreign)
		ret = ofs_render_report_copied(p->from, e, p->err);
	return ret == -1 ? ofs_render_fail_in(p->s->cat, e, p->err) : 0;
}

/* The groups of optimizer node; NULL on failure. */
static const struct ofs_optim_groups *groups_of(struct ofs_state_pickler *p,
    uint32_t node)
{
	if (p->optim == node)
		return p->groups;
	if (p->optim != OFS_NONE)
		ofs_optim_groups_fini(p->groups);
	p->optim = OFS_NONE;
	if (ofs_optim_groups_build(p->groups, p->s,
		ofs_optim_groups_of(p->s, node), p->from, p->err) == -1)
		return NULL;
	p->optim = node;
	return p->groups;
}

/* Is node the state of an optimizer, whose parameters become numbers? */
static bool is_state(const struct ofs_state_pickler *p, uint32_t node)
{
	return p->optims && p->ids && node != 0 &&
	    ofs_state_key_is(p->s, node, "state") &&
	    ofs_optim_groups_of(p->s, p->s->node[node].parent) != OFS_NONE;
}

static int put_id(struct ofs_state_pickler *p, uint32_t optim,
    struct ofs_str name)
{
	const struct ofs_optim_groups *g = groups_of(p, optim);
	uint32_t id;

	if (g == NULL)
		return -1;
	id = ofs_optim_groups_id(g, name, p->err);
	if (id == OFS_NONE)
		return -1;
	ofs_pkw_int(&p->w, id);
	return 0;
}

static int put_key(struct ofs_state_pickler *p, uint32_t node)
{
	uint32_t up = p->s->node[node].parent, v;
	struct ofs_str key = ofs_state_key(p->s, node);

	if (p->s->node[up].list)
		return 0;
	if (is_state(p, up))
		return put_id(p, p->s->node[up].parent, key);
	if (p->s->node[up].numbers && ofs_str_number(key, &v))
		ofs_pkw_int(&p->w, v);
	else if ((p->s->node[node].key & OFS_PATH_PLAIN) != 0)
		ofs_torch_key_put(&p->w, key);
	else
		ofs_pkw_str(&p->w, key.p, key.len);
	return 0;
}

static void open_container(struct ofs_state_pickler *p, uint32_t node)
{
	const struct ofs_state_node *v = &p->s->node[node];

	if (v->tuple > 0) {
		ofs_pkw_tuple_open(&p->w, v->tuple);
		return;
	}
	ofs_pkw_op_put(&p->w, v->list ? OFS_PKW_LIST : OFS_PKW_DICT);
	if (v->child != OFS_NONE)
		ofs_pkw_op(&p->w, OFS_PKW_MARK);
}

/* Is it an optimizer that has no state yet? The tree has nothing for that, but
 * a program that loads it asks for it. */
static bool lacks_state(const struct ofs_state *s, uint32_t node)
{
	return s->optim && !ofs_state_key_is(s, node, "state") &&
	    ofs_state_child(s, node, "param_groups") != OFS_NONE &&
	    ofs_state_child(s, node, "state") == OFS_NONE;
}

static void close_container(struct ofs_state_pickler *p, uint32_t node)
{
	const struct ofs_state_node *v = &p->s->node[node];

	if (lacks_state(p->s, node)) {
		ofs_pkw_str(&p->w, "state", 5);
		ofs_pkw_op_put(&p->w, OFS_PKW_DICT);
	}
	if (v->tuple > 0)
		ofs_pkw_tuple_close(&p->w, v->tuple);
	else if (v->child != OFS_NONE)
		ofs_pkw_op(&p->w, v->list ? OFS_PKW_APPENDS : OFS_PKW_SETITEMS);
}

/* Is it the param_groups of an optimizer, rather than the state of a parameter
 * with that name? No optimizer is called state. */
static bool is_groups(const struct ofs_state *s, uint32_t node)
{
	return ofs_state_key_is(s, node, "param_groups") &&
	    !ofs_state_key_is(s, s->node[node].parent, "state");
}

/* Pickle groups whose form differs from that in the tree. 1: done; 0: node is
 * not such a group list; -1: failed. */
static int put_own_groups(struct ofs_state_pickler *p, uint32_t node)
{
	const struct ofs_optim_groups *g;

	if (!p->optims || !is_groups(p->s, node) ||
	    p->s->node[node].child == OFS_NONE ||
	    (p->s->node[node].list && !p->ids))
		return 0;
	g = groups_of(p, p->s->node[node].parent);
	return g == NULL || ofs_state_put_groups(p, g, NULL) == -1 ? -1 : 1;
}

/* Begin a node. 1: it is complete; 0: its children follow; -1: failed. */
static int enter(struct ofs_state_pickler *p, uint32_t at)
{
	const struct ofs_state_node *v = &p->s->node[at];
	int own;

	if (v->entry != OFS_NONE)
		return ofs_state_put_entry(p, &p->s->cat->entries[v->entry]) ==
			-1
		    ? -1
		    : 1;
	own = put_own_groups(p, at);
	if (own != 0)
		return own;
	open_container(p, at);
	return v->child == OFS_NONE ? 1 : 0;
}

/* Walks depth first along the links, without recursion: the depth of a path is
 * decided by its file. */
int ofs_state_put(struct ofs_state_pickler *p, uint32_t root)
{
	const struct ofs_state_node *v = p->s->node;
	uint32_t at = root;

	for (;;) {
		int done = enter(p, at);

		if (done == -1)
			return -1;
		while (done == 1 && at != root && v[at].next == OFS_NONE) {
			at = v[at].parent;
			close_container(p, at);
		}
		if (done == 1 && at == root)
			return 0;
		at = done == 1 ? v[at].next : v[at].child;
		if (put_key(p, at) == -1)
			return -1;
	}
}

static void put_shared(struct ofs_state_pickler *p, struct ofs_str s)
{
	if (memchr(s.p, 0, s.len) == NULL)
		ofs_pkw_known(&p->w, s.p);
	else
		ofs_pkw_str(&p->w, s.p, s.len);
}

static void put_params(struct ofs_state_pickler *p,
    const struct ofs_optim_groups *g, const struct ofs_optim_group *group,
    const int64_t *id)
{
	ofs_pkw_lit(&p->w, "'params': [");
	for (uint32_t i = group->first; i < group->first + group->n; i++) {
		if (id != NULL && id[i] < 0)
			continue;
		if (id != NULL)
			ofs_pkw_lit(&p->w, "%" PRId64 ",", id[i]);
		else if (p->ids)
			ofs_pkw_lit(&p->w, "%u,", i);
		else
			ofs_pkw_lit(&p->w, "%.*s,", OFS_PKW_STR(g->names.v[i]));
	}
	ofs_pkw_lit(&p->w, "]");
}

static int put_group(struct ofs_state_pickler *p,
    const struct ofs_optim_groups *g, const struct ofs_optim_group *group,
    const int64_t *id)
{
	const struct ofs_state_node *v = p->s->node;

	ofs_pkw_lit(&p->w, "{*");
	for (uint32_t i = v[group->node].child; i != OFS_NONE; i = v[i].next) {
		if (!g->flattened && ofs_state_key_is(p->s, i, "params"))
			continue;
		put_shared(p, ofs_state_key(p->s, i));
		if (ofs_state_put(p, i) == -1)
			return -1;
		ofs_pkw_lit(&p->w, ",");
	}
	put_params(p, g, group, id);
	ofs_pkw_lit(&p->w, "},");
	return 0;
}

int ofs_state_put_groups(struct ofs_state_pickler *p,
    const struct ofs_optim_groups *g, const int64_t *id)
{
	bool optims = p->optims;
	int ret = 0;

	/* an option named like an optimizer is not one */
	p->optims = false;
	ofs_pkw_lit(&p->w, "[");
	for (uint32_t i = 0; i < g->n && ret == 0; i++)
		ret = put_group(p, g, &g->v[i], id);
	ofs_pkw_lit(&p->w, "]");
	p->optims = optims;
	return ret;
}

/* Pickle all of it in the layout to. Each tensor becomes a storage of a, in
 * order. */
static int pickle_all(const struct ofs_state *s, const struct ofs_render *from,
    const struct ofs_layout *to, struct ofs_buf *out, struct ofs_torch_new *a,
    struct optimfs_error *err)
{
	struct ofs_optim_groups groups = { 0 };
	struct ofs_state_pickler p;
	int ret;

	ofs_state_pickler_init(&p, s, from, out, a, err);
	p.optims = s->optim;
	p.ids = to->keys == OFS_KEYS_ID;
	p.groups = &groups;
	ofs_pkw_begin(&p.w);
	ret = ofs_state_put(&p, 0);
	if (p.optim != OFS_NONE)
		ofs_optim_groups_fini(&groups);
	if (ret == -1)
		return -1;
	return ofs_pkw_end(&p.w, err);
}

int ofs_state_archive(struct ofs_torch_new *a, const struct ofs_render *from,
    const struct ofs_layout *to, const char *section, struct optimfs_error *err)
{
	struct ofs_buf pickle = { 0 };
	struct ofs_state s;
	int ret = 0;

	if (ofs_state_build(&s, from, to, section, err) == -1)
		return -1;
	if (s.n > 1) {
		snprintf(a->prefix, sizeof(a->prefix), "%s/", section);
		a->crc = to->crc;
		a->ordered = s.ordered;
		a->cast = to->dtype;
		if (s.optim)
			ret = ofs_optim_groups_check(&s, from, err);
		if (ret == 0)
			ret = pickle_all(&s, from, to, &pickle, a, err);
		if (ret == 0)
			ret = ofs_torch_new_place(a, &pickle, err);
		if (ret == 0)
			ret = 1;
	}
	ofs_buf_fini(&pickle);
	ofs_state_fini(&s);
	return ret;
}
