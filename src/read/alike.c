/* alike.c - elements that are known to be equal without being read */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "read/alike.h"

#include "plan/fix.h"

/* An index of a hundred bytes can claim a tensor of a terabyte: in a file that
 * is one hole, or as a view with strides of 0. To read it takes as long as if
 * somebody had stored it. But a plan of it is short, and shows that there is
 * only one element to read. */

/* A longer plan is not worth it. */
#define MOST_SEGMENTS 4096

static bool is_hole(struct ofs_reader *r, const struct ofs_segment *seg)
{
	struct ofs_segment wide;

	if ((seg->fix & OFS_FIX_ROUND) == 0)
		return ofs_transport_hole(r->transport, seg);
	ofs_fix_widen(seg, 0, &wide);
	return ofs_transport_hole(r->transport, &wide);
}

static bool negates(const struct ofs_segment *seg)
{
	return (seg->fix & (OFS_FIX_NEG | OFS_FIX_CONJ)) != 0;
}

/* A negated zero is another element than zero. */
static bool only_holes(struct ofs_reader *r, const struct ofs_plan *plan)
{
	for (size_t i = 0; i < plan->n; i++)
		if (plan->seg[i].fix != plan->seg[0].fix ||
		    (plan->nzeros > 0 && negates(&plan->seg[i])) ||
		    !is_hole(r, &plan->seg[i]))
			return false;
	return true;
}

static bool one_element(const struct ofs_plan *plan, uint64_t item)
{
	const struct ofs_segment *first = plan->seg;

	for (size_t i = 0; i < plan->n; i++) {
		const struct ofs_segment *seg = &plan->seg[i];

		if (seg->len != item || (seg->n > 1 && seg->src_pitch != 0) ||
		    seg->object != first->object || seg->src != first->src ||
		    seg->codec != first->codec || seg->fix != first->fix ||
		    seg->ext_off != first->ext_off)
			return false;
	}
	return plan->n > 0 && plan->nzeros == 0;
}

static bool are_alike(struct ofs_reader *r, const struct ofs_alike *a,
    uint64_t first, uint64_t n, struct ofs_plan *plan)
{
	struct optimfs_error err;

	ofs_plan_clear(plan);
	return ofs_plan_box(r->cat, a->t, a->box, first, n, 0, a->place, a->ctx,
		   plan, &err) == 0 &&
	    (one_element(plan, ofs_dtype_size(a->t->dtype)) ||
		only_holes(r, plan));
}

/* Doubles the number while it can, then adds half of the last step, a quarter,
 * and so on. */
uint64_t ofs_alike(struct ofs_reader *r, const struct ofs_alike *a,
    uint64_t first, uint64_t least, uint64_t max)
{
	struct ofs_plan plan = { .most = MOST_SEGMENTS };
	uint64_t known = 0, step = least, n;
	bool doubling = true;

	if (least <= max && are_alike(r, a, first, least, &plan))
		known = least;
	while (known > 0 && known < max && step >= least) {
		n = step < max - known ? known + step : max;
		if (are_alike(r, a, first, n, &plan))
			known = n;
		else
			doubling = false;
		step = doubling ? known : step / 2;
	}
	ofs_plan_fini(&plan);
	return known;
}
