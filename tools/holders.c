/* holders.c - which rank holds how much of each tensor */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/holders.h"

#include <stdio.h>
#include <stdlib.h>

static int take_rank(void *ctx, const struct optimfs_dirent *d)
{
	struct ofs_holders *r = ctx;
	int *rank;

	if (r->n == r->cap) {
		r->cap = r->cap == 0 ? 16 : 2 * r->cap;
		rank = reallocarray(r->rank, r->cap, sizeof(*rank));
		if (rank == NULL)
			return -1;
		r->rank = rank;
	}
	r->rank[r->n++] = atoi(d->name);
	return 0;
}

static int by_number(const void *a, const void *b)
{
	int x = *(const int *)a, y = *(const int *)b;

	return (x > y) - (x < y);
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
		qsort(r->rank, r->n, sizeof(*r->rank), by_number);
	return 0;
}

uint64_t ofs_holders_bytes(const struct ofs_command *c, int rank,
    const char *path)
{
	struct optimfs_attr attr;
	uint64_t size = 0;
	char *full;

	if (asprintf(&full, ".optimfs/rank/%d/%s", rank, path) == -1)
		return 0;
	if (optimfs_resolve(c->fs, full, &attr, NULL) == 0)
		size = attr.size;
	free(full);
	return size;
}

void ofs_holders_fini(struct ofs_holders *r)
{
	free(r->rank);
}
