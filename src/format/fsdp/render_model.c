/* render_model.c - model_rankR.pt: the LOCAL_STATE_DICT of a rank */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "format/fsdp/render.h"
#include "pickle/write.h"

#define API   "torch.distributed._shard.sharded_tensor.api"
#define META  "torch.distributed._shard.sharded_tensor.metadata"
#define SPECS "torch.distributed._shard.sharding_spec"

/* PyTorch pickles a new object for each device; %s is "cpu". The layout is one
 * shared object. */
#define DEVICE "torch.device(%s)"
#define LAYOUT "$torch.serialization._get_layout('torch.strided')"

/* PyTorch lists every shard in each rank's file, and reads only the rank's own
 * when it loads one. With more ranks than this only that one is listed, because
 * the files would grow with the square of the number of ranks. */
#define LISTED_MAX 64u

struct writer {
	const struct ofs_fsdp_files *f;
	uint32_t rank, shard;
	struct ofs_state_pickler p;
	/* Of each unit: the storage of the rank's shard, and an empty storage;
	 * OFS_NONE: not added yet. */
	uint32_t *storage, *none;
};

static uint32_t entry_of(const struct ofs_fsdp_files *f, uint32_t param,
    const char *name)
{
	(void)name;
	return f->m.param[param].model;
}

/* 42, the value of FSDP's alignment padding, in the types that it flattens. */
static uint64_t padding_of(enum ofs_dtype dtype)
{
	switch (dtype) {
	case OFS_FLOAT32:
		return 0x42280000;
	case OFS_BFLOAT16:
		return 0x4228;
	case OFS_FLOAT16:
		return 0x5140;
	case OFS_FLOAT64:
		return UINT64_C(0x4045000000000000);
	default:
		return 0;
	}
}

/* The storage of the rank's shard of a unit, which the first call adds. */
static int storage_of(struct writer *w, uint32_t unit, uint32_t *storage)
{
	const struct ofs_fsdp_new_unit *u = &w->f->unit[unit];

	if (w->storage[unit] == OFS_NONE) {
		w->storage[unit] = w->p.a->nstorages;
		if (ofs_fsdp_new_flat(w->f, unit, w->rank, entry_of, NULL,
			padding_of(u->dtype), w->p.a, w->p.err) == -1)
			return -1;
	}
	*storage = w->storage[unit];
	return 0;
}

static int put_view(struct writer *w, uint32_t unit, uint64_t offset,
    uint64_t count, bool grad)
{
	const struct ofs_fsdp_new_unit *u = &w->f->unit[unit];
	struct ofs_pkw_view v = { .dtype = u->dtype,
		.storage = u->flat.shard,
		.offset = offset,
		.shape = &count,
		.ndim = 1,
		.grad = grad };
	uint32_t storage;

	if (storage_of(w, unit, &storage) == -1)
		return -1;
	v.key = storage;
	return ofs_pkw_view(&w->p.w, &v, w->p.err);
}

/* With use_orig_params, writes the rank's slice under the parameter's name. */
static int put_slice(struct writer *w, uint32_t param)
{
	const struct ofs_flat_member *p = &w->f->m.param[param];
	const struct ofs_fsdp_new_unit *u = &w->f->unit[p->flat];
	struct ofs_flat_slice s =
	    ofs_flat_slice(&u->flat, param - u->param, w->shard);
	uint64_t none = 0;

	if (s.count > 0)
		return put_view(w, p->flat, s.at, s.count, false);
	if (w->none[p->flat] == OFS_NONE) {
		w->none[p->flat] = w->p.a->nstorages;
		if (ofs_torch_new_storage(w->p.a, w->p.err) == -1)
			return -1;
	}
	return ofs_pkw_tensor(&w->p.w, u->dtype, w->none[p->flat], &none, 1,
	    w->p.err);
}

/* The global rank that has shard k in this rank's sharding group. */
static uint32_t rank_of(const struct writer *w, uint32_t k)
{
	return w->rank - w->shard + k;
}

/* Writes the ShardMetadata of shard k. *placement gets the memo of its
 * device. */
static void put_metadata(struct writer *w, const struct ofs_flat *flat,
    uint32_t k, int *placement)
{
	ofs_pkw_lit(&w->p.w,
	    "torch.distributed._shard.metadata.ShardMetadata<(None, {"
	    "'shard_offsets': [%" PRIu64 "], 'shard_sizes': [%" PRIu64 "], "
	    "'placement': torch.distributed.remote_device._remote_device<%n{"
	    "'_worker_name': None, '_rank': %u, '_device': " DEVICE "}>})>",
	    k * flat->shard, ofs_flat_held(flat, k), placement, rank_of(w, k),
	    "cpu");
}

