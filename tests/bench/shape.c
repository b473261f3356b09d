/* shape.c - the tensors of a generated checkpoint, and their sharding */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "shape.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "le.h"
#include "sink.h"

static const char *const state_names[] = { "", "exp_avg", "exp_avg_sq",
	"step" };
static const char path_model[] = "model", path_optim[] = "optim";
static const char path_state[] = "state";
#define PER_PARAM 4 /* with optim */
#define STEP      3

/* AdamW's options in its order, pickled at protocol 2; params is last. */
static const struct {
	const char *name, *pickle;
	size_t len;
} options[] = {
	{ "lr", "\x80\2G?PbM\xd2\xf1\xa9\xfc.", 12 }, /* 0.001 */
	{ "betas",
	    "\x80\2G?\xec\xcc\xcc\xcc\xcc\xcc\xcd"
	    "G?\xef\xf7\xce\xd9\x16\x87+\x86q\0.",
	    24 },
	{ "eps", "\x80\2G>Ey\x8e\xe2\x30\x8c:.", 12 },
	{ "weight_decay", "\x80\2G?\x84z\xe1G\xae\x14{.", 12 }, /* 0.01 */
	{ "amsgrad", "\x80\2\x89.", 4 },
	{ "maximize", "\x80\2\x89.", 4 },
	{ "foreach", "\x80\2N.", 4 },
	{ "capturable", "\x80\2\x89.", 4 },
	{ "differentiable", "\x80\2\x89.", 4 },
	{ "fused", "\x80\2N.", 4 },
	{ "decoupled_weight_decay", "\x80\2\x88.", 4 },
	{ "params", NULL, 0 },
};
#define NOPTIONS (sizeof(options) / sizeof(options[0]))

/* Part k of n of a dimension, as torch.chunk splits it: the last parts may be short
 * or empty. Empty parts are equal, so only one of them is stored. */
static uint64_t nparts_of(uint64_t size, uint64_t n)
{
	uint64_t each = (size + n - 1) / n;
	uint64_t full = each == 0 ? 0 : (size + each - 1) / each;

	return full < n ? full + 1 : n;
}

static void cut(uint64_t size, uint64_t n, uint64_t k, uint64_t *off,
    uint64_t *len)
{
	uint64_t each = (size + n - 1) / n;

	*off = k * each < size ? k * each : size;
	*len = size - *off < each ? size - *off : each;
}

void checkpoint_init(struct checkpoint *c)
{
	uint64_t n = c->cut == 0 ? c->ranks : c->cut;

	c->ntensors = c->params * (c->optim ? PER_PARAM : 1);
	if (c->sharding == GRID && c->grid[0] * c->grid[1] != c->ranks)
		die("a grid of %" PRIu64 "x%" PRIu64 " needs as many ranks",
		    c->grid[0], c->grid[1]);
	if (c->sharding == REPLICATED || c->ndim == 0) {
		c->sharding = REPLICATED;
		c->grid[0] = c->grid[1] = 1;
	} else if (c->sharding == ROWS) {
		c->grid[0] = n;
		c->grid[1] = 1;
	} else if (c->sharding == COLUMNS) {
		c->grid[0] = 1;
		c->grid[1] = n;
	}
	if (c->grid[1] > 1 && c->ndim < 2)
		die("columns of a tensor of %zu dimensions", c->ndim);
	c->nparts = 1;
	if (c->grid[0] > 1)
		c->nparts = nparts_of(c->shape[0], c->grid[0]);
	if (c->grid[1] > 1)
		c->nparts *= nparts_of(c->shape[c->ndim - 1], c->grid[1]);
}

void checkpoint_box(const struct checkpoint *c, uint64_t k, struct box *b)
{
	uint64_t columns = 1;
	size_t last = c->ndim - 1;

	*b = (struct box){ .ndim = c->ndim };
	memcpy(b->shape, c->shape, sizeof(b->shape));
	memcpy(b->size, c->shape, sizeof(b->size));
	if (c->grid[1] > 1) {
		columns = nparts_of(c->shape[last], c->grid[1]);
		cut(c->shape[last], c->grid[1], k % columns, &b->offset[last],
		    &b->size[last]);
	}
	if (c->grid[0] > 1)
		cut(c->shape[0], c->grid[0], k / columns, &b->offset[0],
		    &b->size[0]);
}

