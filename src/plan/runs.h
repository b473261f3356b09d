/* runs.h - the elements of a box as runs of the tensor's bytes */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_PLAN_RUNS_H
#define OFS_PLAN_RUNS_H

#include <stdbool.h>
#include <stdint.h>

#include "catalog/catalog.h"

/* Walks elements of a box, in C order, which is also their order in the
 * tensor. */
struct ofs_runs {
	unsigned ndim, outer; /* dimensions; those outside the runs */
	const uint64_t *grid, *off, *size;
	uint64_t len;          /* elements in a run */
	uint64_t item;         /* bytes in an element */
	uint64_t at, end, dst; /* elements of the box; bytes */
};

/* A contiguous range of the tensor's bytes, and its place in the result. */
struct ofs_stretch {
	uint64_t off, end, dst;
};

/* Begin with elements [first, first + count) of the box (NULL: all of t), which
 * is borrowed. */
void ofs_runs_begin(struct ofs_runs *r, const struct ofs_catalog *cat,
    const struct ofs_tensor *t, const uint64_t *box, uint64_t first,
    uint64_t count);
/* The next run; false: there is none. */
bool ofs_runs_next(struct ofs_runs *r, struct ofs_stretch *s);

#endif
