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
#include "format/torch_file/sharded_impl.h"

/* The most boxes of a rank. */
#define MAX_PIECES 4096

bool ofs_sharded_is_class(const struct ofs_pickle *doc, uint32_t node,
    const char *want)
{
	struct ofs_str module, name;

	if (ofs_pk_kind(doc, node) != OFS_PK_OBJECT)
		return false;
	ofs_torch_class(doc, node, &module, &name);
	return ofs_str_is(name, want) && module.len > strlen("torch.") &&
	    memcmp(module.p, "torch.", strlen("torch.")) == 0;
}

static struct ofs_sharded_node unwrap(const struct ofs_pickle *doc,
    uint32_t node)
{
	struct ofs_sharded_node w = { OFS_NONE, ofs_pk_state(doc, node) };
	uint32_t args = ofs_pk_args(doc, node);

	if (ofs_pk_is(doc, node, NULL, "_rebuild_from_type_v2")) {
		w.args = ofs_pk_item(doc, args, 2);
		w.state = ofs_pk_item(doc, args, 3);
	}
	return w;
}

uint32_t ofs_sharded_attr(const struct ofs_pickle *doc, uint32_t state,
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
	    ofs_sharded_attr(doc, state, "global_shape") != OFS_NONE &&
	    ofs_sharded_attr(doc, state, "global_offsets") != OFS_NONE;
}

bool ofs_torch_is_sharded(const struct ofs_pickle *doc, uint32_t node)
{
	return ofs_sharded_is_class(doc, node, "DTensor") ||
	    ofs_sharded_is_class(doc, node, "ShardedTensor") ||
	    is_checkpointable(doc, node);
}

int ofs_sharded_numbers(const struct ofs_pickle *doc, uint32_t node,
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

int ofs_sharded_shape(const struct ofs_pickle *doc, uint32_t node,
    struct ofs_torch_sharded *s, struct optimfs_error *err)
{
	uint32_t n;

	if (ofs_sharded_numbers(doc, node, "size", s->shape, OFS_MAX_DIMS, &n,
		err) == -1)
		return -1;
	s->ndim = (uint8_t)n;
	return 0;
}

int ofs_sharded_rank(const struct ofs_pickle *doc, uint32_t node, int unknown)
{
	int64_t v;

	return ofs_pk_int(doc, node, &v) && v >= 0 && v <= OFS_SHARDED_WORLD
	    ? (int)v
	    : unknown;
}

struct ofs_torch_piece *ofs_sharded_add(struct ofs_torch_sharded *s,
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
		ret = ofs_sharded_unsupported("several shards within a shard",
		    err);
	} else if (inner.npieces == 0) {
		s->npieces--;
	} else if (inner.ndim != s->ndim ||
	    ofs_torch_is_sharded(doc, in->node)) {
		ret =
		    ofs_sharded_damaged("a shard does not fit the one it is in",
			err);
	} else {
		for (unsigned d = 0; d < s->ndim; d++)
			if (!ofs_add_u64(in->offset[d], p->offset[d],
				&in->offset[d]))
				ret = ofs_sharded_damaged(
				    "a shard's offset overflows", err);
		*p = *in;
	}
	ofs_torch_sharded_fini(&inner);
	return ret;
}

static int add_shard(const struct ofs_pickle *doc, uint32_t shard, bool nested,
    struct ofs_torch_sharded *s, struct optimfs_error *err)
{
	uint32_t meta = ofs_pk_attr(doc, shard, "metadata"), n, m;
	struct ofs_torch_piece *p = ofs_sharded_add(s, err);

	if (p == NULL)
		return -1;
	p->node = ofs_pk_attr(doc, shard, "tensor");
	if (ofs_sharded_numbers(doc, ofs_pk_attr(doc, meta, "shard_offsets"),
		"shard_offsets", p->offset, OFS_MAX_DIMS, &n, err) == -1 ||
	    ofs_sharded_numbers(doc, ofs_pk_attr(doc, meta, "shard_sizes"),
		"shard_sizes", p->size, OFS_MAX_DIMS, &m, err) == -1)
		return -1;
	if (n != s->ndim || m != s->ndim)
		return ofs_sharded_damaged(
		    "a shard's offsets and sizes are not one for "
		    "each dimension",
		    err);
	memcpy(p->local, p->size, sizeof(p->local));
	return nested ? 0 : flatten(doc, s, err);
}

