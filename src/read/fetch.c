/* fetch.c - the bytes that a plan asks for, fixed and rounded */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "read/fetch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/memory.h"
#include "plan/fix.h"
#include "read/alike.h"
#include "read/derived.h"
#include "read/locate.h"

static bool rounds(const struct ofs_segment *seg)
{
	return (seg->fix & OFS_FIX_ROUND) != 0;
}

/* Elements to be rounded are longer in the file than in buf. */
static int fetch_rounded(struct ofs_reader *r, const struct ofs_plan *plan,
    void *buf, struct optimfs_error *err)
{
	struct ofs_plan wide = { 0 };
	uint8_t *stored = NULL;
	uint64_t bytes = 0;
	size_t k = 0;
	int ret = -1;

	for (size_t i = 0; i < plan->n; i++) {
		struct ofs_segment seg;

		if (!rounds(&plan->seg[i]))
			continue;
		bytes += ofs_fix_widen(&plan->seg[i], bytes, &seg);
		if (ofs_plan_add(&wide, &seg, err) == -1)
			goto out;
	}
	stored = malloc(bytes);
	if (stored == NULL) {
		ofs_no_memory(err);
		goto out;
	}
	ret = ofs_transport_fetch(r->transport, wide.seg, wide.n, stored, err);
	for (size_t i = 0; ret == 0 && i < plan->n; i++)
		if (rounds(&plan->seg[i]))
			ofs_fix_round(&plan->seg[i], stored + wide.seg[k++].dst,
			    buf);
out:
	free(stored);
	ofs_plan_fini(&wide);
	return ret;
}

/* Does the transport not have the bytes as they are wanted? */
static bool is_made(const struct ofs_segment *seg)
{
	return rounds(seg) || ofs_is_computed(seg);
}

/* How many segments from i on have the derivation of segment i. */
static size_t same_derivation(const struct ofs_plan *plan, size_t i)
{
	const struct ofs_segment *seg = plan->seg;
	size_t n = 1;

	while (i + n < plan->n && ofs_is_computed(&seg[i + n]) &&
	    seg[i + n].ext_off == seg[i].ext_off)
		n++;
	return n;
}

/* Fetch a plan with segments that are rounded or computed. */
static int fetch_mixed(struct ofs_reader *r, const struct ofs_plan *plan,
    void *buf, struct optimfs_error *err)
{
	struct ofs_plan rest = { 0 };
	bool round = false;
	int ret = 0;

	for (size_t i = 0, n; i < plan->n && ret == 0; i += n) {
		n = 1;
		round |= rounds(&plan->seg[i]);
		if (ofs_is_computed(&plan->seg[i])) {
			n = same_derivation(plan, i);
			ret = ofs_derived_fetch(r, &plan->seg[i], n, buf, err);
		} else if (!rounds(&plan->seg[i])) {
			ret = ofs_plan_add(&rest, &plan->seg[i], err);
		}
	}
	if (ret == 0 && rest.n > 0)
		ret = ofs_transport_fetch(r->transport, rest.seg, rest.n, buf,
		    err);
	ofs_plan_fini(&rest);
	return ret == 0 && round ? fetch_rounded(r, plan, buf, err) : ret;
}

int ofs_fetch(struct ofs_reader *r, const struct ofs_plan *plan, void *buf,
    struct optimfs_error *err)
{
	struct ofs_transport *t = r->transport;
	bool made = false;

	for (size_t i = 0; i < plan->nzeros; i++)
		memset((uint8_t *)buf + plan->zero[i].dst, 0,
		    plan->zero[i].len);
	for (size_t i = 0; i < plan->n && !made; i++)
		made = is_made(&plan->seg[i]);
	if (plan->n > 0 &&
	    (made ? fetch_mixed(r, plan, buf, err)
		  : t->ops->fetch(t, plan->seg, plan->n, buf, err)) == -1)
		return -1;
	for (size_t i = 0; i < plan->n; i++)
		if (plan->seg[i].fix != OFS_FIX_NONE && !rounds(&plan->seg[i]))
			ofs_fix_segment(&plan->seg[i], buf);
	return 0;
}

int ofs_fetch_elements(struct ofs_reader *r, const struct ofs_tensor *t,
    uint64_t first, uint64_t count, void *buf, struct optimfs_error *err)
{
	struct ofs_plan plan = { 0 };
	int ret = ofs_plan_elements(r->cat, t, first, count, ofs_locate, r,
	    &plan, err);

	if (ret == 0)
		ret = ofs_fetch(r, &plan, buf, err);
	ofs_plan_fini(&plan);
	return ret;
}

int ofs_fetch_part_init(struct ofs_fetch_part *p, const struct ofs_catalog *cat,
    const struct ofs_tensor *t, uint32_t shard, const struct ofs_place *place,
    struct optimfs_error *err)
{
	*p = (struct ofs_fetch_part){ .t = t, .shard = shard, .place = place };
	ofs_shard_box(cat, t, &cat->shards[shard], p->box,
	    p->box + t->grid_ndim);
	if (ofs_numel(p->box + t->grid_ndim, t->grid_ndim, &p->total))
		return 0;
	return optimfs_fail(err, EUCLEAN, "OFS606 size overflow");
}

struct fetching {
	struct ofs_reader *r;
	const struct ofs_fetch_part *p;
};

static const struct ofs_place *place_of(void *ctx, const struct ofs_tensor *t,
    uint32_t shard, struct optimfs_error *err)
{
	const struct fetching *f = ctx;

	return f->p->place != NULL && shard == f->p->shard
	    ? f->p->place
	    : ofs_locate(f->r, t, shard, err);
}

int ofs_fetch_part(struct ofs_reader *r, const struct ofs_fetch_part *p,
    void *buf, struct optimfs_error *err)
{
	struct fetching f = { r, p };
	struct ofs_plan plan = { 0 };
	int ret = ofs_plan_box(r->cat, p->t, p->box, p->first, p->count, 0,
	    place_of, &f, &plan, err);

	if (ret == 0)
		ret = ofs_fetch(r, &plan, buf, err);
	ofs_plan_fini(&plan);
	return ret;
}

uint64_t ofs_fetch_part_alike(struct ofs_reader *r,
    const struct ofs_fetch_part *p)
{
	struct fetching f = { r, p };
	struct ofs_alike a = { p->t, p->box, place_of, &f };

	return ofs_alike(r, &a, p->first, 2 * p->count, p->total - p->first);
}
