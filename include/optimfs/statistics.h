/* statistics.h - what the elements of a tensor are like, in numbers */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OPTIMFS_STATISTICS_H
#define OPTIMFS_STATISTICS_H

#include <stdbool.h>
#include <stdint.h>

#include "optimfs/error.h"

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default)

struct optimfs;

#define OPTIMFS_NO_INDEX UINT64_MAX

/* Statistics depend on the elements and their order alone: they are equal to
 * the last bit for any layout, number of threads and size of reads. A complex
 * element is two numbers, and numbers are what is counted; the elements of
 * bit types are no numbers. Sums, min and max are of the finite ones. */
struct optimfs_statistics {
	uint64_t tensors; /* 1; of a directory: those below it */
	uint64_t elements;
	uint64_t finite, nan, inf, zeros, denormals;
	double min, max; /* NaN when no number is finite */
	double sum, l1, squares;
	double spread; /* sum of the squared differences from the mean */
	/* What follows from these. std is that of a population. */
	double mean, std, l2, linf, rms;
	/* Elements, OPTIMFS_NO_INDEX: there is none. Of one tensor only. */
	uint64_t first_nan, first_inf;
	uint64_t xxh3; /* XXH3 of the bytes; 0 for a directory */
	/* exponent[i] numbers have 2^e <= |x| < 2^(e + 1) with
	 * e = exponent_first + i. malloc'ed. */
	int exponent_first;
	unsigned nexponents;
	uint64_t *exponent;
};

/* Of the tensor at a path of the tree, or of all tensors below a directory.
 * EINVAL: it is text. The caller's to _fini. */
int optimfs_statistics(struct optimfs *fs, const char *path,
    struct optimfs_statistics *s, struct optimfs_error *err);
void optimfs_statistics_fini(struct optimfs_statistics *s);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif

#endif
