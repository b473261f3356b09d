/* torch_storage.h - persistent ids of storages, and numbers of tensors */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_ARCHIVE_TORCH_STORAGE_H
#define OFS_ARCHIVE_TORCH_STORAGE_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "optimfs/error.h"

#include "base/dtype.h"
#include "catalog/catalog.h"
#include "pickle/pickle.h"

static inline bool ofs_str_is(struct ofs_str s, const char *want)
{
	return s.len == strlen(want) && memcmp(s.p, want, s.len) == 0;
}

/* Bytewise, then by length. */
static inline int ofs_str_compare(struct ofs_str a, struct ofs_str b)
{
	int c = memcmp(a.p, b.p, a.len < b.len ? a.len : b.len);

	return c != 0 ? c : (a.len > b.len) - (a.len < b.len);
}

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
