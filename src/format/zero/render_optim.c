/* render_optim.c - optim_states.pt: a rank's part of the optimizer */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <inttypes.h>
#include <string.h>

#include "base/str.h"
#include "format/zero/render.h"
#include "pickle/write.h"

/* The version whose layout is written if the source has no version. */
#define DS_VERSION "0.19.6"

void ofs_zero_new_begin(struct ofs_zero_writer *w, const struct ofs_zero_new *z,
    uint32_t rank, struct ofs_torch_new *a, struct ofs_buf *pickle,
    struct optimfs_error *err)
{
	*w = (struct ofs_zero_writer){ .z = z, .rank = rank };
	ofs_state_pickler_init(&w->p, &z->m.optim, &z->m.from, pickle, a, err);
	ofs_pkw_begin(&w->p.w);
	ofs_pkw_lit(&w->p.w, "{");
}

int ofs_zero_new_end(struct ofs_zero_writer *w)
{
	ofs_pkw_lit(&w->p.w, "}");
	return ofs_pkw_end(&w->p.w, w->p.err);
}

int ofs_zero_new_put_fact(struct ofs_zero_writer *w, const char *key)
{
	const struct ofs_state *s = &w->z->extra;
	uint32_t node = s->n == 0 ? OFS_NONE : ofs_state_child(s, 0, key);
	const struct ofs_state *before = w->p.s;
	int ret = 0;

	if (node == OFS_NONE) {
		ofs_pkw_lit(&w->p.w, "'%s': None, ", key);
		return 0;
	}
	ofs_pkw_lit(&w->p.w, "'%s': ", key);
	w->p.s = s;
	ret = ofs_state_put(&w->p, node);
	w->p.s = before;
	ofs_pkw_lit(&w->p.w, ",");
	return ret;
}

void ofs_zero_new_put_version(struct ofs_zero_writer *w)
{
	uint32_t entry = ofs_zero_new_fact(w->z, "ds_version"), node;
	const struct ofs_pickle *doc = ofs_zero_new_value(w->z, entry, &node);
	struct ofs_str s =
	    doc == NULL ? (struct ofs_str){ "", 0 } : ofs_pk_str(doc, node);

	if (s.len == 0)
		s = ofs_str_of(DS_VERSION);
	ofs_pkw_lit(&w->p.w, "'ds_version': %.*s,", OFS_PKW_STR(s));
	ofs_zero_new_release(w->z, entry, doc);
}

/* loss_scaler, dynamic_loss_scale and overflow: stage 3 cannot be loaded
 * without them. */

static const char *const scaler[] = { "loss_scaler", "dynamic_loss_scale",
	"overflow" };

static void put_default(struct ofs_pkw *p, unsigned i)
{
	if (i > 0)
		ofs_pkw_lit(p, "'%s': False, ", scaler[i]);
	else
		ofs_pkw_lit(p,
		    "'%s': deepspeed.runtime.fp16.loss_scaler.LossScaler<"
		    "{'cur_scale': %f, 'dynamic': False}>, ",
		    scaler[i], 1.0);
}

/* Writes zero_stage as the source has it if the stage is the same, since there
 * are two ways to pickle it. */
static int put_stage(struct ofs_zero_writer *w)
{
	const struct ofs_zero_new *z = w->z;
	uint32_t entry =
	    ofs_zero_new_fact(z, "optimizer_state_dict/zero_stage");
	struct ofs_pkw *p = &w->p.w;

	ofs_pkw_lit(p, "'zero_stage': ");
	if (ofs_zero_new_stage(z) != z->stage)
		ofs_pkw_lit(p,
		    "deepspeed.runtime.zero.config.ZeroStageEnum(%d)",
		    z->stage);
	else if (ofs_state_put_entry(&w->p, &z->m.cat->entries[entry]) == -1)
		return -1;
	ofs_pkw_lit(p, ",");
	return 0;
}

