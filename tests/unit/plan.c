/* plan.c - plans of reads, compared with the bytes of the tensor */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "plan/plan.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "catalog/shards.h"
#include "layout.h"
#include "tap.h"

#define ROUNDS 3000

static uint64_t rng = 0x9e3779b97f4a7c15;

static uint8_t *zeroed(size_t n)
{
	uint8_t *p = calloc(1, n + 1);

	if (p == NULL)
		bail_out("out of memory");
	return p;
}

/* The plan of a range gives exactly the bytes of the range, each once. */
static bool range_is(struct stored *s, const uint8_t *want, uint64_t first,
    uint64_t count)
{
	struct optimfs_error err = { 0 };
	struct ofs_plan plan = { 0 };
	size_t n = count * s->item, pad = 16;
	uint8_t *got = zeroed(n + pad), *times = zeroed(n + pad);
	bool same = true;

	if (ofs_plan_box(s->cat, s->t, NULL, first, count, pad, stored_place, s,
		&plan, &err) == -1) {
		diag("%s", err.text);
		same = false;
	}
	stored_run(s, &plan, got, times);
	for (size_t i = 0; i < n + pad; i++)
		if (times[i] != (i >= pad))
			same = false;
	if (memcmp(got + pad, want + first * s->item, n) != 0)
		same = false;
	ofs_plan_fini(&plan);
	free(got);
	free(times);
	return same;
}

static bool round_is_good(uint64_t seed)
{
	enum layout_kind kind = (enum layout_kind)(seed % LAYOUT_KINDS);
	struct layout l;
	struct stored s;
	uint64_t n;
	uint8_t *bytes;
	bool good;

	layout_shape(&l, &rng);
	layout_cut(&l, kind, &rng);
	n = layout_numel(l.shape, l.ndim);
	bytes = random_bytes(&rng, n * ofs_dtype_size(l.dtype));
	stored_init(&s, &l, bytes, tap_below(&rng, 2) == 0, &rng);
	good = range_is(&s, bytes, 0, n);
	for (int i = 0; n > 0 && i < 8 && good; i++) {
		uint64_t first = tap_below(&rng, n);

		good =
		    range_is(&s, bytes, first, 1 + tap_below(&rng, n - first));
	}
	if (!good)
		diag("round %" PRIu64 ": kind %d, %u dims, %u shards", seed,
		    (int)kind, l.ndim, l.n);
	stored_fini(&s);
	layout_fini(&l);
	free(bytes);
	return good;
}

static void ranges(void)
{
	uint64_t good = 0;

	while (good < ROUNDS && round_is_good(good))
		good++;
	is_u64(good, ROUNDS,
	    "plans of random shapes, shards and ranges give the bytes");
}

/* Reads box b from a and puts its bytes into the whole tensor out. */
static void restore(struct stored *a, const struct layout *l,
    const struct layout_box *b, uint8_t *out)
{
	uint64_t box[2 * LAYOUT_DIMS], n = layout_numel(b->size, l->ndim);
	struct optimfs_error err = { 0 };
	struct ofs_plan plan = { 0 };
	uint8_t *got = zeroed(n * a->item);

	memcpy(box, b->lo, l->ndim * sizeof(*box));
	memcpy(box + l->ndim, b->size, l->ndim * sizeof(*box));
	if (ofs_plan_box(a->cat, a->t, box, 0, n, 0, stored_place, a, &plan,
		&err) == -1)
		diag("%s", err.text);
	stored_run(a, &plan, got, NULL);
	for (uint64_t i = 0; i < n; i++) {
		uint64_t rest = i, at = 0, pitch = 1;

		for (unsigned int k = l->ndim; k-- > 0;) {
			at += (b->lo[k] + rest % b->size[k]) * pitch;
			rest /= b->size[k];
			pitch *= l->shape[k];
		}
		memcpy(out + at * a->item, got + i * a->item, a->item);
	}
	ofs_plan_fini(&plan);
	free(got);
}

