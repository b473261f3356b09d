/* edit_lay.c - staged bytes over the elements of a box */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <string.h>

#include "dtype.h"
#include "edit_impl.h"

/* The elements of a box that follow each other in the tensor too: runs. */
struct runs {
	unsigned ndim, outer; /* dimensions; those before the runs' */
	const uint64_t *grid, *off, *size;
	uint64_t len;  /* elements in a run */
	uint64_t item; /* bytes in an element */
};

static void runs_init(struct runs *r, const struct ofs_catalog *cat,
    const struct ofs_tensor *t, const uint64_t *box)
{
	*r = (struct runs){
		.ndim = t->grid_ndim,
		.grid = cat->dims + t->grid,
		.item = ofs_dtype_size(t->dtype),
		.len = 1,
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

/* Where in the tensor run i begins, in elements. */
static uint64_t runs_at(const struct runs *r, uint64_t i)
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

/* One stretch of bytes of the tensor, and where it goes. */
struct stretch {
	uint64_t off, end, dst;
};

struct cursor {
	struct runs runs;
	uint64_t at, end, dst; /* elements of the box; bytes */
};

static bool next(struct cursor *c, struct stretch *s)
{
	uint64_t run, into, n;

	if (c->at == c->end || c->runs.len == 0)
		return false;
	run = c->at / c->runs.len;
	into = c->at % c->runs.len;
	n = c->runs.len - into < c->end - c->at ? c->runs.len - into
						: c->end - c->at;
	s->off = (runs_at(&c->runs, run) + into) * c->runs.item;
	s->end = s->off + n * c->runs.item;
	s->dst = c->dst;
	c->at += n;
	c->dst += n * c->runs.item;
	return true;
}

static void begin(struct cursor *c, const struct ofs_catalog *cat,
    const struct ofs_tensor *t, const uint64_t *box, uint64_t first,
    uint64_t count)
{
	runs_init(&c->runs, cat, t, box);
	c->at = first;
	c->end = first + count;
	c->dst = 0;
}

bool ofs_edit_covers(struct ofs_edit_file *f, const struct ofs_catalog *cat,
    const struct ofs_tensor *t, const uint64_t *box, uint64_t first,
    uint64_t count)
{
	struct stretch s;
	struct cursor c;
	bool all = true;

	begin(&c, cat, t, box, first, count);
	pthread_rwlock_rdlock(&f->lock);
	if (f->text)
		all = f->said != NULL;
	else
		while (all && next(&c, &s))
			all = ofs_ranges_cover(&f->written, s.off, s.end);
	pthread_rwlock_unlock(&f->lock);
	return all;
}

int ofs_edit_lay(struct ofs_edit *edit, struct ofs_edit_file *f,
    const struct ofs_catalog *cat, const struct ofs_tensor *t,
    const uint64_t *box, uint64_t first, uint64_t count, void *buf,
    struct optimfs_error *err)
{
	uint8_t *to = buf;
	struct stretch s;
	struct cursor c;
	int ret = 0;

	begin(&c, cat, t, box, first, count);
	while (ret == 0 && next(&c, &s))
		ret = ofs_edit_file_lay(edit, f, to + s.dst, s.off, s.end, err);
	return ret;
}
