/* safetensors.h - the header of a safetensors file or blob */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_ARCHIVE_SAFETENSORS_H
#define OFS_ARCHIVE_SAFETENSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "optimfs/error.h"

#include "archive/zip.h"
#include "base/map.h"
#include "catalog/catalog.h"

/* Bytes a header may have: what the reference reader allows. */
#define OFS_SAFETENSORS_HEADER_MAX 100000000

/* Does the reference reader know the type? */
bool ofs_safetensors_has(enum ofs_dtype dtype);

struct ofs_safetensors_tensor {
	struct ofs_str name;
	uint8_t dtype; /* enum ofs_dtype; OFS_DTYPE_NONE: a code we lack */
	uint8_t ndim;
	uint64_t off, len; /* of its bytes, from the start of the blob */
	const uint64_t *shape;
};

struct ofs_safetensors {
	struct ofs_arena arena;
	struct ofs_safetensors_tensor *tensor; /* as the header lists them */
	size_t n;
	/* The members of __metadata__: name, value, name, value ... */
	struct ofs_str *metadata;
	size_t nmetadata; /* pairs */
	size_t nodd;      /* members that are no strings, passed over */
	struct ofs_map by_name;
};

/* Read and check the header of a blob of which size bytes can be read (EUCLEAN,
 * OFS651 to OFS660): tensors must lie one after the other without holes. whole:
 * the blob must end where its last tensor does, otherwise more may follow it.
 * A header of more than max bytes is E2BIG (0: what the format allows).
 * *st is for ofs_safetensors_fini, and empty after a failure. */
int ofs_safetensors_open(struct ofs_safetensors *st, uint64_t size,
    uint64_t max, bool whole, ofs_zip_read_fn *read, void *ctx,
    struct optimfs_error *err);
void ofs_safetensors_fini(struct ofs_safetensors *st);
/* The tensor called name; NULL. */
const struct ofs_safetensors_tensor *ofs_safetensors_find(const struct
    ofs_safetensors *st,
    const char *name, size_t n);
/* The value of a member of __metadata__; .p is NULL when it has none. */
struct ofs_str ofs_safetensors_metadata(const struct ofs_safetensors *st,
    const char *name);

#endif
