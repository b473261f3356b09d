/* render_model.c - model_rankR.pt: the LOCAL_STATE_DICT of a rank */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "format/fsdp/render.h"
#include "pickle/write.h"

#define API   "torch.distributed._shard.sharded_tensor.api"
#define META  "torch.distributed._shard.sharded_tensor.metadata"
#define SPECS "torch.distributed._shard.sharding_spec"

/* PyTorch lists every shard in each rank's file, and looks at the rank's own
 * alone when it loads one. Of more ranks than these only that one is listed:
 * the others would be so many entries for every flat parameter in each of so
 * many files. */
#define LISTED_MAX 64u

struct writer {
	const struct ofs_fsdp_files *f;
	uint32_t rank, shard;
	struct ofs_state_pickler p;
	/* Of each unit: the storage with the rank's shard, and one without
	 * elements; OFS_NONE: none yet. */
	uint32_t *storage, *none;
	/* Memo of what several ShardedTensors share; 0: not made yet. */
	uint32_t layout, format, group;
};

static uint32_t entry_of(const struct ofs_fsdp_files *f, uint32_t param,
    const char *name)
{
	(void)name;
	return f->param[param].model;
}

/* 42, which FSDP fills alignment with, in the types that it flattens. */
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

/* The storage with the rank's shard of a unit. */
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

/* With use_orig_params, the rank's slice under the parameter's own name. */
static int put_slice(struct writer *w, uint32_t param)
{
	const struct ofs_fsdp_new_param *p = &w->f->param[param];
	const struct ofs_fsdp_new_unit *u = &w->f->unit[p->unit];
	struct ofs_flat_slice s =
	    ofs_flat_slice(&u->flat, param - u->param, w->shard);
	uint64_t none = 0;

	if (s.count > 0)
		return put_view(w, p->unit, s.at, s.count, false);
	if (w->none[p->unit] == OFS_NONE) {
		w->none[p->unit] = w->p.a->nstorages;
		if (ofs_torch_new_storage(w->p.a, w->p.err) == -1)
			return -1;
	}
	return ofs_pkw_tensor(&w->p.w, u->dtype, w->none[p->unit], &none, 1,
	    w->p.err);
}

static void put_device(struct writer *w)
{
	ofs_pkw_global(&w->p.w, "torch", "device");
	ofs_pkw_str(&w->p.w, "cpu", 3);
	ofs_pkw_tuple_close(&w->p.w, 1);
	ofs_pkw_op_put(&w->p.w, OFS_PKW_REDUCE);
}

static void put_layout(struct writer *w)
{
	if (w->layout != 0) {
		ofs_pkw_get(&w->p.w, w->layout);
		return;
	}
	ofs_pkw_global(&w->p.w, "torch.serialization", "_get_layout");
	ofs_pkw_str(&w->p.w, "torch.strided", 13);
	ofs_pkw_tuple_close(&w->p.w, 1);
	w->layout = w->p.w.memo;
	ofs_pkw_op_put(&w->p.w, OFS_PKW_REDUCE);
}

static void new_object(struct writer *w, const char *module, const char *cls)
{
	ofs_pkw_global(&w->p.w, module, cls);
	ofs_pkw_op(&w->p.w, OFS_PKW_UNIT);
	ofs_pkw_op_put(&w->p.w, OFS_PKW_NEWOBJ);
}

/* The rank of the job that has shard k where this rank is. */
static uint32_t rank_of(const struct writer *w, uint32_t k)
{
	return w->rank - w->shard + k;
}

static void put_list_of_one(struct writer *w, uint64_t v)
{
	ofs_pkw_op_put(&w->p.w, OFS_PKW_LIST);
	ofs_pkw_int(&w->p.w, (int64_t)v);
	ofs_pkw_op(&w->p.w, OFS_PKW_APPEND);
}

