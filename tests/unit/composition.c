/* plan/composition.c - compositions of literal bytes and boxes of tensors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "plan/composition.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "layout.h"
#include "tap.h"

static uint64_t rng = 0x2545f4914f6cdd1d;

/* A composition and the bytes it should have. */
struct made {
	struct ofs_composition c;
	struct layout l;
	struct stored s;
	uint8_t *tensor;
	uint8_t *want;
	uint64_t size;
};

/* Appends the elements of a box of the tensor, in C order, to want. */
static void expect_box(struct made *m, const uint64_t *lo, const uint64_t *size)
{
	uint64_t n = layout_numel(size, m->l.ndim);

	m->want = realloc(m->want, m->size + n * m->s.item + 1);
	if (m->want == NULL)
		bail_out("out of memory");
	for (uint64_t i = 0; i < n; i++) {
		uint64_t rest = i, at = 0, pitch = 1;

		for (unsigned int k = m->l.ndim; k-- > 0;) {
			at += (lo[k] + rest % size[k]) * pitch;
			rest /= size[k];
			pitch *= m->l.shape[k];
		}
		memcpy(m->want + m->size, m->tensor + at * m->s.item,
		    m->s.item);
		m->size += m->s.item;
	}
}

static void put_box(struct made *m)
{
	uint64_t box[2 * LAYOUT_DIMS] = { 0 };
	unsigned int d = m->l.ndim;

	for (unsigned int k = 0; k < d; k++) {
		box[k] = tap_below(&rng, m->l.shape[k] + 1);
		box[d + k] = tap_below(&rng, m->l.shape[k] - box[k] + 1);
	}
	if (ofs_composition_box(&m->c, m->s.cat, 0, box, NULL) == -1)
		bail_out("no box");
	expect_box(m, box, box + d);
}

static void put_whole(struct made *m)
{
	static const uint64_t origin[LAYOUT_DIMS];

	if (ofs_composition_box(&m->c, m->s.cat, 0, NULL, NULL) == -1)
		bail_out("no box");
	expect_box(m, origin, m->l.shape);
}

/* A random run of elements in C order. */
static void put_elements(struct made *m)
{
	uint64_t n = layout_numel(m->l.shape, m->l.ndim);
	uint64_t first = tap_below(&rng, n + 1);
	uint64_t count = tap_below(&rng, n - first + 1);
	uint64_t size = count * m->s.item;

	if (ofs_composition_elements(&m->c, m->s.cat, 0, first, count, NULL) ==
	    -1)
		bail_out("no elements");
	m->want = realloc(m->want, m->size + size + 1);
	if (m->want == NULL)
		bail_out("out of memory");
	memcpy(m->want + m->size, m->tensor + first * m->s.item, size);
	m->size += size;
}

static void put_bytes(struct made *m)
{
	size_t n = tap_below(&rng, 40);
	uint8_t *bytes = random_bytes(&rng, n);

	if (ofs_composition_bytes(&m->c, bytes, n, NULL) == -1)
		bail_out("no bytes");
	m->want = realloc(m->want, m->size + n + 1);
	if (m->want == NULL)
		bail_out("out of memory");
	memcpy(m->want + m->size, bytes, n);
	m->size += n;
	free(bytes);
}

/* Some stored bytes of a shard, with its gaps. */
static void put_stored(struct made *m)
{
	uint32_t object = (uint32_t)tap_below(&rng, m->s.n);
	uint64_t all, off, from, n;
	struct ofs_extent at = { .object = object };

	if (m->s.n == 0)
		return;
	all = m->s.len[object];
	off = tap_below(&rng, all + 1);
	from = tap_below(&rng, all - off + 1);
	n = tap_below(&rng, all - off - from + 1);
	at.off = off;
	at.len = all - off;
	if (ofs_composition_stored(&m->c, &at, from, n, NULL) == -1)
		bail_out("no stored bytes");
	m->want = realloc(m->want, m->size + n + 1);
	if (m->want == NULL)
		bail_out("out of memory");
	memcpy(m->want + m->size, m->s.bytes[object] + off + from, n);
	m->size += n;
}

static void make(struct made *m)
{
	*m = (struct made){ .want = random_bytes(&rng, 0) };
	layout_shape(&m->l, &rng);
	layout_cut(&m->l, (enum layout_kind)tap_below(&rng, LAYOUT_KINDS),
	    &rng);
	m->tensor = random_bytes(&rng,
	    layout_numel(m->l.shape, m->l.ndim) * ofs_dtype_size(m->l.dtype));
	stored_init(&m->s, &m->l, m->tensor, true, &rng);
	for (uint64_t n = tap_below(&rng, 8); n > 0; n--)
		switch (tap_below(&rng, 5)) {
		case 0:
			put_bytes(m);
			break;
		case 1:
			put_box(m);
			break;
		case 2:
			put_elements(m);
			break;
		case 3:
			put_stored(m);
			break;
		default:
			put_whole(m);
			break;
		}
}

static void drop(struct made *m)
{
	ofs_composition_fini(&m->c);
	stored_fini(&m->s);
	layout_fini(&m->l);
	free(m->tensor);
	free(m->want);
}

/* Reads a range of the composition, widened to whole elements, and compares
 * it. */
