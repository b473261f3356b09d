/* copies.c - compare the stored copies of a tensor's shards */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "analyze/copies.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/memory.h"
#include "catalog/owners.h"
#include "fs/fs.h"
#include "read/fetch.h"
#include "read/locate.h"

#define STEP (1u << 16) /* elements */

struct compare {
	struct ofs_snapshot *snap;
	const struct ofs_tensor *t;
	uint8_t *buf[2];
	struct ofs_copies *out;
};

struct other {
	struct ofs_reader *reader;
	const struct ofs_place *place;
	uint32_t shard;
};

static const struct ofs_place *place_other(void *ctx,
    const struct ofs_tensor *t, uint32_t shard, struct optimfs_error *err)
{
	const struct other *o = ctx;

	return shard == o->shard ? o->place
				 : ofs_locate(o->reader, t, shard, err);
}

/* Reads elements of a box from a copy; NULL: from the usual place. */
static int fetch(struct compare *c, const uint64_t *box, uint64_t first,
    uint64_t n, struct other *other, void *buf)
{
	struct ofs_plan plan = { 0 };
	struct optimfs_error why;
	int ret;

	ret = other == NULL ? ofs_plan_box(c->snap->cat, c->t, box, first, n, 0,
				  ofs_locate, &c->snap->reader, &plan, &why)
			    : ofs_plan_box(c->snap->cat, c->t, box, first, n, 0,
				  place_other, other, &plan, &why);
	if (ret == 0)
		ret = ofs_fetch(&c->snap->reader, &plan, buf, &why);
	ofs_plan_fini(&plan);
	return ret;
}

static void compare_boxes(struct compare *c, const struct ofs_replica *copy,
    struct other *other)
{
	const struct ofs_catalog *cat = c->snap->cat;
	const struct ofs_shard *s = &cat->shards[copy->shard];
	size_t item = ofs_dtype_size(c->t->dtype);
	uint64_t box[2 * OFS_MAX_DIMS], total;

	ofs_shard_box(cat, c->t, s, box, box + c->t->grid_ndim);
	if (!ofs_numel(box + c->t->grid_ndim, c->t->grid_ndim, &total))
		return;
	for (uint64_t at = 0, n; at < total; at += n) {
		size_t i = 0;

		n = total - at < STEP ? total - at : STEP;
		if (fetch(c, box, at, n, NULL, c->buf[0]) == -1 ||
		    fetch(c, box, at, n, other, c->buf[1]) == -1)
			return;
		if (memcmp(c->buf[0], c->buf[1], n * item) == 0)
			continue;
		while (c->buf[0][i] == c->buf[1][i])
			i++;
		c->out->differ = true;
		c->out->file[0] = cat->objects[s->at.object].path;
		c->out->file[1] = cat->objects[copy->at.object].path;
		c->out->first = at * item + i;
		return;
	}
}

static void compare_shard(struct compare *c, uint32_t shard)
{
	const struct ofs_replica *copy;
	struct optimfs_error why;
	uint32_t n;

	copy = ofs_replicas(c->snap->cat, shard, &n);
	for (uint32_t i = 0; i < n && !c->out->differ; i++) {
		struct ofs_place *place =
		    ofs_locate_replica(&c->snap->reader, c->t, &copy[i], &why);
		struct other other = { &c->snap->reader, place, shard };

		if (place != NULL)
			compare_boxes(c, &copy[i], &other);
		free(place);
	}
}

static bool has_copies(const struct ofs_catalog *cat,
    const struct ofs_tensor *t)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < t->nshards && n == 0; i++)
		ofs_replicas(cat, t->shard + i, &n);
	return n > 0;
}

int ofs_copies_compare(struct optimfs *fs, uint64_t node,
    struct ofs_copies *copies, struct optimfs_error *err)
{
	struct ofs_snapshot *snap = ofs_enter(fs);
	struct compare c = { .snap = snap, .out = copies };
	const struct ofs_entry *e = NULL;
	struct ofs_at at;
	int ret = 0;

	*copies = (struct ofs_copies){ 0 };
	if (ofs_node_at(snap, node, &at, NULL) == 0 && !ofs_at_made(snap, at))
		e = ofs_at_entry(snap, at);
	if (e != NULL)
		c.t = ofs_entry_tensor(snap->cat, e);
	if (c.t == NULL || c.t->error != OFS_NONE ||
	    !has_copies(snap->cat, c.t))
		goto out;
	for (int i = 0; i < 2; i++)
		c.buf[i] = malloc(STEP * ofs_dtype_size(c.t->dtype));
	if (c.buf[0] == NULL || c.buf[1] == NULL)
		ret = ofs_no_memory(err);
	for (uint32_t i = 0; i < c.t->nshards && ret == 0 && !copies->differ;
	     i++)
		compare_shard(&c, c.t->shard + i);
	free(c.buf[0]);
	free(c.buf[1]);
out:
	ofs_leave(snap);
	return ret;
}
