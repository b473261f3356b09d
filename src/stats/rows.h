/* rows.h - vectorised sums */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_STATS_ROWS_H
#define OFS_STATS_ROWS_H

#include <stdbool.h>
#include <stddef.h>

/* Numbers i, i + 8, i + 16 and so on are summed in one lane on every machine:
 * all variants give the same bits. */
#define OFS_LANES 8

struct ofs_columns {
	double sum[OFS_LANES], l1[OFS_LANES], squares[OFS_LANES];
};

/* Operations on rows of OFS_LANES finite numbers; floats are little-endian. */
struct ofs_rows {
	const char *name;
	void (*sum_floats)(const void *p, size_t rows, struct ofs_columns *c);
	void (*sum_doubles)(const void *p, size_t rows, struct ofs_columns *c);
	/* Is any number less than lo or greater than hi? */
	bool (*floats_beyond)(const void *p, size_t rows, double lo, double hi);
	bool (*doubles_beyond)(const void *p, size_t rows, double lo,
	    double hi);
};

/* The variants that this machine supports, the fastest first; NULL after the
 * last. */
const struct ofs_rows *ofs_rows(unsigned i);

#endif
