/* format/megatron/read.c - stacks, blocks and common state of Megatron-Core */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "optimfs/optimfs.h"

#include "random.h"
#include "support/dcp_writer.h"
#include "support/listing.h"
#include "support/pickle_writer.h"
#include "support/truth.h"
#include "tap.h"

static uint64_t seed = 20261121;

/* 0 to n - 1. */
static unsigned int rnd(unsigned int n)
{
	return (unsigned int)tap_below(&seed, n);
}

/* Checkpoints that the test makes. */

struct made {
	char dir[64];
	struct ofs_buf file;
	struct mk_index index;
	char key[8][96];
};

static void made_init(struct made *m)
{
	memset(m, 0, sizeof(*m));
	mk_dir(m->dir);
	m->index.generation = MK_MEGATRON;
	m->index.planner = MK_NO_PLANNER;
}

static void made_fini(struct made *m)
{
	ofs_buf_fini(&m->file);
	mk_remove(m->dir);
}

static struct mk_tensor *made_tensor(struct made *m, const char *key,
    struct mk_dims size)
{
	int i = m->index.ntensors++;
	struct mk_tensor *t = &m->index.tensor[i];

	snprintf(m->key[i], sizeof(m->key[i]), "%s", key);
	*t = (struct mk_tensor){
		.key = m->key[i], .dtype = "float32", .size = size
	};
	return t;
}

static int64_t numel(const struct mk_dims *d)
{
	int64_t n = 1;

	for (int i = 0; i < d->n; i++)
		n *= d->v[i];
	return n;
}

static void put_chunk(struct made *m, struct mk_tensor *t, struct mk_dims off,
    struct mk_dims size, struct mk_dims item, const float *values)
{
	struct mk_chunk *c = &t->chunk[t->nchunks++];

	*c = (struct mk_chunk){ .off = off, .size = size };
	c->at.file = "__0_0.distcp";
	c->at.off = (int64_t)m->file.len;
	c->at.len = (int64_t)mk_write_tensor(&m->file, "FloatStorage", &item,
	    values, (size_t)numel(&size) * sizeof(float));
}

/* Adds what put appends as the value called key. */
static void put_value(struct made *m, const char *key,
    void (*put)(struct ofs_buf *b))
{
	struct mk_value *v = &m->index.value[m->index.nvalues++];
	struct ofs_buf pk = { 0 };

	*v = (struct mk_value){ .key = key };
	pw_begin(&pk);
	pw_list_open(&pk);
	put(&pk);
	pw_list_close(&pk);
	pw_end(&pk);
	v->at.file = "__0_0.distcp";
	v->at.off = (int64_t)m->file.len;
	v->at.len = (int64_t)mk_write_object(&m->file, pk.data, pk.len);
	ofs_buf_fini(&pk);
}

static struct optimfs *made_open(struct made *m, bool strict,
    struct optimfs_error *err)
{
	struct optimfs_options o = { .type = "megatron", .strict = strict };
	struct ofs_buf pk = { 0 };

	mk_write_index(&pk, &m->index);
	mk_file(m->dir, ".metadata", pk.data, pk.len);
	mk_file(m->dir, "__0_0.distcp", m->file.data, m->file.len);
	ofs_buf_fini(&pk);
	return optimfs_open(m->dir, &o, err);
}

/* The whole file with a NUL behind it, to be freed; NULL on failure. */
static char *slurp(struct optimfs *fs, const char *path, size_t *n,
    struct optimfs_error *err)
{
	struct optimfs_file *file;
	struct optimfs_attr attr;
	char *bytes;
	ssize_t got;

	if (optimfs_resolve(fs, path, &attr, err) == -1 ||
	    optimfs_file_open(fs, attr.node, &file, err) == -1)
		return NULL;
	*n = optimfs_file_size(file);
	bytes = calloc(1, *n + 1);
	if (bytes == NULL)
		bail_out("no memory");
	got = optimfs_file_read(file, bytes, *n, 0, err);
	optimfs_file_close(file);
	if (got == (ssize_t)*n)
		return bytes;
	free(bytes);
	return NULL;
}

