/* entries.c - the entries of a checkpoint of Megatron-FSDP */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/step.h"
#include "base/str.h"
#include "format/fsdp_dtensor/fsdp_dtensor.h"
#include "store/local.h"

/* An option is a number or a few; its archive has less than 2 KiB. */
#define VALUE_MAX 65536

struct ofs_str ofs_dtensor_clean(struct ofs_str name)
{
	while (name.len > 7 && ofs_str_take(&name, "module."))
		;
	return name;
}

/* Comparing small values. */

/* Equal bytes are not enough: only entries of one kind, and elements of one type,
 * can be joined. */
static int read_value(struct ofs_dtensor *d, const struct ofs_extent *at,
    const uint8_t type[2], uint32_t *number, struct optimfs_error *why)
{
	struct ofs_buf key = { 0 };
	uint8_t *bytes;
	uint64_t n;

	if (ofs_transport_read_all(d->t, at, VALUE_MAX, &bytes, &n, why) == -1)
		return ofs_must_stop(why) ? optimfs_fail_with(d->err, why) : 0;
	ofs_buf_put(&key, type, 2);
	ofs_buf_put(&key, bytes, n);
	free(bytes);
	*number = OFS_NONE;
	if (key.bad)
		ofs_no_memory(d->err);
	else
		*number = ofs_keys_copy(&d->values, key.data, key.len, d->err);
	ofs_buf_fini(&key);
	return *number == OFS_NONE ? -1 : 1;
}

int ofs_dtensor_value(struct ofs_dtensor *d, uint32_t entry, uint32_t *number,
    struct optimfs_error *why)
{
	const struct ofs_entry *e = &d->cat->entries[entry];
	const struct ofs_tensor *t = ofs_entry_tensor(d->cat, e);
	const struct ofs_extent *at = ofs_entry_extent(d->cat, e, 0);
	const uint8_t type[] = { e->kind,
		t == NULL ? OFS_DTYPE_NONE : t->dtype };

	if (ofs_entry_sound(d->cat, e, why) == -1)
		return 0;
	if (at == NULL || (t != NULL && t->ndim > 0)) {
		optimfs_fail(why, EOPNOTSUPP, "OFS657 it is no small value");
		return 0;
	}
	return read_value(d, at, type, number, why);
}

/* Joining. */

static void drop(struct ofs_dtensor *d, uint32_t entry)
{
	if (entry >= d->first && entry < d->n)
		d->gone[entry - d->first] = true;
}

static int add_shards(struct ofs_dtensor *d, const struct ofs_tensor *t,
    uint64_t rows)
{
	uint64_t box[2 * OFS_MAX_DIMS];

	for (uint32_t i = 0; i < t->nshards; i++) {
		struct ofs_shard s = d->cat->shards[t->shard + i];

		if (t->ndim > 0) {
			ofs_shard_box(d->cat, t, &s, box, box + t->ndim);
			if (!ofs_add_u64(box[0], rows, &box[0]))
				box[0] = UINT64_MAX; /* is refused later */
			s.box = ofs_catalog_dims(d->cat, box,
			    2 * (size_t)t->ndim, d->err);
		}
		if (ofs_catalog_shard(d->cat, &s, d->err) == OFS_NONE)
			return -1;
	}
	return 0;
}

/* Leaves a tensor without elements: its shards are another one's. */
static int empty(struct ofs_dtensor *d, uint32_t tensor)
{
	const uint64_t zero = 0;
	uint32_t dims = ofs_catalog_dims(d->cat, &zero, 1, d->err);
	struct ofs_tensor *t = &d->cat->tensors[tensor];

	t->shape = t->grid = dims;
	t->ndim = t->grid_ndim = 1;
	t->nshards = 0;
	return dims == OFS_NONE ? -1 : 0;
}

