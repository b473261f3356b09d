/* sharded_dtensor.c - pickled DTensors: a device mesh with placements */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "archive/torch.h"
#include "archive/torch_storage.h"
#include "base/checked.h"
#include "format/placement.h"
#include "format/torch_file/sharded_impl.h"

/* Read a dimension of a mesh layout: a size, or a tuple of sizes. */
static int get_extent(const struct ofs_pickle *doc, uint32_t node, uint64_t *v,
    struct optimfs_error *err)
{
	uint64_t inner[OFS_MAX_MESH];
	uint32_t n;

	if (!ofs_pk_is_sequence(doc, node))
		return ofs_torch_size(doc, node, "mesh size", v, err);
	if (ofs_sharded_numbers(doc, node, "mesh size", inner, OFS_MAX_MESH, &n,
		err) == -1)
		return -1;
	return ofs_numel(inner, n, v)
	    ? 0
	    : ofs_sharded_damaged("the size of a mesh overflows", err);
}

/* Read the sizes of a list of layouts: of the items, or of their shapes. */
static int get_extents(const struct ofs_pickle *doc, uint32_t list, bool shapes,
    uint64_t *v, uint32_t *n, struct optimfs_error *err)
{
	*n = ofs_pk_len(doc, list);
	if (*n > OFS_MAX_MESH)
		return ofs_sharded_damaged("a mesh has too many dimensions",
		    err);
	for (uint32_t i = 0; i < *n; i++) {
		uint32_t item = ofs_pk_item(doc, list, i);

		if (shapes)
			item = ofs_pk_attr(doc, item, "shape");
		if (get_extent(doc, item, &v[i], err) == -1)
			return -1;
	}
	return 0;
}

static int get_layout(const struct ofs_pickle *doc, uint32_t shape, uint64_t *v,
    uint32_t *n, struct optimfs_error *err)
{
	if (ofs_pk_is_sequence(doc, shape))
		return get_extents(doc, shape, false, v, n, err);
	*n = 1;
	return get_extent(doc, shape, &v[0], err);
}

/* PyTorch 2.14 has _layout.axes, 2.10 and later _layout.shape; older releases
 * have the ranks as a tensor with the shape of the mesh. */
static int get_mesh_shape(const struct ofs_pickle *doc, uint32_t mesh,
    uint64_t *v, uint32_t *n, struct optimfs_error *err)
{
	uint32_t layout = ofs_pk_attr(doc, mesh, "_layout");
	uint32_t axes = ofs_pk_attr(doc, layout, "axes");
	struct ofs_torch_tensor t;

	if (axes != OFS_NONE && !ofs_pk_is_sequence(doc, axes))
		return ofs_sharded_damaged("the axes of a mesh are not a list",
		    err);
	if (axes != OFS_NONE)
		return get_extents(doc, axes, true, v, n, err);
	if (ofs_pk_kind(doc, layout) == OFS_PK_OBJECT)
		return get_layout(doc, ofs_pk_attr(doc, layout, "shape"), v, n,
		    err);
	if (ofs_torch_tensor(doc, ofs_pk_attr(doc, mesh, "mesh"), &t, NULL) !=
		1 ||
	    t.ndim > OFS_MAX_MESH)
		return ofs_sharded_damaged(
		    "the shape of a device mesh is unknown", err);
	*n = t.ndim;
	memcpy(v, t.shape, t.ndim * sizeof(*v));
	return 0;
}

static int check_mesh(const struct ofs_torch_mesh *m, struct optimfs_error *err)
{
	uint64_t ranks = 1;

	for (uint32_t i = 0; i < m->ndim; i++) {
		if (!ofs_mul_u64(ranks, m->shape[i], &ranks) || ranks == 0 ||
		    ranks > OFS_SHARDED_WORLD)
			return ofs_sharded_damaged(
			    "a device mesh without ranks, or with "
			    "too many",
			    err);
		if (!m->outside && m->coordinate[i] >= m->shape[i])
			return ofs_sharded_damaged(
			    "a rank is outside of its device mesh", err);
	}
	return 0;
}

static int get_coordinate(const struct ofs_pickle *doc, uint32_t mesh,
    struct ofs_torch_mesh *m, struct optimfs_error *err)
{
	uint32_t at = ofs_pk_attr(doc, mesh, "_coordinate_on_dim"), n;

	m->outside = at != OFS_NONE && ofs_pk_kind(doc, at) == OFS_PK_NONE;
	if (m->outside)
		return 0;
	if (ofs_sharded_numbers(doc, at, "_coordinate_on_dim", m->coordinate,
		OFS_MAX_MESH, &n, err) == -1)
		return -1;
	return n == m->ndim
	    ? 0
	    : ofs_sharded_damaged("a rank's coordinates are not one for "
				  "each dimension of its mesh",
		  err);
}