/* Resharding from layout a to b and back keeps the bytes. */
static bool reshards(const struct layout *a, const struct layout *b,
    const uint8_t *bytes)
{
	size_t n = layout_numel(a->shape, a->ndim) * ofs_dtype_size(a->dtype);
	uint8_t *moved = zeroed(n), *back = zeroed(n);
	struct stored s;
	bool same;

	stored_init(&s, a, bytes, true, &rng);
	for (uint32_t i = 0; i < b->n; i++)
		restore(&s, b, &b->box[i], moved);
	stored_fini(&s);
	stored_init(&s, b, moved, true, &rng);
	for (uint32_t i = 0; i < a->n; i++)
		restore(&s, a, &a->box[i], back);
	stored_fini(&s);
	same = memcmp(moved, bytes, n) == 0 && memcmp(back, bytes, n) == 0;
	free(moved);
	free(back);
	return same;
}

static void reshard(void)
{
	int good = 0, rounds = 300;

	for (int i = 0; i < rounds; i++) {
		struct layout a, b;
		uint8_t *bytes;

		layout_shape(&a, &rng);
		b = a;
		layout_cut(&a, (enum layout_kind)(i % LAYOUT_KINDS), &rng);
		layout_cut(&b, (enum layout_kind)(i / 5 % LAYOUT_KINDS), &rng);
		bytes = random_bytes(&rng,
		    layout_numel(a.shape, a.ndim) * ofs_dtype_size(a.dtype));
		good += reshards(&a, &b, bytes);
		free(bytes);
		layout_fini(&a);
		layout_fini(&b);
	}
	is_int(good, rounds,
	    "a tensor resharded from A to B to A keeps its bytes");
}

/* A [4, 6] float32 tensor as two column shards, the second one transposed. */
static void two_columns(struct layout *l, struct stored *s, uint8_t *bytes)
{
	static const uint64_t lo[2][2] = { { 0, 0 }, { 0, 4 } };
	static const uint64_t size[2][2] = { { 4, 4 }, { 4, 2 } };

	*l = (struct layout){
		.ndim = 2, .shape = { 4, 6 }, .dtype = OFS_FLOAT32
	};
	layout_add(l, lo[0], size[0]);
	layout_add(l, lo[1], size[1]);
	stored_init(s, l, bytes, false, &rng);
	s->place[1]->stride[0] = 4;
	s->place[1]->stride[1] = 16;
}

static void shapes(void)
{
	static const uint64_t origin[1], rows[][1] = { { 2 }, { 3 } };
	uint8_t bytes[96] = { 0 };
	struct optimfs_error err = { 0 };
	struct ofs_plan plan = { 0 };
	struct layout l;
	struct stored s;

	two_columns(&l, &s, bytes);
	ofs_plan_elements(s.cat, s.t, 0, 24, stored_place, &s, &plan, &err);
	is_u64(plan.n, 3,
	    "two column shards, one transposed, are three segments");
	is_u64(plan.seg[0].n, 4, "the first segment has a run for each row");
	is_u64(plan.seg[0].len, 16, "each run has four elements");
	is_int(plan.seg[0].src_pitch, 16,
	    "the runs are contiguous in the file");
	is_int(plan.seg[0].dst_pitch, 24,
	    "the runs are a row apart in the tensor");
	is_u64(plan.seg[1].len, 4,
	    "a run of a transposed shard is one element");
	plan.n = 0;
	s.asked = 0;
	ofs_plan_elements(s.cat, s.t, 6, 4, stored_place, &s, &plan, &err);
	ok(plan.n == 1 && s.asked == 1,
	    "only shards that overlap the range are located");
	ofs_plan_fini(&plan);
	stored_fini(&s);
	layout_fini(&l);

	l = (struct layout){ .ndim = 1, .shape = { 5 }, .dtype = OFS_UINT8 };
	layout_add(&l, origin, rows[0]);
	layout_add(&l, rows[0], rows[1]);
	stored_init(&s, &l, bytes, false, &rng);
	s.place[1]->object = 0;
	s.place[1]->base = 2;
	ofs_plan_elements(s.cat, s.t, 0, 5, stored_place, &s, &plan, &err);
	is_u64(plan.n, 1, "shards adjacent in file and tensor are merged");
	is_u64(plan.seg[0].len, 5, "the merged segment has all five bytes");
	ofs_plan_box(s.cat, s.t, NULL, 0, 2, 5, stored_place, &s, &plan, &err);
	is_u64(plan.n, 2, "a segment of an earlier plan is not extended");
	ofs_plan_fini(&plan);
	stored_fini(&s);
	layout_fini(&l);
}

