/* render_model.c - model_states.pt: weights and their layout */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/str.h"
#include "format/zero/render.h"
#include "pickle/write.h"

/* Members of the dict that are made here, not copied from the source. */
static const char *const own[] = { "module", "buffer_names", "optimizer",
	"param_shapes", "frozen_param_shapes", "shared_params",
	"frozen_param_fragments", "skipped_steps", "global_steps",
	"dp_world_size", "mp_world_size", "ds_version", "optimizer_state_dict",
	"lr_scheduler", "sparse_tensor_module_names" };

#define UNIVERSAL "universal_checkpoint_info"
#define ORDERED   "collections.OrderedDict()"

struct writer {
	struct ofs_zero_writer w;
	uint32_t *storage; /* of each weight; OFS_NONE: not added yet */
	uint32_t none[OFS_NDTYPES]; /* empty storages by dtype, plus 1 */
};

static const struct ofs_entry *entry_of(const struct ofs_zero_new *z,
    uint32_t weight)
{
	return &z->m.cat->entries[z->weight[weight].entry];
}

static struct ofs_str name_of(const struct ofs_zero_new *z, uint32_t weight)
{
	uint32_t n;
	const uint32_t *c =
	    ofs_catalog_components(z->m.cat, entry_of(z, weight)->tree, &n);

	return ofs_catalog_string(z->m.cat, OFS_PATH_STR(c[n - 1]));
}

/* Writes the empty tensor that stage 3 has in place of a weight. */
static int put_none(struct writer *x, uint32_t weight)
{
	const struct ofs_zero_new *z = x->w.z;
	enum ofs_dtype dtype = ofs_render_dtype(&z->m.to,
	    ofs_flat_tensor(&z->m, z->weight[weight].entry));
	struct ofs_torch_new *a = x->w.p.a;
	uint64_t zero = 0;

	if (x->none[dtype] == 0) {
		if (ofs_torch_new_storage(a, x->w.p.err) == -1)
			return -1;
		x->none[dtype] = a->nstorages;
	}
	return ofs_pkw_tensor(&x->w.p.w, dtype, x->none[dtype] - 1, &zero, 1,
	    x->w.p.err);
}

/* Writes the weight; two names of one tensor share a storage. */
static int put_whole(struct writer *x, uint32_t weight)
{
	const struct ofs_zero_new *z = x->w.z;
	const struct ofs_tensor *t =
	    ofs_flat_tensor(&z->m, z->weight[weight].entry);
	struct ofs_torch_part part = { .tensor = entry_of(z, weight)->ref,
		.count = ofs_tensor_numel(z->m.cat, t) };
	struct ofs_torch_new *a = x->w.p.a;
	struct ofs_pkw_scale scale;
	int ret;

	if (x->storage[weight] == OFS_NONE) {
		x->storage[weight] = a->nstorages;
		if (ofs_torch_new_storage(a, x->w.p.err) == -1 ||
		    ofs_torch_new_part(a, z->m.cat, &part, x->w.p.err) == -1)
			return -1;
	}
	if (ofs_render_scale(&z->m.from, part.tensor, &scale, x->w.p.err) == -1)
		return -1;
	x->w.p.w.scale = &scale;
	ret = ofs_pkw_tensor(&x->w.p.w, ofs_render_dtype(&z->m.to, t),
	    x->storage[weight], ofs_tensor_shape(z->m.cat, t), t->ndim,
	    x->w.p.err);
	x->w.p.w.scale = NULL;
	return ret;
}

static int put_module(struct writer *x)
{
	const struct ofs_zero_new *z = x->w.z;
	struct ofs_pkw *p = &x->w.p.w;

	ofs_pkw_lit(p, ORDERED "{");
	for (uint32_t i = 0; i < z->nweights; i++) {
		const struct ofs_zero_new_weight *v = &z->weight[i];
		struct ofs_str name = name_of(z, i);
		uint32_t of = i;
		int ret;

		while (z->weight[of].role == OFS_ZERO_NEW_ALIAS)
			of = z->weight[of].of;
		ofs_pkw_lit(p, "%.*s: ", OFS_PKW_STR(name));
		if (z->stage == 3 && z->weight[of].role != OFS_ZERO_NEW_BUFFER)
			ret = put_none(x, i);
		else
			ret = put_whole(x, of);
		if (ret == -1)
			return ofs_render_fail_in(z->m.cat,
			    &z->m.cat->entries[v->entry], x->w.p.err);
		ofs_pkw_lit(p, ",");
	}
	ofs_pkw_lit(p, "}");
	return 0;
}