static void is_text(struct optimfs *fs, const char *path, const char *want)
{
	struct optimfs_error err = { 0 };
	size_t n;
	char *got = slurp(fs, path, &n, &err);

	is_str(got == NULL ? err.text : got, want, "contents of %s", path);
	free(got);
}

static bool warns(struct optimfs *fs, const char *code)
{
	size_t n;
	char *text = slurp(fs, ".optimfs/warnings", &n, NULL);
	bool yes = text != NULL && strstr(text, code) != NULL;

	free(text);
	return yes;
}

/* Stacks: the file of each layer must have that layer of the stack. */

/* Element i of the box at off of a tensor whose elements are 0, 1, 2, ... */
static float value_at(const struct mk_dims *shape, const struct mk_dims *off,
    const struct mk_dims *size, int64_t i)
{
	int64_t at = 0, pitch = 1;

	for (int d = shape->n - 1; d >= 0; d--) {
		at += (off->v[d] + i % size->v[d]) * pitch;
		i /= size->v[d];
		pitch *= shape->v[d];
	}
	return (float)at;
}

static void put_box(struct made *m, struct mk_tensor *t, struct mk_dims off,
    struct mk_dims size)
{
	struct mk_dims item = size;
	int64_t n = numel(&size);
	float *values = malloc((size_t)n * sizeof(*values));

	if (values == NULL)
		bail_out("no memory");
	for (int64_t i = 0; i < n; i++)
		values[i] = value_at(&t->size, &off, &size, i);
	if (size.v[0] == 1 && rnd(2) == 0) { /* without the first dimension */
		item.n--;
		memmove(item.v, item.v + 1, (size_t)item.n * sizeof(item.v[0]));
	}
	put_chunk(m, t, off, size, item, values);
	free(values);
}

/* Cuts [lo, lo + n) of the first dimension, and one other dimension in it, at
 * random. */
static void put_layers(struct made *m, struct mk_tensor *t, int64_t lo,
    int64_t n)
{
	struct mk_dims off = { t->size.n, { lo } }, size = t->size;
	int64_t at = 0;
	int axis;

	size.v[0] = n;
	if (t->size.n == 1) {
		put_box(m, t, off, size);
		return;
	}
	axis = 1 + (int)rnd((unsigned int)t->size.n - 1);
	while (at < t->size.v[axis]) {
		off.v[axis] = at;
		size.v[axis] = 1 + rnd((unsigned int)(t->size.v[axis] - at));
		if (t->nchunks % 7 == 6) /* or there would be too many */
			size.v[axis] = t->size.v[axis] - at;
		put_box(m, t, off, size);
		at += size.v[axis];
	}
}

static void put_stack(struct made *m, const char *key, struct mk_dims shape)
{
	struct mk_tensor *t = made_tensor(m, key, shape);
	int64_t at = 0, n;

	for (; at < shape.v[0]; at += n) {
		n = 1 + rnd((unsigned int)(shape.v[0] - at));
		put_layers(m, t, at, n);
	}
}

/* Is the file this layer of a tensor of this shape? */
static bool is_layer(struct optimfs *fs, const char *path,
    const struct mk_dims *shape, int64_t layer)
{
	struct optimfs_error err = { 0 };
	int64_t count = numel(shape) / shape->v[0];
	size_t n = 0;
	char *got = slurp(fs, path, &n, &err);
	bool same = got != NULL && n == (size_t)count * sizeof(float);

	if (got != NULL && shape->n == 1) { /* one number: a text file */
		same = strtod(got, NULL) == (double)layer;
		count = 0;
	}
	for (int64_t i = 0; same && i < count; i++) {
		float want = (float)(layer * count + i);

		same = memcmp(got + (size_t)i * sizeof(want), &want,
			   sizeof(want)) == 0;
	}
	if (!same)
		diag("%s: %s", path, got == NULL ? err.text : "differs");
	free(got);
	return same;
}

