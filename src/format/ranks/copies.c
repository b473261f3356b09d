/* copies.c - what is known about copies of elements without reading them */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "format/ranks/copies.h"

#include <stdlib.h>

#include "base/map.h"
#include "base/memory.h"
#include "base/search.h"

/* Copies need not be read if their archives have equal checksums of the storages
 * and they are the same part of them. They differ for certain if each is all of
 * its storage. Anything else, such as views of a flat buffer that differs
 * elsewhere, or files without checksums, is left to the first read. */

/* A number for the elements of t: equal for equal ones. 0: nothing is known. */
static uint64_t print_of(struct ofs_ranks *set,
    const struct ofs_ranks_leaf *leaf, struct ofs_torch_tensor *t)
{
	struct ofs_ranks_file *f = &set->file[leaf->file];
	const struct ofs_zip *zip = f->at.zip;
	const struct ofs_zip_record *r;
	struct ofs_extent at;
	uint32_t number;
	uint64_t head[6];

	if (zip == NULL ||
	    ofs_torch_place(&f->leaves, t, &at, &number, NULL) == -1 ||
	    zip->record[number].crc == 0)
		return 0;
	r = &zip->record[number];
	head[0] = r->crc;
	head[1] = r->size;
	head[2] = zip->big_endian;
	head[3] = t->offset;
	head[4] = t->fix;
	head[5] = t->dtype;
	return 1 |
	    ofs_hash64((uint64_t[]){ ofs_hash64(head, sizeof(head)),
			   ofs_hash64(t->shape, t->ndim * sizeof(*t->shape)),
			   ofs_hash64(t->stride,
			       t->ndim * sizeof(*t->stride)) },
		3 * sizeof(uint64_t));
}

int ofs_ranks_copies_add(struct ofs_ranks_copies *c, struct ofs_ranks *set,
    const struct ofs_ranks_leaf *leaf, struct ofs_torch_tensor *t,
    uint32_t whole, uint32_t box, struct optimfs_error *err)
{
	if (ofs_grow(c->v, c->n, c->cap, err) == -1)
		return -1;
	c->v[c->n++] = (struct ofs_ranks_copy){ .box = box,
		.rank = set->file[leaf->file].rank,
		.whole = whole,
		.print = print_of(set, leaf, t) };
	return 0;
}

OFS_COMPARE_BY2(by_box, struct ofs_ranks_copy, box, rank)

enum ofs_ranks_agree ofs_ranks_copies_end(struct ofs_ranks_copies *c,
    int rank[2])
{
	enum ofs_ranks_agree ret = OFS_RANKS_AGREE;

	if (c->n > 1)
		qsort(c->v, c->n, sizeof(*c->v), by_box);
	for (size_t i = 1; i < c->n; i++) {
		const struct ofs_ranks_copy *a = &c->v[i - 1], *b = &c->v[i];

		if (a->box != b->box || (a->print != 0 && a->print == b->print))
			continue;
		if (a->whole == 0 || b->whole == 0) {
			ret = OFS_RANKS_DOUBT;
			continue;
		}
		if (a->whole == b->whole)
			continue;
		rank[0] = a->rank;
		rank[1] = b->rank;
		ret = OFS_RANKS_DIFFER;
		break;
	}
	free(c->v);
	*c = (struct ofs_ranks_copies){ 0 };
	return ret;
}
