/* torch_storage.h - persistent ids of storages, and numbers of tensors */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_ARCHIVE_TORCH_STORAGE_H
#define OFS_ARCHIVE_TORCH_STORAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "optimfs/error.h"

#include "base/dtype.h"
#include "pickle/pickle.h"

/* *v = a number of a tensor's geometry, called field in messages; it must not
 * be negative: OFS416 to OFS418. */
int ofs_torch_size(const struct ofs_pickle *doc, uint32_t node,
    const char *field, uint64_t *v, struct optimfs_error *err);

/* A storage, as its persistent id describes it. */
struct ofs_torch_source {
	enum ofs_dtype dtype; /* OFS_DTYPE_NONE: untyped */
	struct ofs_str key;
	uint64_t bytes;
	uint64_t offset; /* of a view, in elements */
	bool meta;
};

/* Parse the persistent id node; EUCLEAN (OFS433) if it is not that of a
 * storage. */
int ofs_torch_storage_of(const struct ofs_pickle *doc, uint32_t node,
    struct ofs_torch_source *s, struct optimfs_error *err);

#endif