/* The number of layers whose file, named before + layer + after, is wrong. */
static size_t check_stack(struct optimfs *fs, const char *before,
    const char *after, const struct mk_dims *shape)
{
	size_t wrong = 0;
	char path[128];

	for (int64_t i = 0; i < shape->v[0]; i++) {
		snprintf(path, sizeof(path), "%s%" PRId64 "%s", before, i,
		    after);
		wrong += !is_layer(fs, path, shape, i);
	}
	return wrong;
}

static struct mk_dims random_shape(int extra)
{
	struct mk_dims d = { 1 + extra, { 1 + rnd(4) } };

	for (int i = 1; i < d.n; i++)
		d.v[i] = 1 + rnd(5);
	return d;
}

static void stacks(void)
{
	size_t wrong = 0;

	for (int round = 0; round < 60; round++) {
		struct mk_dims a = random_shape((int)rnd(4)), b;
		struct optimfs_error err = { 0 };
		struct optimfs *fs;
		uint64_t problems = 0;
		struct made m;

		b = random_shape((int)rnd(3));
		b.v[0] = a.v[0];
		made_init(&m);
		put_stack(&m, "decoder.layers.a", a);
		put_stack(&m, "optimizer.state.exp_avg.decoder.layers.a", a);
		put_stack(&m, "decoder.layers.b.c", b);
		fs = made_open(&m, false, &err);
		if (fs == NULL) {
			diag("round %d: %s", round, err.text);
			wrong++;
		} else {
			wrong +=
			    check_stack(fs, "model/decoder.layers.", ".a", &a);
			wrong += check_stack(fs, "optim/state/decoder.layers.",
			    ".a/exp_avg", &a);
			wrong += check_stack(fs, "model/decoder.layers.",
			    ".b.c", &b);
			wrong += listing_has(fs, "model/decoder.layers.a") ||
			    warns(fs, "OFS645");
			wrong += optimfs_fsck(fs, true, NULL, NULL, &problems,
				     &err) == -1 ||
			    problems != 0;
		}
		optimfs_close(fs);
		made_fini(&m);
	}
	is_u64(wrong, 0,
	    "random stacks, cut at random, are shown layer by layer");
}

/* Flat blocks. */

/* Cuts the flat block at this place of the grid into random ranges. Its
 * elements are the last dimension of t. */
static void put_ranges(struct made *m, struct mk_tensor *t,
    struct mk_dims shape, struct mk_dims block, struct mk_dims at)
{
	struct mk_dims origin = at, off = at, size = at;
	int64_t n = numel(&block), lo = 0, count;

	for (int i = 0; i < shape.n; i++) {
		origin.v[i] *= block.v[i];
		size.v[i] = 1;
	}
	off.n = size.n = shape.n + 1;
	for (; lo < n; lo += count) {
		float values[256];
		struct mk_dims flat;

		count = 1 + rnd((unsigned int)(n - lo));
		if (t->nchunks % 3 == 2)
			count = n - lo;
		for (int64_t i = 0; i < count; i++)
			values[i] = value_at(&shape, &origin, &block, lo + i);
		off.v[shape.n] = lo;
		size.v[shape.n] = count;
		flat = rnd(2) == 0 ? size : (struct mk_dims){ 1, { count } };
		put_chunk(m, t, off, size, flat, values);
	}
}

static void put_blocks(struct made *m, const char *key, struct mk_dims block,
    struct mk_dims grid)
{
	struct mk_dims stored = grid, shape = block, at = { grid.n, { 0 } };
	struct mk_tensor *t;
	int i;

	stored.v[stored.n++] = numel(&block);
	for (i = 0; i < shape.n; i++)
		shape.v[i] *= grid.v[i];
	t = made_tensor(m, key, stored);
	do {
		put_ranges(m, t, shape, block, at);
		for (i = grid.n - 1; i >= 0 && ++at.v[i] == grid.v[i]; i--)
			at.v[i] = 0;
	} while (i >= 0);
}

