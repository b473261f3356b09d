/* npy.h - the header of a NumPy array */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_BASE_NPY_H
#define OFS_BASE_NPY_H

#include <stdbool.h>
#include <stdint.h>

#include "optimfs/error.h"

#include "base/buf.h"
#include "base/dtype.h"

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

/* The number of bytes before the elements, from the first n bytes (at least 12,
 * or all of the file). EUCLEAN (OFS664), EOPNOTSUPP (OFS665). */
int ofs_npy_length(const uint8_t *p, uint64_t n, uint32_t *length,
    struct optimfs_error *err);
/* Parses these length bytes. Of the types that NumPy gives one name ('<V1'), the
 * elements are those of type as; OFS_DTYPE_NONE: it is not known. The same
 * errors. */
int ofs_npy_parse(struct ofs_npy *npy, const uint8_t *p, uint32_t length,
    enum ofs_dtype as, struct optimfs_error *err);

/* Writes a header to out, which is empty. dtype must be one that NumPy has. */
void ofs_npy_header(enum ofs_dtype dtype, const uint64_t *shape, unsigned ndim,
    struct ofs_buf *out);

#endif
