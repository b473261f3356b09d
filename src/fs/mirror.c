/* mirror.c - the contents of files in the tree and its mirrors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>

#include "base/npy.h"
#include "base/checked.h"
#include "base/dtype.h"
#include "base/memory.h"
#include "fs/fs.h"
#include "plan/cast.h"

static const struct ofs_entry *entry_of(const struct ofs_snapshot *snap,
    uint32_t index)
{
	return ofs_tree_entry(&snap->tree, snap->cat, index);
}

/* The tensor whose elements are the file; NULL for a text. */
static const struct ofs_tensor *raw_tensor(const struct ofs_snapshot *snap,
    uint32_t index)
{
	const struct ofs_tensor *t =
	    ofs_tree_tensor(&snap->tree, snap->cat, index);

	return t == NULL || t->ndim == 0 ? NULL : t;
}

/* The tree itself. */

static int tree_size(struct ofs_snapshot *snap, const struct ofs_space *s,
    uint32_t index, struct optimfs_attr *attr, struct optimfs_error *err)
{
	const struct ofs_tensor *t = raw_tensor(snap, index);

	(void)s;
	if (t == NULL)
		return ofs_entry_text_size(snap, index, &attr->size,
		    &attr->exact, err);
	attr->size = ofs_tensor_bytes(snap->cat, t);
	return 0;
}

static int tree_open(struct ofs_snapshot *snap, const struct ofs_space *s,
    uint32_t index, struct optimfs_file *file, struct optimfs_error *err)
{
	const struct ofs_entry *e = entry_of(snap, index);

	(void)s;
	if (raw_tensor(snap, index) == NULL) {
		file->blob = ofs_entry_text(snap, index, err);
		return file->blob == NULL ? -1 : 0;
	}
	if (ofs_entry_sound(snap->cat, e, err) == -1)
		return -1;
	return ofs_composition_box(&file->comp, snap->cat, e->ref, NULL, err);
}

const struct ofs_space_ops ofs_space_tree = {
	.suffix = "",
	.size = tree_size,
	.open = tree_open,
	.attributes = true,
};

/* .optimfs/layout */

static bool layout_holds(const struct ofs_snapshot *snap,
    const struct ofs_space *s, const struct ofs_entry *e)
{
	(void)snap;
	(void)s;
	return e->kind == OFS_ENTRY_TENSOR || e->kind == OFS_ENTRY_ITEM;
}

static struct ofs_blob *layout_text(struct ofs_snapshot *snap, uint32_t index,
    struct optimfs_error *err)
{
	struct ofs_buf out = { 0 };

	ofs_layout_json(snap, index, &out);
	return ofs_blob_of(&out, err);
}

static int layout_size(struct ofs_snapshot *snap, const struct ofs_space *s,
    uint32_t index, struct optimfs_attr *attr, struct optimfs_error *err)
{
	struct ofs_blob *blob = layout_text(snap, index, err);

	(void)s;
	attr->size = blob == NULL ? 0 : blob->len;
	ofs_blob_unref(blob);
	return blob == NULL ? -1 : 0;
}

static int layout_open(struct ofs_snapshot *snap, const struct ofs_space *s,
    uint32_t index, struct optimfs_file *file, struct optimfs_error *err)
{
	(void)s;
	file->blob = layout_text(snap, index, err);
	return file->blob == NULL ? -1 : 0;
}

const struct ofs_space_ops ofs_space_layout = {
	.suffix = "",
	.holds = layout_holds,
	.size = layout_size,
	.open = layout_open,
};

/* .optimfs/npy, and .optimfs/npy32: tensors of short floats, or of a type that
 * NumPy lacks, as float32. */

static bool npy_holds(const struct ofs_snapshot *snap,
    const struct ofs_space *s, const struct ofs_entry *e)
{
	const struct ofs_tensor *t = ofs_entry_tensor(snap->cat, e);

	(void)s;
	return t != NULL && ofs_dtype_npy(t->dtype) != NULL;
}

static bool npy32_holds(const struct ofs_snapshot *snap,
    const struct ofs_space *s, const struct ofs_entry *e)
{
	const struct ofs_tensor *t = ofs_entry_tensor(snap->cat, e);

	(void)s;
	return t != NULL && t->ndim > 0 && ofs_cast_is_short(t->dtype);
}

static bool is_npy32(const struct ofs_space *s)
{
	return s->ops == &ofs_space_npy32;
}

/* A writer may have changed the shape of the tensor. */
static void npy_header(const struct ofs_snapshot *snap,
    const struct ofs_space *s, uint32_t index, struct ofs_buf *out)
{
	const struct ofs_tensor *t =
	    ofs_tree_tensor(&snap->tree, snap->cat, index);
	struct ofs_overlay_form form = { 0 };

	if (snap->overlay != NULL && !is_npy32(s))
		ofs_overlay_form(snap->overlay, index, &form);
	if (ofs_dtype_npy(form.dtype) != NULL)
		ofs_npy_header(form.dtype, form.shape, form.ndim, out);
	else
		ofs_npy_header(is_npy32(s) ? OFS_FLOAT32 : t->dtype,
		    ofs_tensor_shape(snap->cat, t), t->ndim, out);
}