static bool range_is(struct made *m, uint64_t off, uint64_t len)
{
	uint64_t from = off, n = len;
	struct optimfs_error err = { 0 };
	struct ofs_plan plan = { 0 };
	uint8_t *got;
	bool same;

	ofs_composition_align(&m->c, &from, &n);
	if (from > off || from + n < off + len || from + n > m->size ||
	    off - from >= 16 || from + n - off - len >= 16)
		return false;
	got = calloc(1, n + 1);
	if (got == NULL)
		bail_out("out of memory");
	same = ofs_composition_plan(&m->c, m->s.cat, from, n, got, stored_place,
		   &m->s, &plan, &err) == 0;
	if (!same)
		diag("%s", err.text);
	stored_run(&m->s, &plan, got, NULL);
	same = same && memcmp(got, m->want + from, n) == 0;
	ofs_plan_fini(&plan);
	free(got);
	return same;
}

static void ranges(void)
{
	int good = 0, rounds = 2000;

	for (int i = 0; i < rounds; i++) {
		struct made m;
		bool same;

		make(&m);
		same = m.c.size == m.size && range_is(&m, 0, m.size);
		for (int k = 0; m.size > 0 && k < 8 && same; k++) {
			uint64_t off = tap_below(&rng, m.size);

			same = range_is(&m, off,
			    1 + tap_below(&rng, m.size - off));
		}
		good += same;
		drop(&m);
	}
	is_int(good, rounds,
	    "random ranges of random compositions have the expected bytes");
}

static void alignment(void)
{
	static const uint64_t zero[1] = { 0 }, three[1] = { 3 };
	struct layout l = { .ndim = 1, .shape = { 3 }, .dtype = OFS_FLOAT32 };
	static const uint64_t empty[2] = { 1, 0 };
	uint8_t bytes[12] = { 0 };
	struct ofs_composition c = { 0 };
	uint64_t off, len;
	struct stored s;

	layout_add(&l, zero, three);
	stored_init(&s, &l, bytes, false, &rng);
	ofs_composition_bytes(&c, "header", 6, NULL);
	ofs_composition_bytes(&c, NULL, 0, NULL);
	ofs_composition_box(&c, s.cat, 0, empty, NULL);
	ofs_composition_box(&c, s.cat, 0, NULL, NULL);
	is_u64(c.n, 2, "empty pieces are not added to a composition");
	is_u64(c.size, 18, "the size of a composition is that of its pieces");
	off = 3, len = 4;
	ofs_composition_align(&c, &off, &len);
	ok(off == 3 && len == 7,
	    "aligning widens the end to a whole element, not a literal byte");
	off = 11, len = 2;
	ofs_composition_align(&c, &off, &len);
	ok(off == 10 && len == 4,
	    "aligning widens a range inside an element to all of it");
	off = 10, len = 8;
	ofs_composition_align(&c, &off, &len);
	ok(off == 10 && len == 8, "aligning keeps a range of whole elements");
	off = 11, len = 0;
	ofs_composition_align(&c, &off, &len);
	ok(off == 11 && len == 0, "aligning keeps an empty range");
	ofs_composition_fini(&c);
	stored_fini(&s);
	layout_fini(&l);
}

/* Finds only the shard that is asked for first. */
static const struct ofs_place *place_once(void *ctx, const struct ofs_tensor *t,
    uint32_t shard, struct optimfs_error *err)
{
	const struct stored *s = ctx;

	if (s->asked == 0)
		return stored_place(ctx, t, shard, err);
	optimfs_fail(err, EIO, "no place");
	return NULL;
}

/* A piece that cannot be planned also removes the segments of the pieces before
 * it. */
static void failure(void)
{
	static const uint64_t lo[1] = { 0 }, size[1] = { 2 };
	struct layout l = { .ndim = 1, .shape = { 3 }, .dtype = OFS_UINT8 };
	static const uint64_t good[2] = { 0, 2 };
	struct optimfs_error err = { 0 };
	struct ofs_plan plan = { 0 };
	struct ofs_composition c = { 0 };
	uint8_t bytes[3] = { 0 }, buf[8];
	struct stored s;

	layout_add(&l, lo, size);
	stored_init(&s, &l, bytes, false, &rng);
	ofs_composition_box(&c, s.cat, 0, good, NULL);
	ofs_composition_box(&c, s.cat, 0, NULL, NULL);
	is_int(ofs_composition_plan(&c, s.cat, 0, 4, buf, stored_place, &s,
		   &plan, &err),
	    0, "a range before a gap in the shards is planned");
	is_u64(plan.n, 2, "two adjacent pieces make two segments");
	is_int(ofs_composition_plan(&c, s.cat, 0, 5, buf, stored_place, &s,
		   &plan, &err),
	    -1, "a range with a gap in the shards fails");
	is_error(err, EIO, "OFS607 element 2",
	    "a gap in the shards fails with the missing element");
	is_u64(plan.n, 2, "a failed range leaves the plan unchanged");
	s.cat->tensors[0].flags = OFS_TENSOR_ZERO;
	s.asked = 0;
	is_int(ofs_composition_plan(&c, s.cat, 0, 5, buf, place_once, &s, &plan,
		   &err),
	    -1, "a second box that is not found fails the range");
	ofs_plan_clear(&plan);
	ofs_composition_fini(&c);
	ofs_composition_box(&c, s.cat, 0, NULL, NULL);
	ofs_composition_box(&c, s.cat, 0, good, NULL);
	s.asked = 0;
	is_int(ofs_composition_plan(&c, s.cat, 0, 5, buf, place_once, &s, &plan,
		   &err),
	    -1, "also behind elements that are zeros");
	is_u64(plan.nzeros, 0, "a failed range leaves no zeros in the plan");
	ofs_plan_fini(&plan);
	ofs_composition_fini(&c);
	stored_fini(&s);
	layout_fini(&l);
}

int main(void)
{
	ranges();
	alignment();
	failure();
	return done_testing();
}