static const struct ofs_place *no_place(void *ctx, const struct ofs_tensor *t,
    uint32_t shard, struct optimfs_error *err)
{
	struct stored *s = ctx;

	if (shard != t->shard)
		optimfs_fail(err, EIO, "no place");
	return shard == t->shard ? s->place[0] : NULL;
}

static void failures(void)
{
	static const uint64_t lo[][2] = { { 0, 0 }, { 2, 0 }, { 2, 3 } };
	static const uint64_t size[][2] = { { 2, 4 }, { 2, 2 }, { 2, 1 } };
	uint8_t bytes[16] = { 0 };
	struct optimfs_error err = { 0 };
	struct ofs_plan plan = { 0 };
	struct layout l = { .ndim = 2, .shape = { 4, 4 }, .dtype = OFS_UINT8 };
	struct stored s;

	for (int i = 0; i < 3; i++)
		layout_add(&l, lo[i], size[i]);
	stored_init(&s, &l, bytes, false, &rng);
	is_int(ofs_plan_elements(s.cat, s.t, 0, 10, stored_place, &s, &plan,
		   &err),
	    0, "a range before missing elements is planned");
	plan.n = 1;
	is_int(ofs_plan_elements(s.cat, s.t, 3, 13, stored_place, &s, &plan,
		   &err),
	    -1, "a range with missing elements fails");
	is_error(err, EIO, "OFS607 element 10 is in no shard: 2 of 13",
	    "the error names the first missing element");
	is_u64(plan.n, 1, "a failed plan leaves the segments unchanged");
	s.cat->tensors[s.t - s.cat->tensors].flags =
	    OFS_TENSOR_COPIES | OFS_TENSOR_TIED | OFS_TENSOR_FILE;
	is_int(ofs_plan_elements(s.cat, s.t, 3, 13, stored_place, &s, &plan,
		   &err),
	    -1, "other flags do not replace missing elements by zeros");
	s.cat->tensors[s.t - s.cat->tensors].flags = OFS_TENSOR_ZERO;
	is_int(ofs_plan_elements(s.cat, s.t, 3, 13, stored_place, &s, &plan,
		   &err),
	    0, "OFS_TENSOR_ZERO replaces missing elements by zeros");
	s.cat->tensors[s.t - s.cat->tensors].flags = 0;
	plan.n = 1;
	is_int(ofs_plan_elements(s.cat, s.t, 11, 3, stored_place, &s, &plan,
		   &err),
	    0, "a range between missing elements is planned");
	plan.n = 1;
	is_int(ofs_plan_elements(s.cat, s.t, 0, 10, no_place, &s, &plan, &err),
	    -1, "a shard that cannot be located fails the plan");
	is_error(err, EIO, "no place",
	    "a shard that cannot be located: error of the locator");
	is_u64(plan.n, 1,
	    "a plan that failed to locate a shard adds no segments");
	is_int(ofs_plan_elements(s.cat, s.t, 10, 0, no_place, &s, &plan, &err),
	    0, "an empty range locates no shard");
	ofs_plan_fini(&plan);
	stored_fini(&s);
	layout_fini(&l);
}

static int collect(void *ctx, uint32_t s)
{
	uint32_t *seen = ctx;

	if (s < seen[1])
		seen[2]++; /* out of order */
	seen[0]++;
	seen[1] = s + 1;
	return seen[0] == seen[3] ? 7 : 0;
}

