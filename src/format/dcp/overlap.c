/* overlap.c - items of a DCP index that claim the same bytes */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/checked.h"
#include "base/memory.h"
#include "base/search.h"
#include "format/dcp/dcp.h"

/* The extent of an item is a claim on bytes of its file. Two claims on a byte
 * mean that an offset in the index is wrong, though each item can be read: a
 * warning (OFS614). Sorted by file and offset, a claim that begins before the
 * end of those before it overlaps one of them. Tensors in a safetensors blob
 * make no claim: the index has the begin of the blob for each (blobs.c). */

struct claim {
	uint32_t object;
	uint64_t off, end;
};

OFS_COMPARE_BY2(by_claim, struct claim, object, off)

static size_t add_claim(struct claim *claim, size_t n,
    const struct ofs_extent *at)
{
	uint64_t end;

	if (at->encoding != OFS_TORCH_ITEM || at->len == 0 ||
	    !ofs_add_u64(at->off, at->len, &end))
		return n;
	claim[n] = (struct claim){ at->object, at->off, end };
	return n + 1;
}

static size_t collect_claims(const struct ofs_dcp *d, struct claim *claim)
{
	const struct ofs_catalog *cat = d->cat;
	size_t n = 0, b = 0;

	/* blobs are sorted by shard here */
	for (uint32_t i = d->first_shard; i < cat->nshards; i++)
		if (b < d->nblobs && d->blob[b].shard == i)
			b++; /* its recorded extent is that of the blob */
		else
			n = add_claim(claim, n, &cat->shards[i].at);
	for (uint32_t i = d->first_item; i < cat->nitems; i++)
		n = add_claim(claim, n, &cat->items[i].at);
	for (uint32_t i = 0; i < d->npending; i++)
		n = add_claim(claim, n, &d->pending[i].item.at);
	return n;
}

/* end has a zero for each object. */
static bool ascend(struct ofs_dcp *d, const struct ofs_dcp_index *index,
    uint64_t *end)
{
	struct optimfs_error unsaid;

	for (uint32_t i = 0; i < index->nitems; i++) {
		const struct ofs_dcp_item *item = &index->item[i];
		uint32_t object;

		if (!item->used)
			continue;
		object = ofs_dcp_object(d, index->doc, item->path, &unsaid);
		if (object == OFS_NONE || item->off < end[object] ||
		    !ofs_add_u64(item->off, item->len, &end[object]))
			return false;
	}
	return !index->shared;
}

bool ofs_dcp_items_ascend(struct ofs_dcp *d)
{
	uint64_t *end = calloc((size_t)d->cat->nobjects + 1, sizeof(*end));
	bool yes = end != NULL && d->nblobs == 0;

	for (uint32_t i = 0; i < d->nindex && yes; i++)
		yes = ascend(d, &d->index[i], end);
	free(end);
	return yes;
}

int ofs_dcp_check_overlap(struct ofs_dcp *d, struct optimfs_error *err)
{
	size_t max = (size_t)(d->cat->nshards - d->first_shard) +
	    (d->cat->nitems - d->first_item) + d->npending;
	struct claim *claim = ofs_alloc_huge((max + 1) * sizeof(*claim));
	size_t n;
	int ret = 0;

	if (claim == NULL)
		return ofs_no_memory(err);
	n = collect_claims(d, claim);
	qsort(claim, n, sizeof(*claim), by_claim);
	for (size_t i = 1; i < n && ret == 0; i++) {
		if (claim[i].object != claim[i - 1].object ||
		    claim[i].off >= claim[i - 1].end)
			continue;
		ret = ofs_catalog_note(d->cat, OFS_NOTE_WARNING, EUCLEAN, err,
		    "OFS614 two items share bytes at %" PRIu64 " of %.300s",
		    claim[i].off, d->cat->objects[claim[i].object].path);
		if (claim[i].end < claim[i - 1].end)
			claim[i].end = claim[i - 1].end;
	}
	free(claim);
	return ret;
}