static void blocks(void)
{
	size_t wrong = 0;

	for (int round = 0; round < 80; round++) {
		struct mk_dims block = random_shape(1 + (int)rnd(2));
		struct mk_dims grid = { block.n, { 1, 1, 1 } };
		struct mk_dims shape = block;
		struct optimfs_error err = { 0 };
		struct optimfs *fs;
		struct made m;

		if (round % 2 == 0)
			block.v[0] = 1;
		grid.v[0] = 1 + rnd(3);
		grid.v[1 + rnd((unsigned int)block.n - 1)] = 1 + rnd(3);
		for (int i = 0; i < block.n; i++)
			shape.v[i] = block.v[i] * grid.v[i];
		made_init(&m);
		put_stack(&m, "x.layers.w", shape);
		put_blocks(&m, "optimizer.state.fp32_param.x.layers.w", block,
		    grid);
		fs = made_open(&m, false, &err);
		if (fs == NULL || warns(fs, "OFS647")) {
			diag("round %d: %s", round, err.text);
			wrong++;
		} else {
			wrong += check_stack(fs, "optim/state/x.layers.",
			    ".w/fp32", &shape);
		}
		optimfs_close(fs);
		made_fini(&m);
	}
	is_u64(wrong, 0,
	    "random flat blocks, cut at random, are shown layer by layer");
}

/* Common state. */

static void put_step(struct ofs_buf *b, const char *key, int64_t step)
{
	pw_str(b, key);
	pw_int(b, step);
}

/* "param_groups": [{"step": 3}, ...] */
static void put_groups(struct ofs_buf *b, int n, int64_t step)
{
	pw_str(b, "param_groups");
	pw_list_open(b);
	for (int i = 0; i < n; i++) {
		pw_dict_open(b);
		put_step(b, "step", step);
		put_step(b, "lr", i);
		pw_dict_close(b);
	}
	pw_list_close(b);
}

static void put_args(struct ofs_buf *b, int64_t num_layers)
{
	pw_str(b, "args");
	pw_object_open(b, "argparse", "Namespace");
	put_step(b, "num_layers", num_layers);
	pw_object_close(b);
}

static void put_chained(struct ofs_buf *b)
{
	pw_dict_open(b);
	pw_str(b, "optimizer");
	pw_dict_open(b);
	for (int i = 0; i < 2; i++) {
		pw_int(b, i);
		pw_dict_open(b);
		pw_str(b, "optimizer");
		pw_dict_open(b);
		put_groups(b, 2, 3);
		pw_dict_close(b);
		put_step(b, "scale", 10 + i);
		pw_dict_close(b);
	}
	pw_dict_close(b);
	pw_dict_close(b);
}

/* The state of an optimizer that is not distributed: it has one step. */
static void put_common_step(struct ofs_buf *b)
{
	pw_dict_open(b);
	put_args(b, 2);
	pw_str(b, "optimizer");
	pw_dict_open(b);
	pw_str(b, "optimizer");
	pw_dict_open(b);
	put_groups(b, 1, 9);
	pw_str(b, "state");
	pw_dict_open(b);
	put_step(b, "common_step", 7);
	pw_dict_close(b);
	pw_dict_close(b);
	pw_dict_close(b);
	pw_dict_close(b);
}

static void put_seven(struct ofs_buf *b)
{
	pw_int(b, 7);
}

static struct optimfs *open_with(struct made *m, const char *state,
    const char *common, void (*put)(struct ofs_buf *b))
{
	struct mk_dims shape = { 2, { 2, 3 } };
	struct optimfs_error err = { 0 };
	struct optimfs *fs;

	made_init(m);
	put_stack(m, "decoder.layers.w", shape);
	put_stack(m, state, shape);
	put_value(m, "decoder.layers.m._extra_state/shard_1_2", put_seven);
	put_value(m, "rng_state/shard_0.1_1.2", put_seven);
	if (put != NULL)
		put_value(m, common, put);
	fs = made_open(m, false, &err);
	if (fs == NULL)
		bail_out("%s", err.text);
	return fs;
}