/* Writes the list of the rank's own shards: one, or none beyond the last shard
 * with elements. */
static int put_local(struct writer *w, uint32_t unit)
{
	const struct ofs_flat *flat = &w->f->unit[unit].flat;
	uint64_t held = ofs_flat_held(flat, w->shard);
	struct ofs_pkw *p = &w->p.w;
	int placement;

	ofs_pkw_lit(p, "[");
	if (held > 0) {
		ofs_pkw_lit(p,
		    "torch.distributed._shard.sharded_tensor.shard.Shard<"
		    "(None, {'tensor': ");
		if (put_view(w, unit, 0, held, true) == -1)
			return -1;
		ofs_pkw_lit(p, ", 'metadata': ");
		put_metadata(w, flat, w->shard, &placement);
		ofs_pkw_lit(p, "})>");
	}
	ofs_pkw_lit(p, "]");
	return 0;
}

/* The number of shards with elements. */
static uint32_t count_shards(const struct ofs_flat *flat)
{
	return flat->shard == 0
	    ? 0
	    : (uint32_t)((flat->size + flat->shard - 1) / flat->shard);
}

/* Sets the range [*first, *end) of listed shards. */
static void listed(const struct writer *w, const struct ofs_flat *flat,
    uint32_t *first, uint32_t *end)
{
	uint32_t n = count_shards(flat);

	*first = 0;
	*end = n;
	if (w->f->m.to.shards <= LISTED_MAX)
		return;
	*first = w->shard < n ? w->shard : n;
	*end = w->shard < n ? w->shard + 1 : n;
}

/* Writes the ShardedTensorMetadata; *shards gets the memo of the list of
 * shards, placement those of their devices. */
static void put_tensor_metadata(struct writer *w, uint32_t unit, int *shards,
    int *placement)
{
	const struct ofs_flat *flat = &w->f->unit[unit].flat;
	struct ofs_pkw *p = &w->p.w;
	uint32_t first, end;

	listed(w, flat, &first, &end);
	ofs_pkw_lit(p, META ".ShardedTensorMetadata<{'shards_metadata': [%n",
	    shards);
	for (uint32_t k = first; k < end; k++) {
		put_metadata(w, flat, k, placement++);
		ofs_pkw_lit(p, ",");
	}
	/* dtype, layout, requires_grad, memory_format, pin_memory */
	ofs_pkw_lit(p,
	    "], 'size': torch.Size((%" PRIu64 ")), 'tensor_properties': " META
	    ".TensorProperties<(torch.%s, " LAYOUT ", True, $" META
	    ".MEM_FORMAT_ENCODING(0), False)>}>",
	    flat->size, ofs_dtype_name(w->f->unit[unit].dtype));
}

/* Writes the rank's numbers in the sharding group and in the job. */
static void put_group(struct writer *w)
{
	ofs_pkw_lit(&w->p.w,
	    "$__builtin__.getattr(" API ".ShardedTensor, 'ProcessGroupState')<"
	    "{'local_rank': %u, 'global_rank': %u, 'local_world_size': %u, "
	    "'global_world_size': %u}>",
	    w->shard, w->rank, w->f->m.to.shards, w->f->world);
}

/* Writes the spec that PyTorch infers: chunks, if all are of equal length
 * except a shorter last one; else the list of shards. */
static void put_spec(struct writer *w, const struct ofs_flat *flat, int shards,
    const int *placement)
{
	uint32_t n = count_shards(flat);
	struct ofs_pkw *p = &w->p.w;

	if (n < 2 || w->f->m.to.shards > LISTED_MAX ||
	    (flat->size + n - 1) / n != flat->shard) {
		ofs_pkw_lit(p,
		    SPECS ".api.EnumerableShardingSpec<{'shards': @%d}>",
		    shards);
		return;
	}
	ofs_pkw_lit(p,
	    SPECS ".chunk_sharding_spec.ChunkShardingSpec<"
		  "{'dim': 0, 'placements': [");
	for (uint32_t k = 0; k < n; k++)
		ofs_pkw_lit(p, "@%d,", placement[k]);
	ofs_pkw_lit(p, "]}>");
}

