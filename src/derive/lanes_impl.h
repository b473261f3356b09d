/* lanes_impl.h - one variant of lanes.c (base/vectors.h) */
/* SPDX-License-Identifier: Apache-2.0 */

/* WIDTH: doubles in a vector, a divisor of OFS_ROW. NAME(x): x for this width.
 * TARGET: the instruction set. */

typedef double NAME(wide) __attribute__((vector_size(8 * WIDTH)));
typedef int64_t NAME(whole) __attribute__((vector_size(8 * WIDTH)));
typedef float NAME(narrow) __attribute__((vector_size(4 * WIDTH)));
typedef int32_t NAME(ints) __attribute__((vector_size(4 * WIDTH)));
typedef uint32_t NAME(bits) __attribute__((vector_size(4 * WIDTH)));
typedef uint16_t NAME(halves) __attribute__((vector_size(2 * WIDTH)));
typedef uint8_t NAME(bytes) __attribute__((vector_size(WIDTH)));

#define INLINE          TARGET static inline __attribute__((always_inline))
#define EACH_VECTOR     for (size_t i = 0; i < rows * OFS_ROW; i += WIDTH)
#define CHOOSE(c, a, b) (((c) & (a)) | (~(c) & (b)))

INLINE NAME(wide) NAME(get_double)(const uint8_t *p, size_t i)
{
	NAME(wide) x;

	memcpy(&x, p + 8 * i, sizeof(x));
	return x;
}

INLINE NAME(wide) NAME(get_float)(const uint8_t *p, size_t i)
{
	NAME(narrow) x;

	memcpy(&x, p + 4 * i, sizeof(x));
	return __builtin_convertvector(x, NAME(wide));
}

INLINE NAME(bits) NAME(get_code)(const uint8_t *p, size_t i)
{
	NAME(halves) x;

	memcpy(&x, p + 2 * i, sizeof(x));
	return __builtin_convertvector(x, NAME(bits));
}

INLINE NAME(wide) NAME(get_bfloat)(const uint8_t *p, size_t i)
{
	return __builtin_convertvector((NAME(narrow))(NAME(get_code)(p, i)
					   << 16),
	    NAME(wide));
}

/* The exponents 0 and 31 have a meaning of their own. For 0, a float32 whose
 * last bits are the fraction is the number and the smallest normal one. */
INLINE NAME(wide) NAME(get_half)(const uint8_t *p, size_t i)
{
	const NAME(bits) normal = 0x38800000 - (NAME(bits)){ 0 };
	NAME(bits) code = NAME(get_code)(p, i), v = (code & 0x7fff) << 13;
	NAME(bits) huge = (NAME(bits))((NAME(ints))v >= 0x7c00 << 13);
	NAME(bits) tiny = (NAME(bits))((NAME(ints))v < 0x400 << 13);
	NAME(bits)
	small = (NAME(bits))((NAME(narrow))(v | normal) - (NAME(narrow))normal);

	v += 0x38000000 + (huge & 0x38000000);
	v = CHOOSE(tiny, small, v) | (code & 0x8000) << 16;
	return __builtin_convertvector((NAME(narrow))v, NAME(wide));
}

