/* content.h - what the elements of generated tensors are */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CONTENT_H
#define CONTENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct content_dtype {
	const char *name, *storage; /* as PyTorch spells them */
	size_t size;
};

/* Any element is known from the seed, its tensor's number and its index in C
 * order, so that a reader of any byte can check it. */
struct content {
	const struct content_dtype *dtype;
	uint64_t seed;
	bool fixed; /* float32: every element is seed */
};

/* NULL: there is none of that name. */
const struct content_dtype *content_dtype(const char *name);
/* Elements [first, first + n) of a tensor. */
void content_fill(const struct content *c, uint64_t tensor, uint64_t first,
    size_t n, void *out);

#endif
