/* stats_impl.h - declarations shared by the files of statistics */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_STATS_IMPL_H
#define OFS_STATS_IMPL_H

#include <math.h>

#include "stats/rows.h"
#include "stats/stats.h"

/* Exponents of doubles, with those of denormal numbers. */
#define OFS_EXPONENT_MIN (-1074)
#define OFS_NEXPONENTS   2098

/* Exponents are counted as they are stored. Neighbours often have equal ones, so
 * several tables are used: no increment waits for the previous one. */
#define OFS_TABLES 8

/* Sums of finite numbers. */
struct ofs_stats_sums {
	uint64_t n;
	double sum, l1, squares, spread;
};

/* Counts do not depend on any order; the sums form a tree. */
struct ofs_stats {
	const struct ofs_rows *rows;
	enum ofs_dtype dtype;
	unsigned numbers; /* numbers in an element */
	size_t size;      /* size of a number in bytes */
	uint64_t elements;
	uint64_t nan, inf, zeros, denormals;
	uint64_t first_nan, first_inf; /* numbers */
	/* For a dtype with few codes: the count of each. */
	unsigned bits;
	const double *values;
	uint64_t *code;
	uint16_t *odd; /* codes that are not finite */
	size_t nodd;
	/* For other dtypes. If bit k of blocks is set, level[k] is a sum of 2^k
	 * blocks. */
	uint64_t blocks;
	struct ofs_stats_sums level[64];
	double min, max;
	unsigned top;                  /* the stored exponent of NaN and Inf */
	uint64_t (*raw)[OFS_TABLES];   /* count of each stored exponent */
	uint64_t tiny[OFS_NEXPONENTS]; /* exponents of denormal numbers */
};

/* The exponent of a number that is not 0. */
static inline int ofs_stats_exponent(double v)
{
	int e;

	frexp(v, &e);
	return e - 1;
}

/* stats_codes.c: members bits to nodd of struct ofs_stats. */
/* Sets odd and nodd. -1: no memory. */
int ofs_stats_codes_find_odd(struct ofs_stats *s);
/* Counts n numbers, of which the first is number at of the tensor. */
void ofs_stats_codes_add(struct ofs_stats *s, const uint8_t *p, size_t n,
    uint64_t at);
void ofs_stats_codes_result(const struct ofs_stats *s,
    struct optimfs_statistics *out, uint64_t *exponent);

/* result.c */
/* The sums of the numbers of a, then b. The spread of both includes the difference
 * of the means. */
struct ofs_stats_sums ofs_stats_add_sums(const struct ofs_stats_sums *a,
    const struct ofs_stats_sums *b);
void ofs_stats_set_sums(struct optimfs_statistics *s,
    struct ofs_stats_sums sums);
/* Derives the values that follow from the sums. */
void ofs_stats_derive(struct optimfs_statistics *s);
/* Stores the histogram from its first to its last non-empty bucket. */
int ofs_stats_histogram(struct optimfs_statistics *s,
    const uint64_t exponent[OFS_NEXPONENTS], struct optimfs_error *err);

#endif
