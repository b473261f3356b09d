/* fetch.h - the bytes that a plan asks for */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_READ_FETCH_H
#define OFS_READ_FETCH_H

#include <stdint.h>

#include "optimfs/error.h"

#include "catalog/catalog.h"
#include "plan/plan.h"
#include "read/reader.h"

/* Read the segments of plan into buf and apply their fixes (plan/fix.h). */
int ofs_fetch(struct ofs_reader *r, const struct ofs_plan *plan, void *buf,
    struct optimfs_error *err);
/* Read elements [first, first + count) of t, in C order of its shape. */
int ofs_fetch_elements(struct ofs_reader *r, const struct ofs_tensor *t,
    uint64_t first, uint64_t count, void *buf, struct optimfs_error *err);

/* Elements of a shard, or of a copy of it. */
struct ofs_fetch_part {
	const struct ofs_tensor *t;
	uint32_t shard;
	/* of the copy (ofs_locate_replica); NULL: the shard itself */
	const struct ofs_place *place;
	uint64_t box[2 * OFS_MAX_DIMS]; /* of the shard */
	uint64_t total;                 /* number of its elements */
	uint64_t first, count;          /* the elements to read */
};
/* A part with no elements yet. EUCLEAN (OFS606): the box overflows. */
int ofs_fetch_part_init(struct ofs_fetch_part *p, const struct ofs_catalog *cat,
    const struct ofs_tensor *t, uint32_t shard, const struct ofs_place *place,
    struct optimfs_error *err);
/* Read the elements of p, in C order of the box. */
int ofs_fetch_part(struct ofs_reader *r, const struct ofs_fetch_part *p,
    void *buf, struct optimfs_error *err);
/* How many elements of the box from p->first on are all the same one, by what is
 * known without reading: at least 2 * p->count, or 0 (read/alike.h). */
uint64_t ofs_fetch_part_alike(struct ofs_reader *r,
    const struct ofs_fetch_part *p);

#endif
