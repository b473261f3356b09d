/* mirror.h - headers of NumPy files */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FS_MIRROR_H
#define OFS_FS_MIRROR_H

#include <stdint.h>

#include "base/buf.h"
#include "base/dtype.h"

/* The header of a .npy file. dtype must be one that NumPy has. */
void ofs_npy_header(enum ofs_dtype dtype, const uint64_t *shape, unsigned ndim,
    struct ofs_buf *out);

#endif