static void close_with(struct made *m, struct optimfs *fs)
{
	optimfs_close(fs);
	made_fini(m);
}

static void common(void)
{
	static const char state[] = "optimizer.state.exp_avg.decoder.layers.w";
	static const char object[] = "common_state/shard_0_1";
	struct made m;
	struct optimfs *fs;

	fs = open_with(&m, state, object, put_common_step);
	is_text(fs, "model/decoder.layers.1.m._extra_state", "7\n");
	is_text(fs, "extra/rng_state/0.1", "7\n");
	is_text(fs, "optim/param_groups/0/step", "9\n");
	is_text(fs, "optim/common_step", "7\n");
	is_text(fs, "optim/state/decoder.layers.0.w/step", "7\n");
	is_text(fs, "optim/state/decoder.layers.1.w/step", "7\n");
	ok(listing_has(fs, "extra/args") && !warns(fs, "OFS64"),
	    "the arguments are in extra, and there are no warnings");
	close_with(&m, fs);

	fs = open_with(&m, state, object, put_chained);
	is_text(fs, "optim/param_groups/0/lr", "0\n");
	is_text(fs, "optim/param_groups/3/lr", "1\n");
	ok(!listing_has(fs, "optim/param_groups/4"),
	    "groups of chained optimizers are numbered consecutively");
	is_text(fs, "optim/state/decoder.layers.1.w/step", "3\n");
	is_text(fs, "optim/scale", "10\n");
	is_text(fs, "optim/chained_1/scale", "11\n");
	ok(!listing_has(fs, "optim/scale~2"),
	    "other values of chained optimizers do not collide");
	close_with(&m, fs);

	fs = open_with(&m, "chained_1.optimizer.state.exp_avg.decoder.layers.w",
	    object, put_chained);
	is_text(fs, "optim/chained_0/param_groups/1/lr", "1\n");
	is_text(fs, "optim/chained_1/param_groups/1/lr", "1\n");
	is_text(fs, "optim/chained_0/scale", "10\n");
	is_text(fs, "optim/chained_1/state/decoder.layers.0.w/step", "3\n");
	close_with(&m, fs);

	fs = open_with(&m, state, object, NULL);
	ok(warns(fs, "OFS649"),
	    "a checkpoint without common state has a warning");
	ok(listing_has(fs, "optim/state/decoder.layers.1.w/exp_avg") &&
		!listing_has(fs, "optim/state/decoder.layers.1.w/step"),
	    "without common state parameters have states but no step");
	close_with(&m, fs);
}

/* common.pt, which core 0.18 and earlier wrote, sound and truncated. */
static void common_file(void)
{
	struct mk_dims shape = { 1, { 2 } };
	struct ofs_buf pk = { 0 }, file = { 0 };
	struct optimfs_error err = { 0 };
	struct optimfs *fs;
	struct made m;

	made_init(&m);
	put_stack(&m, "decoder.layers.w", shape);
	put_stack(&m, "optimizer.state.exp_avg.decoder.layers.w", shape);
	pw_begin(&pk);
	put_common_step(&pk);
	pw_end(&pk);
	mk_write_object(&file, pk.data, pk.len);
	mk_file(m.dir, "common.pt", file.data, file.len);
	fs = made_open(&m, true, &err);
	if (ok(fs != NULL, "a checkpoint with common.pt opens with strict")) {
		is_text(fs, "optim/param_groups/0/step", "9\n");
		is_text(fs, "optim/state/decoder.layers.1.w/step", "7\n");
		ok(listing_has(fs, "extra/args"),
		    "the arguments of common.pt are in extra");
	} else {
		diag("%s", err.text);
	}
	optimfs_close(fs);
	mk_file(m.dir, "common.pt", file.data, file.len / 2);
	fs = made_open(&m, false, &err);
	ok(fs != NULL && warns(fs, "OFS649") && warns(fs, "common.pt"),
	    "a truncated common.pt causes warnings");
	optimfs_close(fs);
	ok(made_open(&m, true, &err) == NULL,
	    "a truncated common.pt does not open with strict");
	ofs_buf_fini(&pk);
	ofs_buf_fini(&file);
	made_fini(&m);
}

