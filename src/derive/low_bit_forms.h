/* low_bit_forms.h - how tensors in few bits are stored */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_DERIVE_LOW_BIT_FORMS_H
#define OFS_DERIVE_LOW_BIT_FORMS_H

#include <stdbool.h>

#include "catalog/catalog.h"
#include "derive/packed.h"

/* A form is recognised by the names, types and shapes of all its parts, which
 * must agree in every number: nothing is guessed. */

enum ofs_low_bit_part {
	LOW_BIT_CODES,
	LOW_BIT_SCALE,
	LOW_BIT_FACTOR,
	LOW_BIT_TABLE,
	LOW_BIT_NESTED_SCALE,
	LOW_BIT_NESTED_TABLE,
	LOW_BIT_STATE, /* a tensor that describes the others: its bytes are read */
	LOW_BIT_NPARTS,
};

/* The parts of a candidate, as tensors; NULL: there is no such part. */
struct ofs_low_bit_parts {
	const struct ofs_catalog *cat;
	const struct ofs_tensor *codes, *scale, *factor, *table;
	const struct ofs_tensor *nested_scale, *nested_table;
	struct ofs_str
	    state; /* the bytes of LOW_BIT_STATE; p NULL: there is none */
	struct optimfs_error *why; /* what is wrong with them */
	/* what is found out: */
	struct ofs_packed *p;
	uint64_t shape[OFS_MAX_DIMS];
	unsigned ndim;
};

/* The names of the parts: that of the whole, and the suffix of each. With whole,
 * that is the only name; NULL: any, with a suffix. anchor: the part that others
 * are looked for beside. */
struct ofs_low_bit_form {
	const char *whole, *suffix;
	enum ofs_low_bit_part anchor;
	const char *part[LOW_BIT_NPARTS];
	bool (*match)(struct ofs_low_bit_parts *x);
};
extern const struct ofs_low_bit_form ofs_low_bit_forms[];
extern const size_t ofs_low_bit_nforms;

static inline bool ofs_is_fp8(const struct ofs_tensor *t)
{
	return ofs_dtype_is_float(t->dtype) && ofs_dtype_size(t->dtype) == 1;
}

#endif
