/* placement.c - how a mesh of ranks cuts one dimension of a DTensor */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "format/placement.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/memory.h"

struct runs {
	struct ofs_run *v;
	uint32_t n, cap;
};

static int add_run(struct runs *r, uint64_t first, uint64_t count,
    struct optimfs_error *err)
{
	struct ofs_run *last = r->n > 0 ? &r->v[r->n - 1] : NULL;

	if (count == 0)
		return 0;
	if (last != NULL && last->first + last->count == first) {
		last->count += count;
		return 0;
	}
	if (r->n == OFS_MAX_RUNS)
		return optimfs_fail(err, E2BIG,
		    "OFS694 a rank's part of one dimension is in more than %d "
		    "pieces",
		    OFS_MAX_RUNS);
	if (ofs_grow(r->v, r->n, r->cap, err) == -1)
		return -1;
	r->v[r->n++] = (struct ofs_run){ first, count };
	return 0;
}

static uint64_t total(const struct runs *r)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < r->n; i++)
		n += r->v[i].count;
	return n;
}

/* As torch.chunk: the i-th of m chunks of n elements. The last chunks may be
 * shorter or empty. */
static struct ofs_run chunk(uint64_t n, uint64_t m, uint64_t i)
{
	uint64_t size = n / m + (n % m != 0), first;

	if (size == 0 || i > n / size)
		return (struct ofs_run){ n, 0 };
	first = i * size;
	return (struct ofs_run){ first, n - first < size ? n - first : size };
}

/* Appends the part [first, first + count) of the concatenation of from's
 * runs. */
static int cut(const struct runs *from, struct ofs_run want, struct runs *to,
    struct optimfs_error *err)
{
	uint64_t at = 0, end = want.first + want.count;

	for (uint32_t i = 0; i < from->n && at < end; i++) {
		struct ofs_run r = from->v[i];
		uint64_t lo = want.first > at ? want.first - at : 0;
		uint64_t hi = end - at < r.count ? end - at : r.count;

		if (lo < hi && add_run(to, r.first + lo, hi - lo, err) == -1)
			return -1;
		at += r.count;
	}
	return 0;
}

/* Cuts r into split chunks, and keeps the i-th of m parts of each. */
static int shard(struct runs *r, uint64_t split, uint64_t m, uint64_t i,
    struct optimfs_error *err)
{
	struct runs to = { 0 };
	uint64_t n = total(r), size = chunk(n, split, 0).count;
	uint64_t part_size = chunk(size, m, i).count, k = 0;

	/* A file can say that there are 2^60 chunks: none of these loops is
	 * longer than the result. */
	if (part_size == size)
		return 0; /* all of each chunk */
	if (part_size == 0)
		k = (n - 1) / size; /* only the last one is smaller */
	for (; k < split; k++) {
		struct ofs_run whole = chunk(n, split, k);
		struct ofs_run part = chunk(whole.count, m, i);

		if (whole.count == 0)
			break; /* and all later ones */
		part.first += whole.first;
		if (cut(r, part, &to, err) == -1) {
			free(to.v);
			return -1;
		}
	}
	free(r->v);
	*r = to;
	return 0;
}

static bool cuts(const struct ofs_placement *p, uint32_t dim)
{
	return p->kind == OFS_SHARD && p->dim == dim;
}

/* The position of a mesh dimension in the order of cuts, from its factor: after
 * as many dimensions as have the product split. False: there is no such
 * position. */
static bool find_turn(const uint32_t *order, uint32_t n, const uint64_t *mesh,
    uint64_t split, uint32_t *turn)
{
	uint64_t product = 1;

	for (*turn = 0; product != split; ++*turn)
		if (*turn == n ||
		    !ofs_mul_u64(product, mesh[order[*turn]], &product) ||
		    product > split)
			return false;
	return true;
}

/* The order in which mesh dimensions cut dimension dim; returns how many do.
 * *literal is set if the factors give no order. */
static uint32_t find_order(const struct ofs_placement *p, const uint64_t *mesh,
    uint32_t nmesh, uint32_t dim, uint32_t *order, bool *literal)
{
	uint32_t n = 0, turn;

	for (uint32_t i = nmesh; i-- > 0 && !*literal;) {
		if (!cuts(&p[i], dim))
			continue;
		if (!find_turn(order, n, mesh, p[i].split, &turn)) {
			*literal = true;
			break;
		}
		memmove(order + turn + 1, order + turn,
		    (n - turn) * sizeof(*order));
		order[turn] = i;
		n++;
	}
	if (!*literal)
		return n;
	n = 0;
	for (uint32_t i = 0; i < nmesh; i++)
		if (cuts(&p[i], dim))
			order[n++] = i;
	return n;
}

int ofs_placement_runs(const struct ofs_placement *p, const uint64_t *mesh,
    const uint64_t *coordinate, uint32_t nmesh, uint32_t dim, uint64_t n,
    bool literal, struct ofs_run **run, uint32_t *nruns,
    struct optimfs_error *err)
{
	uint32_t order[OFS_MAX_MESH], norder;
	struct runs r = { 0 };
	int ret = add_run(&r, 0, n, err);

	norder = find_order(p, mesh, nmesh, dim, order, &literal);
	for (uint32_t k = 0; k < norder && ret == 0; k++) {
		uint32_t i = order[k];

		ret = shard(&r, literal ? p[i].split : 1, mesh[i],
		    coordinate[i], err);
	}
	if (ret == -1) {
		free(r.v);
		return -1;
	}
	*run = r.v;
	*nruns = r.n;
	return 0;
}