uint64_t checkpoint_first_part(const struct checkpoint *c, uint64_t t,
    uint32_t rank)
{
	/* The ranks write replicated tensors in turn. */
	if (c->nparts == 1)
		return t % c->ranks == rank ? 0 : 1;
	return rank;
}

bool checkpoint_is_step(const struct checkpoint *c, uint64_t t)
{
	return c->optim && t % PER_PARAM == STEP;
}

uint64_t checkpoint_number(const struct checkpoint *c, uint64_t t)
{
	return c->optim ? t : t * PER_PARAM;
}

void checkpoint_fqn(uint64_t param, char fqn[NAME_SIZE])
{
	static const char *const module[] = { "attention.wq", "attention.wk",
		"attention.wv", "attention.wo", "feed_forward.w1",
		"feed_forward.w2", "feed_forward.w3", "norm" };

	snprintf(fqn, NAME_SIZE, "layers.%" PRIu64 ".%s.weight", param / 8,
	    module[param % 8]);
}

size_t checkpoint_path(const struct checkpoint *c, uint64_t t,
    char fqn[NAME_SIZE], const char *part[4])
{
	uint64_t kind = c->optim ? t % PER_PARAM : 0;

	checkpoint_fqn(c->optim ? t / PER_PARAM : t, fqn);
	if (kind == 0) {
		part[0] = path_model;
		part[1] = fqn;
		return 2;
	}
	part[0] = path_optim;
	part[1] = path_state;
	part[2] = fqn;
	part[3] = state_names[kind];
	return 4;
}

void checkpoint_key(const struct checkpoint *c, uint64_t t, char key[NAME_SIZE])
{
	char fqn[NAME_SIZE];
	const char *part[4];
	size_t n = checkpoint_path(c, t, fqn, part), len = 0;

	for (size_t i = 0; i < n; i++)
		len += (size_t)snprintf(key + len, NAME_SIZE - len, "%s%s",
		    i == 0 ? "" : ".", part[i]);
}

size_t checkpoint_nobjects(const struct checkpoint *c)
{
	return c->optim ? NOPTIONS : 0;
}

const char *checkpoint_option(size_t i)
{
	return options[i].name;
}

/* The list of the group's parameters. */
static void put_params(const struct checkpoint *c, struct ofs_buf *b)
{
	char fqn[NAME_SIZE];

	ofs_buf_put(b, "\x80\2]q\0", 5);
	for (uint64_t i = 0; i < c->params; i++) {
		if (i % 1000 == 0)
			ofs_buf_puts(b, i == 0 ? "(" : "e(");
		checkpoint_fqn(i, fqn);
		ofs_buf_putc(b, 'X');
		put_le(b, strlen(fqn), 4);
		ofs_buf_puts(b, fqn);
		ofs_buf_putc(b, i + 1 < 256 ? 'q' : 'r');
		put_le(b, i + 1, i + 1 < 256 ? 1 : 4);
	}
	ofs_buf_puts(b, c->params > 0 ? "e." : ".");
}

void checkpoint_object(const struct checkpoint *c, size_t i, struct ofs_buf *b)
{
	if (options[i].pickle == NULL)
		put_params(c, b);
	else
		ofs_buf_put(b, options[i].pickle, options[i].len);
}

/* Each parameter's items: three tensors of nparts, then its step. */
uint64_t checkpoint_item(const struct checkpoint *c, uint64_t t, uint64_t part)
{
	uint64_t steps = c->optim ? t / PER_PARAM : 0;

	return (t - steps) * c->nparts + steps + part;
}

uint64_t checkpoint_nitems(const struct checkpoint *c)
{
	return checkpoint_item(c, c->ntensors, checkpoint_nobjects(c));
}