int ofs_zero_new_put_scaler(struct ofs_zero_writer *w)
{
	const struct ofs_state *s = &w->z->extra;
	uint32_t dict = s->n == 0
	    ? OFS_NONE
	    : ofs_state_child(s, 0, "optimizer_state_dict");
	uint32_t i = dict == OFS_NONE ? OFS_NONE : s->node[dict].child;
	const struct ofs_state *before = w->p.s;
	struct ofs_pkw *p = &w->p.w;
	int ret = 0;

	if (put_stage(w) == -1)
		return -1;
	for (unsigned k = 0; k < sizeof(scaler) / sizeof(*scaler); k++)
		if (dict == OFS_NONE ||
		    ofs_state_child(s, dict, scaler[k]) == OFS_NONE)
			put_default(p, k);
	w->p.s = s;
	for (; i != OFS_NONE && ret == 0; i = s->node[i].next) {
		struct ofs_str key = ofs_state_key(s, i);

		if (ofs_str_is(key, "zero_stage"))
			continue;
		ofs_pkw_lit(p, "%.*s: ", OFS_PKW_STR(key));
		ret = ofs_state_put(&w->p, i);
		ofs_pkw_lit(p, ",");
	}
	w->p.s = before;
	return ret;
}

/* Flat tensors. */

static uint32_t entry_of(const struct ofs_zero_new *z, uint32_t param,
    const char *name)
{
	return name == NULL ? z->master[param].fp32
			    : ofs_flat_find(&z->m, param, name)->entry;
}

/* Is a state of this group kept for whole parameters (ofs_zero_whole)? The
 * groups of DeepSpeed's Muon have the option use_muon. */
static bool is_whole(const struct ofs_zero_new *z, uint32_t group,
    const char *name)
{
	const struct ofs_state *s = &z->m.optim;
	uint32_t node;

	if (z->stage == 3 || name == NULL ||
	    strcmp(name, "momentum_buffer") != 0)
		return false;
	node =
	    ofs_state_child(s, z->m.groups.v[z->group[group]].node, "use_muon");
	return node != OFS_NONE && ofs_zero_new_true(z, s->node[node].entry);
}

/* Adds the rank's part of a flat group as a storage: slices of parameters, and
 * zeros in between. *part gets its elements. */
static int add_flat(struct ofs_zero_writer *w, uint32_t group, const char *name,
    enum ofs_dtype dtype, uint64_t *part)
{
	const struct ofs_zero_new *z = w->z;
	struct ofs_flat_storage x = { .a = w->p.a,
		.cat = z->m.cat,
		.item = (uint32_t)ofs_dtype_size(dtype) };
	bool whole = is_whole(z, group, name);
	uint64_t lean;

	*part = whole ? 0 : ofs_zero_part(&z->layout, group, w->rank, &lean);
	if (ofs_torch_new_storage(w->p.a, w->p.err) == -1)
		return -1;
	for (uint32_t i = z->shapes.first[group];
	     i < z->shapes.first[group + 1]; i++) {
		struct ofs_flat_slice s =
		    ofs_zero_slice(&z->layout, i, w->rank);
		uint32_t entry = entry_of(z, z->order[i], name);
		enum ofs_dtype cast = OFS_DTYPE_NONE;

		if (whole && s.count > 0)
			s = ofs_zero_whole(&z->layout, i, w->rank, part);
		if (name == NULL)
			ofs_zero_new_dtype(z, z->order[i], entry, &cast);
		if (ofs_flat_put(&x, &s, z->m.cat->entries[entry].ref, cast, 0,
			w->p.err) == -1)
			return -1;
	}
	return ofs_flat_pad(&x, *part, 0, w->p.err);
}

/* Writes a flat tensor. The tensors of fp32 weights end before the padding in
 * stages 1 and 2; the storage includes it. */
static int put_flat(struct ofs_zero_writer *w, uint32_t group, const char *name)
{
	const struct ofs_zero_new *z = w->z;
	uint32_t first = z->shapes.first[group];
	enum ofs_dtype dtype = OFS_FLOAT32, cast;
	uint64_t lean, part;
	struct ofs_pkw_view v = { .shape = name == NULL ? &lean : &part,
		.ndim = 1,
		.grad = name == NULL };

	ofs_zero_part(&z->layout, group, w->rank, &lean);

	if (z->shapes.first[group + 1] > first) {
		uint32_t entry = entry_of(z, z->order[first], name);

		dtype = name == NULL
		    ? ofs_zero_new_dtype(z, z->order[first], entry, &cast)
		    : ofs_render_dtype(&z->m.to, ofs_flat_tensor(&z->m, entry));
	}
	v.dtype = dtype;
	v.key = w->p.a->nstorages;
	if (add_flat(w, group, name, dtype, &part) == -1)
		return -1;
	v.storage = part;
	return ofs_pkw_view(&w->p.w, &v, w->p.err);
}

