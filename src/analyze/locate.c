/* locate.c - find the file and offset of an element */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "read/locate.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "optimfs/analyze.h"

#include "base/checked.h"
#include "base/memory.h"
#include "catalog/owners.h"
#include "fs/fs.h"
#include "read/derived.h"

/* Converts element k of a box to an element of the grid. */
static uint64_t from_box(const uint64_t *grid, const uint64_t *box,
    unsigned ndim, uint64_t k)
{
	uint64_t at = 0, pitch = 1;

	for (unsigned d = ndim; d-- > 0;) {
		uint64_t size = box[ndim + d];

		at += (box[d] + k % size) * pitch;
		k /= size;
		pitch *= grid[d];
	}
	return at;
}

/* The shard with element k of what rank holds; *k becomes the element of its
 * box. */
static int find_shard(const struct ofs_catalog *cat, const struct ofs_tensor *t,
    int rank, uint64_t *k, uint32_t *shard, uint64_t *box,
    struct optimfs_error *err)
{
	uint64_t n;

	for (uint32_t i = t->shard; i < t->shard + t->nshards; i++) {
		if (!ofs_rank_holds(cat, i, rank))
			continue;
		ofs_shard_box(cat, t, &cat->shards[i], box, box + t->grid_ndim);
		if (!ofs_numel(box + t->grid_ndim, t->grid_ndim, &n))
			return optimfs_fail(err, EUCLEAN,
			    "OFS606 size overflow");
		if (*k < n) {
			*shard = i;
			return 0;
		}
		*k -= n;
	}
	return optimfs_fail(err, ERANGE, "rank %d has no such element", rank);
}

static int fill(const struct ofs_catalog *cat, const struct ofs_segment *seg,
    struct optimfs_location *where, struct optimfs_error *err)
{
	const struct ofs_object *o = &cat->objects[seg->object];

	where->rank = o->rank;
	where->offset = seg->src;
	where->encoded = seg->codec != OFS_PLAIN;
	where->file = strdup(o->path);
	return where->file == NULL ? ofs_no_memory(err) : 0;
}

static int locate(struct ofs_snapshot *snap, const struct ofs_tensor *t,
    int rank, uint64_t index, struct optimfs_location *where,
    struct optimfs_error *err)
{
	const struct ofs_catalog *cat = snap->cat;
	struct ofs_rank_place at = { .reader = &snap->reader, .rank = rank };
	uint64_t box[2 * OFS_MAX_DIMS];
	struct ofs_plan plan = { 0 };
	uint32_t shard = OFS_NONE;
	int ret;

	where->element = index;
	if (rank >= 0) {
		if (find_shard(cat, t, rank, &index, &shard, box, err) == -1)
			return -1;
		where->element =
		    from_box(cat->dims + t->grid, box, t->grid_ndim, index);
	}
	ret = ofs_plan_elements(cat, t, where->element, 1, ofs_locate_rank, &at,
	    &plan, err);
	if (ret == 0 && (plan.n == 0 || ofs_is_computed(&plan.seg[0])))
		ret = optimfs_fail(err, ENODATA, "no file has it");
	if (ret == 0)
		ret = fill(cat, &plan.seg[0], where, err);
	ofs_plan_fini(&plan);
	free(at.place);
	return ret;
}

int optimfs_locate(struct optimfs *fs, const char *path, int rank,
    uint64_t index, struct optimfs_location *where, struct optimfs_error *err)
{
	struct ofs_snapshot *snap = ofs_enter(fs);
	const struct ofs_tensor *t;
	struct ofs_at at;
	int ret = -1;

	*where = (struct optimfs_location){ .rank = -1 };
	if (ofs_resolve(snap, path, &at, err) == -1)
		goto out;
	t = ofs_entry_tensor(snap->cat, ofs_at_entry(snap, at));
	if (t == NULL || index >= ofs_tensor_numel(snap->cat, t))
		optimfs_fail(err, EINVAL, "%s: has no element %llu", path,
		    (unsigned long long)index);
	else
		ret = locate(snap, t, rank, index, where, err);
out:
	ofs_leave(snap);
	return ret;
}
