/* safetensors.c - items in safetensors files, of the shards of each rank */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "format/safetensors/safetensors.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "archive/torch.h"
#include "base/checked.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/step.h"
#include "base/str.h"
#include "format/part.h"
#include "format/torch_checkpointing/torch_checkpointing.h"
#include "format/torch_file/sharded.h"

/* The shape of a tensor in a file is that of the rank's shard, and its name is
 * its path, joined by dots. The index has the path as a JSON list, the whole
 * shape, and how a mesh of ranks divides it: the boxes follow as PyTorch's
 * DTensor computes them. A tensor that several meshes have (each rank of tensor
 * parallelism may have one of its own) has several such entries, which are equal
 * copies. */

#define DEPTH_MAX 64
/* More than a checkpoint has: tensors times ranks. */
#define WORK (UINT64_C(1) << 28)

/* The file of a rank. */
struct file {
	uint32_t object;
	bool open;
	struct ofs_safetensors st;
	size_t used; /* tensors that the index names */
};

struct item {
	const struct ofs_tc_item *of;
	struct file *file; /* of each rank */
	uint32_t nfiles;
	/* of the current tensor */
	struct ofs_buf name;                         /* in the files */
	uint32_t c[OFS_PART_PREFIX + DEPTH_MAX], nc; /* its path */
	struct ofs_tensor t;
	uint64_t shape[OFS_MAX_DIMS];
	struct optimfs_error why; /* the first fault of it */
	uint64_t work; /* ranks of meshes that may still be looked at */
	struct optimfs_error *err;
};

/* Files. */

static int open_file(struct item *x, uint32_t i)
{
	const struct ofs_tc_item *of = x->of;
	struct ofs_catalog *cat = of->cat;
	struct ofs_str path = ofs_pk_str(of->doc,
	    ofs_pk_get(of->doc, ofs_pk_val(of->doc, of->layouts, i),
		"file_path"));
	struct optimfs_error why = { 0 };
	struct file *f;
	int64_t rank;
	char *rel;
	int ret = 0;

	if (!ofs_pk_int(of->doc, ofs_pk_key(of->doc, of->layouts, i), &rank) ||
	    rank < 0 || rank >= x->nfiles)
		return optimfs_fail(x->err, EUCLEAN,
		    "OFS767 a file of %.*s has no rank",
		    OFS_STR_ARGS(of->name, 100));
	f = &x->file[rank];
	rel = ofs_tc_path(of, path, x->err);
	if (rel == NULL)
		return -1;
	if (f->open || path.len == 0)
		ret = optimfs_fail(x->err, EUCLEAN,
		    "OFS767 %.*s has no file of rank %" PRId64 ", or two",
		    OFS_STR_ARGS(of->name, 100), rank);
	else if (ofs_safetensors_open_file(&cat->dir, rel, cat->max_metadata,
		     &f->st, &why) == -1)
		ret = ofs_must_fail(&why)
		    ? optimfs_fail_with(x->err, &why)
		    : ofs_tc_lost(of, rel, (int)rank, &why, x->err);
	else
		f->open = true;
	if (f->open) {
		f->object = ofs_catalog_object(cat, rel, (int)rank, x->err);
		ret = f->object == OFS_NONE ? -1 : 0;
	}
	free(rel);
	return ret;
}

static int open_files(struct item *x)
{
	x->nfiles = ofs_pk_len(x->of->doc, x->of->layouts);
	x->file = ofs_alloc(x->nfiles + 1ull, sizeof(*x->file), x->err);
	if (x->file == NULL)
		return -1;
	for (uint32_t i = 0; i < x->nfiles; i++)
		if (open_file(x, i) == -1)
			return -1;
	return 0;
}

/* Names. */

/* Adds the component that the token is. */
static int push(struct item *x, const struct ofs_json *j, enum ofs_json_token t)
{
	bool index = t == OFS_JSON_NUMBER && j->is_int && j->integer >= 0;
	uint32_t c;

	if (t == OFS_JSON_ERROR)
		return -1;
	if (t != OFS_JSON_STRING && !index)
		return ofs_json_fail(j, x->err,
		    "a path is not of strings and indexes");
	if (x->nc == sizeof(x->c) / sizeof(*x->c))
		return optimfs_fail(x->err, E2BIG,
		    "OFS767 a path has more than %d components", DEPTH_MAX);
	c = ofs_catalog_str(x->of->cat, j->str.p, j->str.len, x->err);
	x->c[x->nc++] = index ? c | OFS_PATH_INDEX : c;
	return c == OFS_NONE ? -1 : 0;
}

