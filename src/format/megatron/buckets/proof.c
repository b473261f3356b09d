/* proof.c - is the master copy in a bucket that of this weight? */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <math.h>
#include <string.h>

#include "base/cursor.h"
#include "format/megatron/buckets/buckets.h"
#include "plan/cast.h"

/* The optimizer rounds its float32 copy to the weight after each step. So the
 * rounded copy equals the weight bit for bit, and 100 equal elements leave no
 * doubt. PyTorch rounds ties to even; TransformerEngine's kernel that splits the
 * copy in halves rounds them up.
 *
 * Weights of 8 bits and less are stored dequantized. Then the two are only
 * close; but those of another parameter are as far as random numbers. */

/* A correlation that no other weight reaches by chance: with 128 elements a
 * random one is below 0.5. */
#define NEAR 0.98
/* Fewer elements prove nothing. */
#define NEAR_MIN 16

unsigned int ofs_bucket_runs(uint64_t len,
    struct ofs_bucket_slice run[OFS_BUCKET_RUNS])
{
	const uint64_t n = OFS_BUCKET_RUN;

	if (len <= OFS_BUCKET_SAMPLE) {
		run[0] = (struct ofs_bucket_slice){ 0, len };
		return 1;
	}
	run[0] = (struct ofs_bucket_slice){ 0, n };
	run[1] = (struct ofs_bucket_slice){ (len - n) / 2, n };
	run[2] = (struct ofs_bucket_slice){ len - n, n };
	return 3;
}

bool ofs_bucket_rounds_to(enum ofs_dtype t)
{
	return t == OFS_FLOAT32 || t == OFS_BFLOAT16 || t == OFS_FLOAT16;
}

static bool is_tie(const uint8_t *p)
{
	uint32_t bits = ofs_le32(p);

	return (bits & 0xffff) == 0x8000 && (bits & 0x7f800000) != 0x7f800000;
}

bool ofs_bucket_round(const void *master, size_t n, enum ofs_dtype to,
    bool ties_up, void *out)
{
	const uint8_t *p = master;
	uint8_t *q = out;
	bool tie = false;

	if (to == OFS_FLOAT32)
		memcpy(out, master, n * 4);
	else
		ofs_cast(OFS_FLOAT32, master, to, out, n);
	for (size_t i = 0; to == OFS_BFLOAT16 && i < n; i++) {
		if (!is_tie(p + 4 * i))
			continue;
		tie = true;
		if (ties_up) /* away from zero, by the bits */
			ofs_put_le(q + 2 * i, (ofs_le32(p + 4 * i) >> 16) + 1,
			    2);
	}
	return tie;
}

bool ofs_bucket_near(const float *a, const float *b, size_t n)
{
	double aa = 0, bb = 0, ab = 0;

	if (n < NEAR_MIN)
		return false;
	for (size_t i = 0; i < n; i++) {
		aa += (double)a[i] * a[i];
		bb += (double)b[i] * b[i];
		ab += (double)a[i] * b[i];
	}
	/* false for infinities and NaN, too */
	return aa > 0 && bb > 0 && ab / sqrt(aa * bb) > NEAR;
}