/* ShardMetadata of shard k. *placement gets the memo of its device. */
static void put_metadata(struct writer *w, const struct ofs_flat *flat,
    uint32_t k, uint32_t *memo, uint32_t *placement)
{
	struct ofs_pkw *p = &w->p.w;

	new_object(w, "torch.distributed._shard.metadata", "ShardMetadata");
	*memo = p->memo - 1;
	ofs_pkw_op(p, OFS_PKW_NONE);
	ofs_pkw_op_put(p, OFS_PKW_DICT);
	ofs_pkw_op(p, OFS_PKW_MARK);
	ofs_pkw_known(p, "shard_offsets");
	put_list_of_one(w, k * flat->shard);
	ofs_pkw_known(p, "shard_sizes");
	put_list_of_one(w, ofs_flat_held(flat, k));
	ofs_pkw_known(p, "placement");
	new_object(w, "torch.distributed.remote_device", "_remote_device");
	*placement = p->memo - 1;
	ofs_pkw_op_put(p, OFS_PKW_DICT);
	ofs_pkw_op(p, OFS_PKW_MARK);
	ofs_pkw_known(p, "_worker_name");
	ofs_pkw_op(p, OFS_PKW_NONE);
	ofs_pkw_known(p, "_rank");
	ofs_pkw_int(p, rank_of(w, k));
	ofs_pkw_known(p, "_device");
	put_device(w);
	ofs_pkw_op(p, OFS_PKW_SETITEMS);
	ofs_pkw_op(p, OFS_PKW_BUILD);
	ofs_pkw_op(p, OFS_PKW_SETITEMS);
	ofs_pkw_tuple_close(p, 2);
	ofs_pkw_op(p, OFS_PKW_BUILD);
}

/* The list of the rank's own shards: one, or none at the end. */
static int put_local(struct writer *w, uint32_t unit)
{
	const struct ofs_flat *flat = &w->f->unit[unit].flat;
	uint64_t held = ofs_flat_held(flat, w->shard);
	struct ofs_pkw *p = &w->p.w;
	uint32_t memo, placement;

	ofs_pkw_op_put(p, OFS_PKW_LIST);
	if (held == 0)
		return 0;
	new_object(w, "torch.distributed._shard.sharded_tensor.shard", "Shard");
	ofs_pkw_op(p, OFS_PKW_NONE);
	ofs_pkw_op_put(p, OFS_PKW_DICT);
	ofs_pkw_op(p, OFS_PKW_MARK);
	ofs_pkw_known(p, "tensor");
	if (put_view(w, unit, 0, held, true) == -1)
		return -1;
	ofs_pkw_known(p, "metadata");
	put_metadata(w, flat, w->shard, &memo, &placement);
	ofs_pkw_op(p, OFS_PKW_SETITEMS);
	ofs_pkw_tuple_close(p, 2);
	ofs_pkw_op(p, OFS_PKW_BUILD);
	ofs_pkw_op(p, OFS_PKW_APPEND);
	return 0;
}

/* How many shards there are with elements. */
static uint32_t count_shards(const struct ofs_flat *flat)
{
	return flat->shard == 0
	    ? 0
	    : (uint32_t)((flat->size + flat->shard - 1) / flat->shard);
}

/* Shards [*first, *end) are listed. */
static void listed(const struct writer *w, const struct ofs_flat *flat,
    uint32_t *first, uint32_t *end)
{
	uint32_t n = count_shards(flat);

	*first = 0;
	*end = n;
	if (w->f->to.shards <= LISTED_MAX)
		return;
	*first = w->shard < n ? w->shard : n;
	*end = w->shard < n ? w->shard + 1 : n;
}

/* dtype, layout, requires_grad, memory_format, pin_memory */
static void put_properties(struct writer *w, enum ofs_dtype dtype)
{
	struct ofs_pkw *p = &w->p.w;

	new_object(w, META, "TensorProperties");
	ofs_pkw_tuple_open(p, 5);
	ofs_pkw_global(p, "torch", ofs_dtype_name(dtype));
	put_layout(w);
	ofs_pkw_op(p, OFS_PKW_TRUE);
	if (w->format != 0) {
		ofs_pkw_get(p, w->format);
	} else {
		ofs_pkw_global(p, META, "MEM_FORMAT_ENCODING");
		ofs_pkw_int(p, 0);
		ofs_pkw_tuple_close(p, 1);
		w->format = p->memo;
		ofs_pkw_op_put(p, OFS_PKW_REDUCE);
	}
	ofs_pkw_op(p, OFS_PKW_FALSE);
	ofs_pkw_tuple_close(p, 5);
	ofs_pkw_op(p, OFS_PKW_BUILD);
}

/* ShardedTensorMetadata; *shards gets the memo of the list of shards,
 * placement those of their devices. */
