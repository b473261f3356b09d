/* walk_sorted.c - a walk in the order in which people expect names */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/natural.h"
#include "fs/walk.h"

struct entry {
	char *path; /* malloc'ed */
	size_t name;
	struct optimfs_attr attr;
};
struct entries {
	struct entry *entry;
	size_t n, cap;
};

static int keep(void *ctx, const struct ofs_walk_entry *e,
    struct optimfs_error *err)
{
	struct entries *all = ctx;
	char *path = strdup(e->path);

	if (path == NULL || ofs_grow(all->entry, all->n, all->cap, err) == -1) {
		free(path);
		return ofs_no_memory(err);
	}
	all->entry[all->n++] =
	    (struct entry){ path, strlen(e->path) - strlen(e->name), e->attr };
	return 0;
}

static int by_path(const void *a, const void *b)
{
	return ofs_natural(((const struct entry *)a)->path,
	    ((const struct entry *)b)->path);
}

int ofs_walk_sorted(struct optimfs *fs, uint64_t dir, unsigned depth,
    ofs_walk_fn *each, void *ctx, struct optimfs_error *err)
{
	struct entries all = { 0 };
	int ret = ofs_walk(fs, dir, depth, keep, &all, err);

	if (ret == 0 && all.n > 1)
		qsort(all.entry, all.n, sizeof(*all.entry), by_path);
	for (size_t i = 0; i < all.n; i++) {
		const struct entry *e = &all.entry[i];
		struct ofs_walk_entry shown = { e->path, e->path + e->name,
			e->attr };

		if (ret == 0)
			ret = each(ctx, &shown, err);
		free(e->path);
	}
	free(all.entry);
	return ret;
}