/* ["state","layers.0.weight","exp_avg"] below the item. */
static int set_path(struct item *x, struct ofs_str key)
{
	enum ofs_json_token t;
	struct ofs_json j;
	int ret = 0;

	x->name.len = 0;
	x->c[0] =
	    ofs_catalog_str(x->of->cat, x->of->name.p, x->of->name.len, x->err);
	x->nc = 1;
	ofs_json_init(&j, key.p, key.len);
	t = ofs_json_next(&j, x->err);
	if (t != OFS_JSON_ARRAY)
		ret = t == OFS_JSON_ERROR
		    ? -1
		    : ofs_json_fail(&j, x->err, "a path is not a list");
	while (ret == 0 &&
	    (t = ofs_json_next(&j, x->err)) != OFS_JSON_ARRAY_END)
		ret = push(x, &j, t);
	ofs_json_fini(&j);
	if (ret == -1)
		return -1;
	ofs_catalog_join(x->of->cat, x->c + 1, x->nc - 1, &x->name);
	return x->name.bad ? ofs_no_memory(x->err) : 0;
}

/* Shards. */

/* The place of a piece in the local tensor of a rank. */
static int set_view(struct item *x, const struct ofs_torch_piece *p,
    struct ofs_shard *s)
{
	struct ofs_view v = { .numel = 1 };
	uint64_t stride[OFS_MAX_DIMS];
	bool whole = true;

	for (unsigned int d = x->t.ndim; d-- > 0;) {
		stride[d] = v.numel;
		v.offset += p->at[d] * stride[d];
		v.numel *= p->local[d]; /* of a tensor in a file */
		whole = whole && p->size[d] == p->local[d];
	}
	s->view = OFS_NONE;
	if (whole)
		return 0;
	v.stride = ofs_catalog_dims(x->of->cat, stride, x->t.ndim, x->err);
	s->view = ofs_catalog_view(x->of->cat, &v, x->err);
	return s->view == OFS_NONE ? -1 : 0;
}

static int add_piece(struct item *x, const struct file *f,
    const struct ofs_safetensors_tensor *from, const struct ofs_torch_piece *p)
{
	struct ofs_shard s = { .at = { .off = from->off,
				   .len = from->len,
				   .object = f->object } };
	uint64_t box[2 * OFS_MAX_DIMS];

	if (memcmp(p->local, from->shape, x->t.ndim * sizeof(*p->local)) != 0) {
		optimfs_fail(&x->why, EUCLEAN,
		    "OFS693 a tensor in %.200s does not have the size of its "
		    "shard",
		    x->of->cat->objects[f->object].path);
		return 0;
	}
	memcpy(box, p->offset, x->t.ndim * sizeof(*box));
	memcpy(box + x->t.ndim, p->size, x->t.ndim * sizeof(*box));
	s.box =
	    ofs_catalog_dims(x->of->cat, box, 2 * (size_t)x->t.ndim, x->err);
	if (set_view(x, p, &s) == -1 ||
	    ofs_catalog_shard(x->of->cat, &s, x->err) == OFS_NONE)
		return -1;
	x->t.nshards++;
	return 0;
}

/* Adds what the rank at the coordinates of mesh has. */
static int add_rank(struct item *x, int64_t rank,
    const struct ofs_torch_mesh *mesh)
{
	struct file *f = rank >= 0 && rank < x->nfiles ? &x->file[rank] : NULL;
	struct ofs_torch_sharded s = { .ndim = x->t.ndim };
	const struct ofs_safetensors_tensor *from;
	int ret = 0;

	if (x->why.code != 0 || f == NULL || !f->open) /* it was noted */
		return 0;
	from = ofs_safetensors_find(&f->st, (const char *)x->name.data,
	    x->name.len);
	if (from == NULL || from->dtype != x->t.dtype ||
	    from->ndim != x->t.ndim) {
		optimfs_fail(&x->why, EUCLEAN,
		    "OFS767 %.200s has no tensor of this name, type and "
		    "number of dimensions",
		    x->of->cat->objects[f->object].path);
		return 0;
	}
	f->used++;
	memcpy(s.shape, x->shape, sizeof(s.shape));
	if (ofs_torch_cut(mesh, from->shape, OFS_NONE, &s, &x->why) == -1)
		ret = ofs_must_fail(&x->why)
		    ? optimfs_fail_with(x->err, &x->why)
		    : 0;
	for (uint32_t i = 0; i < s.npieces && ret == 0 && x->why.code == 0; i++)
		ret = add_piece(x, f, from, &s.piece[i]);
	ofs_torch_sharded_fini(&s);
	return ret;
}

