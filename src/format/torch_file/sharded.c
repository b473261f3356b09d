/* sharded.c - pickled ShardedTensors, DTensors and CheckpointableTensors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "format/torch_file/sharded.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "archive/torch.h"
#include "archive/torch_storage.h"
#include "base/checked.h"
#include "base/memory.h"
#include "base/str.h"
#include "format/placement.h"

/* The most ranks of a job; the numbers are untrusted. */
#define MAX_WORLD (1 << 24)
/* The most boxes of a rank. */
#define MAX_PIECES 4096

/* A tensor made by _rebuild_from_type_v2(function, type, arguments, state), or
 * an instance whose state BUILD set. */
struct wrapped {
	uint32_t args;  /* (class, dtype, size, ...), or OFS_NONE */
	uint32_t state; /* state of the instance */
};

static int damaged(const char *what, struct optimfs_error *err)
{
	return optimfs_fail(err, EUCLEAN, "OFS691 %s", what);
}

static int unsupported(const char *what, struct optimfs_error *err)
{
	return optimfs_fail(err, EOPNOTSUPP, "OFS692 %s", what);
}

static bool is_class(const struct ofs_pickle *doc, uint32_t node,
    const char *want)
{
	struct ofs_str module, name;

	if (ofs_pk_kind(doc, node) != OFS_PK_OBJECT)
		return false;
	ofs_torch_class(doc, node, &module, &name);
	return ofs_str_is(name, want) && module.len > strlen("torch.") &&
	    memcmp(module.p, "torch.", strlen("torch.")) == 0;
}

static struct wrapped unwrap(const struct ofs_pickle *doc, uint32_t node)
{
	struct wrapped w = { OFS_NONE, ofs_pk_state(doc, node) };
	uint32_t args = ofs_pk_args(doc, node);

	if (ofs_pk_is(doc, node, NULL, "_rebuild_from_type_v2")) {
		w.args = ofs_pk_item(doc, args, 2);
		w.state = ofs_pk_item(doc, args, 3);
	}
	return w;
}

/* An attribute in a state for BUILD: a dict, or (dict, slots). */
static uint32_t of_state(const struct ofs_pickle *doc, uint32_t state,
    const char *name)
{
	uint32_t found = ofs_pk_get(doc, state, name);

	if (ofs_pk_kind(doc, state) != OFS_PK_TUPLE)
		return found;
	for (uint32_t i = 0; i < ofs_pk_len(doc, state) && i < 2; i++)
		if (found == OFS_NONE)
			found =
			    ofs_pk_get(doc, ofs_pk_item(doc, state, i), name);
	return found;
}

/* A CheckpointableTensor is a tensor of any class with these attributes. */
static bool is_checkpointable(const struct ofs_pickle *doc, uint32_t node)
{
	uint32_t state = ofs_pk_item(doc, ofs_pk_args(doc, node), 3);

	return ofs_pk_is(doc, node, NULL, "_rebuild_from_type_v2") &&
	    of_state(doc, state, "global_shape") != OFS_NONE &&
	    of_state(doc, state, "global_offsets") != OFS_NONE;
}

bool ofs_torch_is_sharded(const struct ofs_pickle *doc, uint32_t node)
{
	return is_class(doc, node, "DTensor") ||
	    is_class(doc, node, "ShardedTensor") ||
	    is_checkpointable(doc, node);
}

/* Read a list of at most max non-negative numbers. */
static int get_numbers(const struct ofs_pickle *doc, uint32_t node,
    const char *what, uint64_t *v, uint32_t max, uint32_t *n,
    struct optimfs_error *err)
{
	*n = ofs_pk_len(doc, node);
	if (!ofs_pk_is_sequence(doc, node) || *n > max)
		return optimfs_fail(err, EUCLEAN,
		    "OFS691 %s is not a list of at most %" PRIu32 " numbers",
		    what, max);
	for (uint32_t i = 0; i < *n; i++)
		if (ofs_torch_size(doc, ofs_pk_item(doc, node, i), what, &v[i],
			err) == -1)
			return -1;
	return 0;
}

static int get_shape(const struct ofs_pickle *doc, uint32_t node,
    struct ofs_torch_sharded *s, struct optimfs_error *err)
{
	uint32_t n;

