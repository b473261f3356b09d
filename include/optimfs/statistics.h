/* statistics.h - statistics of the elements of a tensor */
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

/* Statistics depend only on the elements and their order: they are equal to the
 * last bit for any layout, number of threads and size of reads. All counts but
 * elements are counts of numbers: a complex element is two numbers, an element
 * of a bit type is none. Sums, min and max are those of the finite numbers. */
struct optimfs_statistics {
	uint64_t tensors; /* 1; for a directory, the number below it */
	uint64_t elements;
	uint64_t finite, nan, inf, zeros, denormals;
	double min, max; /* NaN when no number is finite */
	double sum, l1, squares;
	double spread; /* sum of squared differences from the mean */
	/* Derived from these: std = sqrt(spread / finite), l2 = sqrt(squares),
	 * linf = max(|min|, |max|), rms = sqrt(squares / finite). */
	double mean, std, l2, linf, rms;
	/* Indexes of elements in C order, for a single tensor;
	 * OPTIMFS_NO_INDEX: there is none. */
	uint64_t first_nan, first_inf;
	/* XXH3 of the bytes; 0 for a directory, and for a tensor of which more
	 * than 1 GiB is not stored: holes of files, or repeated elements */
	uint64_t xxh3;
	/* A histogram: exponent[i] numbers have 2^e <= |x| < 2^(e + 1), where
	 * e = exponent_first + i. malloc'ed. */
	int exponent_first;
	unsigned nexponents;
	uint64_t *exponent;
};

struct optimfs_scan; /* optimfs/analyze.h */

/* The statistics of the tensor at a path of the tree, or the sums over all
 * tensors below a directory. EINVAL: it is a text file; ECANCELED: how->stop
 * ended it. how may be NULL. *s needs optimfs_statistics_fini, but not after a
 * failure. */
int optimfs_statistics(struct optimfs *fs, const char *path,
    const struct optimfs_scan *how, struct optimfs_statistics *s,
    struct optimfs_error *err);
void optimfs_statistics_fini(struct optimfs_statistics *s);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif

#endif