/* Damaged and hostile checkpoints. */

static void put_five_layers(struct ofs_buf *b)
{
	pw_dict_open(b);
	put_args(b, 5);
	pw_dict_close(b);
}

static void hostile_layers(void)
{
	struct mk_dims two = { 2, { 2, 3 } }, three = { 2, { 3, 3 } };
	struct optimfs_error err = { 0 };
	struct optimfs *fs;
	struct made m;

	made_init(&m);
	put_stack(&m, "decoder.layers.w", two);
	put_value(&m, "common_state/shard_0_1", put_five_layers);
	fs = made_open(&m, false, &err);
	ok(fs != NULL &&
		warns(fs,
		    "OFS645 decoder.layers.w: 2 layers are "
		    "stacked, num_layers is 5"),
	    "fewer layers than num_layers cause a warning");
	ok(fs != NULL &&
		check_stack(fs, "model/decoder.layers.", ".w", &two) == 0,
	    "the layers that exist can be read");
	optimfs_close(fs);
	ok(made_open(&m, true, &err) == NULL,
	    "fewer layers than num_layers do not open with strict");
	is_error(err, EUCLEAN, "OFS645",
	    "fewer layers than num_layers fail with OFS645");
	made_fini(&m);

	made_init(&m);
	put_stack(&m, "decoder.layers.w", two);
	put_stack(&m, "decoder.layers.v", three);
	put_stack(&m, "encoder.layers.v", three);
	fs = made_open(&m, false, &err);
	ok(fs != NULL &&
		warns(fs,
		    "OFS645 decoder.layers.v: 3 layers are "
		    "stacked, other tensors have 2") &&
		!warns(fs, "encoder"),
	    "stacks of different heights below one prefix cause a warning");
	optimfs_close(fs);
	made_fini(&m);
}

static void hostile_sizes(void)
{
	struct mk_dims two = { 2, { 2, 3 } }, zeros = { 2, { 0, 0 } };
	struct optimfs_error err = { 0 };
	struct optimfs *fs;
	struct mk_tensor *t;
	struct made m;
	size_t n;
	char *got;

	made_init(&m);
	put_stack(&m, "a.layers.good", two);
	t = made_tensor(&m, "a.layers.w", two);
	put_chunk(&m, t, zeros, two, two, (const float[6]){ 0 });
	t->chunk[0].off.v[0] = 1;
	t = made_tensor(&m, "b.layers.w", (struct mk_dims){ 2, { 5000, 1 } });
	t = made_tensor(&m, "c.layers.w",
	    (struct mk_dims){ 2, { INT64_C(1) << 62, 8 } });
	t = made_tensor(&m, "d.layers.w",
	    (struct mk_dims){ 2, { 2, INT64_C(1) << 62 } });
	put_chunk(&m, t, zeros, two, two, (const float[6]){ 0 });
	t->chunk[0].size = t->size;
	made_tensor(&m, "e.layers.w", (struct mk_dims){ 1, { 0 } });
	made_tensor(&m, "f.layers.w", (struct mk_dims){ 0, { 0 } });
	/* a chunk with more elements than its item */
	t = made_tensor(&m, "g.layers.w", (struct mk_dims){ 2, { 4, 3 } });
	put_chunk(&m, t, zeros, two, two, (const float[6]){ 0 });
	t->chunk[0].size.v[0] = 4;
	fs = made_open(&m, false, &err);
	if (!ok(fs != NULL, "a checkpoint with stacks of odd sizes opens"))
		bail_out("%s", err.text);
	ok(check_stack(fs, "model/a.layers.", ".good", &two) == 0,
	    "a sound stack beside odd ones can be read");
	got = slurp(fs, "model/a.layers.1.w", &n, &err);
	is_error(err, EUCLEAN, "OFS609",
	    "a layer of a chunk outside its stack fails with OFS609");
	free(got);
	ok(listing_has(fs, "model/b.layers.w") &&
		listing_has(fs, "model/c.layers.w"),
	    "stacks of too many layers stay single tensors");
	ok(warns(fs, "OFS646 b.layers.w") && warns(fs, "OFS646 c.layers.w"),
	    "stacks of too many layers cause a warning");
	got = slurp(fs, "model/d.layers.1.w", &n, &err);
	is_error(err, EUCLEAN, "OFS60", "a layer whose size overflows fails");
	free(got);
	ok(listing_has(fs, "model/e.layers.w") &&
		listing_has(fs, "model/f.layers.w"),
	    "stacks without layers or dimensions stay single tensors");
	got = slurp(fs, "model/g.layers.3.w", &n, &err);
	is_error(err, EUCLEAN, "OFS615",
	    "a layer that its item lacks fails with OFS615");
	free(got);
	close_with(&m, fs);
}