	if (get_numbers(doc, node, "size", s->shape, OFS_MAX_DIMS, &n, err) ==
	    -1)
		return -1;
	s->ndim = (uint8_t)n;
	return 0;
}

static enum ofs_dtype get_dtype(const struct ofs_pickle *doc, uint32_t node)
{
	struct ofs_str module, name;

	if (ofs_pk_kind(doc, node) != OFS_PK_GLOBAL)
		return OFS_DTYPE_NONE;
	ofs_pk_class(doc, node, &module, &name);
	return ofs_str_is(module, "torch") ? ofs_dtype_of_name(name.p, name.len)
					   : OFS_DTYPE_NONE;
}

/* A number from 0 to MAX_WORLD, or unknown. */
static int get_rank(const struct ofs_pickle *doc, uint32_t node, int unknown)
{
	int64_t v;

	return ofs_pk_int(doc, node, &v) && v >= 0 && v <= MAX_WORLD ? (int)v
								     : unknown;
}

static struct ofs_torch_piece *add_piece(struct ofs_torch_sharded *s,
    struct optimfs_error *err)
{
	struct ofs_torch_piece *p;

	if (s->npieces == MAX_PIECES) {
		optimfs_fail(err, E2BIG,
		    "OFS694 a rank's part of a tensor is in more than %d "
		    "pieces",
		    MAX_PIECES);
		return NULL;
	}
	if (ofs_grow(s->piece, s->npieces, s->piece_cap, err) == -1)
		return NULL;
	p = &s->piece[s->npieces++];
	memset(p, 0, sizeof(*p));
	return p;
}

/* DTensors. */

struct mesh {
	uint64_t shape[OFS_MAX_MESH], coordinate[OFS_MAX_MESH];
	struct ofs_placement placement[OFS_MAX_MESH];
	uint32_t ndim;
	bool outside; /* the rank is not in the mesh */
};

/* Read a dimension of a mesh layout: a size, or a tuple of sizes. */
static int get_extent(const struct ofs_pickle *doc, uint32_t node, uint64_t *v,
    struct optimfs_error *err)
{
	uint64_t inner[OFS_MAX_MESH];
	uint32_t n;

	if (!ofs_pk_is_sequence(doc, node))
		return ofs_torch_size(doc, node, "mesh size", v, err);
	if (get_numbers(doc, node, "mesh size", inner, OFS_MAX_MESH, &n, err) ==
	    -1)
		return -1;
	return ofs_numel(inner, n, v)
	    ? 0
	    : damaged("the size of a mesh overflows", err);
}

/* Read the sizes of a list of layouts: of the items, or of their shapes. */
static int get_extents(const struct ofs_pickle *doc, uint32_t list, bool shapes,
    uint64_t *v, uint32_t *n, struct optimfs_error *err)
{
	*n = ofs_pk_len(doc, list);
	if (*n > OFS_MAX_MESH)
		return damaged("a mesh has too many dimensions", err);
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
		return damaged("the axes of a mesh are not a list", err);
	if (axes != OFS_NONE)
		return get_extents(doc, axes, true, v, n, err);
	if (ofs_pk_kind(doc, layout) == OFS_PK_OBJECT)
		return get_layout(doc, ofs_pk_attr(doc, layout, "shape"), v, n,
		    err);
	if (ofs_torch_tensor(doc, ofs_pk_attr(doc, mesh, "mesh"), &t, NULL) !=
		1 ||
	    t.ndim > OFS_MAX_MESH)
		return damaged("the shape of a device mesh cannot be told",
		    err);
	*n = t.ndim;
	memcpy(v, t.shape, t.ndim * sizeof(*v));
	return 0;
}

static int check_mesh(const struct mesh *m, struct optimfs_error *err)
{
	uint64_t ranks = 1;

	for (uint32_t i = 0; i < m->ndim; i++) {
		if (!ofs_mul_u64(ranks, m->shape[i], &ranks) || ranks == 0 ||
		    ranks > MAX_WORLD)
			return damaged("a device mesh without ranks, or with "
				       "too many",
			    err);
		if (!m->outside && m->coordinate[i] >= m->shape[i])
			return damaged("a rank stands outside of its device "
				       "mesh",
			    err);
	}
	return 0;
}

static int get_coordinate(const struct ofs_pickle *doc, uint32_t mesh,
    struct mesh *m, struct optimfs_error *err)
{
	uint32_t at = ofs_pk_attr(doc, mesh, "_coordinate_on_dim"), n;

