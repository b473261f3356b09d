/* runs.c - the elements of a box as runs of the tensor's bytes */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "plan/runs.h"

#include "base/dtype.h"

void ofs_runs_begin(struct ofs_runs *r, const struct ofs_catalog *cat,
    const struct ofs_tensor *t, const uint64_t *box, uint64_t first,
    uint64_t count)
{
	*r = (struct ofs_runs){
		.ndim = t->grid_ndim,
		.grid = cat->dims + t->grid,
		.item = ofs_dtype_size(t->dtype),
		.len = 1,
		.at = first,
		.end = first + count,
	};
	if (box == NULL) {
		r->len = ofs_tensor_numel(cat, t);
		return;
	}
	r->off = box;
	r->size = box + r->ndim;
	r->outer = r->ndim;
	while (r->outer > 0) {
		r->outer--;
		r->len *= r->size[r->outer];
		if (r->size[r->outer] != r->grid[r->outer])
			break;
	}
}

/* The position of run i in the tensor, in elements. */
static uint64_t run_at(const struct ofs_runs *r, uint64_t i)
{
	uint64_t at = 0, pitch = 1;

	if (r->off == NULL)
		return 0;
	for (unsigned d = r->ndim; d-- > 0;) {
		uint64_t index = 0;

		if (d < r->outer) {
			index = i % r->size[d];
			i /= r->size[d];
		}
		at += (r->off[d] + index) * pitch;
		pitch *= r->grid[d];
	}
	return at;
}

bool ofs_runs_next(struct ofs_runs *r, struct ofs_stretch *s)
{
	uint64_t run, into, n;

	if (r->at == r->end || r->len == 0)
		return false;
	run = r->at / r->len;
	into = r->at % r->len;
	n = r->len - into < r->end - r->at ? r->len - into : r->end - r->at;
	s->off = (run_at(r, run) + into) * r->item;
	s->end = s->off + n * r->item;
	s->dst = r->dst;
	r->at += n;
	r->dst += n * r->item;
	return true;
}
