/* leaf.h - plain values that pickles write as calls */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_TEXT_LEAF_H
#define OFS_TEXT_LEAF_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/dtype.h"
#include "pickle/pickle.h"

enum ofs_leaf {
	OFS_LEAF_NONE,   /* node is no such value */
	OFS_LEAF_NUMBER, /* NumPy's scalars: a number or bool of JSON */
	OFS_LEAF_QUOTED, /* complex numbers: a scalar, text in JSON */
	OFS_LEAF_TEXT,   /* dtypes, layouts, devices, paths */
	OFS_LEAF_OPAQUE, /* a call or a name: JSON that says which */
	OFS_LEAF_TENSOR, /* JSON with its dtype and shape */
};

/* What node is, when it is a GLOBAL, OBJECT or PERSID; its text goes to out
 * unless that is NULL. */
enum ofs_leaf ofs_leaf(const struct ofs_pickle *doc, uint32_t node,
    struct ofs_buf *out);

/* What a numpy.dtype ("f4", "<i8", "b1") is; *swap when its bytes are turned.
 * OFS_DTYPE_NONE for any other node. */
enum ofs_dtype ofs_leaf_numpy(const struct ofs_pickle *doc, uint32_t node,
    bool *swap);

/* n bytes of two's complement in decimal. */
void ofs_leaf_bigint(const uint8_t *le, size_t n, struct ofs_buf *out);

#endif