static int get_sharded(const struct ofs_pickle *doc,
    const struct ofs_sharded_node *w, bool nested, struct ofs_torch_sharded *s,
    struct optimfs_error *err)
{
	uint32_t list = ofs_pk_item(doc, w->state, 0);
	uint32_t meta = ofs_pk_item(doc, w->state, 1);
	uint32_t group = ofs_pk_item(doc, w->state, 2);
	uint32_t props = ofs_pk_attr(doc, meta, "tensor_properties");

	if (ofs_sharded_shape(doc, ofs_pk_attr(doc, meta, "size"), s, err) ==
	    -1)
		return -1;
	s->dtype = (uint8_t)ofs_torch_dtype(doc, ofs_pk_item(doc, w->args, 1));
	if (s->dtype == OFS_DTYPE_NONE)
		s->dtype = (uint8_t)ofs_torch_dtype(doc,
		    ofs_pk_item(doc, ofs_pk_state(doc, props), 0));
	s->world = ofs_sharded_rank(doc,
	    ofs_pk_attr(doc, group, "global_world_size"), 0);
	s->rank =
	    ofs_sharded_rank(doc, ofs_pk_attr(doc, group, "global_rank"), -1);
	if (!ofs_pk_is_sequence(doc, list))
		return ofs_sharded_damaged(
		    "a ShardedTensor without a list of shards", err);
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
	uint32_t list = ofs_sharded_attr(doc, state, name), n;

	if (!ofs_pk_is_sequence(doc, list) || i >= ofs_pk_len(doc, list))
		return optimfs_fail(err, EUCLEAN,
		    "OFS691 %s has another number of boxes than the others",
		    name);
	if (ofs_sharded_numbers(doc, ofs_pk_item(doc, list, i), name, v,
		OFS_MAX_DIMS, &n, err) == -1)
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
	struct ofs_torch_piece *p = ofs_sharded_add(s, err);
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
			return ofs_sharded_damaged(
			    "a box is not within its local tensor", err);
	return 0;
}

static int get_checkpointable(const struct ofs_pickle *doc, uint32_t node,
    uint32_t state, struct ofs_torch_sharded *s, struct optimfs_error *err)
{
	uint32_t list = ofs_sharded_attr(doc, state, "global_offsets");
	struct ofs_torch_tensor t;
	int is;

	if (ofs_sharded_shape(doc, ofs_sharded_attr(doc, state, "global_shape"),
		s, err) == -1)
		return -1;
	is = ofs_torch_tensor(doc, node, &t, err);
	if (is == -1)
		return -1;
	if (is == 0)
		return ofs_sharded_damaged("its local tensor is not a tensor",
		    err);
	s->dtype = t.dtype;
	if (t.ndim != s->ndim)
		return ofs_sharded_damaged(
		    "a local tensor does not have the dimensions of the whole",
		    err);
	if (!ofs_pk_is_sequence(doc, list))
		return ofs_sharded_damaged("global_offsets is not a list", err);
	for (uint32_t i = 0; i < ofs_pk_len(doc, list); i++)
		if (add_box(doc, node, state, &t, i, s, err) == -1)
			return -1;
	return 0;
}

static int read_sharded(const struct ofs_pickle *doc, uint32_t node,
    bool nested, struct ofs_torch_sharded *s, struct optimfs_error *err)
{
	struct ofs_sharded_node w = unwrap(doc, node);
	int ret;

	memset(s, 0, sizeof(*s));
	s->rank = -1;
	s->dtype = OFS_DTYPE_NONE;
	if (ofs_sharded_is_class(doc, node, "DTensor"))
		ret = ofs_sharded_dtensor(doc, &w, s, err);
	else if (ofs_sharded_is_class(doc, node, "ShardedTensor"))
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
