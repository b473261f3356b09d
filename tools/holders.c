/* holders.c - how much of each tensor each rank holds */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/holders.h"

#include <stdlib.h>

#include "base/memory.h"
#include "base/search.h"

static int take_rank(void *ctx, const struct optimfs_dirent *d)
{
	struct ofs_holders *r = ctx;

	if (ofs_grow(r->rank, r->n, r->cap, NULL) == -1)
		return -1;
	r->rank[r->n++] = atoi(d->name);
	return 0;
}

int ofs_holders_find(struct ofs_holders *r, struct ofs_command *c,
    struct optimfs_error *err)
{
	struct optimfs_attr attr;

	if (ofs_command_resolve(c, ".optimfs/rank", &attr, err) == -1 ||
	    optimfs_readdir(c->fs, attr.node, 0, false, take_rank, r, err) ==
		-1)
		return -1;
	if (r->n > 0)
		qsort(r->rank, r->n, sizeof(*r->rank), ofs_compare_int);
	return 0;
}

struct each {
	const struct ofs_holders *r;
	ofs_holder_fn *each;
	void *ctx;
	size_t next; /* most tensors are held by all ranks, so try this first */
};

static int holding(void *ctx, const struct optimfs_holding *h)
{
	struct each *e = ctx;
	const int *rank = &e->r->rank[e->next];

	if (e->next == e->r->n || *rank != h->rank)
		rank = bsearch(&h->rank, e->r->rank, e->r->n, sizeof(h->rank),
		    ofs_compare_int);
	if (rank == NULL)
		return 0;
	e->next = (size_t)(rank - e->r->rank) + 1;
	return e->each(e->ctx, e->next - 1, h);
}

void ofs_holders_each(const struct ofs_holders *r, const struct ofs_command *c,
    const char *path, ofs_holder_fn *each, void *ctx)
{
	struct each e = { r, each, ctx, 0 };

	if (r->n > 0)
		optimfs_holdings(c->fs, path, holding, &e, NULL);
}

/* A run of adjacent ranks with equal parts; more may follow. */
struct put {
	struct ofs_json_writer *w;
	bool damage;
	size_t first, n;
	uint64_t bytes;
	bool bad;
};

static void put_run(struct put *p)
{
	if (p->n == 0)
		return;
	ofs_json_open(p->w, NULL, '[');
	ofs_json_put_u64(p->w, NULL, p->first);
	ofs_json_put_u64(p->w, NULL, p->n);
	ofs_json_put_u64(p->w, NULL, p->bytes);
	ofs_json_put_u64(p->w, NULL, p->bad);
	ofs_json_close(p->w, ']');
}

static int put_rank(void *ctx, size_t i, const struct optimfs_holding *h)
{
	struct put *p = ctx;
	bool bad = p->damage ? h->damaged : h->missing;

	if (h->bytes == 0)
		return 0;
	if (p->n > 0 && i == p->first + p->n && h->bytes == p->bytes &&
	    bad == p->bad) {
		p->n++;
		return 0;
	}
	put_run(p);
	p->first = i;
	p->n = 1;
	p->bytes = h->bytes;
	p->bad = bad;
	return 0;
}

void ofs_holders_put(const struct ofs_holders *r, const struct ofs_command *c,
    const char *path, bool damage, struct ofs_json_writer *w)
{
	struct put p = { .w = w, .damage = damage };

	ofs_json_open(w, "parts", '[');
	ofs_holders_each(r, c, path, put_rank, &p);
	put_run(&p);
	ofs_json_close(w, ']');
}

void ofs_holders_fini(struct ofs_holders *r)
{
	free(r->rank);
}