static int npy_size(struct ofs_snapshot *snap, const struct ofs_space *s,
    uint32_t index, struct optimfs_attr *attr, struct optimfs_error *err)
{
	const struct ofs_tensor *t =
	    ofs_tree_tensor(&snap->tree, snap->cat, index);
	uint64_t bytes = ofs_tensor_bytes(snap->cat, t);
	struct ofs_buf header = { 0 };
	bool fits = true, bad;

	npy_header(snap, s, index, &header);
	if (is_npy32(s))
		fits = ofs_mul_u64(bytes / ofs_dtype_size(t->dtype),
		    sizeof(float), &bytes);
	fits = fits && ofs_add_u64(header.len, bytes, &attr->size) &&
	    attr->size <= INT64_MAX;
	bad = header.bad;
	ofs_buf_fini(&header);
	if (bad)
		return ofs_no_memory(err);
	return fits ? 0 : optimfs_fail(err, EFBIG, "larger than a file");
}

static int npy_open(struct ofs_snapshot *snap, const struct ofs_space *s,
    uint32_t index, struct optimfs_file *file, struct optimfs_error *err)
{
	const struct ofs_entry *e = entry_of(snap, index);
	struct ofs_buf header = { 0 };
	int ret;

	if (ofs_entry_sound(snap->cat, e, err) == -1 ||
	    (is_npy32(s) &&
		ofs_cast_prepare(snap->cat->tensors[e->ref].dtype, err) == -1))
		return -1;
	npy_header(snap, s, index, &header);
	ret = ofs_composition_buf(&file->comp, &header, err);
	ofs_buf_fini(&header);
	if (ret == -1)
		return -1;
	return is_npy32(s)
	    ? ofs_composition_box_as(&file->comp, snap->cat, e->ref,
		  OFS_FLOAT32, err)
	    : ofs_composition_box(&file->comp, snap->cat, e->ref, NULL, err);
}

const struct ofs_space_ops ofs_space_npy = {
	.suffix = ".npy",
	.holds = npy_holds,
	.size = npy_size,
	.open = npy_open,
	.attributes = true,
};

const struct ofs_space_ops ofs_space_npy32 = {
	.suffix = ".npy",
	.holds = npy32_holds,
	.size = npy_size,
	.open = npy_open,
};

/* .optimfs/f32: tensors as float32. Those in few bits have the name of the whole;
 * their scales and tables have no file. Integers and others that are no floats
 * are as in the tree. */

static const struct ofs_low_bit *low_bit(const struct ofs_snapshot *snap,
    uint32_t index)
{
	return ofs_low_bit_of(snap->cat, snap->tree.node[index].entry);
}

const struct ofs_tensor *ofs_f32_tensor(const struct ofs_snapshot *snap,
    uint32_t index, enum ofs_dtype *dtype)
{
	const struct ofs_low_bit *l = low_bit(snap, index);
	const struct ofs_tensor *t = l != NULL && l->tensor != OFS_NONE
	    ? &snap->cat->tensors[l->tensor]
	    : ofs_tree_tensor(&snap->tree, snap->cat, index);

	*dtype = OFS_DTYPE_NONE;
	if (t == NULL)
		return NULL;
	*dtype = t->dtype == OFS_FLOAT64 || ofs_cast_is_short(t->dtype)
	    ? OFS_FLOAT32
	    : (enum ofs_dtype)t->dtype;
	return t;
}

static bool f32_holds(const struct ofs_snapshot *snap,
    const struct ofs_space *s, const struct ofs_entry *e)
{
	const struct ofs_tensor *t = ofs_entry_tensor(snap->cat, e);
	const struct ofs_low_bit *l =
	    ofs_low_bit_of(snap->cat, (uint32_t)(e - snap->cat->entries));

	(void)s;
	return l != NULL ? l->tensor != OFS_NONE : t != NULL && t->ndim > 0;
}

static const char *f32_rename(const struct ofs_snapshot *snap, uint32_t index)
{
	const struct ofs_low_bit *l = low_bit(snap, index);

	return l == NULL || l->tensor == OFS_NONE || l->name == OFS_NONE
	    ? NULL
	    : ofs_catalog_string(snap->cat, l->name).p;
}

static int f32_size(struct ofs_snapshot *snap, const struct ofs_space *s,
    uint32_t index, struct optimfs_attr *attr, struct optimfs_error *err)
{
	enum ofs_dtype dtype;
	const struct ofs_tensor *t = ofs_f32_tensor(snap, index, &dtype);

	(void)s;
	return ofs_mul_u64(ofs_tensor_numel(snap->cat, t),
		   ofs_dtype_size(dtype), &attr->size) &&
		attr->size <= INT64_MAX
	    ? 0
	    : optimfs_fail(err, EFBIG, "larger than a file");
}

