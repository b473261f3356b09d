/* delta.h - what one version changes in the version before it */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_CATALOG_DELTA_H
#define OFS_CATALOG_DELTA_H

#include <stdbool.h>
#include <stdint.h>

#include "base/types.h"

/* A checkpoint that holds no state but changes of one, as its format has found
 * them (docs/formats/delta.md). A directory of such versions is a run, which
 * reads them with those before them (src/run/chain.c). */

enum ofs_delta_kind {
	OFS_DELTA_XOR,   /* as many bytes as the tensor has, to be combined */
	OFS_DELTA_BYTES, /* a number, positions of bytes, and their values */
	OFS_DELTA_ELEMENTS, /* positions of elements; values are elsewhere */
};

enum ofs_delta_sum {
	OFS_DELTA_SUM_NONE,
	OFS_DELTA_SUM_XXH3_128,
	OFS_DELTA_SUM_ADLER32
};

struct ofs_delta_part {
	struct ofs_str name; /* of the tensor in model/ */
	uint8_t kind;        /* enum ofs_delta_kind */
	uint8_t sum_kind;    /* enum ofs_delta_sum */
	bool gaps;           /* positions are the numbers that are left out */
	uint32_t at;         /* the tensor of the catalog that has the change */
	uint32_t values;     /* OFS_DELTA_ELEMENTS: that of the values */
	uint8_t sum[16];     /* of the new bytes, first digit first */
};

struct ofs_delta {
	uint64_t version, base; /* base: the version that is changed */
	uint32_t n;
	const struct ofs_delta_part *v;
};

#endif
