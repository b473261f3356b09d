/* walk.c - where parameters begin and end in a bucket */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/memory.h"
#include "base/search.h"
#include "format/megatron/buckets/buckets.h"

/* A parameter is one chunk, unless the shares of two ranks meet inside it. So
 * from the chunk at which it begins, only few ends are possible: that of this
 * chunk, and beyond each such cut those of the next ones. What remains of the
 * last 64 elements is a gap, with a chunk of its own.
 *
 * Each way to continue is an edge from one chunk to another, and a division of
 * the bucket is a path of edges from the first chunk to behind the last. Nearly
 * always there is one. There are more if a cut is where a parameter ends, and
 * two parameters together are as long as a third. */

struct edge {
	uint32_t to;
	uint64_t len;
};

struct walk {
	const struct ofs_bucket_walk *in;
	struct edge *edge;
	uint32_t n, cap;
	uint32_t
	    *first;   /* of each chunk: its first edge; nchunks + 1 of them */
	bool *ends;   /* of each chunk: a path leads from it to the end */
	bool *begins; /* a path leads to it from the first chunk */
	struct optimfs_error *err;
};

static uint64_t end_of(const struct ofs_bucket_walk *w, uint32_t chunk)
{
	return w->chunk[chunk].off + w->chunk[chunk].len;
}

/* Can the shares of two ranks meet behind this chunk? */
static bool is_cut(const struct ofs_bucket_walk *w, uint32_t chunk)
{
	int a, b;

	if (chunk + 1 == w->nchunks)
		return false;
	a = w->chunk[chunk].rank;
	b = w->chunk[chunk + 1].rank;
	return a != b || a == -1;
}

/* Do the chunks follow each other, from 0 on? */
static bool in_order(const struct ofs_bucket_walk *w)
{
	uint64_t at = 0;

	for (uint32_t i = 0; i < w->nchunks; i++)
		if (w->chunk[i].off != at || w->chunk[i].len == 0 ||
		    !ofs_add_u64(at, w->chunk[i].len, &at) || at > INT64_MAX)
			return false;
	return true;
}

/* The chunk at which a parameter can begin behind one that ends with chunk
 * last; 0: it cannot end there, because there is no gap up to the next multiple
 * of 64. */
static uint32_t next_start(const struct ofs_bucket_walk *w, uint32_t last)
{
	uint64_t end = end_of(w, last), whole = end_of(w, w->nchunks - 1),
		 want = (end + OFS_BUCKET_ALIGN - 1) / OFS_BUCKET_ALIGN *
	    OFS_BUCKET_ALIGN;
	uint32_t i = last;

	if (want > whole)
		want = whole;
	while (end_of(w, i) < want) {
		if (i > last && !is_cut(w, i))
			return 0;
		i++;
	}
	return end_of(w, i) == want ? i + 1 : 0;
}

static int add_edges(struct walk *k, uint32_t from)
{
	const struct ofs_bucket_walk *w = k->in;

	if (!k->begins[from] || w->chunk[from].off % OFS_BUCKET_ALIGN != 0)
		return 0;
	for (uint32_t i = from; i < w->nchunks; i++) {
		uint64_t len = end_of(w, i) - w->chunk[from].off;
		uint32_t to = next_start(w, i);

		if (w->nlens == 0 || len > w->len[w->nlens - 1] ||
		    *w->budget == 0)
			break;
		--*w->budget;
		if (to != 0 &&
		    ofs_search(&len, w->len, w->nlens, sizeof(len),
			ofs_compare_u64) != NULL) {
			if (ofs_grow(k->edge, k->n, k->cap, k->err) == -1)
				return -1;
			k->edge[k->n++] = (struct edge){ to, len };
			k->begins[to] = true;
		}
		if (!is_cut(w, i))
			break;
	}
	return 0;
}

