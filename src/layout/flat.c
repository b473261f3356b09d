/* flat.c - arithmetic of flat parameters */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "layout/flat.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/checked.h"
#include "base/memory.h"

/* Round *v up to a multiple of m; false on overflow. */
static bool round_up(uint64_t *v, uint64_t m)
{
	uint64_t over = *v % m;

	return over == 0 || ofs_add_u64(*v, m - over, v);
}

int ofs_flat_init(struct ofs_flat *f, const uint64_t *numel, uint32_t nparams,
    uint32_t align, uint32_t world, struct optimfs_error *err)
{
	uint64_t total = 0, end;
	bool fits = true;

	if (world == 0)
		return optimfs_fail(err, EINVAL, "a flat parameter of no rank");
	*f = (struct ofs_flat){ nparams, numel, .world = world };
	f->start = malloc((size_t)nparams * sizeof(*f->start) + 1);
	if (f->start == NULL)
		return ofs_no_memory(err);
	for (uint32_t i = 0; i < nparams && fits; i++) {
		if (align != OFS_FLAT_PACKED)
			fits = round_up(&total, align);
		f->start[i] = total;
		fits = fits && ofs_add_u64(total, numel[i], &total);
	}
	if (align != OFS_FLAT_PACKED)
		fits = fits && round_up(&total, world);
	f->size = end = total;
	fits = fits && round_up(&end, world);
	if (!fits) {
		ofs_flat_fini(f);
		return optimfs_fail(err, EINVAL,
		    "OFS606 size overflow: %" PRIu32
		    " parameters have more elements than can be counted",
		    nparams);
	}
	f->shard = end / world;
	return 0;
}

int ofs_flat_spread(struct ofs_flat *f, uint64_t align,
    struct optimfs_error *err)
{
	uint64_t end = f->size;

	if (!round_up(&end, align) || !round_up(&end, f->world))
		return optimfs_fail(err, EINVAL,
		    "OFS606 size overflow: %" PRIu64
		    " elements cannot be padded",
		    f->size);
	f->shard = end / f->world;
	return 0;
}

void ofs_flat_fini(struct ofs_flat *f)
{
	free(f->start);
	f->start = NULL;
}

struct ofs_flat_slice ofs_flat_overlap(const struct ofs_flat *f, uint32_t param,
    uint64_t lo, uint64_t n)
{
	struct ofs_flat_slice s = { 0 };
	uint64_t hi = lo + n;
	uint64_t begin = f->start[param], end = begin + f->numel[param];
	uint64_t from = begin > lo ? begin : lo, to = end < hi ? end : hi;

	if (from >= to)
		return s;
	s.first = from - begin;
	s.count = to - from;
	s.at = from - lo;
	return s;
}

struct ofs_flat_slice ofs_flat_slice(const struct ofs_flat *f, uint32_t param,
    uint32_t rank)
{
	/* rank * shard cannot overflow: world shards are countable */
	return ofs_flat_overlap(f, param, rank * f->shard, f->shard);
}

uint64_t ofs_flat_held(const struct ofs_flat *f, uint32_t rank)
{
	uint64_t lo = rank * f->shard;

	if (lo >= f->size)
		return 0;
	return f->size - lo < f->shard ? f->size - lo : f->shard;
}