/* Chunks of many layers: more pieces than may be made. */
static void hostile_budget(void)
{
	static const struct mk_dims all = { 2, { 4096, MK_CHUNKS } },
				    column = { 2, { 4096, 1 } };
	static const float values[4096];
	struct optimfs_error err = { 0 };
	struct optimfs *fs;
	struct made m;

	made_init(&m);
	for (int i = 0; i < 8; i++) {
		char key[32];
		struct mk_tensor *t;

		snprintf(key, sizeof(key), "a.layers.w%d", i);
		t = made_tensor(&m, key, all);
		for (int k = 0; k < MK_CHUNKS; k++)
			put_chunk(&m, t, (struct mk_dims){ 2, { 0, k } },
			    column, column, values);
	}
	fs = made_open(&m, false, &err);
	if (fs == NULL)
		bail_out("%s", err.text);
	ok(warns(fs, "OFS646 a.layers.w7") && !warns(fs, "OFS646 a.layers.w6"),
	    "only the stack that exceeds a million pieces stays whole");
	close_with(&m, fs);
}

static void put_space(struct ofs_buf *b)
{
	pw_dict_open(b);
	pw_str(b, "content_metadata");
	pw_dict_open(b);
	pw_str(b, "distrib_optim_sharding_type");
	pw_str(b, "fully_sharded_model_space");
	pw_dict_close(b);
	pw_dict_close(b);
}

static void hostile_blocks(void)
{
	struct mk_dims whole = { 2, { 4, 6 } }, wrong = { 3, { 2, 1, 10 } },
		       other = { 3, { 3, 1, 8 } }, zeros = { 3, { 0, 0, 0 } },
		       size = { 3, { 1, 1, 10 } };
	static const float values[24];
	struct optimfs_error err = { 0 };
	struct optimfs *fs;
	struct mk_tensor *t;
	struct made m;

	made_init(&m);
	put_stack(&m, "w", whole);
	put_stack(&m, "v", whole);
	put_stack(&m, "u", whole);
	t = made_tensor(&m, "optimizer.state.exp_avg.w", wrong);
	put_chunk(&m, t, zeros, size, size, values);
	t = made_tensor(&m, "optimizer.state.exp_avg.v", other);
	put_chunk(&m, t, zeros, (struct mk_dims){ 3, { 1, 1, 8 } },
	    (struct mk_dims){ 1, { 8 } }, values);
	/* a chunk of two blocks */
	t = made_tensor(&m, "optimizer.state.exp_avg.u",
	    (struct mk_dims){ 3, { 2, 1, 12 } });
	put_chunk(&m, t, zeros, t->size, t->size, values);
	t = made_tensor(&m, "optimizer.state.exp_avg.none", wrong);
	put_chunk(&m, t, zeros, size, size, values);
	put_value(&m, "common_state/shard_0_1", put_space);
	fs = made_open(&m, false, &err);
	if (!ok(fs != NULL, "a checkpoint with blocks that do not fit opens"))
		bail_out("%s", err.text);
	ok(warns(fs, "OFS647 optimizer.state.exp_avg.w") &&
		warns(fs, "OFS647 optimizer.state.exp_avg.v") &&
		warns(fs, "OFS647 optimizer.state.exp_avg.u") &&
		warns(fs, "OFS647 optimizer.state.exp_avg.none"),
	    "blocks that do not fit their parameter cause warnings");
	ok(listing_has(fs, "optim/state/w/exp_avg") &&
		listing_has(fs, "optim/state/none/exp_avg"),
	    "blocks that do not fit are shown as they are stored");
	close_with(&m, fs);
}

