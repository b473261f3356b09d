/* flat_model.c - parameters that a layout flattens, and their state */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "layout/flat_model.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "base/memory.h"

void ofs_flat_model_fini(struct ofs_flat_model *m)
{
	if (m->has_optim)
		ofs_optim_groups_fini(&m->groups);
	ofs_state_fini(&m->optim);
	free(m->param);
	free(m->state);
	free(m->scalar);
}

const struct ofs_flat_state *ofs_flat_find(const struct ofs_flat_model *m,
    uint32_t param, const char *name)
{
	const struct ofs_flat_member *p = &m->param[param];

	for (uint32_t i = p->state; i < p->state + p->nstates; i++)
		if (strcmp(m->state[i].name, name) == 0)
			return &m->state[i];
	return NULL;
}

bool ofs_flat_same_shape(const struct ofs_flat_model *m, uint32_t param,
    uint32_t entry)
{
	const struct ofs_flat_member *p = &m->param[param];

	return ofs_tensor_has_shape(m->cat, ofs_flat_tensor(m, entry), p->shape,
	    p->ndim);
}

int ofs_flat_check(const struct ofs_flat_model *m, uint32_t param,
    uint32_t entry, struct optimfs_error *err)
{
	const struct ofs_entry *e = &m->cat->entries[entry];

	if (ofs_render_unscaled(m->cat, e, err) == 0) {
		if (ofs_flat_same_shape(m, param, entry))
			return 0;
		optimfs_fail_as(err, EOPNOTSUPP,
		    "%s its shape is not that of its parameter, with which it "
		    "would be divided",
		    m->code);
	}
	return ofs_render_fail_in(m->cat, e, err);
}

int ofs_flat_read_groups(struct ofs_flat_model *m, const char *several,
    struct optimfs_error *err)
{
	uint32_t groups;

	if (ofs_state_build(&m->optim, &m->from, &m->to, "optim", err) == -1)
		return -1;
	if (m->optim.n <= 1)
		return 0;
	groups = ofs_optim_groups_of(&m->optim, 0);
	if (groups == OFS_NONE)
		return optimfs_fail_as(err, EOPNOTSUPP, "%s", several);
	if (ofs_optim_groups_build(&m->groups, &m->optim, groups, &m->from,
		err) == -1)
		return -1;
	m->has_optim = true;
	return 0;
}

struct states {
	struct ofs_flat_model *m;
	ofs_flat_take_fn *take;
	void *ctx;
	struct optimfs_error *err;
};

static int add_state(struct states *s, uint32_t param, const char *name,
    uint32_t entry)
{
	struct ofs_flat_model *m = s->m;

	if (ofs_grow(m->state, m->nstates, m->state_cap, s->err) == -1)
		return -1;
	m->state[m->nstates++] = (struct ofs_flat_state){ name, entry };
	m->param[param].nstates++;
	return 0;
}

static int read_state(struct states *s, uint32_t param, uint32_t node)
{
	const struct ofs_flat_model *m = s->m;
	uint32_t entry = m->optim.node[node].entry;
	struct ofs_str name = ofs_state_key(&m->optim, node);

	if (entry == OFS_NONE)
		return optimfs_fail_as(s->err, EOPNOTSUPP,
		    "%s %.120s: its state '%.40s' is nested, so it cannot be "
		    "divided",
		    m->code, m->param[param].fqn.p, name.p);
	if (ofs_flat_is_cut(m, entry) &&
	    ofs_flat_check(m, param, entry, s->err) == -1)
		return -1;
	if (s->take != NULL && s->take(s->ctx, param, name.p, entry))
		return 0;
	return add_state(s, param, name.p, entry);
}

