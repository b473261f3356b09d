/* slice.h - "[0:4, -3:]": a part of a tensor, as NumPy selects it */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_CLI_SLICE_H
#define OFS_CLI_SLICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "optimfs/error.h"

#include "base/types.h"

/* The elements of one dimension that are selected. */
struct ofs_slice_dim {
	uint64_t size;   /* of the tensor */
	uint64_t stride; /* elements from one index to the next */
	uint64_t start, count;
	int64_t step;
	uint64_t shown; /* less than count: the first and the last of them */
	bool index;     /* a single one: the result lacks the dimension */
};
struct ofs_slice {
	struct ofs_slice_dim dim[OFS_MAX_DIMS];
	unsigned ndim;
};

/* All of a tensor whose shape is "4,3". EUCLEAN: it is no shape, or too large. */
int ofs_slice_all(struct ofs_slice *s, const char *shape,
    struct optimfs_error *err);
/* Restricts it to text, which begins with '[' and ends with ']': indexes,
 * start:stop:step and "...", with commas. EINVAL: it is none, or does not fit
 * the shape. */
int ofs_slice_parse(struct ofs_slice *s, const char *text,
    struct optimfs_error *err);
/* Drops the dimensions of single indexes; *start becomes their element. */
void ofs_slice_squeeze(struct ofs_slice *s, uint64_t *start);
/* Of more than limit elements, shows only the first and last edge of each
 * dimension. */
void ofs_slice_summarize(struct ofs_slice *s, uint64_t limit, unsigned edge);
/* The number of shown elements; false: more than 2^64. */
bool ofs_slice_shown(const struct ofs_slice *s, uint64_t *n);
/* The element of the tensor that is shown at position i, relative to *start. */
uint64_t ofs_slice_element(const struct ofs_slice *s, uint64_t i);

#endif
