/* health.h - examine the elements of states */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_ANALYZE_HEALTH_H
#define OFS_ANALYZE_HEALTH_H

#include "analyze/tensors.h"

/* A count, and the first element. */
struct ofs_count {
	uint64_t n, first;
};

enum ofs_exam_kind {
	OFS_EXAM_ONE,    /* one tensor: NaN, infinite or negative numbers */
	OFS_EXAM_ADAM,   /* first and second moments, and weights */
	OFS_EXAM_BOUND,  /* a moment and its bound */
	OFS_EXAM_MASTER, /* weights of the optimizer and of the model */
};

/* Tensors of equal size that are examined together. */
struct ofs_exam {
	enum ofs_exam_kind kind;
	unsigned nfiles;
	const struct ofs_file_info *file[3];
	const double *codes[3];
	size_t param; /* SIZE_MAX: none */
	bool no_negative, no_infinite;
	/* OFS_EXAM_ONE: elements at multiples of stride may not be negative and
	 * are summed. For the diagonal of a matrix it is the number of columns
	 * plus one. */
	uint64_t stride;
	/* For a first moment: the limit of its square, as a multiple of the
	 * second moment or of its square; 0: unknown. underflow: what v may
	 * have lost by underflow. */
	double bound, underflow;
	bool square;
	/* For the update. */
	double lr, eps, correct[2];
	double tolerance; /* relative, of weights */
	uint64_t row;     /* elements in a row; 0: no rows */

	/* Results. */
	struct ofs_count odd[3], negative, broken, orphan, differ;
	double update, weight; /* sums of squares */
	double sum, squares;
	uint64_t run; /* consecutive dead elements so far */
	uint64_t dead_rows;
	struct optimfs_error *why; /* malloc'ed; NULL: it can be read */
};

/* The results of a chunk. */
struct ofs_finding {
	struct ofs_count odd[3], negative, broken, orphan, differ;
	double update, weight, sum, squares;
	bool zeros; /* some v is zero */
};

/* Examines n elements from first on. */
void ofs_examine(const struct ofs_exam *e, const void *const buf[],
    uint64_t first, size_t n, struct ofs_finding *found);
/* Adds the results of the next chunk to e, times times: then all elements of a
 * file are equal. */
void ofs_exam_join(struct ofs_exam *e, const struct ofs_finding *found,
    const void *const buf[], uint64_t first, size_t n, uint64_t times);

#endif