/* The highest rank in a mesh of this number of ranks; -1 when it has no list of
 * them. The attribute has one name in PyTorch 2.2 to 2.9 and another in 2.10
 * and later. */
static int last_rank(const struct ofs_pickle *doc, uint32_t mesh,
    uint64_t ranks)
{
	uint32_t list = ofs_pk_attr(doc, mesh, "_flatten_rank_map");
	int last = -1, rank;

	if (!ofs_pk_is_sequence(doc, list))
		list = ofs_pk_attr(doc, mesh, "_flatten_mesh_list");
	if (!ofs_pk_is_sequence(doc, list) || ofs_pk_len(doc, list) != ranks)
		return -1;
	for (uint32_t i = 0; i < ranks; i++) {
		rank = ofs_sharded_rank(doc, ofs_pk_item(doc, list, i), -1);
		if (rank == -1)
			return -1;
		last = rank > last ? rank : last;
	}
	return last;
}

/* Set the number of ranks of the job: those of the root mesh. A stage of a
 * pipeline may have its own root mesh, for example with ranks 4 to 7. */
static void get_world(const struct ofs_pickle *doc, uint32_t mesh,
    struct ofs_torch_sharded *s)
{
	uint32_t root = ofs_pk_attr(doc, mesh, "_root_mesh"), n;
	uint64_t shape[OFS_MAX_MESH], ranks;
	int last;

	if (ofs_pk_kind(doc, root) == OFS_PK_OBJECT)
		mesh = root;
	if (get_mesh_shape(doc, mesh, shape, &n, NULL) == -1 ||
	    !ofs_numel(shape, n, &ranks) || ranks > OFS_SHARDED_WORLD)
		return;
	s->world = (int)ranks;
	last = last_rank(doc, mesh, ranks);
	s->part = last >= s->world;
	if (s->part)
		s->world = last + 1;
}

static int get_placement(const struct ofs_pickle *doc, uint32_t node,
    uint8_t ndim, struct ofs_placement *p, struct optimfs_error *err)
{
	uint32_t split = ofs_pk_attr(doc, node, "split_factor");
	bool strided = ofs_sharded_is_class(doc, node, "_StridedShard");
	int64_t dim;

	*p = (struct ofs_placement){ .kind = OFS_REPLICATE, .split = 1 };
	if (ofs_sharded_is_class(doc, node, "Replicate"))
		return 0;
	if (ofs_sharded_is_class(doc, node, "Partial") ||
	    ofs_sharded_is_class(doc, node, "_Partial"))
		return ofs_sharded_unsupported(
		    "DTensor of partial sums: its value is on "
		    "no rank",
		    err);
	if (!strided && !ofs_sharded_is_class(doc, node, "Shard"))
		return ofs_sharded_unsupported(
		    "DTensor placement of an unknown class", err);
	if (!ofs_pk_int(doc, ofs_pk_attr(doc, node, "dim"), &dim))
		return ofs_sharded_damaged("a placement has no dimension", err);
	if (dim < 0)
		dim += ndim;
	if (dim < 0 || dim >= ndim)
		return ofs_sharded_damaged(
		    "a placement is of a dimension that the tensor "
		    "does not have",
		    err);
	p->kind = OFS_SHARD;
	p->dim = (uint32_t)dim;
	if (!strided)
		return 0;
	if (ofs_torch_size(doc, split, "split_factor", &p->split, err) == -1)
		return -1;
	return p->split > 0 ? 0 : ofs_sharded_damaged("split_factor is 0", err);
}

static int get_mesh(const struct ofs_pickle *doc, uint32_t spec, uint8_t ndim,
    struct ofs_torch_mesh *m, struct optimfs_error *err)
{
	uint32_t mesh = ofs_pk_attr(doc, spec, "mesh");
	uint32_t list = ofs_pk_attr(doc, spec, "placements");

	if (get_mesh_shape(doc, mesh, m->shape, &m->ndim, err) == -1 ||
	    get_coordinate(doc, mesh, m, err) == -1 || check_mesh(m, err) == -1)
		return -1;
	if (!ofs_pk_is_sequence(doc, list) || ofs_pk_len(doc, list) != m->ndim)
		return ofs_sharded_damaged(
		    "placements are not one for each dimension of "
		    "the mesh",
		    err);
	for (uint32_t i = 0; i < m->ndim; i++)
		if (get_placement(doc, ofs_pk_item(doc, list, i), ndim,
			&m->placement[i], err) == -1)
			return -1;
	return 0;
}

