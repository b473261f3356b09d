/* patch.h - stored bytes with staged elements over them */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_READ_PATCH_H
#define OFS_READ_PATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "optimfs/error.h"

#include "base/ranges.h"
#include "catalog/catalog.h"
#include "read/reader.h"

/* Bytes that were written to a file and not committed: read gets n of them from
 * off on, which all were written. NULL: there are none. */
struct ofs_staged {
	int (*read)(void *ctx, void *buf, uint64_t n, uint64_t off,
	    struct optimfs_error *err);
	void *ctx;
};

/* New bytes of a tensor, in C order of its shape. */
struct ofs_edit {
	uint32_t tensor;
	struct ofs_ranges written; /* which bytes */
	struct ofs_staged staged;  /* if there are none, they are in element */
	uint8_t element[16];       /* of a 0-dim tensor */
};
/* Read bytes of an edit that were written. */
int ofs_edit_read(const struct ofs_edit *edit, void *buf, uint64_t n,
    uint64_t off, struct optimfs_error *err);

/* The edits that a file is read with. Zero-initialise; const after _seal, and
 * thread-safe from then on. */
struct ofs_patches {
	struct ofs_reader *reader;
	struct ofs_edit *edit;
	size_t nedits, edit_cap;
	struct ofs_patch *patch; /* sorted by object and offset */
	size_t n, cap;
	struct ofs_patched *object; /* sorted by object */
	size_t nobjects, object_cap;
};

/* Add an edit, which is copied with its ranges; staged is borrowed. Locates the
 * shards with written elements, and all their replicas. A tensor that is computed
 * by rounding has no bytes of its own: nothing is added. EIO (OFS607): no shard
 * has room for what was written. */
int ofs_patches_add(struct ofs_patches *p, struct ofs_reader *r,
    const struct ofs_edit *edit, struct optimfs_error *err);
void ofs_patches_seal(struct ofs_patches *p);
void ofs_patches_fini(struct ofs_patches *p);

/* The bytes of an object that edits may change: the hulls of runs with gaps, so
 * possibly some others. Encoded extents are left out. */
const struct ofs_ranges *ofs_patches_touched(const struct ofs_patches *p,
    uint32_t object);
/* May edits change bytes [off, off + len) of an extent, decoded? */
bool ofs_patches_meet(const struct ofs_patches *p, const struct ofs_extent *at,
    uint64_t off, uint64_t len);
/* Add the bytes of an extent, decoded, that edits may change; their offsets are
 * those in the extent. */
int ofs_patches_hulls(const struct ofs_patches *p, const struct ofs_extent *at,
    struct ofs_ranges *out, struct optimfs_error *err);
/* Read bytes [off, off + len) of an extent, decoded, with the edits over them.
 * Stored bytes that are replaced are not read. */
int ofs_patches_read(const struct ofs_patches *p, const struct ofs_extent *at,
    uint64_t off, uint64_t len, void *buf, struct optimfs_error *err);

#endif
