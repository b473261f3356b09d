/* torch_storage.h - persistent ids of storages, and numbers of tensors */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_ARCHIVE_TORCH_STORAGE_H
#define OFS_ARCHIVE_TORCH_STORAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "optimfs/error.h"

#include "base/dtype.h"
#include "base/str.h"
#include "catalog/catalog.h"
#include "pickle/pickle.h"

/* A number of a tensor's geometry, called field, that must not be negative:
 * OFS416 to OFS418. */
int ofs_torch_size(const struct ofs_pickle *doc, uint32_t node,
    const char *field, uint64_t *v, struct optimfs_error *err);

/* What a persistent id says of a storage. */
struct ofs_torch_source {
	enum ofs_dtype dtype; /* NONE for an untyped one */
	struct ofs_str key;
	uint64_t bytes;
	uint64_t offset; /* of a view, in elements */
	bool meta;
};

/* What the persistent id node says; EUCLEAN (OFS433) unless it is one of a
 * storage. */
int ofs_torch_storage_of(const struct ofs_pickle *doc, uint32_t node,
    struct ofs_torch_source *s, struct optimfs_error *err);

#endif