static int join_tensors(struct ofs_dtensor *d, const uint32_t *entry,
    uint32_t n)
{
	struct ofs_catalog *cat = d->cat;
	uint32_t first = cat->entries[entry[0]].ref;
	struct ofs_tensor whole = cat->tensors[first];
	uint64_t shape[OFS_MAX_DIMS], rows = 0;

	memcpy(shape, ofs_tensor_shape(cat, &whole),
	    whole.ndim * sizeof(*shape));
	whole.shard = cat->nshards;
	for (uint32_t i = 0; i < n; i++) {
		uint32_t ref = cat->entries[entry[i]].ref;
		const struct ofs_tensor t = cat->tensors[ref];

		if (add_shards(d, &t, rows) == -1 || empty(d, ref) == -1)
			return -1;
		if (t.ndim > 0)
			rows += cat->dims[t.shape];
	}
	shape[0] = rows;
	if (whole.ndim == 0)
		whole.flags |= OFS_TENSOR_COPIES;
	whole.nshards = cat->nshards - whole.shard;
	whole.shape = whole.grid =
	    ofs_catalog_dims(cat, shape, whole.ndim, d->err);
	cat->tensors[first] = whole;
	return whole.shape == OFS_NONE ? -1 : 0;
}

int ofs_dtensor_join(struct ofs_dtensor *d, const uint32_t *entry, uint32_t n)
{
	struct ofs_catalog *cat = d->cat;
	struct ofs_item *item;

	for (uint32_t i = 1; i < n; i++)
		drop(d, entry[i]);
	if (cat->entries[entry[0]].kind == OFS_ENTRY_TENSOR)
		return n == 1 ? 0 : join_tensors(d, entry, n);
	item = &cat->items[cat->entries[entry[0]].ref];
	for (uint32_t i = 1; i < n; i++) {
		uint32_t ref = cat->entries[entry[i]].ref;

		cat->items[ref].same = item->same;
		item->same = ref + 1;
	}
	return 0;
}

/* All of it. */

static bool is_ours(const struct ofs_dtensor *d)
{
	for (uint32_t i = d->first; i < d->n; i++) {
		uint32_t n;
		const uint32_t *c =
		    ofs_catalog_components(d->cat, d->cat->entries[i].path, &n);

		for (uint32_t k = 1; k + 2 < n; k++)
			if (c[k] == d->meta)
				return true;
	}
	return false;
}

static void remove_gone(struct ofs_dtensor *d)
{
	struct ofs_catalog *cat = d->cat;
	uint32_t n = d->first;

	for (uint32_t i = d->first; i < cat->nentries; i++)
		if (i >= d->n || !d->gone[i - d->first])
			cat->entries[n++] = cat->entries[i];
	cat->nentries = n;
}

static int fold(struct ofs_dtensor *d)
{
	d->gone = ofs_alloc((size_t)d->n - d->first, sizeof(*d->gone), d->err);
	d->t = ofs_transport_of(d->cat, VALUE_MAX, d->err);
	if (d->gone == NULL || d->t == NULL || ofs_dtensor_groups(d) == -1 ||
	    ofs_dtensor_parts(d) == -1 || ofs_dtensor_steps(d) == -1)
		return -1;
	remove_gone(d);
	d->cat->trainer = "Megatron-FSDP";
	return 0;
}

int ofs_fsdp_dtensor_entries(struct ofs_catalog *cat, uint32_t first,
    struct optimfs_error *err)
{
	struct ofs_dtensor d = {
		.cat = cat,
		.first = first,
		.n = cat->nentries,
		.meta = ofs_catalog_str(cat, "param_to_group_meta", 19, err),
		.groups = ofs_catalog_str(cat, "param_groups", 12, err),
		.params = ofs_catalog_str(cat, "params", 6, err),
		.state = ofs_catalog_str(cat, "state", 5, err),
		.step = ofs_catalog_str(cat, "step", 4, err),
		.err = err,
	};
	int ret;

	if (d.meta == OFS_NONE || d.groups == OFS_NONE ||
	    d.params == OFS_NONE || d.state == OFS_NONE || d.step == OFS_NONE)
		return -1;
	if (!is_ours(&d))
		return 0;
	ret = fold(&d);
	ofs_transport_close(d.t);
	ofs_keys_fini(&d.keys);
	ofs_keys_fini(&d.fused);
	ofs_keys_fini(&d.values);
	free(d.param);
	free(d.gone);
	return ret;
}
