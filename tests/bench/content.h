/* content.h - the elements of generated tensors */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CONTENT_H
#define CONTENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct content_dtype {
	const char *name, *storage; /* PyTorch's names */
	size_t size;
};

/* An element is a function of the seed, the number of its tensor and its index in
 * C order, so that any byte can be verified. */
struct content {
	const struct content_dtype *dtype;
	uint64_t seed;
	bool fixed; /* float32: every element is seed */
};

/* NULL: unknown name. */
const struct content_dtype *content_dtype(const char *name);
/* Elements [first, first + n) of a tensor. */
void content_fill(const struct content *c, uint64_t tensor, uint64_t first,
    size_t n, void *out);

#endif
