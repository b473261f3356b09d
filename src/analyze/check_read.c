/* check_read.c - read the planned tensors with several threads */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdlib.h>

#include "analyze/check_impl.h"
#include "analyze/pool.h"
#include "base/error.h"
#include "base/memory.h"

#define CHUNK (1u << 18) /* elements */

static int work(void *ctx, void *mine, const struct ofs_pool_chunk *k,
    struct optimfs_error *err)
{
	struct ofs_check *c = ctx;

	(void)err;
	ofs_examine(&c->exam[k->item], k->buf, k->first, k->n, mine);
	return 0;
}

static int join(void *ctx, void *mine, const struct ofs_pool_chunk *k,
    struct optimfs_error *err)
{
	struct ofs_check *c = ctx;

	(void)err;
	ofs_exam_join(&c->exam[k->item], mine, k->buf, k->first, k->n,
	    k->times);
	return 0;
}

static void failed(void *ctx, size_t item, const struct optimfs_error *err)
{
	struct ofs_check *c = ctx;
	struct ofs_exam *e = &c->exam[item];

	e->why = ofs_error_without(err, e->file[0]->path);
	c->bad |= e->why == NULL;
}

static const struct ofs_pool_ops ops = { sizeof(struct ofs_finding), NULL, work,
	join, failed };

int ofs_check_read(struct ofs_check *c, const struct optimfs_scan *how,
    struct optimfs_error *err)
{
	struct ofs_pool_item *items = calloc(c->nexams + 1, sizeof(*items));
	int ret;

	if (items == NULL)
		return ofs_no_memory(err);
	for (size_t i = 0; i < c->nexams; i++) {
		const struct ofs_exam *e = &c->exam[i];

		items[i].elements = e->file[0]->elements;
		items[i].chunk = CHUNK;
		items[i].nfiles = e->nfiles;
		for (unsigned k = 0; k < e->nfiles; k++) {
			items[i].file[k].fs = c->fs;
			items[i].file[k].node = e->file[k]->node;
			items[i].file[k].size =
			    ofs_dtype_size(e->file[k]->dtype);
		}
	}
	ret = ofs_pool_run(items, c->nexams, how, &ops, c, err);
	free(items);
	return ret;
}
