/* merge.h - the catalog with staged changes */
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

/* The catalog for views of a writable mount: without removed entries, with new
 * names, new values and added entries. Indexes below those of the reader's
 * catalog keep their meaning, so that the reader serves both. An added tensor
 * has no shards: all its bytes are staged. */
struct ofs_merged {
	_Atomic unsigned refs;
	struct ofs_catalog *cat;
	uint32_t ntensors;                /* of them in the reader's catalog */
	struct ofs_overlay_file **staged; /* of the added ones */
	size_t staged_cap;
	struct ofs_overlay_file **element; /* those that were texts */
	size_t nelements, element_cap;
};

/* The current state; returns a reference. Changes that the source format has no
 * name for are left out. The overlay must not change meanwhile. */
struct ofs_merged *ofs_merge(struct ofs_reader *reader,
    struct ofs_overlay *overlay, struct optimfs_error *err);
struct ofs_merged *ofs_merged_ref(struct ofs_merged *m);
void ofs_merged_unref(struct ofs_merged *m);
/* The staged bytes of an added tensor; NULL for any other. */
static inline struct ofs_overlay_file *ofs_merged_staged(const struct ofs_merged
							     *m,
    uint32_t tensor)
{
	return tensor < m->ntensors ? NULL : m->staged[tensor - m->ntensors];
}

#endif