static int put_sharded(struct writer *w, uint32_t unit)
{
	const struct ofs_fsdp_new_unit *u = &w->f->unit[unit];
	int *placement =
	    calloc(count_shards(&u->flat) + 1ull, sizeof(*placement));
	struct ofs_pkw *p = &w->p.w;
	int ret, shards;

	if (placement == NULL)
		return ofs_no_memory(w->p.err);
	/* the arguments of ShardedTensor.__new__, then its state */
	ofs_pkw_lit(p,
	    "torch._tensor._rebuild_from_type_v2("
	    "torch._utils._rebuild_wrapper_subclass, " API ".ShardedTensor, "
	    "(" API ".ShardedTensor, torch.%s, (%" PRIu64 "), (1), 0, " LAYOUT
	    ", " DEVICE ", True), (",
	    ofs_dtype_name(u->dtype), u->flat.size, "cpu");
	ret = put_local(w, unit);
	if (ret == 0) {
		ofs_pkw_lit(p, ",");
		put_tensor_metadata(w, unit, &shards, placement);
		ofs_pkw_lit(p, ",");
		put_group(w);
		ofs_pkw_lit(p, ",");
		put_spec(w, &u->flat, shards, placement);
		ofs_pkw_lit(p, ", False))");
	}
	free(placement);
	return ret;
}

static int put_flat(struct writer *w, uint32_t unit)
{
	struct ofs_str prefix = w->f->units.unit[unit].prefix;
	struct ofs_buf key = { 0 };

	ofs_buf_put(&key, prefix.p, prefix.len);
	ofs_buf_puts(&key, prefix.len > 0 ? "._flat_param" : "_flat_param");
	if (key.bad)
		w->p.w.out->bad = true;
	else
		ofs_pkw_str(&w->p.w, (char *)key.data, key.len);
	ofs_buf_fini(&key);
	return put_sharded(w, unit);
}

/* Writes the flat parameters whose keys belong at this entry. */
static int put_flats(struct writer *w, uint32_t entry)
{
	const struct ofs_fsdp_files *f = w->f;

	/* at the end of a module, those of inner modules come first */
	for (uint32_t i = 0; i < f->units.n && !f->whole; i++) {
		uint32_t unit = f->orig ? f->units.n - 1 - i : i;

		if (f->unit[unit].at == entry && put_flat(w, unit) == -1)
			return -1;
	}
	return 0;
}

static int put_entry(struct writer *w, uint32_t i)
{
	const struct ofs_fsdp_files *f = w->f;
	const struct ofs_entry *e = &f->m.cat->entries[f->model[i]];
	uint32_t param = f->model_param[i], n;
	const uint32_t *c = ofs_catalog_components(f->m.cat, e->tree, &n);
	struct ofs_str key = ofs_catalog_string(f->m.cat, OFS_PATH_STR(c[1]));

	if (param != OFS_NONE && !f->orig && !f->whole)
		return 0;
	ofs_pkw_str(&w->p.w, key.p, key.len);
	if (param != OFS_NONE && !f->whole)
		return put_slice(w, param);
	return ofs_state_put_entry(&w->p, e);
}

int ofs_fsdp_new_model(const struct ofs_fsdp_files *f, uint32_t rank,
    struct ofs_torch_new *a, struct ofs_buf *pickle, struct optimfs_error *err)
{
	struct writer w = {
		.f = f, .rank = rank, .shard = ofs_fsdp_new_shard(f, rank)
	};
	int ret = 0;

	w.storage = malloc((f->units.n + 1ull) * 2 * sizeof(*w.storage));
	if (w.storage == NULL)
		return ofs_no_memory(err);
	memset(w.storage, 0xff, f->units.n * 2ull * sizeof(*w.storage));
	w.none = w.storage + f->units.n;
	ofs_state_pickler_init(&w.p, &f->m.optim, &f->m.from, pickle, a, err);
	ofs_pkw_begin(&w.p.w);
	ofs_pkw_lit(&w.p.w, "collections.OrderedDict(){*");
	for (uint32_t i = 0; i < f->nmodel && ret == 0; i++) {
		if (!f->orig)
			ret = put_flats(&w, f->model[i]);
		if (ret == 0)
			ret = put_entry(&w, i);
		if (ret == 0 && f->orig)
			ret = put_flats(&w, f->model[i]);
	}
	ofs_pkw_lit(&w.p.w, "}");
	free(w.storage);
	return ret == 0 ? ofs_pkw_end(&w.p.w, err) : -1;
}