	m->outside = at != OFS_NONE && ofs_pk_kind(doc, at) == OFS_PK_NONE;
	if (m->outside)
		return 0;
	if (get_numbers(doc, at, "_coordinate_on_dim", m->coordinate,
		OFS_MAX_MESH, &n, err) == -1)
		return -1;
	return n == m->ndim ? 0
			    : damaged("a rank's coordinates are not one for "
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
		rank = get_rank(doc, ofs_pk_item(doc, list, i), -1);
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
	    !ofs_numel(shape, n, &ranks) || ranks > MAX_WORLD)
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
	bool strided = is_class(doc, node, "_StridedShard");
	int64_t dim;

	*p = (struct ofs_placement){ .kind = OFS_REPLICATE, .split = 1 };
	if (is_class(doc, node, "Replicate"))
		return 0;
	if (is_class(doc, node, "Partial") || is_class(doc, node, "_Partial"))
		return unsupported("DTensor of partial sums: its value is on "
				   "no rank",
		    err);
	if (!strided && !is_class(doc, node, "Shard"))
		return unsupported("DTensor placement of an unknown class",
		    err);
	if (!ofs_pk_int(doc, ofs_pk_attr(doc, node, "dim"), &dim))
		return damaged("a placement has no dimension", err);
	if (dim < 0)
		dim += ndim;
	if (dim < 0 || dim >= ndim)
		return damaged("a placement is of a dimension that the tensor "
			       "does not have",
		    err);
	p->kind = OFS_SHARD;
	p->dim = (uint32_t)dim;
	if (!strided)
		return 0;
	if (ofs_torch_size(doc, split, "split_factor", &p->split, err) == -1)
		return -1;
	return p->split > 0 ? 0 : damaged("split_factor is 0", err);
}

static int get_mesh(const struct ofs_pickle *doc, uint32_t spec, uint8_t ndim,
    struct mesh *m, struct optimfs_error *err)
{
	uint32_t mesh = ofs_pk_attr(doc, spec, "mesh");
	uint32_t list = ofs_pk_attr(doc, spec, "placements");

