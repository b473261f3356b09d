/* health.h - what is looked for in the elements of states */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_ANALYZE_HEALTH_H
#define OFS_ANALYZE_HEALTH_H

#include "analyze/tensors.h"

/* How often something was found, and in which element first. */
struct ofs_count {
	uint64_t n, first;
};

enum ofs_exam_kind {
	OFS_EXAM_ONE,    /* one tensor: numbers that are none, or negative */
	OFS_EXAM_ADAM,   /* first and second moment, and weights */
	OFS_EXAM_BOUND,  /* a moment, and what bounds it */
	OFS_EXAM_MASTER, /* weights of the optimizer's and of the model */
};

/* One or more tensors with equally many elements that are looked at together. */
struct ofs_exam {
	enum ofs_exam_kind kind;
	unsigned nfiles;
	const struct ofs_file_info *file[3];
	const double *codes[3];
	size_t param; /* SIZE_MAX: of none */
	bool no_negative, no_infinite;
	/* Of OFS_EXAM_ONE: the elements that may not be negative and are added
	 * up are multiples of this. A matrix's diagonal has its columns and
	 * one. */
	uint64_t stride;
	/* Of a first moment: what its square may be, as a multiple of the
	 * second, or of its square; 0: not known. What v may have lost by
	 * underflow. */
	double bound, underflow;
	bool square;
	/* Of the update. */
	double lr, eps, correct[2];
	double tolerance; /* of weights, relative */
	uint64_t row;     /* elements; 0: no rows */

	/* What was found. */
	struct ofs_count odd[3], negative, broken, orphan, differ;
	double update, weight; /* sums of squares */
	double sum, squares;
	uint64_t run; /* dead elements up to here */
	uint64_t dead_rows;
	int error; /* errno; 0: it was read */
	char *why;
};

/* What a thread finds in a chunk. */
struct ofs_finding {
	struct ofs_count odd[3], negative, broken, orphan, differ;
	double update, weight, sum, squares;
	bool zeros; /* some v is */
};

/* Look at n elements from first on. */
void ofs_examine(const struct ofs_exam *e, const void *const buf[],
    uint64_t first, size_t n, struct ofs_finding *found);
/* Add to e what was found in its next chunk. */
void ofs_exam_join(struct ofs_exam *e, const struct ofs_finding *found,
    const void *const buf[], uint64_t first, size_t n);

#endif
