/* summary_shards.c - a table of the ranks and their boxes of a tensor */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analyze/summary.h"
#include "base/search.h"

/* A tensor is usually sharded along one or two dimensions. Then its shards form
 * a table with a row for each part of the first dimension and a column for each
 * part of the second. For other or large layouts, the first boxes are
 * listed. */

#define MAX_SHARDS 1024 /* shards of a table */
#define MAX_ROWS   16
#define MAX_COLS   8

struct cuts {
	unsigned dim;
	uint64_t from[MAX_SHARDS], size[MAX_SHARDS];
	uint32_t n;
};

struct picture {
	const struct ofs_catalog *cat;
	const struct ofs_tensor *t;
	bool flat; /* boxes are ranges of elements */
	struct cuts row, col, next;
};

static void box_of(const struct picture *p, uint32_t i, uint64_t *from,
    uint64_t *size)
{
	ofs_shard_box(p->cat, p->t, &p->cat->shards[p->t->shard + i], from,
	    size);
}

/* Collects the distinct offsets along a dimension, sorted, with their maximal
 * extent. */
static void cut(const struct picture *p, unsigned dim, struct cuts *c)
{
	uint64_t from[OFS_MAX_DIMS], size[OFS_MAX_DIMS];
	uint32_t n = p->t->nshards, k = 0;

	c->dim = dim;
	for (uint32_t i = 0; i < n; i++) {
		box_of(p, i, from, size);
		c->from[i] = from[dim];
	}
	qsort(c->from, n, sizeof(*c->from), ofs_compare_u64);
	for (uint32_t i = 0; i < n; i++)
		if (i == 0 || c->from[i] != c->from[i - 1])
			c->from[k++] = c->from[i];
	c->n = k;
	memset(c->size, 0, k * sizeof(*c->size));
	for (uint32_t i = 0; i < n; i++) {
		box_of(p, i, from, size);
		for (k = 0; c->from[k] != from[dim]; k++)
			continue;
		if (size[dim] > c->size[k])
			c->size[k] = size[dim];
	}
}

/* False: the shards do not form a table. */
static bool make_table(struct picture *p)
{
	unsigned ndim = p->t->grid_ndim, cut_dims = 0;

	p->row.n = p->col.n = 1;
	if (p->t->nshards > MAX_SHARDS)
		return false;
	for (unsigned d = 0; d < ndim; d++) {
		cut(p, d, &p->next);
		if (p->next.n == 1)
			continue;
		if (cut_dims == 2)
			return false;
		*(cut_dims++ == 0 ? &p->row : &p->col) = p->next;
	}
	return cut_dims > 0 && p->row.n * p->col.n == p->t->nshards;
}

/* Writes the ranks of a shard and its replicas, "0,4", or the file if no rank
 * is known. */
static void put_owner(const struct picture *p, uint32_t i, char *text,
    size_t size)
{
	const struct ofs_shard *s = &p->cat->shards[p->t->shard + i];
	const struct ofs_object *o = &p->cat->objects[s->at.object];
	const struct ofs_replica *copy;
	uint32_t n;
	size_t k;

	if (o->rank >= 0)
		k = (size_t)snprintf(text, size, "%d", o->rank);
	else
		k = (size_t)snprintf(text, size, "%.40s", o->path);
	copy = ofs_replicas(p->cat, p->t->shard + i, &n);
	for (uint32_t c = 0; c < n && k + 12 < size; c++)
		if (p->cat->objects[copy[c].at.object].rank >= 0)
			k += (size_t)snprintf(text + k, size - k, ",%d",
			    p->cat->objects[copy[c].at.object].rank);
	if ((o->missing || o->refused) && k + 6 < size)
		snprintf(text + k, size - k, " lost");
}

static void put_range(uint64_t from, uint64_t n, char text[48])
{
	snprintf(text, 48, "%" PRIu64 "..%" PRIu64, from, from + n - 1);
}