/* The runs of each dimension that a rank has. */
struct parts {
	struct ofs_run *run[OFS_MAX_DIMS];
	uint32_t n[OFS_MAX_DIMS];
	uint64_t held[OFS_MAX_DIMS];
};

static void free_parts(struct parts *p)
{
	for (unsigned d = 0; d < OFS_MAX_DIMS; d++)
		free(p->run[d]);
	memset(p, 0, sizeof(*p));
}

static int get_parts(const struct ofs_torch_mesh *m, const struct ofs_torch_sharded *s,
    bool literal, struct parts *p, struct optimfs_error *err)
{
	for (uint32_t d = 0; d < s->ndim; d++) {
		if (ofs_placement_runs(m->placement, m->shape, m->coordinate,
			m->ndim, d, s->shape[d], literal, &p->run[d], &p->n[d],
			err) == -1)
			return -1;
		for (uint32_t i = 0; i < p->n[d]; i++)
			p->held[d] += p->run[d][i].count;
	}
	return 0;
}

/* Add a box for each combination of runs. */
static int add_boxes(const struct parts *p, uint32_t local,
    struct ofs_torch_sharded *s, struct optimfs_error *err)
{
	uint32_t i[OFS_MAX_DIMS] = { 0 };
	uint64_t at[OFS_MAX_DIMS] = { 0 };
	uint32_t d;

	do {
		struct ofs_torch_piece *x = ofs_sharded_add(s, err);

		if (x == NULL)
			return -1;
		x->node = local;
		memcpy(x->at, at, sizeof(at));
		memcpy(x->local, p->held, sizeof(x->local));
		for (d = 0; d < s->ndim; d++) {
			x->offset[d] = p->run[d][i[d]].first;
			x->size[d] = p->run[d][i[d]].count;
		}
		for (d = s->ndim; d-- > 0;) {
			at[d] += p->run[d][i[d]].count;
			if (++i[d] < p->n[d])
				break;
			i[d] = 0;
			at[d] = 0;
		}
	} while (d != UINT32_MAX);
	return 0;
}

int ofs_torch_cut(const struct ofs_torch_mesh *m, const uint64_t *local,
    uint32_t node, struct ofs_torch_sharded *s, struct optimfs_error *err)
{
	struct parts p = { 0 };
	int ret = get_parts(m, s, false, &p, err);

	if (ret == 0 &&
	    (local == NULL ||
		memcmp(local, p.held, s->ndim * sizeof(*local)) != 0)) {
		free_parts(&p);
		ret = get_parts(m, s, true, &p, err);
	}
	for (uint32_t d = 0; ret == 0 && d < s->ndim; d++)
		if (p.n[d] == 0)
			goto out;
	if (ret == 0)
		ret = add_boxes(&p, node, s, err);
out:
	free_parts(&p);
	return ret;
}

static int cut_dtensor(const struct ofs_pickle *doc, uint32_t local,
    const struct ofs_torch_mesh *m, struct ofs_torch_sharded *s,
    struct optimfs_error *err)
{
	struct ofs_torch_tensor t;
	bool known = ofs_torch_tensor(doc, local, &t, NULL) == 1 &&
	    t.ndim == s->ndim;

	return ofs_torch_cut(m, known ? t.shape : NULL, local, s, err);
}

int ofs_sharded_dtensor(const struct ofs_pickle *doc,
    const struct ofs_sharded_node *w, struct ofs_torch_sharded *s,
    struct optimfs_error *err)
{
	uint32_t spec = ofs_sharded_attr(doc, w->state, "_spec");
	uint32_t local = ofs_sharded_attr(doc, w->state, "_local_tensor");
	uint32_t mesh = ofs_pk_attr(doc, spec, "mesh");
	struct ofs_torch_mesh m = { 0 };

	if (ofs_sharded_shape(doc, ofs_pk_item(doc, w->args, 2), s, err) == -1)
		return -1;
	s->dtype = (uint8_t)ofs_torch_dtype(doc, ofs_pk_item(doc, w->args, 1));
	if (spec == OFS_NONE || local == OFS_NONE)
		return ofs_sharded_damaged(
		    "a DTensor without a spec or a local tensor", err);
	if (get_mesh(doc, spec, s->ndim, &m, err) == -1)
		return -1;
	get_world(doc, mesh, s);
	s->rank = ofs_sharded_rank(doc, ofs_pk_attr(doc, mesh, "_rank"), -1);
	return m.outside ? 0 : cut_dtensor(doc, local, &m, s, err);
}
