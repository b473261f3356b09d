/* pack.c - statistics as bytes, to keep them */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "stats/stats_impl.h"

/* What is not derived; then the histogram. */
#define COUNTS(s)                                                    \
 {                                                                   \
  &(s)->tensors, &(s)->elements, &(s)->finite, &(s)->nan, &(s)->inf, \
      &(s)->zeros, &(s)->denormals, &(s)->first_nan,                 \
      &(s)->first_inf, &(s)->xxh3                                    \
 }
#define REALS(s)                                                      \
 {                                                                    \
  &(s)->min, &(s)->max, &(s)->sum, &(s)->l1, &(s)->squares,           \
      &(s)->spread                                                    \
 }
#define NCOUNTS 10
#define NREALS  6

void ofs_stats_pack(const struct optimfs_statistics *s, struct ofs_buf *out)
{
	const uint64_t *const count[NCOUNTS] = COUNTS(s);
	const double *const real[NREALS] = REALS(s);
	uint64_t bits;

	for (size_t i = 0; i < NCOUNTS; i++)
		ofs_buf_put_le(out, *count[i], 8);
	for (size_t i = 0; i < NREALS; i++) {
		memcpy(&bits, real[i], sizeof(bits));
		ofs_buf_put_le(out, bits, 8);
	}
	ofs_buf_put_le(out, (uint32_t)s->exponent_first, 4);
	ofs_buf_put_le(out, s->nexponents, 4);
	for (unsigned i = 0; i < s->nexponents; i++)
		ofs_buf_put_le(out, s->exponent[i], 8);
}

/* 1, 0 or -1. */
static int unpack_histogram(struct ofs_cursor *c, struct optimfs_statistics *s,
    struct optimfs_error *err)
{
	int64_t first = (int32_t)ofs_cursor_le32(c);
	uint32_t n = ofs_cursor_le32(c);

	if (n > OFS_NEXPONENTS || !ofs_cursor_fits(c, n, 8) ||
	    first < OFS_EXPONENT_MIN ||
	    first + n > OFS_EXPONENT_MIN + OFS_NEXPONENTS)
		return 0;
	s->exponent_first = (int)first;
	if (n == 0)
		return 1;
	s->exponent = malloc(n * sizeof(*s->exponent));
	if (s->exponent == NULL)
		return ofs_no_memory(err);
	s->nexponents = n;
	for (uint32_t i = 0; i < n; i++)
		s->exponent[i] = ofs_cursor_le64(c);
	return 1;
}

int ofs_stats_unpack(struct ofs_cursor *c, struct optimfs_statistics *s,
    struct optimfs_error *err)
{
	uint64_t *const count[NCOUNTS] = COUNTS(s);
	double *const real[NREALS] = REALS(s);

	*s = (struct optimfs_statistics){ 0 };
	for (size_t i = 0; i < NCOUNTS; i++)
		*count[i] = ofs_cursor_le64(c);
	for (size_t i = 0; i < NREALS; i++) {
		uint64_t bits = ofs_cursor_le64(c);

		memcpy(real[i], &bits, sizeof(bits));
	}
	ofs_stats_derive(s);
	return unpack_histogram(c, s, err);
}
