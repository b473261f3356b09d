/* fsdp.c - parameters and their state put together from flat shards */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "format/fsdp.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "canon.h"
#include "format/fsdp_handles.h"

static int no_memory(struct optimfs_error *err)
{
	return optimfs_fail(err, ENOMEM,
	    "OFS443 out of memory for flat parameters");
}

/* Names. */

static int compare_names(const void *va, const void *vb)
{
	const struct ofs_fsdp_name *a = va, *b = vb;
	uint32_t n = a->fqn.len < b->fqn.len ? a->fqn.len : b->fqn.len;
	int c = memcmp(a->fqn.p, b->fqn.p, n);

	return c != 0 ? c
		      : (a->fqn.len > b->fqn.len) - (a->fqn.len < b->fqn.len);
}

struct ofs_order_name ofs_fsdp_find(const struct ofs_fsdp *f,
    struct ofs_str fqn)
{
	struct ofs_fsdp_name key = { .fqn = fqn }, *found;

	if (f->nnames == 0)
		return (struct ofs_order_name){ OFS_NONE, 0 };
	found = bsearch(&key, f->name, f->nnames, sizeof(key), compare_names);
	return found == NULL ? (struct ofs_order_name){ OFS_NONE, 0 }
			     : found->at;
}

uint32_t ofs_fsdp_clean(struct ofs_fsdp *f, struct ofs_str s,
    struct optimfs_error *err)
{
	char *clean = malloc(s.len + 1ull);
	uint32_t str = OFS_NONE;

	if (clean == NULL)
		no_memory(err);
	else
		str = ofs_catalog_str(f->set->cat, clean,
		    ofs_clean_fqn(s.p, s.len, clean), err);
	free(clean);
	return str;
}

static int collect_names(struct ofs_fsdp *f, struct optimfs_error *err)
{
	uint64_t n = 0;

	for (uint32_t u = 0; u < f->units->n; u++)
		n += f->units->unit[u].flat.nparams;
	f->name = calloc(n + 1, sizeof(*f->name));
	if (f->name == NULL)
		return no_memory(err);
	for (uint32_t u = 0; u < f->units->n; u++)
		for (uint32_t i = 0; i < f->units->unit[u].flat.nparams; i++)
			f->name[f->nnames++] = (struct ofs_fsdp_name){
				f->units->unit[u].param[i].fqn, { u, i }
			};
	qsort(f->name, f->nnames, sizeof(*f->name), compare_names);
	return 0;
}

/* Tensors. */

struct ofs_flat_slice ofs_fsdp_slice(const struct ofs_fsdp *f,
    const struct ofs_ranks_file *file, struct ofs_order_name at)
{
	const struct ofs_flat *flat = &f->units->unit[at.unit].flat;
	uint32_t rank = file->rank < 0 ? 0 : (uint32_t)file->rank;

	return ofs_flat_slice(flat, at.param, rank % flat->world);
}

int ofs_fsdp_begin(struct ofs_fsdp_tensor *x, struct ofs_fsdp *f,
    struct ofs_order_name at, struct optimfs_error *err)
{
	struct ofs_catalog *cat = f->set->cat;

	*x = (struct ofs_fsdp_tensor){ .f = f,
		.param = ofs_fsdp_param(f, at),
		.numel = f->units->unit[at.unit].numel[at.param],
		.cut = true };
	x->t = (struct ofs_tensor){ .ndim = x->param->ndim,
		.flags = OFS_TENSOR_COPIES, /* of HYBRID_SHARD, NO_SHARD */
		.error = OFS_NONE,
		.shard = cat->nshards };
	x->t.shape =
	    ofs_catalog_dims(cat, x->param->shape, x->param->ndim, err);
	return x->t.shape == OFS_NONE ? -1 : 0;
}

/* The tensor node of leaf's file, if it is one and of the dtype that the
 * others have. -1: no; then x->why says so. */
static int get(struct ofs_fsdp_tensor *x, const struct ofs_ranks_leaf *leaf,
    uint32_t node, struct ofs_torch_tensor *t, struct ofs_extent *at)
{
	struct ofs_ranks *set = x->f->set;
	int rank = set->file[leaf->file].rank;
	int is = ofs_ranks_tensor(set, leaf, node, t, at, &x->why);

	if (is == 0)
		optimfs_fail(&x->why, EUCLEAN,
		    "OFS165 rank %d has no tensor here, others have", rank);
	if (is != 1)
		return -1;
	if (x->t.dtype == OFS_DTYPE_NONE)
		x->t.dtype = t->dtype;
	if (x->t.dtype == t->dtype)
		return 0;
	return optimfs_fail(&x->why, EUCLEAN,
	    "OFS165 rank %d says dtype %s, others say %s", rank,
	    ofs_dtype_name(t->dtype), ofs_dtype_name(x->t.dtype));
}

