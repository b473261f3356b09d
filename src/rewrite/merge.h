/* merge.h - the checkpoint with what is staged, as one catalog */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_REWRITE_MERGE_H
#define OFS_REWRITE_MERGE_H

#include <stdatomic.h>
#include <stdint.h>

#include "optimfs/error.h"

#include "catalog/catalog.h"

struct optimfs;
struct ofs_overlay_file;

/* What views of an edited mount are made of: a catalog in which what was
 * removed is not, what was renamed is under its new name, values say what they
 * say now, and what was added is there. All indexes below those of fs->cat mean
 * the same, so that fs's locator and transport serve both; a tensor that was
 * added has no shards: its bytes are the staged ones alone. */
struct ofs_merged {
	_Atomic unsigned refs;
	struct ofs_catalog *cat;
	uint32_t ntensors;                /* of fs->cat */
	struct ofs_overlay_file **staged; /* of those behind */
};

/* As things are now; one reference, the caller's. Changes that the source has
 * no name for are left out. EBUSY during a commit. fs->edit is not NULL. */
struct ofs_merged *ofs_merge(struct optimfs *fs, struct optimfs_error *err);
void ofs_merged_unref(struct ofs_merged *m);
/* Where the bytes of a tensor that was added are; NULL for any other. */
static inline struct ofs_overlay_file *ofs_merged_staged(const struct ofs_merged
							     *m,
    uint32_t tensor)
{
	return tensor < m->ntensors ? NULL : m->staged[tensor - m->ntensors];
}

#endif
