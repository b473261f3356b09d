/* content.c - the elements of generated tensors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "content.h"

#include <string.h>

static const struct content_dtype dtypes[] = {
	{ "float32", "FloatStorage", 4 },
	{ "bfloat16", "BFloat16Storage", 2 },
	{ "float64", "DoubleStorage", 8 },
	{ "int64", "LongStorage", 8 },
	{ "uint8", "ByteStorage", 1 },
};

const struct content_dtype *content_dtype(const char *name)
{
	for (size_t i = 0; i < sizeof(dtypes) / sizeof(dtypes[0]); i++)
		if (strcmp(dtypes[i].name, name) == 0)
			return &dtypes[i];
	return NULL;
}

/* Mix the bits of x, so that a compressor finds no more in the elements than
 * in those of a real checkpoint. */
static uint32_t noise(uint32_t x)
{
	x *= 2654435761u;
	x = (x ^ x >> 15) * 0x2c1b3c6du;
	return x ^ x >> 12;
}

/* In [0, 1): all are finite, so that equal elements compare equal. */
static float uniform(uint32_t x)
{
	return (float)(noise(x) >> 8) * 0x1p-24f;
}

void content_fill(const struct content *c, uint64_t tensor, uint64_t first,
    size_t n, void *out)
{
	uint64_t base = (c->seed + 1) * UINT64_C(0xd1342543de82ef95) +
	    tensor * UINT64_C(0x9e3779b97f4a7c15);
	uint32_t mix = (uint32_t)(base ^ base >> 32);

	if (c->fixed) {
		for (size_t i = 0; i < n; i++)
			((float *)out)[i] = (float)c->seed;
		return;
	}
	switch (c->dtype->size) {
	case 1:
		for (size_t i = 0; i < n; i++)
			((uint8_t *)out)[i] =
			    (uint8_t)(noise((uint32_t)(first + i) + mix) >> 24);
		return;
	case 2: /* bfloat16: the upper half of a float */
		for (size_t i = 0; i < n; i++) {
			float f = uniform((uint32_t)(first + i) + mix);
			uint32_t bits;

			memcpy(&bits, &f, sizeof(bits));
			((uint16_t *)out)[i] = (uint16_t)(bits >> 16);
		}
		return;
	case 4:
		for (size_t i = 0; i < n; i++)
			((float *)out)[i] =
			    uniform((uint32_t)(first + i) + mix);
		return;
	}
	if (strcmp(c->dtype->name, "int64") == 0)
		for (size_t i = 0; i < n; i++)
			((int64_t *)out)[i] =
			    (int64_t)(base % (1u << 30) + first + i);
	else
		for (size_t i = 0; i < n; i++)
			((double *)out)[i] =
			    (double)noise((uint32_t)(first + i) + mix) *
			    0x1p-32;
}