static int put_masters(struct ofs_zero_writer *w)
{
	ofs_pkw_lit(&w->p.w, "[");
	for (uint32_t g = 0; g < w->z->shapes.ngroups; g++) {
		if (put_flat(w, g, NULL) == -1)
			return -1;
		ofs_pkw_lit(&w->p.w, ",");
	}
	ofs_pkw_lit(&w->p.w, "],");
	return 0;
}

/* Writes {name: flat tensor, or the value that all parameters share}. */
static int put_state(struct ofs_zero_writer *w, uint32_t group)
{
	const struct ofs_zero_new *z = w->z;
	const struct ofs_flat_member *p =
	    &z->m.param[z->order[z->shapes.first[group]]];

	ofs_pkw_lit(&w->p.w, "{");
	for (uint32_t i = 0; i < p->nstates; i++) {
		const struct ofs_flat_state *s = &z->m.state[p->state + i];

		ofs_pkw_lit(&w->p.w, "'%s': ", s->name);
		if ((ofs_flat_is_cut(&z->m, s->entry)
			    ? put_flat(w, group, s->name)
			    : ofs_state_put_entry(&w->p,
				  &z->m.cat->entries[s->entry])) == -1)
			return ofs_render_fail_in(z->m.cat,
			    &z->m.cat->entries[s->entry], w->p.err);
		ofs_pkw_lit(&w->p.w, ",");
	}
	ofs_pkw_lit(&w->p.w, "}");
	return 0;
}

static bool has_state(const struct ofs_zero_new *z, uint32_t group)
{
	uint32_t first = z->shapes.first[group];

	return first < z->shapes.first[group + 1] &&
	    z->m.param[z->order[first]].nstates > 0;
}

static int put_states(struct ofs_zero_writer *w)
{
	ofs_pkw_lit(&w->p.w, "{");
	for (uint32_t g = 0; g < w->z->shapes.ngroups; g++) {
		if (!has_state(w->z, g))
			continue;
		ofs_pkw_lit(&w->p.w, "%u: ", g);
		if (put_state(w, g) == -1)
			return -1;
		ofs_pkw_lit(&w->p.w, ",");
	}
	ofs_pkw_lit(&w->p.w, "}");
	return 0;
}

static void put_params(struct ofs_zero_writer *w, uint32_t group)
{
	const struct ofs_zero_new *z = w->z;

	ofs_pkw_lit(&w->p.w, "'params': [");
	for (uint32_t g = 0; g < z->shapes.ngroups; g++)
		if (z->group[g] == group)
			ofs_pkw_lit(&w->p.w, "%u,", g);
	ofs_pkw_lit(&w->p.w, "]");
}

int ofs_zero_new_put_groups(struct ofs_zero_writer *w)
{
	const struct ofs_zero_new *z = w->z;
	const struct ofs_state *s = &z->m.optim;

	ofs_pkw_lit(&w->p.w, "[");
	for (uint32_t g = 0; g < z->m.groups.n; g++) {
		ofs_pkw_lit(&w->p.w, "{");
		for (uint32_t i = s->node[z->m.groups.v[g].node].child;
		     i != OFS_NONE; i = s->node[i].next) {
			struct ofs_str key = ofs_state_key(s, i);

			if (!z->m.groups.flattened && ofs_str_is(key, "params"))
				continue;
			ofs_pkw_lit(&w->p.w, "%.*s: ", OFS_PKW_STR(key));
			if (ofs_state_put(&w->p, i) == -1)
				return -1;
			ofs_pkw_lit(&w->p.w, ",");
		}
		put_params(w, g);
		ofs_pkw_lit(&w->p.w, "},");
	}
	ofs_pkw_lit(&w->p.w, "],");
	return 0;
}

