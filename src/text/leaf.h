/* leaf.h - plain values that pickles write as calls */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_TEXT_LEAF_H
#define OFS_TEXT_LEAF_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/dtype.h"
#include "text/digest.h"

enum ofs_leaf {
	OFS_LEAF_NONE,   /* node is not such a value */
	OFS_LEAF_NUMBER, /* a NumPy scalar or a tensor without dimensions: a
			  * number or bool in JSON */
	OFS_LEAF_QUOTED, /* a complex number: a scalar, quoted in JSON */
	OFS_LEAF_TEXT,   /* a dtype, layout, device or path */
	OFS_LEAF_NAMED,  /* a time or range: text, but in JSON no longer one */
	OFS_LEAF_OPAQUE, /* a call or a name: JSON that names it; or a small
			  * array of NumPy: lists */
	OFS_LEAF_TENSOR, /* another tensor: JSON with its dtype and shape */
};

/* The kind of a GLOBAL, OBJECT or PERSID. ofs_leaf_text also appends its text,
 * with a hash as far as the budget allows. */
enum ofs_leaf ofs_leaf(const struct ofs_pickle *doc, uint32_t node);
enum ofs_leaf ofs_leaf_text(const struct ofs_pickle *doc, uint32_t node,
    struct ofs_text_budget *budget, struct ofs_buf *out);

/* The type of a numpy.dtype ("f4", "<i8", "b1"); *swap when it is big-endian.
 * OFS_DTYPE_NONE for any other node. */
enum ofs_dtype ofs_leaf_numpy(const struct ofs_pickle *doc, uint32_t node,
    bool *swap);

/* Append an integer, n bytes of two's complement, in decimal. */
void ofs_leaf_bigint(const uint8_t *le, size_t n, struct ofs_buf *out);

#endif
