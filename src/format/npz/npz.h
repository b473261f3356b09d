/* npz.h - NumPy's .npz archives and .npy files */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FORMAT_NPZ_H
#define OFS_FORMAT_NPZ_H

#include <stdbool.h>
#include <stdint.h>

#include "optimfs/error.h"
#include "optimfs/optimfs.h"

#include "base/dtype.h"
#include "catalog/catalog.h"
#include "format/format.h"

/* docs/formats/npz.md */

extern const struct ofs_format ofs_format_npz;

/* The header of an array. */
struct ofs_npy {
	enum ofs_dtype dtype;
	bool swap;    /* big-endian */
	bool fortran; /* the first dimension varies fastest */
	uint8_t ndim;
	uint64_t shape[OFS_MAX_DIMS];
	uint64_t bytes;
};

#define OFS_NPY_MAGIC      "\x93NUMPY"
#define OFS_NPY_MAGIC_LEN  6
#define OFS_NPY_HEADER_MAX 65536

/* header.c: the number of bytes before the elements, from the first n bytes (at
 * least 12, or all of the file). EUCLEAN (OFS664), EOPNOTSUPP (OFS665). */
int ofs_npy_length(const uint8_t *p, uint64_t n, uint32_t *length,
    struct optimfs_error *err);
/* Parses these length bytes. The same errors. */
int ofs_npy_parse(struct ofs_npy *npy, const uint8_t *p, uint32_t length,
    struct optimfs_error *err);

/* read.c: the member of the format. */
int ofs_npz_read(struct ofs_catalog *cat, const struct ofs_part *part,
    const struct optimfs_options *opt, struct optimfs_error *err);

#endif