/* The shard at this row and column. */
static uint32_t shard_at(const struct picture *p, uint32_t row, uint32_t col)
{
	uint64_t from[OFS_MAX_DIMS], size[OFS_MAX_DIMS];

	for (uint32_t i = 0; i < p->t->nshards; i++) {
		box_of(p, i, from, size);
		if (from[p->row.dim] == p->row.from[row] &&
		    (p->col.n == 1 || from[p->col.dim] == p->col.from[col]))
			return i;
	}
	return OFS_NONE;
}

static void put_row(const struct picture *p, uint32_t row, struct ofs_buf *out)
{
	char text[80];

	put_range(p->row.from[row], p->row.size[row], text);
	ofs_buf_printf(out, "    %-18s", text);
	for (uint32_t c = 0; c < p->col.n && c < MAX_COLS; c++) {
		uint32_t i = shard_at(p, row, c);

		if (i == OFS_NONE)
			snprintf(text, sizeof(text), "-");
		else
			put_owner(p, i, text, sizeof(text));
		ofs_buf_puts(out, " ");
		if (c + 1 < p->col.n && c + 1 < MAX_COLS)
			ofs_buf_printf(out, "%-10s", text);
		else
			ofs_buf_plain(out, text, strlen(text));
	}
	ofs_buf_putc(out, '\n');
}

static void put_head(const struct picture *p, struct ofs_buf *out)
{
	char text[80];

	if (p->col.n == 1) {
		snprintf(text, sizeof(text), p->flat ? "elements" : "dim %u",
		    p->row.dim);
		ofs_buf_printf(out, "    %-18s rank\n", text);
		return;
	}
	snprintf(text, sizeof(text), "dim %u \\ dim %u", p->row.dim,
	    p->col.dim);
	ofs_buf_printf(out, "    %-18s", text);
	for (uint32_t c = 0; c < p->col.n && c < MAX_COLS; c++) {
		put_range(p->col.from[c], p->col.size[c], text);
		ofs_buf_printf(out,
		    c + 1 < p->col.n && c + 1 < MAX_COLS ? " %-10s" : " %s",
		    text);
	}
	ofs_buf_putc(out, '\n');
}

static void put_table(const struct picture *p, struct ofs_buf *out)
{
	put_head(p, out);
	for (uint32_t i = 0; i < p->row.n && i < MAX_ROWS; i++)
		put_row(p, i, out);
}

static void put_box(const struct picture *p, uint32_t i, struct ofs_buf *out)
{
	uint64_t from[OFS_MAX_DIMS], size[OFS_MAX_DIMS];
	char text[80];

	box_of(p, i, from, size);
	ofs_buf_puts(out, "    [");
	for (unsigned d = 0; d < p->t->grid_ndim; d++) {
		put_range(from[d], size[d], text);
		ofs_buf_printf(out, "%s%s", d == 0 ? "" : ", ", text);
	}
	put_owner(p, i, text, sizeof(text));
	ofs_buf_puts(out, "] ");
	ofs_buf_plain(out, text, strlen(text));
	ofs_buf_putc(out, '\n');
}

void ofs_summary_shards(const struct ofs_catalog *cat,
    const struct ofs_tensor *t, struct ofs_buf *out)
{
	struct picture *p = malloc(sizeof(*p));
	bool table;

	if (p == NULL) {
		out->bad = true;
		return;
	}
	p->cat = cat;
	p->t = t;
	p->flat = t->grid != t->shape || t->grid_ndim != t->ndim;
	table = make_table(p);
	ofs_buf_puts(out, "shards by rank:\n");
	if (table)
		put_table(p, out);
	for (uint32_t i = 0; !table && i < t->nshards && i < MAX_ROWS; i++)
		put_box(p, i, out);
	if (table ? p->row.n > MAX_ROWS || p->col.n > MAX_COLS
		  : t->nshards > MAX_ROWS)
		ofs_buf_printf(out, "    ... %" PRIu32 " in all\n", t->nshards);
	free(p);
}
