/* copies.c - compare the stored copies of a tensor's shards */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "analyze/copies.h"

#include <stdlib.h>
#include <string.h>

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

/* How many elements are equal, if own->count of them are. */
static uint64_t equal_from(struct ofs_reader *r,
    const struct ofs_fetch_part *own, const struct ofs_fetch_part *other)
{
	uint64_t n = ofs_fetch_part_alike(r, own), m = 0;

	if (n > 0)
		m = ofs_fetch_part_alike(r, other);
	n = n < m ? n : m;
	return n > own->count ? n : own->count;
}

static void compare_boxes(struct compare *c, const struct ofs_replica *copy,
    const struct ofs_place *place)
{
	const struct ofs_catalog *cat = c->snap->cat;
	const struct ofs_shard *s = &cat->shards[copy->shard];
	struct ofs_reader *r = &c->snap->reader;
	size_t item = ofs_dtype_size(c->t->dtype);
	struct ofs_fetch_part own, other;
	struct optimfs_error why;

	own.place = ofs_locate_shard(r, c->t, copy->shard, &why);
	if (own.place == NULL ||
	    ofs_fetch_part_init(&own, cat, c->t, copy->shard, own.place,
		&why) == -1)
		return;
	while (own.first < own.total) {
		size_t i = 0;

		own.count =
		    own.total - own.first < STEP ? own.total - own.first : STEP;
		other = own;
		other.place = place;
		if (ofs_fetch_part(r, &own, c->buf[0], &why) == -1 ||
		    ofs_fetch_part(r, &other, c->buf[1], &why) == -1)
			return;
		if (memcmp(c->buf[0], c->buf[1], own.count * item) == 0) {
			own.first += equal_from(r, &own, &other);
			continue;
		}
		while (c->buf[0][i] == c->buf[1][i])
			i++;
		c->out->differ = true;
		c->out->file[0] = cat->objects[s->at.object].path;
		c->out->file[1] = cat->objects[copy->at.object].path;
		c->out->first = own.first * item + i;
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

		if (place != NULL)
			compare_boxes(c, &copy[i], place);
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
	struct ofs_at at;
	int ret = 0;

	*copies = (struct ofs_copies){ 0 };
	if (ofs_node_at(snap, node, &at, NULL) == 0)
		c.t = ofs_entry_tensor(snap->cat, ofs_at_entry(snap, at));
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
