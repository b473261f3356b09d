/* sort.c - sorting of many names with common prefixes */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdbool.h>
#include <stdlib.h>

#include "base/memory.h"
#include "base/search.h"
#include "tree/tree_impl.h"

/* Sorts by eight bytes at a time: items that agree on all bytes before depth
 * form a run, each run is sorted by its next eight bytes, and items that still
 * agree form a run of the next pass. Names of parameters share long prefixes,
 * which strcmp would read again in every comparison; here each byte is read
 * once, for any input. */

struct item {
	uint64_t chunk; /* eight bytes from depth on, the first one highest */
	uint32_t name;
	uint32_t how; /* enum how: compared with the previous item */
};

enum how { DIFFERS, AGREES, SAME };

static uint64_t load(const char *p)
{
	uint64_t v = 0;
	int i;

	for (i = 0; i < 8 && p[i] != '\0'; i++)
		v = v << 8 | (uint8_t)p[i];
	return i == 0 ? 0 : v << 8 * (8 - i);
}

OFS_COMPARE_BY(by_chunk, struct item, chunk)

/* Sort the run of n items that begins at it; true when some still agree. */
static bool sort_run(struct item *it, uint32_t n, const char *const *name,
    size_t depth)
{
	bool sorted = true, more = false;
	uint32_t first = it->how;

	for (uint32_t i = 0; i < n; i++) {
		it[i].chunk = load(name[it[i].name] + depth);
		if (i > 0 && it[i].chunk < it[i - 1].chunk)
			sorted = false;
	}
	if (!sorted)
		qsort(it, n, sizeof(*it), by_chunk);
	it[0].how = first;
	for (uint32_t i = 1; i < n; i++) {
		if (it[i].chunk != it[i - 1].chunk)
			it[i].how = DIFFERS;
		else if ((it[i].chunk & 0xff) == 0)
			it[i].how = SAME;
		else {
			it[i].how = AGREES;
			more = true;
		}
	}
	return more;
}

static bool sort_pass(struct item *it, uint32_t n, const char *const *name,
    size_t depth)
{
	bool more = false;
	uint32_t end;

	for (uint32_t i = 0; i < n; i = end) {
		for (end = i + 1; end < n && it[end].how == AGREES; end++)
			;
		if (end - i > 1 && sort_run(it + i, end - i, name, depth))
			more = true;
	}
	return more;
}

int ofs_tree_rank(const char *const *name, uint32_t n, uint32_t *rank,
    uint32_t *nranks, struct optimfs_error *err)
{
	struct item *it = ofs_alloc_huge(n * sizeof(*it) + 1);
	uint32_t r = 0;

	if (it == NULL)
		return ofs_no_memory(err);
	for (uint32_t i = 0; i < n; i++)
		it[i] = (struct item){ .name = i, .how = AGREES };
	for (size_t depth = 0; sort_pass(it, n, name, depth); depth += 8)
		;
	for (uint32_t i = 0; i < n; i++) {
		if (i > 0 && it[i].how != SAME)
			r++;
		rank[it[i].name] = r;
	}
	*nranks = n == 0 ? 0 : r + 1;
	free(it);
	return 0;
}
