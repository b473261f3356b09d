/* archive/item_view.c - views of parts of stored tensors with any strides */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "archive/item_view.h"

#include <errno.h>
#include <stdint.h>

#include "random.h"
#include "tap.h"

static uint64_t seed = 20261121;

/* 0 to n - 1. */
static unsigned int rnd(unsigned int n)
{
	return (unsigned int)tap_below(&seed, n);
}

#define DIMS 4

struct part {
	struct ofs_torch_tensor tt;
	uint64_t lo[DIMS], size[DIMS]; /* the box, in the shape of the item */
	struct ofs_view view;
	int64_t step[DIMS];
};

static void make_part(struct part *p, bool plain)
{
	unsigned int order[DIMS] = { 0, 1, 2, 3 };
	uint64_t pitch = 1;

	*p = (struct part){ .tt.ndim = (uint8_t)(1 + rnd(DIMS)),
		.view.numel = 1 };
	for (unsigned int i = 0; i < p->tt.ndim; i++)
		p->tt.shape[i] = 1 + rnd(4);
	for (unsigned int i = p->tt.ndim; i > 1 && !plain; i--) {
		unsigned int k = rnd(i), t = order[i - 1];

		order[i - 1] = order[k];
		order[k] = t;
	}
	for (unsigned int i = p->tt.ndim; i-- > 0;) {
		p->tt.stride[order[i]] = (int64_t)pitch;
		pitch *= p->tt.shape[order[i]] + (plain ? 0 : rnd(2));
	}
	for (unsigned int i = p->tt.ndim; i-- > 0;) {
		p->lo[i] = rnd((unsigned int)p->tt.shape[i]);
		p->size[i] = 1 + rnd((unsigned int)(p->tt.shape[i] - p->lo[i]));
		p->step[i] = (int64_t)p->view.numel;
		p->view.offset += p->lo[i] * p->view.numel;
		p->view.numel *= p->tt.shape[i];
	}
}

/* Is element n of the box at the same place by the strides of the view as by
 * those of the stored tensor? */
static bool same_place(const struct part *p, uint64_t n, uint64_t first,
    const int64_t *stride)
{
	int64_t got = (int64_t)first, want = 0;

	for (unsigned int i = p->tt.ndim; i-- > 0;) {
		uint64_t at = n % p->size[i];

		n /= p->size[i];
		got += (int64_t)at * stride[i];
		want += (int64_t)(p->lo[i] + at) * p->tt.stride[i];
	}
	return got == want;
}

static void parts(void)
{
	struct optimfs_error err = { 0 };
	size_t wrong = 0;
	struct part p;

	for (int round = 0; round < 20000; round++) {
		int64_t stride[DIMS];
		uint64_t first, n = 1;

		make_part(&p, round % 4 == 0);
		for (unsigned int i = 0; i < p.tt.ndim; i++)
			n *= p.size[i];
		if (ofs_item_view(&p.tt, &p.view, p.step, p.size, p.tt.ndim,
			&first, stride, &err) == -1) {
			diag("round %d: %s", round, err.text);
			wrong++;
			continue;
		}
		for (uint64_t i = 0; i < n; i++)
			wrong += !same_place(&p, i, first, stride);
	}
	is_u64(wrong, 0,
	    "boxes of items with random strides are viewed correctly");
}

static void odd_parts(void)
{
	/* shape [2, 3], transposed in storage */
	struct ofs_torch_tensor t = {
		.ndim = 2, .shape = { 2, 3 }, .stride = { 1, 2 }
	};
	struct ofs_view v = { .numel = 6 };
	uint64_t first, six = 6, two = 2, huge = UINT64_MAX;
	int64_t one = 1, back = -1, got;
	struct optimfs_error err = { 0 };

	ok(ofs_item_view(&t, &v, &one, &six, 1, &first, &got, &err) == -1,
	    "a flat view of a transposed item fails");
	is_error(err, EOPNOTSUPP, "OFS536",
	    "a flat view of a transposed item fails with OFS536");
	t.stride[0] = 3, t.stride[1] = 1;
	ok(ofs_item_view(&t, &v, &one, &six, 1, &first, &got, &err) == 0 &&
		first == 0 && got == 1,
	    "a flat view of a contiguous item has stride 1");
	v.offset = 5;
	ok(ofs_item_view(&t, &v, &one, &two, 1, &first, &got, &err) == -1,
	    "a view past the end of its item fails");
	is_error(err, EUCLEAN, "OFS528",
	    "a view past the end of its item fails with OFS528");
	v.offset = 0;
	ok(ofs_item_view(&t, &v, &one, &huge, 1, &first, &got, &err) == -1 &&
		ofs_item_view(&t, &v, &back, &two, 1, &first, &got, &err) == -1,
	    "a view with 2^64-1 elements or a negative step fails");
	v.numel = 7;
	ok(ofs_item_view(&t, &v, &one, &two, 1, &first, &got, &err) == -1,
	    "a view of an item of another size fails");
	is_error(err, EUCLEAN, "OFS615",
	    "a view of an item of another size fails with OFS615");
}

int main(void)
{
	parts();
	odd_parts();
	return done_testing();
}
