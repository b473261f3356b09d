/* layout.h - random tensors, cut and stored at random, for property tests */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TEST_LAYOUT_H
#define TEST_LAYOUT_H

#include <stdbool.h>
#include <stdint.h>

#include "catalog/catalog.h"
#include "plan/plan.h"
#include "random.h"

/* n bytes from rng, malloc'ed. */
uint8_t *random_bytes(uint64_t *rng, size_t n);

#define LAYOUT_DIMS 5

struct layout_box {
	uint64_t lo[LAYOUT_DIMS], size[LAYOUT_DIMS];
};

/* A tensor's shape and how it is cut. */
struct layout {
	unsigned int ndim;
	uint64_t shape[LAYOUT_DIMS];
	enum ofs_dtype dtype;
	struct layout_box *box;
	uint32_t n, cap;
};

enum layout_kind {
	LAYOUT_WHOLE,
	LAYOUT_ROWS,
	LAYOUT_COLUMNS,
	LAYOUT_GRID,
	LAYOUT_CUTS, /* cut in two anywhere, and the parts again */
	LAYOUT_KINDS
};

uint64_t layout_numel(const uint64_t *size, unsigned int ndim);
void layout_add(struct layout *l, const uint64_t *lo, const uint64_t *size);
/* A shape of 0 to LAYOUT_DIMS dims and a type; no boxes yet. */
void layout_shape(struct layout *l, uint64_t *rng);
void layout_cut(struct layout *l, enum layout_kind kind, uint64_t *rng);
/* Shuffle the boxes. */
void layout_shuffle(struct layout *l, uint64_t *rng);
void layout_fini(struct layout *l);

/* A catalog of one tensor whose shards are in memory, each in its own object and
 * with its own strides. */
struct stored {
	struct ofs_catalog *cat;
	const struct ofs_tensor *t;
	uint8_t **bytes;          /* of each object */
	uint64_t *len;            /* their number */
	struct ofs_place **place; /* of each object */
	uint32_t n;
	size_t item;
	uint32_t asked; /* how often stored_place was called */
};

/* Store numel elements at bytes as l says. mixed: strides in any order of
 * dimensions, with gaps. Calls bail_out on failure. */
void stored_init(struct stored *s, const struct layout *l, const uint8_t *bytes,
    bool mixed, uint64_t *rng);
void stored_fini(struct stored *s);
/* An ofs_place_fn; ctx is the struct stored. */
const struct ofs_place *stored_place(void *ctx, const struct ofs_tensor *t,
    uint32_t shard, struct optimfs_error *err);
/* Execute a plan. count, if not NULL, counts the writes to each byte of dst. */
void stored_run(const struct stored *s, const struct ofs_plan *plan,
    uint8_t *dst, uint8_t *count);

#endif