static void put_buckets(struct ofs_buf *b)
{
	pw_dict_open(b);
	pw_str(b, "buckets_coalesced");
	pw_str(b, "yes");
	pw_dict_close(b);
}

/* The state of each rank of model parallelism in one object. */
static void param_state(void)
{
	struct optimfs_error err = { 0 };
	struct optimfs *fs;
	struct made m;

	made_init(&m);
	put_value(&m,
	    "optimizer.distributed.dp_group_idx_0.param_state"
	    "/shard_0_1",
	    put_buckets);
	put_value(&m,
	    "optimizer.distributed.dp_group_idx_1.param_state"
	    "/shard_0_1",
	    put_buckets);
	fs = made_open(&m, false, &err);
	if (!ok(fs != NULL, "a checkpoint with param_state objects opens"))
		bail_out("%s", err.text);
	ok(warns(fs, "OFS648 the state of the optimizer is in 2 objects of"),
	    "param_state objects cause a warning with their number");
	close_with(&m, fs);
}

/* The same state, saved as buckets and by name. */
static void buckets(void)
{
	static const char state[] =
	    "optim/state/decoder.layers.1.mlp.linear_fc1.weight/exp_avg";
	struct optimfs_error err = { 0 };
	struct optimfs *fs =
	    optimfs_open(data_path("megatron/llama_dp2/dp_reshardable"), NULL,
		&err);
	struct optimfs *by_name;
	uint64_t problems = 1;
	size_t n = 0, want = 0;
	char *got, *named;

	if (!ok(fs != NULL, "a checkpoint with dp_reshardable buckets opens"))
		bail_out("%s", err.text);
	by_name =
	    optimfs_open(data_path("megatron/llama_dp2/fully_reshardable"),
		NULL, &err);
	if (by_name == NULL)
		bail_out("%s", err.text);
	got = slurp(fs, state, &n, &err);
	named = slurp(by_name, state, &want, &err);
	ok(got != NULL && named != NULL && n == want && n > 0 &&
		memcmp(got, named, n) == 0,
	    "a state in buckets has a name, and equals the state by name");
	free(got);
	free(named);
	ok(!warns(fs, "OFS648"), "buckets that have names cause no warning");
	is_text(fs, "optim/param_groups/0/step", "3.0\n");
	is_text(fs, "optim/state/decoder.final_layernorm.weight/step", "3.0\n");
	ok(listing_has(fs, "model/decoder.layers.1.mlp.linear_fc1.weight") &&
		!listing_has(fs, "optim/distributed"),
	    "the buckets are not shown beside the states");
	ok(optimfs_fsck(fs, true, NULL, NULL, &problems, &err) == 0 &&
		problems == 0,
	    "fsck finds no problems in a checkpoint with buckets");
	optimfs_close(fs);
	optimfs_close(by_name);
}

int main(void)
{
	stacks();
	blocks();
	common();
	common_file();
	hostile_layers();
	hostile_sizes();
	hostile_budget();
	hostile_blocks();
	param_state();
	buckets();
	return done_testing();
}
