/* lost.c - ranks without a file, and whether their data is missing */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/memory.h"
#include "base/search.h"
#include "format/ranks/ranks.h"

/* Up to this number missing ranks are named one by one. */
#define MAX_NAMED 1024

static bool is_damaged(const struct ofs_ranks *set, int rank)
{
	for (uint32_t i = 0; i < set->ndamaged; i++)
		if (set->damaged[i] == rank)
			return true;
	return false;
}

static int note_missing(struct ofs_ranks *set, int rank,
    struct optimfs_error *err)
{
	return ofs_catalog_note(set->cat, OFS_NOTE_MISSING, EIO, err,
	    "OFS140 the file of rank %d of %d is missing (beside %.200s)", rank,
	    set->world, set->file[0].rel);
}

/* v is the n files of the set, sorted. */
static int note_all(struct ofs_ranks *set, struct ofs_ranks_file **v,
    uint32_t n, struct optimfs_error *err)
{
	uint32_t i = 0, lost = 0;

	for (int rank = 0; rank < set->world && lost < MAX_NAMED; rank++) {
		if (i < n && v[i]->rank == rank) {
			i++;
			continue;
		}
		if (is_damaged(set, rank))
			continue;
		lost++;
		if (note_missing(set, rank, err) == -1)
			return -1;
	}
	if ((uint32_t)set->world > n &&
	    ofs_catalog_note(set->cat, OFS_NOTE_MISSING, EIO, err,
		"OFS180 %.200s: %" PRIu32 " of %d rank files can be read",
		set->file[0].rel, n, set->world) == -1)
		return -1;
	return 0;
}

/* With HSDP some ranks have copies of others' shards; one copy of each is
 * enough. */

OFS_COMPARE_BY(by_box, struct ofs_shard, box)

/* The number of elements in a box. */
static uint64_t volume(const struct ofs_catalog *cat,
    const struct ofs_tensor *t, const struct ofs_shard *s)
{
	const uint64_t *box;
	uint64_t n;

	if (s->box == OFS_NONE)
		return ofs_tensor_numel(cat, t);
	box = cat->dims + s->box;
	return ofs_numel(box + t->grid_ndim, t->grid_ndim, &n) ? n : 0;
}

/* Do the boxes of t fill it? copy has room for its shards. Overlaps are found
 * by ofs_catalog_finish. */
static bool is_whole(const struct ofs_catalog *cat, const struct ofs_tensor *t,
    struct ofs_shard *copy)
{
	uint64_t sum = 0;

	if (t->error != OFS_NONE)
		return false;
	if (t->nshards > 0)
		memcpy(copy, cat->shards + t->shard,
		    t->nshards * sizeof(*copy));
	qsort(copy, t->nshards, sizeof(*copy), by_box);
	for (uint32_t i = 0; i < t->nshards; i++)
		if ((i == 0 || copy[i].box != copy[i - 1].box) &&
		    !ofs_add_u64(sum, volume(cat, t, &copy[i]), &sum))
			return false;
	return sum == ofs_tensor_numel(cat, t);
}

/* Is some tensor from first on in several parts, and every one whole? 1, 0, or
 * -1 on failure. */
static int all_whole(const struct ofs_catalog *cat, uint32_t first,
    struct optimfs_error *err)
{
	struct ofs_shard *copy;
	bool whole = true, cut = false;
	uint32_t most = 0;

	for (uint32_t i = first; i < cat->ntensors; i++)
		if (cat->tensors[i].nshards > most)
			most = cat->tensors[i].nshards;
	copy = malloc((most + 1ull) * sizeof(*copy));
	if (copy == NULL)
		return ofs_no_memory(err);
	for (uint32_t i = first; i < cat->ntensors && whole; i++) {
		const struct ofs_tensor *t = &cat->tensors[i];

		whole = is_whole(cat, t, copy);
		for (uint32_t k = 1; k < t->nshards && !cut; k++)
			cut = cat->shards[t->shard + k].box !=
			    cat->shards[t->shard].box;
	}
	free(copy);
	return whole && cut;
}

static int note_spare(struct ofs_ranks *set, uint32_t n,
    struct optimfs_error *err)
{
	return ofs_catalog_note(set->cat, OFS_NOTE_WARNING, 0, err,
	    "OFS183 %.200s: %" PRIu32 " of %d rank files can be read; they "
	    "have all elements of every tensor that they know",
	    set->file[0].rel, n, set->world);
}

static uint32_t in_use(const struct ofs_ranks *set)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < set->nfiles; i++)
		n += !set->file[i].surplus;
	return n;
}

int ofs_ranks_absent(struct ofs_ranks *set, struct optimfs_error *err)
{
	struct ofs_ranks_file **v;
	uint32_t n;
	int ret;

	v = ofs_ranks_sorted(set, &n);
	if (v == NULL)
		return ofs_no_memory(err);
	ret = note_all(set, v, n, err);
	free(v);
	return ret;
}

int ofs_ranks_lost(struct ofs_ranks *set, uint32_t tensors,
    struct optimfs_error *err)
{
	uint32_t n = in_use(set);
	int ret;

	if (set->world < 0 || n >= (uint32_t)set->world)
		return 0;
	ret = all_whole(set->cat, tensors, err);
	if (ret == -1)
		return -1;
	return ret == 1 ? note_spare(set, n, err) : ofs_ranks_absent(set, err);
}