int ofs_zero_new_put_base(struct ofs_zero_writer *w,
    int (*state)(struct ofs_zero_writer *w))
{
	ofs_pkw_lit(&w->p.w, "{'state': ");
	if (state(w) == -1)
		return -1;
	ofs_pkw_lit(&w->p.w, ", 'param_groups': ");
	if (ofs_zero_new_put_groups(w) == -1)
		return -1;
	ofs_pkw_lit(&w->p.w, "},");
	return 0;
}

/* Lists with a value for each group. */

static void put_paddings(struct ofs_zero_writer *w)
{
	const struct ofs_zero_new *z = w->z;

	ofs_pkw_lit(&w->p.w, "'group_paddings': [");
	for (uint32_t g = 0; g < z->shapes.ngroups; g++) {
		uint64_t lean,
		    part = ofs_zero_part(&z->layout, g, w->rank, &lean);

		ofs_pkw_lit(&w->p.w, "%" PRIu64 ",", part - lean);
	}
	ofs_pkw_lit(&w->p.w, "],");
}

static void put_counts(struct ofs_zero_writer *w)
{
	ofs_pkw_lit(&w->p.w, "'partition_count': [");
	for (uint32_t g = 0; g < w->z->shapes.ngroups; g++)
		ofs_pkw_lit(&w->p.w, "%u,", w->z->world);
	ofs_pkw_lit(&w->p.w, "],");
}

static void put_fragments(struct ofs_zero_writer *w, uint32_t group)
{
	const struct ofs_zero_new *z = w->z;
	uint32_t end = z->shapes.first[group + 1];

	ofs_pkw_lit(&w->p.w, "collections.OrderedDict(){");
	for (uint32_t i = z->shapes.first[group]; i < end; i++) {
		struct ofs_flat_slice s =
		    ofs_zero_slice(&z->layout, i, w->rank);

		if (s.count > 0)
			ofs_pkw_lit(&w->p.w,
			    "%.*s: deepspeed.utils.tensor_fragment."
			    "fragment_address<{'numel': %" PRIu64
			    ", 'start': %" PRIu64 "}>,",
			    OFS_PKW_STR(z->shapes.param[i].name), s.count,
			    s.at);
	}
	ofs_pkw_lit(&w->p.w, "},");
}

static void put_mappings(struct ofs_zero_writer *w)
{
	ofs_pkw_lit(&w->p.w, "'param_slice_mappings': [");
	for (uint32_t g = 0; g < w->z->shapes.ngroups; g++)
		put_fragments(w, g);
	ofs_pkw_lit(&w->p.w, "],");
}

static int put_stage3(struct ofs_zero_writer *w)
{
	ofs_pkw_lit(&w->p.w,
	    "'partition_count': %u, 'optimizer_state_dict': ", w->z->world);
	if (ofs_zero_new_put_base(w, put_states) == -1)
		return -1;
	ofs_pkw_lit(&w->p.w, "'fp32_flat_groups': ");
	return put_masters(w);
}

static int put_stage2(struct ofs_zero_writer *w)
{
	ofs_pkw_lit(&w->p.w, "'base_optimizer_state': ");
	if (ofs_zero_new_put_base(w, put_states) == -1)
		return -1;
	ofs_pkw_lit(&w->p.w, "'single_partition_of_fp32_groups': ");
	if (put_masters(w) == -1)
		return -1;
	put_paddings(w);
	put_counts(w);
	ofs_zero_new_put_version(w);
	put_mappings(w);
	return 0;
}

int ofs_zero_new_optim(const struct ofs_zero_new *z, uint32_t rank,
    struct ofs_torch_new *a, struct ofs_buf *pickle, struct optimfs_error *err)
{
	struct ofs_zero_writer w;

	ofs_zero_new_begin(&w, z, rank, a, pickle, err);
	ofs_pkw_lit(&w.p.w, "'optimizer_state_dict': {");
	if (ofs_zero_new_put_scaler(&w) == -1 ||
	    (z->stage == 3 ? put_stage3(&w) : put_stage2(&w)) == -1)
		return -1;
	ofs_pkw_lit(&w.p.w, "},");
	if (ofs_zero_new_put_fact(&w, "ds_config") == -1)
		return -1;
	ofs_zero_new_put_version(&w);
	return ofs_zero_new_end(&w);
}
