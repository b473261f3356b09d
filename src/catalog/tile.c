/* tile.c - exact covers by a random measure, overlaps by a walk */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "catalog/tile.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/checked.h"
#include "base/map.h"
#include "catalog/shards.h"

/* When the volumes of the boxes add up to that of the tensor, they tile it,
 * unless some overlap and leave a gap of the same size. To exclude that, a
 * second measure is compared as well: each coordinate x of each dimension k
 * gets a secret random number g(k, x) modulo a prime; the measure of an
 * interval is g(hi) - g(lo), that of a box the product of its intervals.
 * Measures of disjoint boxes add up. If an element were covered twice or not at
 * all, the sum would differ from the measure of the tensor by a nonzero
 * polynomial of degree ndim in the random numbers, which is zero with a
 * probability below 2^-54. So the common case takes one pass, whatever the
 * layout and the number of chunks. */
#define PRIME (((uint64_t)1 << 61) - 1)

static uint64_t multiply(uint64_t a, uint64_t b)
{
	return (uint64_t)((unsigned __int128)a * b % PRIME);
}

static uint64_t measure(unsigned int d, const uint64_t *off,
    const uint64_t *size)
{
	uint64_t m = 1;

	for (unsigned int k = 0; k < d; k++) {
		uint64_t lo[2] = { k, off[k] }, hi[2] = { k, off[k] + size[k] };
		uint64_t to = ofs_hash64(hi, sizeof(hi)) % PRIME;
		uint64_t from = ofs_hash64(lo, sizeof(lo)) % PRIME;

		m = multiply(m, (to + PRIME - from) % PRIME);
	}
	return m;
}

bool ofs_tile_exact(const struct ofs_catalog *cat, const struct ofs_tensor *t,
    uint64_t numel, uint64_t *held)
{
	uint64_t off[OFS_MAX_DIMS] = { 0 }, size[OFS_MAX_DIMS];
	uint64_t want, sum = 0, volume;

	if (t->nshards == 1 && cat->shards[t->shard].box == OFS_NONE) {
		*held = numel;
		return true;
	}
	want = measure(t->grid_ndim, off, cat->dims + t->grid);
	*held = 0;
	for (uint32_t i = 0; i < t->nshards; i++) {
		ofs_shard_box(cat, t, &cat->shards[t->shard + i], off, size);
		sum = (sum + measure(t->grid_ndim, off, size)) % PRIME;
		if (*held != UINT64_MAX &&
		    (!ofs_numel(size, t->grid_ndim, &volume) ||
			!ofs_add_u64(*held, volume, held)))
			*held = UINT64_MAX;
	}
	return *held == numel && sum == want;
}

/* For each shard, look for a later one that overlaps it. Regular layouts with
 * gaps need about a hundred tests a shard; the budget is far above that, and
 * decides any layout of some thousand chunks. */
enum ofs_tile ofs_tile_overlap(const struct ofs_catalog *cat,
    const struct ofs_tensor *t, uint64_t *work, uint32_t pair[2])
{
	uint64_t off[OFS_MAX_DIMS], size[OFS_MAX_DIMS], volume = 1;
	uint64_t budget = (1u << 24) + (uint64_t)512 * t->nshards;
	enum ofs_tile found = OFS_TILE_DISJOINT;
	struct ofs_region region;
	struct ofs_walk w;

	if (budget > *work)
		budget = *work;
	if (budget == 0)
		return OFS_TILE_UNKNOWN;
	*work -= budget;
	for (uint32_t i = 0; i < t->nshards && found == OFS_TILE_DISJOINT;
	     i++) {
		ofs_shard_box(cat, t, &cat->shards[t->shard + i], off, size);
		ofs_numel(size, t->grid_ndim, &volume);
		ofs_region_init(&region, t->grid_ndim, off, size, 0, volume);
		ofs_walk_init(&w, cat, t, &region);
		w.at = i + 1;
		w.level = 0;
		w.budget = budget;
		pair[0] = t->shard + i;
		pair[1] = ofs_walk_next(&w);
		budget -= w.steps;
		if (pair[1] != OFS_NONE)
			found = OFS_TILE_OVERLAP;
		else if (budget == 0)
			found = OFS_TILE_UNKNOWN;
	}
	*work += budget;
	return found;
}

void ofs_tile_print(const struct ofs_catalog *cat, const struct ofs_tensor *t,
    const struct ofs_shard *s, char *text, size_t size)
{
	uint64_t off[OFS_MAX_DIMS], n[OFS_MAX_DIMS];
	size_t len = 0;

	ofs_shard_box(cat, t, s, off, n);
	text[0] = '\0';
	for (unsigned int k = 0; k < t->grid_ndim && len < size - 1; k++) {
		int k_len =
		    snprintf(text + len, size - len, "%s%" PRIu64 ":%" PRIu64,
			k == 0 ? "[" : ", ", off[k], off[k] + n[k]);

		len += k_len < 0 ? 0 : (size_t)k_len;
	}
	if (len < size - 1)
		snprintf(text + len, size - len, "]");
}