static void put_tensor_metadata(struct writer *w, uint32_t unit,
    uint32_t *shards, uint32_t *placement)
{
	const struct ofs_flat *flat = &w->f->unit[unit].flat;
	uint32_t first, end, n, memo;
	struct ofs_pkw *p = &w->p.w;

	listed(w, flat, &first, &end);
	n = end - first;
	new_object(w, META, "ShardedTensorMetadata");
	ofs_pkw_op_put(p, OFS_PKW_DICT);
	ofs_pkw_op(p, OFS_PKW_MARK);
	ofs_pkw_known(p, "shards_metadata");
	*shards = p->memo;
	ofs_pkw_op_put(p, OFS_PKW_LIST);
	for (uint32_t k = 0; k < n; k++) {
		ofs_pkw_item(p, k, n, OFS_PKW_APPEND, OFS_PKW_APPENDS);
		put_metadata(w, flat, first + k, &memo, &placement[k]);
	}
	ofs_pkw_item(p, n, n, OFS_PKW_APPEND, OFS_PKW_APPENDS);
	ofs_pkw_known(p, "size");
	ofs_pkw_global(p, "torch", "Size");
	ofs_pkw_dims(p, &flat->size, 1);
	ofs_pkw_tuple_close(p, 1);
	ofs_pkw_op_put(p, OFS_PKW_REDUCE);
	ofs_pkw_known(p, "tensor_properties");
	put_properties(w, w->f->unit[unit].dtype);
	ofs_pkw_op(p, OFS_PKW_SETITEMS);
	ofs_pkw_op(p, OFS_PKW_BUILD);
}

/* Its ranks within the group that shards, and within the job. */
static void put_group(struct writer *w)
{
	struct ofs_pkw *p = &w->p.w;

	if (w->group != 0) {
		ofs_pkw_get(p, w->group);
	} else {
		ofs_pkw_global(p, "__builtin__", "getattr");
		ofs_pkw_global(p, API, "ShardedTensor");
		ofs_pkw_str(p, "ProcessGroupState", 17);
		ofs_pkw_tuple_close(p, 2);
		w->group = p->memo;
		ofs_pkw_op_put(p, OFS_PKW_REDUCE);
	}
	ofs_pkw_op(p, OFS_PKW_UNIT);
	ofs_pkw_op_put(p, OFS_PKW_NEWOBJ);
	ofs_pkw_op_put(p, OFS_PKW_DICT);
	ofs_pkw_op(p, OFS_PKW_MARK);
	ofs_pkw_known(p, "local_rank");
	ofs_pkw_int(p, w->shard);
	ofs_pkw_known(p, "global_rank");
	ofs_pkw_int(p, w->rank);
	ofs_pkw_known(p, "local_world_size");
	ofs_pkw_int(p, w->f->to.shards);
	ofs_pkw_known(p, "global_world_size");
	ofs_pkw_int(p, w->f->world);
	ofs_pkw_op(p, OFS_PKW_SETITEMS);
	ofs_pkw_op(p, OFS_PKW_BUILD);
}

/* As PyTorch infers it: chunks of equal length, the last one shorter, where
 * that is what they are; else the list. */
static void put_spec(struct writer *w, const struct ofs_flat *flat,
    uint32_t shards, const uint32_t *placement)
{
	uint32_t n = count_shards(flat);
	struct ofs_pkw *p = &w->p.w;

	if (n < 2 || w->f->to.shards > LISTED_MAX ||
	    (flat->size + n - 1) / n != flat->shard) {
		new_object(w, SPECS ".api", "EnumerableShardingSpec");
		ofs_pkw_op_put(p, OFS_PKW_DICT);
		ofs_pkw_known(p, "shards");
		ofs_pkw_get(p, shards);
		ofs_pkw_op(p, OFS_PKW_SETITEM);
		ofs_pkw_op(p, OFS_PKW_BUILD);
		return;
	}
	new_object(w, SPECS ".chunk_sharding_spec", "ChunkShardingSpec");
	ofs_pkw_op_put(p, OFS_PKW_DICT);
	ofs_pkw_op(p, OFS_PKW_MARK);
	ofs_pkw_known(p, "dim");
	ofs_pkw_int(p, 0);
	ofs_pkw_known(p, "placements");
	ofs_pkw_op_put(p, OFS_PKW_LIST);
	for (uint32_t k = 0; k < n; k++) {
		ofs_pkw_item(p, k, n, OFS_PKW_APPEND, OFS_PKW_APPENDS);
		ofs_pkw_get(p, placement[k]);
	}
	ofs_pkw_item(p, n, n, OFS_PKW_APPEND, OFS_PKW_APPENDS);
	ofs_pkw_op(p, OFS_PKW_SETITEMS);
	ofs_pkw_op(p, OFS_PKW_BUILD);
}