static int add_shard(struct ofs_fsdp_tensor *x,
    const struct ofs_ranks_leaf *leaf, struct ofs_torch_tensor *t,
    const struct ofs_extent *at, uint32_t box, struct optimfs_error *err)
{
	if (ofs_ranks_shard(x->f->set, leaf, t, at, box, err) == -1)
		return -1;
	x->t.nshards++;
	return 0;
}

int ofs_fsdp_piece(struct ofs_fsdp_tensor *x, const struct ofs_ranks_leaf *leaf,
    uint32_t node, uint64_t have, const struct ofs_flat_slice *s,
    struct optimfs_error *err)
{
	uint64_t box[2] = { s->first, s->count };
	struct ofs_torch_tensor t;
	struct ofs_extent at;
	uint32_t dims;

	if (x->why.code != 0 || get(x, leaf, node, &t, &at) == -1)
		return 0;
	if (t.ndim != 1 || t.shape[0] != have) {
		optimfs_fail(&x->why, EUCLEAN,
		    "OFS160 rank %d has %" PRIu64 " elements in %u dimensions "
		    "here, its shard of the flat parameter should have %" PRIu64
		    " in one",
		    x->f->set->file[leaf->file].rank,
		    t.ndim > 0 ? t.shape[0] : 1, t.ndim, have);
		return 0;
	}
	if (s->count == 0)
		return 0;
	t.offset += s->at * (uint64_t)t.stride[0];
	t.shape[0] = s->count;
	dims = ofs_catalog_dims(x->f->set->cat, box, 2, err);
	return dims == OFS_NONE ? -1 : add_shard(x, leaf, &t, &at, dims, err);
}

int ofs_fsdp_whole(struct ofs_fsdp_tensor *x, const struct ofs_ranks_leaf *leaf,
    struct optimfs_error *err)
{
	struct ofs_torch_tensor t;
	struct ofs_extent at;

	x->cut = false;
	if (x->why.code != 0 || get(x, leaf, leaf->node, &t, &at) == -1)
		return 0;
	if (t.ndim != x->param->ndim ||
	    memcmp(t.shape, x->param->shape, t.ndim * sizeof(*t.shape)) != 0) {
		optimfs_fail(&x->why, EUCLEAN,
		    "OFS160 rank %d has another shape here than the units "
		    "file says",
		    x->f->set->file[leaf->file].rank);
		return 0;
	}
	return x->numel == 0 ? 0 : add_shard(x, leaf, &t, &at, OFS_NONE, err);
}

int ofs_fsdp_end(struct ofs_fsdp_tensor *x, uint32_t path, uint32_t *ref,
    struct optimfs_error *err)
{
	struct ofs_catalog *cat = x->f->set->cat;
	struct ofs_entry e = {
		.path = path, .tree = OFS_NONE, .kind = OFS_ENTRY_TENSOR
	};

	x->t.grid = x->t.shape;
	x->t.grid_ndim = x->t.ndim;
	if (x->cut) {
		x->t.grid = ofs_catalog_dims(cat, &x->numel, 1, err);
		x->t.grid_ndim = 1;
	}
	if (x->t.grid == OFS_NONE)
		return -1;
	if (x->why.code != 0) {
		x->t.error = ofs_catalog_note(cat, OFS_NOTE_ERROR, x->why.code,
		    "%s", x->why.text);
		if (x->t.error == OFS_NONE)
			return no_memory(err);
	}
	*ref = e.ref = ofs_catalog_tensor(cat, &x->t, err);
	if (e.ref == OFS_NONE || ofs_catalog_entry(cat, &e, err) == OFS_NONE)
		return -1;
	return 0;
}

int ofs_fsdp_claim(struct ofs_ranks *set, const struct optimfs_options *opt,
    struct optimfs_error *err)
{
	struct ofs_fsdp f = { .set = set };
	struct ofs_units units = { 0 };
	int ret = 0;

	if (opt != NULL && opt->units != NULL) {
		if (ofs_units_read(&units, opt->units, err) == -1)
			return -1;
		f.units = &units;
	} else {
		int none = ofs_handles_units(&units, set, err);

		if (none == -1)
			return -1;
		if (none == 0)
			f.units = &units;
	}
	if (f.units != NULL)
		ret = collect_names(&f, err);
	if (ret == 0 && f.units != NULL)
		ret = ofs_handles_model(&f, err);
	if (ret == 0)
		ret = ofs_fsdp_model(&f, err);
	if (ret == 0)
		ret = ofs_fsdp_optims(&f, err);
	free(f.name);
	ofs_units_fini(&units);
	return ret;
}