static void put_buffers(struct writer *x)
{
	const struct ofs_zero_new *z = x->w.z;

	ofs_pkw_lit(&x->w.p.w, "[");
	for (uint32_t i = 0; i < z->nweights; i++)
		if (z->weight[i].role == OFS_ZERO_NEW_BUFFER)
			ofs_pkw_lit(&x->w.p.w, "%.*s,",
			    OFS_PKW_STR(name_of(z, i)));
	ofs_pkw_lit(&x->w.p.w, "]");
}

static void put_size(struct ofs_pkw *p, const uint64_t *shape, uint32_t ndim)
{
	ofs_pkw_lit(p, "torch.Size(");
	ofs_pkw_dims(p, shape, ndim);
	ofs_pkw_lit(p, ")");
}

static void put_shapes(struct writer *x)
{
	const struct ofs_zero_shapes *s = &x->w.z->shapes;
	struct ofs_pkw *p = &x->w.p.w;

	ofs_pkw_lit(p, "[");
	for (uint32_t g = 0; g < s->ngroups; g++) {
		ofs_pkw_lit(p, ORDERED "{");
		for (uint32_t i = s->first[g]; i < s->first[g + 1]; i++) {
			const struct ofs_zero_param *v = &s->param[i];

			ofs_pkw_lit(p, "%.*s: ", OFS_PKW_STR(v->name));
			put_size(p, v->shape, v->ndim);
			ofs_pkw_lit(p, ",");
		}
		ofs_pkw_lit(p, "},");
	}
	ofs_pkw_lit(p, "]");
}

/* Writes elements [rank * p, (rank + 1) * p), where p is n divided by the
 * number of ranks, rounded up; elements beyond the end are zeros. */
static int put_fragment(struct writer *x, uint32_t weight)
{
	const struct ofs_zero_new *z = x->w.z;
	const struct ofs_tensor *t =
	    ofs_flat_tensor(&z->m, z->weight[weight].entry);
	enum ofs_dtype dtype = ofs_render_dtype(&z->m.to, t);
	uint64_t n = ofs_tensor_numel(z->m.cat, t);
	uint64_t share = n / z->world + (n % z->world != 0);
	uint64_t first = share * x->w.rank < n ? share * x->w.rank : n;
	struct ofs_torch_part part = { .tensor = entry_of(z, weight)->ref,
		.first = first,
		.count = n - first < share ? n - first : share };
	struct ofs_torch_part pad = { .tensor = OFS_NONE,
		.item = (uint32_t)ofs_dtype_size(dtype),
		.count = share - part.count };
	struct ofs_torch_new *a = x->w.p.a;

	if (ofs_torch_new_storage(a, x->w.p.err) == -1 ||
	    ofs_torch_new_part(a, z->m.cat, &part, x->w.p.err) == -1 ||
	    ofs_torch_new_part(a, z->m.cat, &pad, x->w.p.err) == -1)
		return -1;
	return ofs_pkw_tensor(&x->w.p.w, dtype, a->nstorages - 1, &share, 1,
	    x->w.p.err);
}

static bool has_frozen(const struct ofs_zero_new *z)
{
	for (uint32_t i = 0; i < z->nweights; i++)
		if (z->weight[i].role == OFS_ZERO_NEW_FROZEN)
			return true;
	return false;
}

/* Writes a dict of frozen parameters: their shapes, or this file's fragment of
 * each. Stage 1 has none. */
static int put_frozen(struct writer *x, bool shapes)
{
	const struct ofs_zero_new *z = x->w.z;
	struct ofs_pkw *p = &x->w.p.w;

	if (z->stage == 1 || !has_frozen(z)) {
		ofs_pkw_lit(p, "None");
		return 0;
	}
	ofs_pkw_lit(p, ORDERED "{");
	for (uint32_t i = 0; i < z->nweights; i++) {
		const struct ofs_tensor *t =
		    ofs_flat_tensor(&z->m, z->weight[i].entry);
		int ret = 0;

		if (z->weight[i].role != OFS_ZERO_NEW_FROZEN)
			continue;
		ofs_pkw_lit(p, "%.*s: ", OFS_PKW_STR(name_of(z, i)));
		if (shapes)
			put_size(p, ofs_tensor_shape(z->m.cat, t), t->ndim);
		else
			ret = z->stage == 3 ? put_fragment(x, i)
					    : put_whole(x, i);
		if (ret == -1)
			return ofs_render_fail_in(z->m.cat, entry_of(z, i),
			    x->w.p.err);
		ofs_pkw_lit(p, ",");
	}
	ofs_pkw_lit(p, "}");
	return 0;
}