#define ADDER(word)                                              \
 TARGET static void NAME(add_##word)(const void *x, size_t rows, \
     double weight, bool first, double *sum)                     \
 {                                                               \
  NAME(wide) s;                                                  \
                                                                 \
  if (first)                                                     \
   EACH_VECTOR                                                   \
   {                                                             \
    s = weight * NAME(get_##word)(x, i);                         \
    memcpy(sum + i, &s, sizeof(s));                              \
   }                                                             \
  else                                                           \
   EACH_VECTOR                                                   \
   {                                                             \
    memcpy(&s, sum + i, sizeof(s));                              \
    s += weight * NAME(get_##word)(x, i);                        \
    memcpy(sum + i, &s, sizeof(s));                              \
   }                                                             \
 }
ADDER(double)
ADDER(float)
ADDER(half)
ADDER(bfloat)

#define TOTAL(word)                                                       \
 TARGET static void NAME(total_##word)(const void *x, size_t pitch,       \
     const double *weight, size_t n, size_t rows, double by, bool divide, \
     void *out)                                                           \
 {                                                                        \
  const uint8_t *p = x;                                                   \
  NAME(narrow) f;                                                         \
  NAME(wide) s;                                                           \
                                                                          \
  EACH_VECTOR                                                             \
  {                                                                       \
   s = weight[0] * NAME(get_##word)(p, i);                                \
   for (size_t k = 1; k < n; k++)                                         \
    s += weight[k] * NAME(get_##word)(p + k * pitch, i);                  \
   s = divide ? s / by : s * by;                                          \
   f = __builtin_convertvector(s, NAME(narrow));                          \
   memcpy((char *)out + 4 * i, &f, sizeof(f));                            \
  }                                                                       \
 }
TOTAL(float)
TOTAL(half)
TOTAL(bfloat)

TARGET static void NAME(multiply)(double *v, size_t rows, double by)
{
	NAME(wide) x;

	EACH_VECTOR
	{
		memcpy(&x, v + i, sizeof(x));
		x *= by;
		memcpy(v + i, &x, sizeof(x));
	}
}

TARGET static void NAME(divide)(double *v, size_t rows, double by)
{
	NAME(wide) x;

	EACH_VECTOR
	{
		memcpy(&x, v + i, sizeof(x));
		x /= by;
		memcpy(v + i, &x, sizeof(x));
	}
}

TARGET static void NAME(to_float)(const double *v, size_t rows, void *out)
{
	NAME(wide) x;
	NAME(narrow) f;

	EACH_VECTOR
	{
		memcpy(&x, v + i, sizeof(x));
		f = __builtin_convertvector(x, NAME(narrow));
		memcpy((char *)out + 4 * i, &f, sizeof(f));
	}
}

/* float32 has more than two bits more than the short types. So a double that is
 * first rounded "to odd" (towards zero, with the last bit set if that was not
 * exact) and then to nearest is rounded as if in one step. */
INLINE NAME(bits) NAME(to_odd)(NAME(wide) x)
{
	const NAME(whole) magnitude = INT64_MAX - (NAME(whole)){ 0 };
	NAME(narrow) f = __builtin_convertvector(x, NAME(narrow));
	NAME(wide) back = __builtin_convertvector(f, NAME(wide));
	NAME(whole)
	beyond = ((NAME(whole))back & magnitude) > ((NAME(whole))x & magnitude);
	NAME(bits)
	inexact = __builtin_convertvector((NAME(whole))(back != x), NAME(bits));

	return ((NAME(bits))f + __builtin_convertvector(beyond, NAME(bits))) |
	    (inexact & 1);
}

/* The codes of a short type. Adding a number whose last bit is worth as much as
 * that of a subnormal one rounds to these. */
INLINE NAME(bits) NAME(shorten)(const struct ofs_short *t, NAME(wide) x)
{
	const uint32_t down = (uint32_t)(t->emin + 126) << 23;
	const uint32_t n = 23 - (uint32_t)t->m, last = (1u << (n - 1)) - 1;
	const NAME(bits) unit =
	    ((uint32_t)(t->emin - t->m + 150) << 23) - (NAME(bits)){ 0 };
	NAME(bits) f = NAME(to_odd)(x), v = f & 0x7fffffff, code, sign;
	NAME(bits) tiny, over, nan;

	tiny = (NAME(bits))((NAME(ints))v < (int32_t)(down + (1u << 23)));
	nan = (NAME(bits))((NAME(ints))v > 0x7f800000);
	code = CHOOSE(tiny,
	    (NAME(bits))((NAME(narrow))v + (NAME(narrow))unit) - unit,
	    (v - down + last + (v >> n & 1)) >> n);
	over = (NAME(bits))((NAME(ints))code > (int32_t)t->max);
	code = CHOOSE(over, t->over, code);
	sign = f >> 31 << (8 * t->bytes - 1);
	if (t->minus)
		sign &= (NAME(bits))(code != 0);
	code |= sign;
	return CHOOSE(nan, t->nan | (t->signed_nan ? sign : sign & 0), code);
}

TARGET static void NAME(to_short)(const struct ofs_short *t, const double *v,
    size_t rows, void *out)
{
	const struct ofs_short type = *t;
	NAME(halves) two;
	NAME(bytes) one;
	NAME(wide) x;
	char *p = out;

	if (type.bytes == 2)
		EACH_VECTOR
		{
			memcpy(&x, v + i, sizeof(x));
			two = __builtin_convertvector(NAME(shorten)(&type, x),
			    NAME(halves));
			memcpy(p + 2 * i, &two, sizeof(two));
		}
	else
		EACH_VECTOR
		{
			memcpy(&x, v + i, sizeof(x));
			one = __builtin_convertvector(NAME(shorten)(&type, x),
			    NAME(bytes));
			memcpy(p + i, &one, sizeof(one));
		}
}

static const struct ofs_lanes NAME(lanes) = {
	NAME_TEXT,
	{ NAME(add_double), NAME(add_float), NAME(add_half), NAME(add_bfloat) },
	{ NULL, NAME(total_float), NAME(total_half), NAME(total_bfloat) },
	NAME(multiply),
	NAME(divide),
	NAME(to_float),
	NAME(to_short),
};

#undef INLINE
#undef EACH_VECTOR
#undef CHOOSE
#undef ADDER
#undef TOTAL
