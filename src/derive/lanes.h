/* lanes.h - vectorised arithmetic of sums */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_DERIVE_LANES_H
#define OFS_DERIVE_LANES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Numbers are handled in rows of so many. */
#define OFS_ROW 8

/* A floating type of one or two bytes: m bits of fraction, 2^emin the smallest
 * normal number. A code without its sign bit is less than another one if its
 * value is. */
struct ofs_short {
	uint8_t bytes;
	int m, emin;
	uint32_t max, over, nan; /* codes; over: what is too large */
	bool signed_nan;         /* NaN keeps its sign */
	bool minus;              /* a NaN is in the place of minus zero */
};

/* Elements that are added. */
enum ofs_lane {
	OFS_LANE_DOUBLE,
	OFS_LANE_FLOAT,
	OFS_LANE_HALF,
	OFS_LANE_BFLOAT,
	OFS_NLANES
};

/* Operations on rows of OFS_ROW numbers; elements are in the byte order of the
 * machine. All variants give the same bits. */
struct ofs_lanes {
	const char *name;
	/* sum[i] += weight * x[i]; first: sum[i] = weight * x[i], which keeps
	 * minus zeros */
	void (*add[OFS_NLANES])(const void *x, size_t rows, double weight,
	    bool first, double *sum);
	/* The same of n sources, pitch bytes apart, times by, or with divide
	 * divided by it, and rounded to float32: in one pass. NULL for lanes of
	 * doubles. */
	void (*total[OFS_NLANES])(const void *x, size_t pitch,
	    const double *weight, size_t n, size_t rows, double by, bool divide,
	    void *out);
	void (*multiply)(double *v, size_t rows, double by);
	void (*divide)(double *v, size_t rows, double by);
	/* To nearest, ties to even: as float32, and as a short type. */
	void (*to_float)(const double *v, size_t rows, void *out);
	void (*to_short)(const struct ofs_short *t, const double *v,
	    size_t rows, void *out);
};

/* The variants that this machine supports, the fastest first; NULL after the
 * last. */
const struct ofs_lanes *ofs_lanes(unsigned i);

#endif
