/* rows_impl.h - one variant of rows.c (base/vectors.h) */
/* SPDX-License-Identifier: Apache-2.0 */

/* WIDTH: doubles in a vector, a divisor of OFS_LANES. NAME(x): x for this
 * width. TARGET: the instruction set. */

typedef double NAME(wide) __attribute__((vector_size(8 * WIDTH)));
typedef int64_t NAME(whole) __attribute__((vector_size(8 * WIDTH)));
typedef float NAME(narrow) __attribute__((vector_size(4 * WIDTH)));
/* The number of floats in a vector, at most a row. */
#define FLOATS (WIDTH < OFS_LANES ? 2 * WIDTH : OFS_LANES)
typedef float NAME(floats) __attribute__((vector_size(4 * FLOATS)));
typedef int32_t NAME(ints) __attribute__((vector_size(4 * FLOATS)));

#define VECTORS     (OFS_LANES / WIDTH)
#define EACH_VECTOR _Pragma("GCC unroll 4") for (size_t k = 0; k < VECTORS; k++)

struct NAME(sums) {
	NAME(wide) sum[VECTORS], l1[VECTORS], squares[VECTORS];
};

#define ADD(s, k, x)                                       \
 do {                                                      \
  NAME(wide) one = (x);                                    \
  (s).sum[k] += one;                                       \
  (s).l1[k] += (NAME(wide))((NAME(whole))one & magnitude); \
  (s).squares[k] += one * one;                             \
 } while (0)

TARGET static void NAME(sum_floats)(const void *p, size_t rows,
    struct ofs_columns *c)
{
	const NAME(whole) magnitude = INT64_MAX - (NAME(whole)){ 0 };
	struct NAME(sums) s = { 0 };
	const char *b = p;
	NAME(narrow) x;

	for (size_t i = 0; i < rows; i++, b += 4 * OFS_LANES)
		EACH_VECTOR
		{
			memcpy(&x, b + 4 * WIDTH * k, sizeof(x));
			ADD(s, k, __builtin_convertvector(x, NAME(wide)));
		}
	memcpy(c->sum, s.sum, sizeof(c->sum));
	memcpy(c->l1, s.l1, sizeof(c->l1));
	memcpy(c->squares, s.squares, sizeof(c->squares));
}

TARGET static void NAME(sum_doubles)(const void *p, size_t rows,
    struct ofs_columns *c)
{
	const NAME(whole) magnitude = INT64_MAX - (NAME(whole)){ 0 };
	struct NAME(sums) s = { 0 };
	const char *b = p;
	NAME(wide) x;

	for (size_t i = 0; i < rows; i++, b += 8 * OFS_LANES)
		EACH_VECTOR
		{
			memcpy(&x, b + 8 * WIDTH * k, sizeof(x));
			ADD(s, k, x);
		}
	memcpy(c->sum, s.sum, sizeof(c->sum));
	memcpy(c->l1, s.l1, sizeof(c->l1));
	memcpy(c->squares, s.squares, sizeof(c->squares));
}

/* Compares by the sign of differences, which rounding preserves. */

TARGET static bool NAME(floats_beyond)(const void *p, size_t rows, double lo,
    double hi)
{
	const NAME(floats) min = (float)lo - (NAME(floats)){ 0 };
	const NAME(floats) max = (float)hi - (NAME(floats)){ 0 };
	NAME(ints) out = { 0 };
	const char *b = p, *end = b + 4 * OFS_LANES * rows;
	NAME(floats) x;
	int32_t any = 0;

	for (; b < end; b += 4 * FLOATS) {
		memcpy(&x, b, sizeof(x));
		out |= (NAME(ints))(x - min);
		out |= (NAME(ints))(max - x);
	}
	for (size_t k = 0; k < FLOATS; k++)
		any |= out[k];
	return any < 0;
}

TARGET static bool NAME(doubles_beyond)(const void *p, size_t rows, double lo,
    double hi)
{
	const NAME(wide) min = lo - (NAME(wide)){ 0 };
	const NAME(wide) max = hi - (NAME(wide)){ 0 };
	NAME(whole) out = { 0 };
	const char *b = p, *end = b + 8 * OFS_LANES * rows;
	NAME(wide) x;
	int64_t any = 0;

	for (; b < end; b += 8 * WIDTH) {
		memcpy(&x, b, sizeof(x));
		out |= (NAME(whole))(x - min);
		out |= (NAME(whole))(max - x);
	}
	for (size_t k = 0; k < WIDTH; k++)
		any |= out[k];
	return any < 0;
}

static const struct ofs_rows NAME(rows) = { NAME_TEXT, NAME(sum_floats),
	NAME(sum_doubles), NAME(floats_beyond), NAME(doubles_beyond) };

#undef FLOATS
#undef VECTORS
#undef EACH_VECTOR
#undef ADD
