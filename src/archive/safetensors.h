/* safetensors.h - the header of a safetensors file or blob */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_ARCHIVE_SAFETENSORS_H
#define OFS_ARCHIVE_SAFETENSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "optimfs/error.h"

#include "archive/zip.h"
#include "base/keys.h"

/* The largest header, as in the reference reader. */
#define OFS_SAFETENSORS_HEADER_MAX 100000000

/* Does the reference reader support the type? */
bool ofs_safetensors_has(enum ofs_dtype dtype);

struct ofs_safetensors_tensor {
	struct ofs_str name;
	uint8_t dtype; /* enum ofs_dtype; OFS_DTYPE_NONE: unknown code */
	uint8_t ndim;
	uint64_t off, len; /* its bytes, relative to the blob */
	const uint64_t *shape;
};

struct ofs_safetensors {
	struct ofs_arena arena;
	struct ofs_safetensors_tensor *tensor; /* in the order of the header */
	size_t n;
	/* The members of __metadata__: name, value, name, value ... */
	struct ofs_str *metadata;
	size_t nmetadata; /* number of pairs */
	/* number of members that are not strings, which are skipped */
	size_t nodd;
	struct ofs_keys names; /* of tensor */
};

/* Read and check the header of a blob in the first size bytes (EUCLEAN, OFS651
 * to OFS660): tensors must be contiguous. whole: the blob must end with its
 * last tensor; otherwise more bytes may follow. E2BIG for a header of more than
 * max bytes (0: the limit of the format). *st needs ofs_safetensors_fini, but
 * not after a failure. */
int ofs_safetensors_open(struct ofs_safetensors *st, uint64_t size,
    uint64_t max, bool whole, ofs_zip_read_fn *read, void *ctx,
    struct optimfs_error *err);
void ofs_safetensors_fini(struct ofs_safetensors *st);
/* The tensor with this name, or NULL. */
const struct ofs_safetensors_tensor *ofs_safetensors_find(const struct
    ofs_safetensors *st,
    const char *name, size_t n);
/* The value of a member of __metadata__; .p is NULL when it does not exist. */
struct ofs_str ofs_safetensors_metadata(const struct ofs_safetensors *st,
    const char *name);

#endif