int ofs_flat_read_states(struct ofs_flat_model *m, const uint32_t *of_id,
    ofs_flat_take_fn *take, void *ctx, struct optimfs_error *err)
{
	struct states s = { m, take, ctx, err };
	const struct ofs_state_node *v = m->optim.node;
	uint32_t state = ofs_state_child(&m->optim, 0, "state");
	uint32_t i = state == OFS_NONE ? OFS_NONE : v[state].child;

	for (; i != OFS_NONE; i = v[i].next) {
		struct ofs_str fqn = ofs_state_key(&m->optim, i);
		uint32_t id = ofs_optim_groups_id(&m->groups, fqn, err), param;

		if (id == OFS_NONE)
			return -1;
		param = of_id == NULL ? id : of_id[id];
		m->param[param].state = m->nstates;
		for (int cut = 0; cut <= 1; cut++)
			for (uint32_t k = v[i].child; k != OFS_NONE;
			     k = v[k].next)
				if (ofs_flat_is_cut(m, v[k].entry) == cut &&
				    read_state(&s, param, k) == -1)
					return -1;
	}
	return 0;
}

/* Append the bytes of a state that is not cut: its elements or its pickle. */
static int put_value(const struct ofs_flat_model *m, uint32_t entry,
    struct ofs_buf *out, struct optimfs_error *err)
{
	const struct ofs_entry *e = &m->cat->entries[entry];
	struct ofs_state_pickler p;
	uint8_t bits[16];
	size_t size;

	ofs_state_pickler_init(&p, &m->optim, &m->from, out, NULL, err);
	if (e->kind != OFS_ENTRY_TENSOR)
		return ofs_state_put_entry(&p, e);
	if (ofs_render_sound(m->cat, e, err) == -1)
		return ofs_render_fail_in(m->cat, e, err);
	size = ofs_dtype_size(m->cat->tensors[e->ref].dtype);
	if (size > sizeof(bits) ||
	    m->from.elements(m->from.ctx, e->ref, 1, bits, err) == -1)
		return ofs_render_fail_in(m->cat, e, err);
	ofs_buf_put(out, bits, size);
	return 0;
}

static int same_value(const struct ofs_flat_model *m, uint32_t a, uint32_t b,
    struct optimfs_error *err)
{
	const struct ofs_entry *x = &m->cat->entries[a],
			       *y = &m->cat->entries[b];
	struct ofs_buf p = { 0 }, q = { 0 };
	int ret = -1;

	if (x->kind == y->kind && x->ref == y->ref)
		return 1;
	if (put_value(m, a, &p, err) == 0 && put_value(m, b, &q, err) == 0) {
		if (p.bad || q.bad)
			ofs_no_memory(err);
		else
			ret = p.len == q.len &&
			    memcmp(p.data, q.data, p.len) == 0;
	}
	ofs_buf_fini(&p);
	ofs_buf_fini(&q);
	return ret;
}

int ofs_flat_alike(const struct ofs_flat_model *m, uint32_t a, uint32_t b,
    struct optimfs_error *err)
{
	bool cut = ofs_flat_is_cut(m, a);
	const struct ofs_entry *x = &m->cat->entries[a],
			       *y = &m->cat->entries[b];

	if (cut != ofs_flat_is_cut(m, b) ||
	    (x->kind == OFS_ENTRY_TENSOR) != (y->kind == OFS_ENTRY_TENSOR))
		return 0;
	if (x->kind == OFS_ENTRY_TENSOR &&
	    ofs_flat_tensor(m, a)->dtype != ofs_flat_tensor(m, b)->dtype)
		return 0;
	return cut ? 1 : same_value(m, a, b, err);
}

int ofs_flat_pad(struct ofs_flat_storage *s, uint64_t end, uint64_t bits,
    struct optimfs_error *err)
{
	struct ofs_torch_part pad = { .tensor = OFS_NONE,
		.item = s->item,
		.first = bits,
		.count = end - s->n };

	s->n = end;
	return ofs_torch_new_part(s->a, s->cat, &pad, err);
}

int ofs_flat_put(struct ofs_flat_storage *s, const struct ofs_flat_slice *slice,
    uint32_t tensor, enum ofs_dtype cast, uint64_t bits,
    struct optimfs_error *err)
{
	struct ofs_torch_part part = { .tensor = tensor,
		.first = slice->first,
		.count = slice->count,
		.cast = cast };
	uint64_t end = slice->at + slice->count;

	if (slice->count == 0)
		return 0;
	if (ofs_flat_pad(s, slice->at, bits, err) == -1)
		return -1;
	if (tensor == OFS_NONE)
		return ofs_flat_pad(s, end, 0, err);
	s->n = end;
	return ofs_torch_new_part(s->a, s->cat, &part, err);
}
