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

/* All functions read the tree of fs, including staged changes. They need a few
 * MiB of memory per thread, whatever the size of tensors. Strings passed to a
 * callback are valid until it returns. Callbacks are called by the calling
 * thread, unless their description says otherwise. */

/* How to read. The default of every member is zero. */
struct optimfs_scan {
	unsigned jobs; /* threads; 0: one per processor, at most 16 */
	/* Called regularly: bytes of total are read. May be NULL. */
	void (*progress)(void *ctx, uint64_t bytes, uint64_t total);
	/* Called regularly, from any thread: true ends the work with ECANCELED.
	 * May be NULL. */
	bool (*stop)(void *ctx);
	void *ctx;
};

/* A tensor with dimensions. */
struct optimfs_tensor {
	const char *path; /* below the root */
	uint64_t node;
	const char *dtype, *shape; /* as in the attributes of its file */
	uint64_t elements, bytes;
	int rank; /* the rank that has this part; -1: the whole tensor */
};

/* Called for each tensor in the order of the tree. s is NULL if it could not be
 * read; err then has the reason. A result other than 0 stops the work. */
typedef int optimfs_tensor_fn(void *ctx, const struct optimfs_tensor *t,
    const struct optimfs_statistics *s, const struct optimfs_error *err);

/* Statistics of the tensors at and below a path of the tree; with ranks, of
 * each rank's part of each tensor. Returns 0, the result of each that stopped
 * the work, or -1. */
int optimfs_statistics_tree(struct optimfs *fs, const char *path, bool ranks,
    const struct optimfs_scan *work, optimfs_tensor_fn *each, void *ctx,
    struct optimfs_error *err);

/* Where one element of a tensor is stored. */
struct optimfs_location {
	uint64_t element; /* of the tensor, in C order */
	int rank;         /* that wrote the file; -1: unknown */
	char *file;       /* of the checkpoint; malloc'ed */
	uint64_t offset;  /* in the file; with encoded, in the decoded item */
	bool encoded;
};

/* Find element index of the tensor at a path; with rank >= 0, element index of
 * the part that this rank has. */
int optimfs_locate(struct optimfs *fs, const char *path, int rank,
    uint64_t index, struct optimfs_location *where, struct optimfs_error *err);

/* The part of a tensor that a rank has: all shards that it wrote, including
 * copies that other ranks have, too. */
struct optimfs_holding {
	int rank;
	uint64_t bytes;
	bool missing;     /* a file with a part of it is missing */
	bool damaged;     /* some of it is missing, or past a file's end */
	const char *file; /* the first file with a part of it */
};

/* Called for each rank that has a part, in ascending order. A result other than
 * 0 stops the work. */
typedef int optimfs_holding_fn(void *ctx, const struct optimfs_holding *h);

/* The parts of the tensor at a path, from the index alone. Returns 0, the
 * result of each that stopped the work, or -1. */
int optimfs_holdings(struct optimfs *fs, const char *path,
    optimfs_holding_fn *each, void *ctx, struct optimfs_error *err);

/* Finite numbers x and y count as equal if
 * |x - y| <= atol + rtol * max(|x|, |y|). */
struct optimfs_tolerance {
	double rtol, atol;
};

/* The difference between two tensors a and b. A complex element is two
 * numbers. */
struct optimfs_comparison {
	uint64_t elements;
	uint64_t differ, first;  /* elements beyond the tolerance; the first */
	uint64_t nan_a, nan_b;   /* of them: NaN only in a, only in b */
	uint64_t inf_a, inf_b;   /* infinite only in a, only in b */
	uint64_t finite;         /* numbers that are finite in both */
	double max_abs, max_rel; /* largest differences of these */
	uint64_t at;             /* the element with max_abs */
	uint64_t ulps;           /* largest distance; UINT64_MAX: unknown */
	/* Sums over numbers that are finite in both: of squared differences, of
	 * squares, and of products. Zero if all bytes are equal. */
	double square, square_a, square_b, dot;
	double rms;    /* sqrt(square / square_a) */
	double cosine; /* NaN: one is zero, or squares overflow */
};

/* Compare the tensors at nodes x and y. EINVAL: their types or shapes differ.
 * within NULL: no tolerance. */
int optimfs_compare(struct optimfs *a, uint64_t x, struct optimfs *b,
    uint64_t y, const struct optimfs_tolerance *within,
    const struct optimfs_scan *how, struct optimfs_comparison *out,
    struct optimfs_error *err);

/* A finding: a state that a correct run does not leave, or seldom. */
struct optimfs_symptom {
	int number;        /* OFSnnn of docs/errors.md */
	const char *path;  /* path in the tree; "": the checkpoint */
	const char *text;  /* what was found; begins with "OFSnnn " */
	const char *means; /* what it means, and what to do */
	const struct optimfs_error *why; /* it cannot be read; or NULL */
};
/* A parameter trained by an optimizer of the Adam family. */
struct optimfs_parameter {
	const char *path; /* the directory with its states */
	uint64_t elements, step;
	/* Root mean square of the next update, lr * m_hat / (sqrt(v_hat) +
	 * eps), and of the weights. NaN: a value for it is missing. */
	double update, weight;
	uint64_t rows, dead_rows; /* dead: all moments of the row are zero */
};
/* How much was checked. */
struct optimfs_checked {
	uint64_t parameters; /* parameters with state */
	uint64_t tensors; /* tensors of optimizers and model that were read */
	uint64_t unread;  /* tensors that this version cannot read: OFS216 */
};
/* Callbacks for the results; each may be NULL. First all parameters, then the
 * symptoms, most important first, then checked. */
struct optimfs_checkup {
	void (*symptom)(void *ctx, const struct optimfs_symptom *s);
	void (*parameter)(void *ctx, const struct optimfs_parameter *p);
	void *ctx;
	void (*checked)(void *ctx, const struct optimfs_checked *n);
};

/* Check that the state of the optimizers is one that training can leave. *found
 * gets the number of symptoms. docs/analyze.md has the rules. */
int optimfs_check(struct optimfs *fs, const struct optimfs_scan *how,
    const struct optimfs_checkup *out, uint64_t *found,
    struct optimfs_error *err);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif

#endif