/* Which chunks lead to the end? */
static void look_back(struct walk *k)
{
	uint32_t n = k->in->nchunks;

	k->ends[n] = true;
	for (uint32_t i = n; i-- > 0;)
		for (uint32_t e = k->first[i]; e < k->first[i + 1]; e++)
			k->ends[i] = k->ends[i] || k->ends[k->edge[e].to];
}

/* Drops the edges of a chunk that do not lead to the end, and those without a
 * proof if another has one. Returns the number of the others, which are its
 * first then; -1. */
static int64_t choose(struct walk *k, uint32_t chunk)
{
	struct edge *e = k->edge + k->first[chunk];
	uint32_t n = 0, proved = 0;

	for (uint32_t i = k->first[chunk]; i < k->first[chunk + 1]; i++)
		if (k->ends[k->edge[i].to])
			e[n++] = k->edge[i];
	if (n < 2 || k->in->holds == NULL)
		return n;
	for (uint32_t i = 0; i < n; i++) {
		struct ofs_bucket_slice s = { k->in->chunk[chunk].off,
			e[i].len };
		int holds = k->in->holds(k->in->ctx, s, k->err);
		struct edge swap = e[i];

		if (holds == -1)
			return -1;
		if (holds == 1) {
			e[i] = e[proved];
			e[proved++] = swap;
		}
	}
	return proved > 0 ? proved : n;
}

/* Takes the edges that no other edge on a path overlaps. */
static int take(struct walk *k, struct ofs_bucket_slice *slice, uint32_t *n,
    bool *whole)
{
	uint32_t far = 0; /* the furthest chunk that an edge leads to */

	k->begins[0] = true;
	*n = 0;
	*whole = k->ends[0];
	for (uint32_t i = 0; i < k->in->nchunks && k->ends[0]; i++) {
		const struct edge *e = k->edge + k->first[i];
		int64_t left = k->begins[i] ? choose(k, i) : 0;
		bool alone = left == 1 && far <= i;

		if (left == -1)
			return -1;
		for (int64_t j = 0; j < left; j++) {
			k->begins[e[j].to] = true;
			far = e[j].to > far ? e[j].to : far;
		}
		if (alone)
			slice[(*n)++] =
			    (struct ofs_bucket_slice){ k->in->chunk[i].off,
				    e->len };
		*whole = *whole && (left == 0 || alone);
	}
	return 0;
}

static int walk(struct walk *k, struct ofs_bucket_slice *slice, uint32_t *n,
    bool *whole)
{
	bool sound = in_order(k->in);

	k->begins[0] = true;
	for (uint32_t i = 0; i < k->in->nchunks && sound; i++) {
		k->first[i] = k->n;
		if (add_edges(k, i) == -1)
			return -1;
	}
	k->first[k->in->nchunks] = k->n;
	memset(k->begins, 0, (k->in->nchunks + 1ull) * sizeof(*k->begins));
	if (sound && *k->in->budget > 0)
		look_back(k);
	return take(k, slice, n, whole);
}

int ofs_bucket_walk(const struct ofs_bucket_walk *w,
    struct ofs_bucket_slice **slice, uint32_t *n, bool *whole,
    struct optimfs_error *err)
{
	struct walk k = { .in = w, .err = err };
	size_t max = (size_t)w->nchunks + 1;
	struct ofs_bucket_slice *found;
	int ret = -1;

	k.first = calloc(max, sizeof(*k.first));
	k.ends = calloc(max, sizeof(*k.ends));
	k.begins = calloc(max, sizeof(*k.begins));
	found = calloc(max, sizeof(*found));
	if (k.first == NULL || k.ends == NULL || k.begins == NULL ||
	    found == NULL)
		ofs_no_memory(err);
	else
		ret = walk(&k, found, n, whole);
	free(k.first);
	free(k.ends);
	free(k.begins);
	free(k.edge);
	if (ret == 0)
		*slice = found;
	else
		free(found);
	return ret;
}
