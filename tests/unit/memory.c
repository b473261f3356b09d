/* memory.c - arrays that grow */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "base/memory.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

#include "tap.h"

static void adds_one_by_one(void)
{
	struct optimfs_error err = { 0 };
	uint32_t *v = NULL, n = 0, cap = 0;
	unsigned moves = 0;
	bool kept = true;

	while (n < 100000) {
		uint32_t before = cap;

		if (ofs_grow(v, n, cap, &err) == -1)
			bail_out("%s", err.text);
		moves += cap != before;
		v[n] = n;
		n++;
	}
	for (uint32_t i = 0; i < n; i++)
		kept = kept && v[i] == i;
	ok(kept, "items stay what they were");
	ok(moves < 40, "an array moves %u times for 100000 items", moves);
	free(v);
}

static void reserves(void)
{
	struct optimfs_error err = { 0 };
	double *v = NULL;
	size_t cap = 0;

	is_int(ofs_reserve(v, 1000, cap, &err), 0, "room for 1000 items");
	ok(v != NULL && cap >= 1000, "that are there");
	is_int(ofs_reserve(v, 0, cap, &err), 0, "fewer need nothing");
	ok(cap >= 1000, "and take nothing away");
	free(v);
}

static void refuses(void)
{
	struct optimfs_error err = { 0 };
	uint32_t small = UINT32_MAX, *w = NULL;
	uint64_t *v = malloc(sizeof(*v)), *before = v;
	size_t cap = 1;

	is_int(ofs_reserve(v, SIZE_MAX / 4, cap, &err), -1,
	    "a size that does not fit an address space");
	is_int(err.code, ENOMEM, "is out of memory");
	ok(v == before && cap == 1, "the array is as it was");
	err.code = 0;
	is_int(ofs_grow(w, small, small, &err), -1,
	    "more items than 32 bits count");
	is_int(err.code, ENOMEM, "is out of memory");
	ok(w == NULL && small == UINT32_MAX, "the array is as it was");
	is_int(ofs_reserve(v, SIZE_MAX / 4, cap, NULL), -1,
	    "nobody needs to be told");
	free(v);
}

int main(void)
{
	adds_one_by_one();
	reserves();
	refuses();
	return done_testing();
}