/* What the index says of a tensor. */

static bool get_placement(struct item *x, uint32_t node,
    struct ofs_placement *p)
{
	const struct ofs_pickle *doc = x->of->doc;
	uint32_t type = ofs_pk_get(doc, node, "type");
	bool strided = ofs_pk_str_is(doc, type, "StridedShard");
	int64_t dim, split = 1;

	*p = (struct ofs_placement){ .kind = OFS_REPLICATE, .split = 1 };
	if (ofs_pk_str_is(doc, type, "Replicate"))
		return true;
	if ((!strided && !ofs_pk_str_is(doc, type, "Shard")) ||
	    !ofs_pk_int(doc, ofs_pk_get(doc, node, "dim"), &dim) ||
	    (strided &&
		!ofs_pk_int(doc, ofs_pk_get(doc, node, "split_factor"),
		    &split)) ||
	    split < 1)
		return false;
	dim += dim < 0 ? x->t.ndim : 0;
	p->kind = OFS_SHARD;
	p->dim = (uint32_t)dim;
	p->split = (uint64_t)split;
	return dim >= 0 && dim < x->t.ndim;
}

/* The sizes of a list; false: it is none, or too long. */
static bool get_sizes(const struct ofs_pickle *doc, uint32_t list, uint64_t *v,
    uint32_t max, uint32_t *n)
{
	int64_t size[OFS_MAX_DIMS > OFS_MAX_MESH ? OFS_MAX_DIMS : OFS_MAX_MESH];

	if (!ofs_pk_is_sequence(doc, list) ||
	    !ofs_pk_ints(doc, list, size, max, n))
		return false;
	for (uint32_t i = 0; i < *n; i++) {
		if (size[i] < 0)
			return false;
		v[i] = (uint64_t)size[i];
	}
	return true;
}

static bool get_mesh(struct item *x, uint32_t data, struct ofs_torch_mesh *mesh,
    uint32_t *ranks)
{
	const struct ofs_pickle *doc = x->of->doc;
	uint32_t spec = ofs_pk_get(doc, data, "mesh_spec"),
		 list = ofs_pk_get(doc, data, "placements");
	uint64_t n;

	*ranks = ofs_pk_get(doc, spec, "mesh_data");
	if (!get_sizes(doc, ofs_pk_get(doc, spec, "mesh_shape"), mesh->shape,
		OFS_MAX_MESH, &mesh->ndim) ||
	    !ofs_numel(mesh->shape, mesh->ndim, &n) ||
	    !ofs_pk_is_sequence(doc, *ranks) || ofs_pk_len(doc, *ranks) != n ||
	    !ofs_pk_is_sequence(doc, list) ||
	    ofs_pk_len(doc, list) != mesh->ndim)
		return false;
	for (uint32_t i = 0; i < mesh->ndim; i++)
		if (!get_placement(x, ofs_pk_item(doc, list, i),
			&mesh->placement[i]))
			return false;
	return true;
}

/* Type and shape must be the same in all entries of a tensor. */
static bool get_form(struct item *x, uint32_t data, bool first)
{
	const struct ofs_pickle *doc = x->of->doc;
	struct ofs_str dtype = ofs_pk_str(doc, ofs_pk_get(doc, data, "dtype"));
	uint64_t shape[OFS_MAX_DIMS] = { 0 };
	uint32_t ndim;

	(void)ofs_str_take(&dtype, "torch.");
	if (!get_sizes(doc, ofs_pk_get(doc, data, "global_shape"), shape,
		OFS_MAX_DIMS, &ndim))
		return false;
	if (first) {
		x->t.ndim = x->t.grid_ndim = (uint8_t)ndim;
		x->t.dtype = (uint8_t)ofs_dtype_of_name(dtype.p, dtype.len);
		memcpy(x->shape, shape, sizeof(shape));
	}
	return x->t.dtype != OFS_DTYPE_NONE && ndim == x->t.ndim &&
	    x->t.dtype == ofs_dtype_of_name(dtype.p, dtype.len) &&
	    memcmp(shape, x->shape, sizeof(shape)) == 0;
}