	if (get_mesh_shape(doc, mesh, m->shape, &m->ndim, err) == -1 ||
	    get_coordinate(doc, mesh, m, err) == -1 || check_mesh(m, err) == -1)
		return -1;
	if (!ofs_pk_is_sequence(doc, list) || ofs_pk_len(doc, list) != m->ndim)
		return damaged("placements are not one for each dimension of "
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

static int get_parts(const struct mesh *m, const struct ofs_torch_sharded *s,
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
		struct ofs_torch_piece *x = add_piece(s, err);

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

/* Has the local tensor the size that the rank should have? */
static bool fits(const struct ofs_pickle *doc, uint32_t local,
    const struct parts *p, uint8_t ndim)
{
	struct ofs_torch_tensor t;

	return ofs_torch_tensor(doc, local, &t, NULL) == 1 && t.ndim == ndim &&
	    memcmp(t.shape, p->held, ndim * sizeof(*t.shape)) == 0;
}

static int cut_dtensor(const struct ofs_pickle *doc, uint32_t local,
    const struct mesh *m, struct ofs_torch_sharded *s,
    struct optimfs_error *err)
{
	struct parts p = { 0 };
	int ret = get_parts(m, s, false, &p, err);

	if (ret == 0 && !fits(doc, local, &p, s->ndim)) {
		free_parts(&p);
		ret = get_parts(m, s, true, &p, err);
	}
	for (uint32_t d = 0; ret == 0 && d < s->ndim; d++)
		if (p.n[d] == 0)
			goto out;
	if (ret == 0)
		ret = add_boxes(&p, local, s, err);
out:
	free_parts(&p);
	return ret;
}

static int get_dtensor(const struct ofs_pickle *doc, const struct wrapped *w,
    struct ofs_torch_sharded *s, struct optimfs_error *err)
{
	uint32_t spec = of_state(doc, w->state, "_spec");
	uint32_t local = of_state(doc, w->state, "_local_tensor");
	uint32_t mesh = ofs_pk_attr(doc, spec, "mesh");
	struct mesh m = { 0 };

	if (get_shape(doc, ofs_pk_item(doc, w->args, 2), s, err) == -1)
		return -1;
	s->dtype = (uint8_t)get_dtype(doc, ofs_pk_item(doc, w->args, 1));
	if (spec == OFS_NONE || local == OFS_NONE)
		return damaged("a DTensor without a spec or a local tensor",
		    err);
	if (get_mesh(doc, spec, s->ndim, &m, err) == -1)
		return -1;
	get_world(doc, mesh, s);
	s->rank = get_rank(doc, ofs_pk_attr(doc, mesh, "_rank"), -1);
	return m.outside ? 0 : cut_dtensor(doc, local, &m, s, err);
}

/* ShardedTensors. */

static int read_sharded(const struct ofs_pickle *doc, uint32_t node,
    bool nested, struct ofs_torch_sharded *s, struct optimfs_error *err);

/* A shard that is itself sharded (FSDP over tensor parallelism in PyTorch 2.0
 * and 2.1): replace it by its single shard, moved by its offsets. */
static int flatten(const struct ofs_pickle *doc, struct ofs_torch_sharded *s,
    struct optimfs_error *err)
{
	struct ofs_torch_piece *p = &s->piece[s->npieces - 1], *in;
	struct ofs_torch_sharded inner;
	int ret = 0;

	if (!ofs_torch_is_sharded(doc, p->node))
		return 0;
	if (read_sharded(doc, p->node, true, &inner, err) == -1)
		return -1;
	in = inner.piece;
	if (inner.npieces > 1) {
		ret = unsupported("several shards within a shard", err);
	} else if (inner.npieces == 0) {
		s->npieces--;
	} else if (inner.ndim != s->ndim ||
	    ofs_torch_is_sharded(doc, in->node)) {
		ret = damaged("a shard does not fit the one it is in", err);
	} else {
		for (unsigned d = 0; d < s->ndim; d++)
			if (!ofs_add_u64(in->offset[d], p->offset[d],
				&in->offset[d]))
				ret =
				    damaged("a shard's offset overflows", err);
		*p = *in;
	}
	ofs_torch_sharded_fini(&inner);
	return ret;
}

static int add_shard(const struct ofs_pickle *doc, uint32_t shard, bool nested,
    struct ofs_torch_sharded *s, struct optimfs_error *err)
{
	uint32_t meta = ofs_pk_attr(doc, shard, "metadata"), n, m;
	struct ofs_torch_piece *p = add_piece(s, err);

	if (p == NULL)
		return -1;
	p->node = ofs_pk_attr(doc, shard, "tensor");
	if (get_numbers(doc, ofs_pk_attr(doc, meta, "shard_offsets"),
		"shard_offsets", p->offset, OFS_MAX_DIMS, &n, err) == -1 ||
	    get_numbers(doc, ofs_pk_attr(doc, meta, "shard_sizes"),
		"shard_sizes", p->size, OFS_MAX_DIMS, &m, err) == -1)
		return -1;
	if (n != s->ndim || m != s->ndim)
		return damaged("a shard's offsets and sizes are not one for "
			       "each dimension",
		    err);
	memcpy(p->local, p->size, sizeof(p->local));
	return nested ? 0 : flatten(doc, s, err);
}

static int get_sharded(const struct ofs_pickle *doc, const struct wrapped *w,
    bool nested, struct ofs_torch_sharded *s, struct optimfs_error *err)
{
	uint32_t list = ofs_pk_item(doc, w->state, 0);
	uint32_t meta = ofs_pk_item(doc, w->state, 1);
	uint32_t group = ofs_pk_item(doc, w->state, 2);
	uint32_t props = ofs_pk_attr(doc, meta, "tensor_properties");

	if (get_shape(doc, ofs_pk_attr(doc, meta, "size"), s, err) == -1)
		return -1;
	s->dtype = (uint8_t)get_dtype(doc, ofs_pk_item(doc, w->args, 1));
	if (s->dtype == OFS_DTYPE_NONE)
		s->dtype = (uint8_t)get_dtype(doc,
		    ofs_pk_item(doc, ofs_pk_state(doc, props), 0));
	s->world =
	    get_rank(doc, ofs_pk_attr(doc, group, "global_world_size"), 0);
	s->rank = get_rank(doc, ofs_pk_attr(doc, group, "global_rank"), -1);
	if (!ofs_pk_is_sequence(doc, list))
		return damaged("a ShardedTensor without a list of shards", err);
	for (uint32_t i = 0; i < ofs_pk_len(doc, list); i++)
		if (add_shard(doc, ofs_pk_item(doc, list, i), nested, s, err) ==
		    -1)
			return -1;
	return 0;
}

/* CheckpointableTensors: boxes of a local tensor with their global places. */

/* Read item i of a list of boxes: a number for each dimension. */
static int get_corner(const struct ofs_pickle *doc, uint32_t state,
    const char *name, uint32_t i, uint8_t ndim, uint64_t *v,
    struct optimfs_error *err)
{
	uint32_t list = of_state(doc, state, name), n;

	if (!ofs_pk_is_sequence(doc, list) || i >= ofs_pk_len(doc, list))
		return optimfs_fail(err, EUCLEAN,
		    "OFS691 %s has another number of boxes than the others",
		    name);
	if (get_numbers(doc, ofs_pk_item(doc, list, i), name, v, OFS_MAX_DIMS,
		&n, err) == -1)
		return -1;
	return n == ndim
	    ? 0
	    : optimfs_fail(err, EUCLEAN,
		  "OFS691 %s is not one number for each dimension", name);
}

static int add_box(const struct ofs_pickle *doc, uint32_t node, uint32_t state,
    const struct ofs_torch_tensor *t, uint32_t i, struct ofs_torch_sharded *s,
    struct optimfs_error *err)
{
	struct ofs_torch_piece *p = add_piece(s, err);
	uint64_t end;

	if (p == NULL ||
	    get_corner(doc, state, "global_offsets", i, s->ndim, p->offset,
		err) == -1 ||
	    get_corner(doc, state, "local_offsets", i, s->ndim, p->at, err) ==
		-1 ||
	    get_corner(doc, state, "local_sizes", i, s->ndim, p->size, err) ==
		-1)
		return -1;
	p->node = node;
	memcpy(p->local, t->shape, sizeof(p->local));
	for (unsigned d = 0; d < s->ndim; d++)
		if (!ofs_add_u64(p->at[d], p->size[d], &end) ||
		    end > t->shape[d])
			return damaged("a box is not within its local tensor",
			    err);
	return 0;
}

static int get_checkpointable(const struct ofs_pickle *doc, uint32_t node,
    uint32_t state, struct ofs_torch_sharded *s, struct optimfs_error *err)
{
	uint32_t list = of_state(doc, state, "global_offsets");
	struct ofs_torch_tensor t;
	int is;

	if (get_shape(doc, of_state(doc, state, "global_shape"), s, err) == -1)
		return -1;
	is = ofs_torch_tensor(doc, node, &t, err);
	if (is == -1)
		return -1;
	if (is == 0)
		return damaged("its local tensor is not a tensor", err);
	s->dtype = t.dtype;
	if (t.ndim != s->ndim)
		return damaged(
		    "a local tensor does not have the dimensions of the whole",
		    err);
	if (!ofs_pk_is_sequence(doc, list))
		return damaged("global_offsets is not a list", err);
	for (uint32_t i = 0; i < ofs_pk_len(doc, list); i++)
		if (add_box(doc, node, state, &t, i, s, err) == -1)
			return -1;
	return 0;
}

static int read_sharded(const struct ofs_pickle *doc, uint32_t node,
    bool nested, struct ofs_torch_sharded *s, struct optimfs_error *err)
{
	struct wrapped w = unwrap(doc, node);
	int ret;

	memset(s, 0, sizeof(*s));
	s->rank = -1;
	s->dtype = OFS_DTYPE_NONE;
	if (is_class(doc, node, "DTensor"))
		ret = get_dtensor(doc, &w, s, err);
	else if (is_class(doc, node, "ShardedTensor"))
		ret = get_sharded(doc, &w, nested, s, err);
	else
		ret = get_checkpointable(doc, node, w.state, s, err);
	if (ret == -1)
		ofs_torch_sharded_fini(s);
	return ret;
}

int ofs_torch_sharded(const struct ofs_pickle *doc, uint32_t node,
    struct ofs_torch_sharded *s, struct optimfs_error *err)
{
	return read_sharded(doc, node, false, s, err);
}

void ofs_torch_sharded_fini(struct ofs_torch_sharded *s)
{
	free(s->piece);
	s->piece = NULL;
	s->npieces = 0;
}
