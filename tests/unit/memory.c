/* memory.c - growing arrays and their limits */
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

	while (n < 1000000) {
		uint32_t before = cap;

		if (ofs_grow(v, n, cap, &err) == -1)
			bail_out("%s", err.text);
		moves += cap != before;
		v[n] = n;
		n++;
	}
	for (uint32_t i = 0; i < n; i++)
		kept = kept && v[i] == i;
	ok(kept, "an array that grows into huge pages keeps its items");
	ok(moves < 40,
	    "a million single appends reallocate fewer than 40 times (%u)",
	    moves);
	free(v);
}

static void reserves(void)
{
	struct optimfs_error err = { 0 };
	double *v = NULL;
	size_t cap = 0;

	is_int(ofs_reserve(v, 1000, cap, &err), 0,
	    "reserving room for 1000 items succeeds");
	ok(v != NULL && cap >= 1000,
	    "the reserved array has a capacity of at least 1000 items");
	is_int(ofs_reserve(v, 0, cap, &err), 0,
	    "reserving room for 0 items succeeds");
	ok(cap >= 1000, "reserving fewer items does not shrink the array");
	free(v);
}

static void refuses(void)
{
	struct optimfs_error err = { 0 };
	uint32_t small = UINT32_MAX, *w = NULL;
	uint64_t *v = malloc(sizeof(*v)), *before = v;
	size_t cap = 1;

	is_int(ofs_reserve(v, SIZE_MAX / 4, cap, &err), -1,
	    "reserving more bytes than an address space has fails");
	is_int(err.code, ENOMEM, "an oversized reservation fails with ENOMEM");
	ok(v == before && cap == 1,
	    "a failed reservation leaves array and capacity unchanged");
	err.code = 0;
	is_int(ofs_grow(w, small, small, &err), -1,
	    "growing an array of UINT32_MAX items fails");
	is_int(err.code, ENOMEM,
	    "growing beyond a 32-bit capacity fails with ENOMEM");
	ok(w == NULL && small == UINT32_MAX,
	    "a failed growth leaves array and capacity unchanged");
	is_int(ofs_reserve(v, SIZE_MAX / 4, cap, NULL), -1,
	    "a reservation without an error struct can fail");
	free(v);
}

int main(void)
{
	adds_one_by_one();
	reserves();
	refuses();
	return done_testing();
}