/* Writes second names of parameters, in the first rank's file only. */
static void put_shared(struct writer *x)
{
	const struct ofs_zero_new *z = x->w.z;

	ofs_pkw_lit(&x->w.p.w, "{");
	for (uint32_t i = 0; i < z->nweights && x->w.rank == 0; i++)
		if (z->weight[i].role == OFS_ZERO_NEW_ALIAS)
			ofs_pkw_lit(&x->w.p.w, "%.*s: %.*s,",
			    OFS_PKW_STR(name_of(z, i)),
			    OFS_PKW_STR(name_of(z, z->weight[i].of)));
	ofs_pkw_lit(&x->w.p.w, "}");
}

/* Writes what loaders need, even if the source lacks it. */
static int put_required(struct writer *x)
{
	struct ofs_pkw *p = &x->w.p.w;
	int64_t skipped = 0;

	if (ofs_zero_new_put_fact(&x->w, "lr_scheduler") == -1)
		return -1;
	ofs_zero_new_int(x->w.z, "skipped_steps", &skipped);
	ofs_pkw_lit(p,
	    "'sparse_tensor_module_names': __builtin__.set([]), "
	    "'skipped_steps': %" PRId64 ", 'global_steps': %" PRId64
	    ", 'dp_world_size': %u, 'mp_world_size': 1, ",
	    skipped, ofs_zero_new_steps(x->w.z), x->w.z->world);
	ofs_zero_new_put_version(&x->w);
	/* a tree cannot show an empty dict; a converter needs it */
	if (x->w.z->extra.n == 0 ||
	    ofs_state_child(&x->w.z->extra, 0, UNIVERSAL) == OFS_NONE)
		ofs_pkw_lit(p, "'" UNIVERSAL "': {}, ");
	return 0;
}

static bool is_own(struct ofs_str key)
{
	for (size_t i = 0; i < sizeof(own) / sizeof(*own); i++)
		if (ofs_str_is(key, own[i]))
			return true;
	return false;
}

/* Writes all other members of the source. */
static int put_rest(struct writer *x)
{
	const struct ofs_state *s = &x->w.z->extra;
	uint32_t i = s->n == 0 ? OFS_NONE : s->node[0].child;

	x->w.p.s = s;
	for (; i != OFS_NONE; i = s->node[i].next) {
		struct ofs_str key = ofs_state_key(s, i);

		if (is_own(key))
			continue;
		ofs_pkw_lit(&x->w.p.w, "%.*s: ", OFS_PKW_STR(key));
		if (ofs_state_put(&x->w.p, i) == -1)
			return -1;
		ofs_pkw_lit(&x->w.p.w, ",");
	}
	return 0;
}

static int put_all(struct writer *x)
{
	struct ofs_pkw *p = &x->w.p.w;

	ofs_pkw_lit(p, "'module': ");
	if (put_module(x) == -1)
		return -1;
	ofs_pkw_lit(p, ", 'buffer_names': ");
	put_buffers(x);
	ofs_pkw_lit(p, ", 'optimizer': None, 'param_shapes': ");
	put_shapes(x);
	ofs_pkw_lit(p, ", 'frozen_param_shapes': ");
	if (put_frozen(x, true) == -1)
		return -1;
	ofs_pkw_lit(p, ", 'shared_params': ");
	put_shared(x);
	ofs_pkw_lit(p, ", 'frozen_param_fragments': ");
	if (put_frozen(x, false) == -1)
		return -1;
	ofs_pkw_lit(p, ",");
	return put_required(x) == -1 ? -1 : put_rest(x);
}

int ofs_zero_new_model(const struct ofs_zero_new *z, uint32_t rank,
    struct ofs_torch_new *a, struct ofs_buf *pickle, struct optimfs_error *err)
{
	struct writer x = { 0 };
	int ret;

	x.storage = malloc((z->nweights + 1ull) * sizeof(*x.storage));
	if (x.storage == NULL)
		return ofs_no_memory(err);
	memset(x.storage, 0xff, z->nweights * sizeof(*x.storage));
	ofs_zero_new_begin(&x.w, z, rank, a, pickle, err);
	ret = put_all(&x);
	if (ret == 0)
		ret = ofs_zero_new_end(&x.w);
	free(x.storage);
	return ret;
}
