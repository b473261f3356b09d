/* blob.h - bytes that several owners share */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_BASE_BLOB_H
#define OFS_BASE_BLOB_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "optimfs/error.h"

#include "base/buf.h"

struct ofs_blob {
	_Atomic uint32_t refs;
	size_t len;
	uint8_t bytes[];
};

/* A blob of len uninitialised bytes, with one reference; NULL with ENOMEM. */
struct ofs_blob *ofs_blob_new(size_t len, struct optimfs_error *err);
/* A blob of the bytes of out, with one reference; out is left empty. NULL with
 * ENOMEM. */
struct ofs_blob *ofs_blob_of(struct ofs_buf *out, struct optimfs_error *err);
struct ofs_blob *ofs_blob_ref(struct ofs_blob *blob);
bool ofs_blob_equal(const struct ofs_blob *a, const struct ofs_blob *b);
/* NULL is allowed. */
void ofs_blob_unref(struct ofs_blob *blob);

#endif