static void listing(void)
{
	uint32_t seen[4] = { 0 };
	uint8_t bytes[96] = { 0 };
	struct layout l;
	struct stored s;

	two_columns(&l, &s, bytes);
	is_int(ofs_plan_shards(s.cat, s.t, 3, 10, collect, seen), 0,
	    "list the shards of a range");
	is_u64(seen[0], 2, "a shard list has each shard once");
	is_u64(seen[2], 0, "a shard list is in order");
	memset(seen, 0, sizeof(seen));
	seen[3] = 1;
	is_int(ofs_plan_shards(s.cat, s.t, 3, 10, collect, seen), 7,
	    "a nonzero result of the callback ends the list");
	memset(seen, 0, sizeof(seen));
	ofs_plan_shards(s.cat, s.t, 4, 2, collect, seen);
	is_u64(seen[0], 1,
	    "a shard list has only shards that overlap the range");
	stored_fini(&s);
	layout_fini(&l);
}

/* The walk to one element in the middle, and to one row, must take few
 * steps. */
static void walk_costs(const char *what, uint32_t rows, uint32_t columns)
{
	struct optimfs_error err = { 0 };
	uint64_t shape[2] = { rows * 2, columns * 2 }, origin[2] = { 0 };
	struct ofs_tensor t = { .ndim = 2,
		.grid_ndim = 2,
		.dtype = OFS_UINT8,
		.nshards = rows * columns,
		.error = OFS_NONE };
	struct ofs_shard shard = { .at.len = 1, .view = OFS_NONE };
	struct ofs_catalog *cat;
	struct ofs_region r;
	struct ofs_walk w;
	struct ofs_dir dir;
	uint32_t found = 0;

	if (ofs_dir_open("/", &dir, &err) == -1 ||
	    (cat = ofs_catalog_new(&dir, &err)) == NULL)
		bail_out("%s", err.text);
	shard.at.object = ofs_catalog_object(cat, "no/such", -1, &err);
	t.shape = t.grid = ofs_catalog_dims(cat, shape, 2, &err);
	for (uint64_t i = 0; i < t.nshards; i++) {
		uint64_t box[4] = { i / columns * 2, i % columns * 2, 2, 2 };

		shard.box = ofs_catalog_dims(cat, box, 4, &err);
		ofs_catalog_shard(cat, &shard, &err);
	}
	ofs_catalog_tensor(cat, &t, &err);
	if (ofs_catalog_finish(cat, &err) == -1)
		bail_out("%s", err.text);
	is_u64(cat->tensors[0].error, OFS_NONE, "%s: the tensor has no error",
	    what);
	ofs_region_init(&r, 2, origin, shape, rows * shape[1] + columns, 1);
	ofs_walk_init(&w, cat, cat->tensors, &r);
	while (ofs_walk_next(&w) != OFS_NONE)
		found++;
	is_u64(found, 1, "%s: one element is in one shard", what);
	ok(w.steps < 150, "%s: found in %" PRIu64 " steps", what, w.steps);
	ofs_region_init(&r, 2, origin, shape, rows * shape[1], shape[1]);
	ofs_walk_init(&w, cat, cat->tensors, &r);
	for (found = 0; ofs_walk_next(&w) != OFS_NONE; found++)
		continue;
	is_u64(found, columns, "%s: one row is in one row of shards", what);
	ok(w.steps < 150 + 2 * (uint64_t)columns,
	    "%s: found in %" PRIu64 " steps", what, w.steps);
	ofs_catalog_free(cat);
}

int main(void)
{
	ranges();
	reshard();
	shapes();
	failures();
	listing();
	walk_costs("a million chunks of rows", 1000000, 1);
	walk_costs("a million chunks of columns", 1, 1000000);
	walk_costs("a grid of a million chunks", 1000, 1000);
	return done_testing();
}
