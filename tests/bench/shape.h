/* shape.h - the tensors of a generated checkpoint, and their sharding */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SHAPE_H
#define SHAPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "content.h"
#include "item.h"

#define PATH_SIZE 4096
#define NAME_SIZE 128

/* Where an item was written. */
struct place {
	uint64_t off, len;
	uint32_t rank, file;
};

struct checkpoint {
	const char *dir;
	uint64_t params;
	uint64_t shape[MAX_DIMS];
	size_t ndim;
	uint32_t ranks, files;
	uint64_t cut; /* parts as given; 0: one per rank */
	uint64_t grid[2];
	enum { ROWS, COLUMNS, GRID, REPLICATED } sharding;
	struct content content;
	int level; /* of zstd; 0: none */
	bool optim, crc, file_an_item, sparse;

	/* The rest is known after _init. */
	uint64_t ntensors;   /* model and optimizer state */
	uint64_t nparts;     /* of each tensor that is not a scalar */
	struct place *place; /* by item */
};

/* Tensors are numbered parameter by parameter: its weight and, with optim,
 * exp_avg, exp_avg_sq, step. Behind them come the objects. */
void checkpoint_init(struct checkpoint *c);
bool checkpoint_is_step(const struct checkpoint *c, uint64_t t);
/* The number from which a tensor's content is generated. */
uint64_t checkpoint_number(const struct checkpoint *c, uint64_t t);
/* Flat key ("optim.state.a.exp_avg") and the components of its path, of which
 * fqn is one and the others are literals. */
void checkpoint_key(const struct checkpoint *c, uint64_t t,
    char key[NAME_SIZE]);
size_t checkpoint_path(const struct checkpoint *c, uint64_t t,
    char fqn[NAME_SIZE], const char *part[4]);
void checkpoint_fqn(uint64_t param, char fqn[NAME_SIZE]);

/* Part k of a tensor; nparts of them in the order of the ranks. */
void checkpoint_box(const struct checkpoint *c, uint64_t k, struct box *b);
/* The first part that a rank wrote; every ranks-th after it is its too. */
uint64_t checkpoint_first_part(const struct checkpoint *c, uint64_t t,
    uint32_t rank);

/* Options of the one parameter group: name, and pickled value. */
size_t checkpoint_nobjects(const struct checkpoint *c);
const char *checkpoint_option(size_t i);
void checkpoint_object(const struct checkpoint *c, size_t i, struct ofs_buf *b);

/* Items: the parts of all tensors (one for a step), then the objects. */
uint64_t checkpoint_nitems(const struct checkpoint *c);
uint64_t checkpoint_item(const struct checkpoint *c, uint64_t t, uint64_t part);

#endif