/* What ShardedTensor.__new__ is given. */
static void put_arguments(struct writer *w, uint32_t unit)
{
	const struct ofs_fsdp_new_unit *u = &w->f->unit[unit];
	struct ofs_pkw *p = &w->p.w;
	uint64_t one = 1;

	ofs_pkw_tuple_open(p, 7);
	ofs_pkw_global(p, API, "ShardedTensor");
	ofs_pkw_global(p, "torch", ofs_dtype_name(u->dtype));
	ofs_pkw_dims(p, &u->flat.size, 1);
	ofs_pkw_dims(p, &one, 1);
	ofs_pkw_int(p, 0);
	put_layout(w);
	put_device(w);
	ofs_pkw_op(p, OFS_PKW_TRUE);
	ofs_pkw_tuple_close(p, 7);
}

static int put_sharded(struct writer *w, uint32_t unit)
{
	const struct ofs_flat *flat = &w->f->unit[unit].flat;
	uint32_t shards;
	struct ofs_pkw *p = &w->p.w;
	uint32_t *placement =
	    calloc(count_shards(flat) + 1ull, sizeof(*placement));
	int ret;

	if (placement == NULL)
		return optimfs_fail(w->p.err, ENOMEM, "shards of a view");
	ofs_pkw_global(p, "torch._tensor", "_rebuild_from_type_v2");
	ofs_pkw_tuple_open(p, 4);
	ofs_pkw_global(p, "torch._utils", "_rebuild_wrapper_subclass");
	ofs_pkw_global(p, API, "ShardedTensor");
	put_arguments(w, unit);
	ofs_pkw_tuple_open(p, 5);
	ret = put_local(w, unit);
	if (ret == 0) {
		put_tensor_metadata(w, unit, &shards, placement);
		put_group(w);
		put_spec(w, flat, shards, placement);
		ofs_pkw_op(p, OFS_PKW_FALSE);
		ofs_pkw_tuple_close(p, 5);
		ofs_pkw_tuple_close(p, 4);
		ofs_pkw_op_put(p, OFS_PKW_REDUCE);
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

/* The flat parameters whose keys stand at an entry. */
static int put_flats(struct writer *w, uint32_t entry)
{
	const struct ofs_fsdp_files *f = w->f;

	/* at the end, that of an inner module comes first */
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
	const struct ofs_entry *e = &f->cat->entries[f->model[i]];
	uint32_t param = f->model_param[i], n;
	const uint32_t *c = ofs_catalog_components(f->cat, e->tree, &n);
	struct ofs_str key = ofs_catalog_string(f->cat, OFS_PATH_STR(c[1]));

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
	struct writer w = { .f = f,
		.rank = rank,
		.shard = ofs_fsdp_new_shard(f, rank),
		.p = { .s = &f->optim,
		    .from = &f->from,
		    .w = { .out = pickle },
		    .a = a,
		    .optim = OFS_NONE,
		    .err = err } };
	int ret = 0;

	w.storage = malloc((f->units.n + 1ull) * 2 * sizeof(*w.storage));
	if (w.storage == NULL)
		return optimfs_fail(err, ENOMEM, "units of a view");
	memset(w.storage, 0xff, f->units.n * 2ull * sizeof(*w.storage));
	w.none = w.storage + f->units.n;
	ofs_pkw_begin(&w.p.w);
	ofs_pkw_global(&w.p.w, "collections", "OrderedDict");
	ofs_pkw_op(&w.p.w, OFS_PKW_UNIT);
	ofs_pkw_op_put(&w.p.w, OFS_PKW_REDUCE);
	ofs_pkw_op(&w.p.w, OFS_PKW_MARK);
	for (uint32_t i = 0; i < f->nmodel && ret == 0; i++) {
		if (!f->orig)
			ret = put_flats(&w, f->model[i]);
		if (ret == 0)
			ret = put_entry(&w, i);
		if (ret == 0 && f->orig)
			ret = put_flats(&w, f->model[i]);
	}
	ofs_pkw_op(&w.p.w, OFS_PKW_SETITEMS);
	ofs_pkw_op(&w.p.w, OFS_PKW_STOP);
	free(w.storage);
	return ret;
}
