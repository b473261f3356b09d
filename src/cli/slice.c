/* slice.c - "[0:4, -3:]": a part of a tensor, as NumPy selects it */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "cli/slice.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"

static int no_shape(const char *shape, struct optimfs_error *err)
{
	return optimfs_fail(err, EUCLEAN, "shape %.100s: cannot be indexed",
	    shape);
}

/* An empty tensor may have dimensions whose product is too large. */
static int set_strides(struct ofs_slice *s)
{
	uint64_t shape[OFS_MAX_DIMS], all, stride = 1;

	for (unsigned i = 0; i < s->ndim; i++)
		shape[i] = s->dim[i].size;
	if (!ofs_numel(shape, s->ndim, &all) || all > INT64_MAX)
		return -1;
	for (unsigned i = s->ndim; i-- > 0; stride *= s->dim[i].size)
		s->dim[i].stride = all == 0 ? 0 : stride;
	return 0;
}

int ofs_slice_all(struct ofs_slice *s, const char *shape,
    struct optimfs_error *err)
{
	char *end;

	s->ndim = 0;
	for (const char *at = shape; *at != '\0'; at = end + (*end == ',')) {
		struct ofs_slice_dim d = { .step = 1 };

		errno = 0;
		d.size = strtoull(at, &end, 10);
		if (end == at || (*end != ',' && *end != '\0') || errno != 0 ||
		    d.size > INT64_MAX || s->ndim == OFS_MAX_DIMS)
			return no_shape(shape, err);
		d.count = d.shown = d.size;
		s->dim[s->ndim++] = d;
	}
	return set_strides(s) == -1 ? no_shape(shape, err) : 0;
}

/* A number of a slice, or none. */
struct bound {
	int64_t v;
	bool given;
};

static void skip_blanks(const char **at)
{
	while (isspace((unsigned char)**at))
		++*at;
}

/* A number that is too large is as good as the largest. */
static struct bound take_bound(const char **at)
{
	struct bound b = { 0, false };
	char *end;

	skip_blanks(at);
	if (**at == '-' || **at == '+' || isdigit((unsigned char)**at)) {
		b.v = strtoll(*at, &end, 10);
		if (b.v == INT64_MIN)
			b.v++;
		b.given = end != *at;
		*at = end;
	}
	skip_blanks(at);
	return b;
}

/* Of a negative index the place from the end; at least low, at most high. */
static int64_t place(int64_t v, int64_t size, int64_t low, int64_t high)
{
	if (v < 0)
		v += size;
	return v < low ? low : v > high ? high : v;
}

/* As Python's slice.indices. */
static void set_range(struct ofs_slice_dim *d, struct bound from,
    struct bound to, int64_t step)
{
	int64_t n = (int64_t)d->size;
	int64_t low = step > 0 ? 0 : -1, high = step > 0 ? n : n - 1;
	int64_t start = step > 0 ? low : high, stop = step > 0 ? high : low;

	if (from.given)
		start = place(from.v, n, low, high);
	if (to.given)
		stop = place(to.v, n, low, high);
	d->step = step;
	d->count = 0;
	if (step > 0 ? start < stop : stop < start) {
		d->start = (uint64_t)start;
		d->count = step > 0
		    ? (uint64_t)((stop - start - 1) / step) + 1
		    : (uint64_t)((start - stop - 1) / -step) + 1;
	}
	d->shown = d->count;
}

static int set_index(struct ofs_slice *s, unsigned i, int64_t v,
    struct optimfs_error *err)
{
	struct ofs_slice_dim *d = &s->dim[i];
	int64_t n = (int64_t)d->size;

	if (v < -n || v >= n)
		return optimfs_fail(err, EINVAL,
		    "index %" PRId64
		    " is out of bounds for dimension %u, which has %" PRId64,
		    v, i, n);
	d->start = (uint64_t)(v < 0 ? v + n : v);
	d->count = d->shown = 1;
	d->index = true;
	return 0;
}

/* One index or range, up to a comma or the bracket. */
static int take_item(struct ofs_slice *s, unsigned i, const char **at,
    struct optimfs_error *err)
{
	struct bound from = take_bound(at), to = { 0, false }, step = to;

	if (**at != ':') {
		if (!from.given)
			return optimfs_fail(err, EINVAL,
			    "not an index, START:STOP:STEP or ...");
		return set_index(s, i, from.v, err);
	}
	++*at;
	to = take_bound(at);
	if (**at == ':') {
		++*at;
		step = take_bound(at);
	}
	if (step.given && step.v == 0)
		return optimfs_fail(err, EINVAL, "a step of 0");
	set_range(&s->dim[i], from, to, step.given ? step.v : 1);
	return 0;
}

static bool is_dots(const char *at)
{
	skip_blanks(&at);
	return strncmp(at, "...", 3) == 0;
}

/* How many items there are, without "...". */
static unsigned count_items(const char *text)
{
	unsigned n = 0;

	for (const char *at = text + 1; at != NULL;) {
		n += !is_dots(at);
		at = strchr(at, ',');
		at = at == NULL ? NULL : at + 1;
	}
	return n;
}

int ofs_slice_parse(struct ofs_slice *s, const char *text,
    struct optimfs_error *err)
{
	unsigned i = 0, items = count_items(text);
	const char *at = text;
	bool dots = false;

	if (items > s->ndim)
		return optimfs_fail(err, EINVAL, "%u indexes for %u dimensions",
		    items, s->ndim);
	do {
		at++; /* the bracket, or a comma */
		if (!is_dots(at)) {
			if (take_item(s, i++, &at, err) == -1)
				return -1;
		} else if (dots) {
			return optimfs_fail(err, EINVAL, "two ...");
		} else {
			dots = true;
			i += s->ndim - items;
			skip_blanks(&at);
			at += 3;
			skip_blanks(&at);
		}
	} while (*at == ',');
	return strcmp(at, "]") == 0
	    ? 0
	    : optimfs_fail(err, EINVAL, "not an index, START:STOP:STEP or ...");
}

void ofs_slice_squeeze(struct ofs_slice *s, uint64_t *start)
{
	unsigned n = 0;

	*start = 0;
	for (unsigned i = 0; i < s->ndim; i++) {
		*start += s->dim[i].start * s->dim[i].stride;
		if (!s->dim[i].index)
			s->dim[n++] = s->dim[i];
	}
	s->ndim = n;
}

bool ofs_slice_shown(const struct ofs_slice *s, uint64_t *n)
{
	uint64_t shown[OFS_MAX_DIMS];

	for (unsigned i = 0; i < s->ndim; i++)
		shown[i] = s->dim[i].shown;
	return ofs_numel(shown, s->ndim, n);
}

void ofs_slice_summarize(struct ofs_slice *s, uint64_t limit, unsigned edge)
{
	uint64_t n;

	if (ofs_slice_shown(s, &n) && n <= limit)
		return;
	for (unsigned i = 0; i < s->ndim; i++)
		if (s->dim[i].count > 2 * edge)
			s->dim[i].shown = 2 * edge;
}

uint64_t ofs_slice_element(const struct ofs_slice *s, uint64_t i)
{
	uint64_t at = 0, k;

	for (unsigned d = s->ndim; d-- > 0; i /= s->dim[d].shown) {
		const struct ofs_slice_dim *dim = &s->dim[d];

		k = i % dim->shown;
		if (k >= dim->shown / 2 && dim->shown < dim->count)
			k += dim->count - dim->shown;
		/* modulo 2^64, where the step is negative */
		at += k * (uint64_t)dim->step * dim->stride;
	}
	return at;
}
