/* analyze.h - what is in a checkpoint: statistics, health, differences */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OPTIMFS_ANALYZE_H
#define OPTIMFS_ANALYZE_H

#include "optimfs/optimfs.h"
#include "optimfs/statistics.h"

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default)

/* All of these read through the tree of fs: what a writer has staged counts.
 * Memory is a few MiB a thread, whatever the tensors. Strings that a callback
 * gets are good until it returns; callbacks come from the thread that called. */

/* How the reading is done. Zero is the default of every member. */
struct optimfs_scan {
	unsigned jobs; /* threads; 0: one a processor, 16 at most */
	/* Told now and then, by the thread that called. NULL. */
	void (*progress)(void *ctx, uint64_t bytes, uint64_t total);
	/* Asked now and then, on any thread: true ends the work with
	 * ECANCELED. NULL. */
	bool (*stop)(void *ctx);
	void *ctx;
};

/* A tensor with dimensions. */
struct optimfs_tensor {
	const char *path; /* below the root */
	uint64_t node;
	const char *dtype, *shape; /* as the attributes have them */
	uint64_t elements, bytes;
	int rank; /* whose part of it; -1: all of it */
};

/* Called for each tensor in the order of the tree; s is NULL where it could not
 * be read, and err says why. Not 0: stop. */
typedef int optimfs_tensor_fn(void *ctx, const struct optimfs_tensor *t,
    const struct optimfs_statistics *s, const struct optimfs_error *err);

/* Statistics of all tensors at and below a path of the tree; with ranks each
 * rank's part of each of them instead. */
int optimfs_statistics_tree(struct optimfs *fs, const char *path, bool ranks,
    const struct optimfs_scan *work, optimfs_tensor_fn *each, void *ctx,
    struct optimfs_error *err);

/* Where one element of a tensor is stored. */
struct optimfs_location {
	uint64_t element; /* of the tensor, in C order */
	int rank;         /* -1: not known */
	char *file;       /* of the checkpoint; malloc'ed */
	uint64_t offset;  /* of the element; with encoded: of what is decoded */
	bool encoded;
};

/* Of element index of the tensor at a path, or of what a rank has of it
 * (rank >= 0). */
int optimfs_locate(struct optimfs *fs, const char *path, int rank,
    uint64_t index, struct optimfs_location *where, struct optimfs_error *err);

/* What a rank has of a tensor: the bytes of all shards that it wrote, copies
 * that others have too included. */
struct optimfs_holding {
	int rank;
	uint64_t bytes;
	bool missing;     /* a file of it is not there */
	const char *file; /* the first; of the checkpoint */
};

/* Called for each rank that has some, in ascending order. Not 0: stop. */
typedef int optimfs_holding_fn(void *ctx, const struct optimfs_holding *h);

/* Of the tensor at a path. It is the index that says so: nothing is read.
 * Returns what stopped it, -1 on failure. */
int optimfs_holdings(struct optimfs *fs, const char *path,
    optimfs_holding_fn *each, void *ctx, struct optimfs_error *err);

/* What is no difference: |x - y| <= atol + rtol * max(|x|, |y|), of finite x
 * and y. */
struct optimfs_tolerance {
	double rtol, atol;
};

/* How far two tensors are from each other. Of complex elements the parts are
 * numbers. */
struct optimfs_comparison {
	uint64_t elements;
	uint64_t differ, first;  /* elements that do, beyond the tolerance */
	uint64_t nan_a, nan_b;   /* of those: NaN in one only */
	uint64_t inf_a, inf_b;   /* infinite in one only */
	uint64_t finite;         /* numbers that have a difference */
	double max_abs, max_rel; /* the greatest of them */
	uint64_t at;             /* the element with the greatest */
	uint64_t ulps;           /* the greatest; UINT64_MAX: not known */
	/* Sums over finite numbers: of squared differences and values, and of
	 * products. Zero where all bytes are equal. */
	double square, square_a, square_b, dot;
	double rms;    /* of the differences, beside that of a's values */
	double cosine; /* NaN where one is zero, or squares are too large */
};

/* Compare tensors of one type and shape (EINVAL: they are not), by their nodes.
 * within: NULL is no tolerance. */
int optimfs_compare(struct optimfs *a, uint64_t x, struct optimfs *b,
    uint64_t y, const struct optimfs_tolerance *within,
    const struct optimfs_scan *how, struct optimfs_comparison *out,
    struct optimfs_error *err);

/* Something that no correct run leaves behind, or may not. */
struct optimfs_symptom {
	int number;        /* OFSnnn of docs/errors.md */
	const char *path;  /* of the tree */
	const char *text;  /* what was found; begins with the code */
	const char *means; /* and what it means, and what to do */
};
/* What is known of a parameter that an optimizer of the Adam family trains. */
struct optimfs_parameter {
	const char *path; /* of the directory that has its states */
	uint64_t elements, step;
	/* Of the next update and of the weights: the root mean square; NaN
	 * where something for it is missing. */
	double update, weight;
	uint64_t rows, dead_rows; /* dead: all moments are zero */
};
/* How much was looked at. */
struct optimfs_checked {
	uint64_t parameters; /* that an optimizer has state of */
	uint64_t tensors; /* of the optimizers and the model, that were read */
	uint64_t unread;  /* and that this version cannot read: OFS216 */
};
/* Members that are NULL are not called. Symptoms come after parameters, those
 * that matter most first. */
struct optimfs_checkup {
	void (*symptom)(void *ctx, const struct optimfs_symptom *s);
	void (*parameter)(void *ctx, const struct optimfs_parameter *p);
	void *ctx;
	void (*checked)(void *ctx, const struct optimfs_checked *n); /* last */
};

/* Is the state of the optimizers one that training leaves? *found gets the
 * number of symptoms. */
int optimfs_check(struct optimfs *fs, const struct optimfs_scan *how,
    const struct optimfs_checkup *out, uint64_t *found,
    struct optimfs_error *err);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif

#endif