/* Adds the shards of the ranks of one mesh. */
static int add_entry(struct item *x, uint32_t node, bool first)
{
	const struct ofs_pickle *doc = x->of->doc;
	uint32_t meta = ofs_pk_get(doc, node, "sharding_metadata"), ranks, n;
	uint32_t data = ofs_pk_get(doc, meta, "data");
	struct ofs_torch_mesh mesh = { 0 };
	int ret = 0;

	if (!ofs_pk_str_is(doc, ofs_pk_get(doc, meta, "type"),
		"DTensorShardingMetadata") ||
	    !get_form(x, data, first) || !get_mesh(x, data, &mesh, &ranks)) {
		optimfs_fail(&x->why, EUCLEAN,
		    "OFS767 its shape, mesh or placements are damaged, or of "
		    "an unknown type");
		return 0;
	}
	n = ofs_pk_len(doc, ranks);
	if (x->work < n)
		return optimfs_fail(x->err, E2BIG,
		    "OFS767 the meshes have too many ranks");
	x->work -= n;
	for (uint32_t i = 0; i < n && ret == 0; i++) {
		uint64_t rest = i;
		int64_t rank = -1;

		for (uint32_t d = mesh.ndim; d-- > 0;) {
			mesh.coordinate[d] = rest % mesh.shape[d];
			rest /= mesh.shape[d];
		}
		(void)ofs_pk_int(doc, ofs_pk_item(doc, ranks, i), &rank);
		ret = add_rank(x, rank, &mesh);
	}
	return ret;
}

static int add_tensor(struct item *x, uint32_t pair)
{
	const struct ofs_pickle *doc = x->of->doc;
	struct ofs_catalog *cat = x->of->cat;
	uint32_t list = ofs_pk_val(doc, x->of->tensors, pair);

	x->t = (struct ofs_tensor){ .flags = OFS_TENSOR_COPIES,
		.dtype = OFS_DTYPE_NONE,
		.error = OFS_NONE,
		.shard = cat->nshards };
	memset(x->shape, 0, sizeof(x->shape));
	x->why = (struct optimfs_error){ 0 };
	if (set_path(x,
		ofs_pk_str(doc, ofs_pk_key(doc, x->of->tensors, pair))) == -1)
		return -1;
	if (!ofs_pk_is_sequence(doc, list) || ofs_pk_len(doc, list) == 0)
		optimfs_fail(&x->why, EUCLEAN,
		    "OFS767 the index does not say how it is divided");
	else
		for (uint32_t i = 0; i < ofs_pk_len(doc, list); i++)
			if (add_entry(x, ofs_pk_item(doc, list, i), i == 0) ==
			    -1)
				return -1;
	x->t.shape = x->t.grid =
	    ofs_catalog_dims(cat, x->shape, x->t.ndim, x->err);
	if (x->why.code != 0) {
		optimfs_fail_in(&x->why, "%.*s", (int)x->name.len,
		    (const char *)x->name.data);
		x->t.error = ofs_catalog_error(cat, &x->why, x->err);
	}
	return ofs_catalog_add(cat, ofs_catalog_path(cat, x->c, x->nc, x->err),
	    OFS_ENTRY_TENSOR, ofs_catalog_tensor(cat, &x->t, x->err),
	    OFS_KEY_FIXED, x->err);
}

/* Nothing in a file may be hidden. */
static int check_used(struct item *x)
{
	for (uint32_t i = 0; i < x->nfiles; i++)
		if (x->file[i].open && x->file[i].used < x->file[i].st.n &&
		    ofs_catalog_note(x->of->cat, OFS_NOTE_MISSING, EUCLEAN,
			x->err,
			"OFS767 %.200s has %zu tensors of which the index does "
			"not know: they are not shown",
			x->of->cat->objects[x->file[i].object].path,
			x->file[i].st.n - x->file[i].used) == -1)
			return -1;
	return 0;
}

int ofs_tc_safetensors(const struct ofs_tc_item *item,
    struct optimfs_error *err)
{
	struct item x = { .of = item, .work = WORK, .err = err };
	int ret = open_files(&x);

	for (uint32_t i = 0;
	     ret == 0 && i < ofs_pk_len(item->doc, item->tensors); i++)
		ret = add_tensor(&x, i);
	if (ret == 0)
		ret = check_used(&x);
	for (uint32_t i = 0; x.file != NULL && i < x.nfiles; i++)
		if (x.file[i].open)
			ofs_safetensors_fini(&x.file[i].st);
	free(x.file);
	ofs_buf_fini(&x.name);
	return ret;
}
