/* merge.h - the checkpoint with what is staged, as one catalog */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_REWRITE_MERGE_H
#define OFS_REWRITE_MERGE_H

#include <stdatomic.h>
#include <stdint.h>

#include "optimfs/error.h"

#include "catalog/catalog.h"

struct ofs_overlay;
struct ofs_overlay_file;
struct ofs_reader;

/* What views of an edited mount are made of: a catalog in which what was
 * removed is not, what was renamed is under its new name, values say what they
 * say now, and what was added is there. All indexes below those of the reader's catalog mean
 * the same, so that the reader serves both; a tensor that was
 * added has no shards: its bytes are the staged ones alone. */
struct ofs_merged {
	_Atomic unsigned refs;
	struct ofs_catalog *cat;
	uint32_t ntensors;                /* of the reader's catalog */
	struct ofs_overlay_file **staged; /* of those behind */
	size_t staged_cap;
};

/* As things are now; one reference, the caller's. Changes that the source has
 * no name for are left out. The overlay may not change meanwhile. */
struct ofs_merged *ofs_merge(struct ofs_reader *reader,
    struct ofs_overlay *overlay, struct optimfs_error *err);
void ofs_merged_unref(struct ofs_merged *m);
/* Where the bytes of a tensor that was added are; NULL for any other. */
static inline struct ofs_overlay_file *ofs_merged_staged(const struct ofs_merged
							     *m,
    uint32_t tensor)
{
	return tensor < m->ntensors ? NULL : m->staged[tensor - m->ntensors];
}

#endif
