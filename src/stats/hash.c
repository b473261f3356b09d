/* hash.c - the XXH3 of the bytes of a tensor */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "stats/hash.h"

#include <stdlib.h>

#include "base/memory.h"
#include "base/xxh3.h"

struct ofs_stats_hash {
	XXH3_state_t *state;
	uint64_t repeated; /* bytes that are not stored */
};

struct ofs_stats_hash *ofs_stats_hash_new(struct optimfs_error *err)
{
	struct ofs_stats_hash *h = ofs_alloc(1, sizeof(*h), err);

	if (h == NULL)
		return NULL;
	h->state = XXH3_createState();
	if (h->state == NULL) {
		free(h);
		ofs_no_memory(err);
		return NULL;
	}
	XXH3_64bits_reset(h->state);
	return h;
}

void ofs_stats_hash_free(struct ofs_stats_hash *h)
{
	if (h == NULL)
		return;
	XXH3_freeState(h->state);
	free(h);
}

void ofs_stats_hash_add(struct ofs_stats_hash *h, const void *p, size_t n,
    uint64_t times)
{
	h->repeated += (times - 1) * n;
	if (h->repeated > OFS_STATS_HASH_MAX)
		return;
	for (uint64_t i = 0; i < times; i++)
		XXH3_64bits_update(h->state, p, n);
}

uint64_t ofs_stats_hash_value(const struct ofs_stats_hash *h)
{
	return h->repeated > OFS_STATS_HASH_MAX ? 0
						: XXH3_64bits_digest(h->state);
}

uint64_t ofs_stats_hash_of(const void *p, size_t n)
{
	return XXH3_64bits(p, n);
}