static int f32_open(struct ofs_snapshot *snap, const struct ofs_space *s,
    uint32_t index, struct optimfs_file *file, struct optimfs_error *err)
{
	enum ofs_dtype dtype;
	const struct ofs_tensor *t = ofs_f32_tensor(snap, index, &dtype);
	uint32_t tensor = (uint32_t)(t - snap->cat->tensors);

	(void)s;
	if (t->error != OFS_NONE)
		return ofs_catalog_fail(snap->cat, t->error, err);
	if (dtype == t->dtype)
		return ofs_composition_box(&file->comp, snap->cat, tensor, NULL,
		    err);
	return ofs_cast_prepare(t->dtype, err) == -1
	    ? -1
	    : ofs_composition_box_as(&file->comp, snap->cat, tensor, dtype,
		  err);
}

const struct ofs_space_ops ofs_space_f32 = {
	.suffix = "",
	.rename = f32_rename,
	.holds = f32_holds,
	.size = f32_size,
	.open = f32_open,
	.attributes = true,
};

/* .optimfs/rank */

static const struct ofs_variant *variant(const struct ofs_snapshot *snap,
    const struct ofs_space *s, const struct ofs_entry *e)
{
	return ofs_variant_of(snap->cat, (uint32_t)(e - snap->cat->entries),
	    s->rank);
}

static bool rank_holds(const struct ofs_snapshot *snap,
    const struct ofs_space *s, const struct ofs_entry *e)
{
	const struct ofs_tensor *t = ofs_entry_tensor(snap->cat, e);

	for (uint32_t i = 0; t != NULL && i < t->nshards; i++)
		if (ofs_rank_holds(snap->cat, t->shard + i, s->rank))
			return true;
	return variant(snap, s, e) != NULL;
}

/* The tensor that a rank has a part of; *v is its variant, if it is one. NULL
 * for a text. */
static const struct ofs_tensor *rank_tensor(const struct ofs_snapshot *snap,
    const struct ofs_space *s, uint32_t index, const struct ofs_variant **v)
{
	const struct ofs_tensor *t;

	*v = variant(snap, s, entry_of(snap, index));
	if (*v == NULL)
		return raw_tensor(snap, index);
	t = (*v)->kind == OFS_ENTRY_TENSOR ? &snap->cat->tensors[(*v)->ref]
					   : NULL;
	return t == NULL || t->ndim == 0 ? NULL : t;
}

static int rank_text_size(struct ofs_snapshot *snap, const struct ofs_space *s,
    uint32_t index, const struct ofs_variant *v, struct optimfs_attr *attr,
    struct optimfs_error *err)
{
	struct ofs_blob *blob;

	if (v == NULL)
		return tree_size(snap, s, index, attr, err);
	blob = ofs_rank_text(snap, index, s->rank, v, err);
	if (blob == NULL)
		return -1;
	attr->size = blob->len;
	ofs_blob_unref(blob);
	return 0;
}

static int rank_size(struct ofs_snapshot *snap, const struct ofs_space *s,
    uint32_t index, struct optimfs_attr *attr, struct optimfs_error *err)
{
	const struct ofs_variant *v;
	const struct ofs_tensor *t = rank_tensor(snap, s, index, &v);

	if (t == NULL)
		return rank_text_size(snap, s, index, v, attr, err);
	for (uint32_t i = t->shard; i < t->shard + t->nshards; i++)
		if (ofs_rank_holds(snap->cat, i, s->rank))
			ofs_sum_u64(&attr->size,
			    ofs_shard_bytes(snap->cat, t, i));
	return 0;
}

static int rank_open(struct ofs_snapshot *snap, const struct ofs_space *s,
    uint32_t index, struct optimfs_file *file, struct optimfs_error *err)
{
	const struct ofs_variant *v;
	const struct ofs_tensor *t = rank_tensor(snap, s, index, &v);
	uint64_t box[2 * OFS_MAX_DIMS];

	if (t == NULL) {
		file->blob = ofs_rank_text(snap, index, s->rank, v, err);
		return file->blob == NULL ? -1 : 0;
	}
	if (t->error != OFS_NONE)
		return ofs_catalog_fail(snap->cat, t->error, err);
	for (uint32_t i = 0; i < t->nshards; i++) {
		const struct ofs_shard *shard =
		    &snap->cat->shards[t->shard + i];

		if (!ofs_rank_holds(snap->cat, t->shard + i, s->rank))
			continue;
		ofs_shard_box(snap->cat, t, shard, box, box + t->grid_ndim);
		if (ofs_composition_box(&file->comp, snap->cat,
			(uint32_t)(t - snap->cat->tensors), box, err) == -1)
			return -1;
	}
	return 0;
}

const struct ofs_space_ops ofs_space_rank = {
	.suffix = "",
	.holds = rank_holds,
	.size = rank_size,
	.open = rank_open,
};
