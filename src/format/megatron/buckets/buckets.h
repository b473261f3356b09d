/* buckets.h - which parameter is where in a flat bucket: the rules, without I/O */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FORMAT_MEGATRON_BUCKETS_H
#define OFS_FORMAT_MEGATRON_BUCKETS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "optimfs/error.h"

#include "base/dtype.h"
#include "base/types.h"

/* A bucket has no names (docs/formats/megatron.md). They follow from three
 * things, each of which is a file here:
 *
 *   walk.c    A parameter begins at a multiple of 64 elements, and ends where a
 *             chunk does. So the lengths of the parameters that this rank may
 *             have say where one ends and the next begins.
 *   proof.c   The float32 copy of a parameter, rounded, is the weight that the
 *             same checkpoint has by name.
 *   order.c   A buffer has its parameters in the reverse order of their
 *   chain.c   registration. That decides between equal weights, such as norms
 *             that are all ones, and shows that something is wrong where the
 *             proof contradicts it.
 *
 * What they do not decide stays without a name. */

/* Parameters begin at multiples of it. */
#define OFS_BUCKET_ALIGN 64

/* A chunk of a bucket: a parameter, or a gap between two, or a part of one that
 * ends where the share of a data-parallel rank does. */
struct ofs_bucket_chunk {
	uint64_t off, len;
	int rank; /* that wrote it; -1: unknown */
};

/* Part of a bucket that holds one parameter. */
struct ofs_bucket_slice {
	uint64_t off, len;
};

/* Is there a parameter of this length whose weight is that of the slice? 1, 0,
 * or -1 (err). Asked only where lengths allow several slices. */
typedef int ofs_bucket_holds_fn(void *ctx, struct ofs_bucket_slice slice,
    struct optimfs_error *err);

struct ofs_bucket_walk {
	/* in order; if they leave out or share elements, it is no bucket */
	const struct ofs_bucket_chunk *chunk;
	uint32_t nchunks;
	const uint64_t *len; /* of the parameters: ascending, different */
	uint32_t nlens;
	ofs_bucket_holds_fn *holds; /* NULL: no proof is possible */
	void *ctx;
	/* Chunks that may still be looked at, more than once: a bucket whose
	 * every chunk is of another rank would take quadratic time. When it is
	 * used up, no division is found. */
	uint64_t *budget;
};

/* The slices of a bucket; malloc'ed. Where lengths and proof allow several
 * divisions, only the slices that all of them have; then *whole is false, and
 * also if no division is possible. Fails with ENOMEM, or as holds. */
int ofs_bucket_walk(const struct ofs_bucket_walk *w,
    struct ofs_bucket_slice **slice, uint32_t *n, bool *whole,
    struct optimfs_error *err);

/* The proof compares a sample of at most OFS_BUCKET_SAMPLE elements: runs at
 * the start, in the middle, and at the end. */
#define OFS_BUCKET_RUNS   3
#define OFS_BUCKET_RUN    128
#define OFS_BUCKET_SAMPLE (OFS_BUCKET_RUNS * OFS_BUCKET_RUN)

/* Sets the runs of a parameter of len elements, and returns their number. */
unsigned int ofs_bucket_runs(uint64_t len,
    struct ofs_bucket_slice run[OFS_BUCKET_RUNS]);
/* Can weights of this type be compared with their float32 copies? */
bool ofs_bucket_rounds_to(enum ofs_dtype t);
/* Rounds n float32 elements to such a type: to nearest, ties to even, or up
 * with ties_up, as a fused kernel does (bfloat16 only). False: there is no tie,
 * so that both give the same. */
bool ofs_bucket_round(const void *master, size_t n, enum ofs_dtype to,
    bool ties_up, void *out);
/* Do two samples of n float32 elements agree but for the rounding of weights
 * to 8 bits or less? */
bool ofs_bucket_near(const float *a, const float *b, size_t n);

/* The name of a parameter, and what it says about the order of registration. */
struct ofs_bucket_param {
	struct ofs_str key;
	uint64_t layer, expert; /* UINT64_MAX: none */
	/* the key up to the number of the layer, and after it: parameters of
	 * one kind have the same */
	struct ofs_str head, tail;
	uint32_t prefix; /* length of what precedes the known part of head */
	/* in the tables of order.c */
	uint8_t top, module, fused_module, last;
	bool second; /* the second matrix of an expert */
};

/* key is borrowed. output: it is the copy of the embedding that is the output
 * layer of the last stage. */
void ofs_bucket_param_init(struct ofs_bucket_param *a, struct ofs_str key,
    uint64_t layer, uint64_t expert, bool output);

/* The ways in which Megatron-Core orders a layer; their keys are the same. */
#define OFS_BUCKET_FORMS 4

/* Compares two parameters by their order of registration in a form. */
int ofs_bucket_order(const struct ofs_bucket_param *a,
    const struct ofs_bucket_param *b, unsigned int form);
/* Is that order known? Not if they are in one layer, and one is of a module
 * that Megatron-Core has not. */
bool ofs_bucket_ordered(const struct ofs_bucket_param *a,
    const struct ofs_bucket_param *b);

/* What a slice may be: numbers, ascending. */
struct ofs_bucket_options {
	const uint32_t *v;
	uint32_t n;
};

/* Choose a number for each of n slices, so that the numbers ascend; where that
 * is impossible, for as many as possible. only[i] gets the number of slice i if
 * all such choices have it, else OFS_NONE. *whole: each slice has a number in
 * them. ENOMEM. */
int ofs_bucket_chain(const struct ofs_bucket_options *slice, uint32_t n,
    uint32_t *only, bool *whole, struct optimfs_error *err);

#endif
