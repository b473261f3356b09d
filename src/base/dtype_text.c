/* dtype_text.c - one element as text, and back to the same bits */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/cursor.h"
#include "base/dtype.h"

/* The longest text that is parsed; no number needs more digits. */
#define TEXT_MAX 511

/* A binary floating-point format. Without the sign bit, codes are in the order
 * of their values, so that rounding to a small format is a binary search. */
struct layout {
	uint8_t bits;   /* size of a code */
	uint8_t mant;   /* size of the mantissa */
	int16_t bias;   /* bias of the exponent */
	bool sign;      /* there is a sign bit */
	uint64_t max;   /* code of the largest finite value */
	uint64_t inf;   /* code of infinity; 0: there is none */
	uint64_t nan;   /* the canonical NaN */
	uint64_t first; /* smallest NaN without sign; 0: nan only */
};

static const struct layout layout_f64 = { 64, 52, 1023, true,
	0x7fefffffffffffff, 0x7ff0000000000000, 0x7ff8000000000000,
	0x7ff0000000000001 };
static const struct layout layout_f32 = { 32, 23, 127, true, 0x7f7fffff,
	0x7f800000, 0x7fc00000, 0x7f800001 };
static const struct layout layout_f16 = { 16, 10, 15, true, 0x7bff, 0x7c00,
	0x7e00, 0x7c01 };
static const struct layout layout_bf16 = { 16, 7, 127, true, 0x7f7f, 0x7f80,
	0x7fc0, 0x7f81 };
static const struct layout layout_e5m2 = { 8, 2, 15, true, 0x7b, 0x7c, 0x7e,
	0x7d };
static const struct layout layout_e4m3fn = { 8, 3, 7, true, 0x7e, 0, 0x7f,
	0x7f };
static const struct layout layout_e4m3fnuz = { 8, 3, 8, true, 0x7f, 0, 0x80,
	0 };
static const struct layout layout_e5m2fnuz = { 8, 2, 16, true, 0x7f, 0, 0x80,
	0 };
static const struct layout layout_e8m0 = { 8, 0, 127, false, 0xfe, 0, 0xff,
	0xff };

/* Of a complex type the format of each half; NULL: no floating-point type. */
static const struct layout *const layouts[OFS_NDTYPES] = {
	[OFS_FLOAT64] = &layout_f64,
	[OFS_COMPLEX128] = &layout_f64,
	[OFS_FLOAT32] = &layout_f32,
	[OFS_COMPLEX64] = &layout_f32,
	[OFS_FLOAT16] = &layout_f16,
	[OFS_COMPLEX32] = &layout_f16,
	[OFS_BFLOAT16] = &layout_bf16,
	[OFS_BCOMPLEX32] = &layout_bf16,
	[OFS_FLOAT8_E5M2] = &layout_e5m2,
	[OFS_FLOAT8_E4M3FN] = &layout_e4m3fn,
	[OFS_FLOAT8_E4M3FNUZ] = &layout_e4m3fnuz,
	[OFS_FLOAT8_E5M2FNUZ] = &layout_e5m2fnuz,
	[OFS_FLOAT8_E8M0FNU] = &layout_e8m0,
};

/* Numbers are printed and parsed in the C locale, whatever locale the program
 * has. */
static locale_t c_locale;

static void make_locale(void)
{
	c_locale = newlocale(LC_ALL_MASK, "C", NULL);
}

static locale_t enter_c(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, make_locale);
	return uselocale(c_locale); /* (locale_t)0 changes nothing */
}

static uint64_t sign_bit(const struct layout *f)
{
	return f->sign ? (uint64_t)1 << (f->bits - 1) : 0;
}

static bool is_nan(const struct layout *f, uint64_t code)
{
	if (f->first == 0)
		return code == f->nan;
	return (code & ~sign_bit(f)) >= f->first;
}

/* The value of a finite code without sign. A double holds the values of all
 * formats. */
static double magnitude(const struct layout *f, uint64_t code)
{
	uint64_t mant = code & (((uint64_t)1 << f->mant) - 1);
	int exp = (int)(code >> f->mant);

	if (!f->sign) /* e8m0: an exponent only */
		return ldexp(1, exp - f->bias);
	if (exp == 0)
		return ldexp((double)mant, 1 - f->bias - f->mant);
	mant |= (uint64_t)1 << f->mant;
	return ldexp((double)mant, exp - f->bias - f->mant);
}

/* The code nearest to v >= 0 in a format of at most 16 bits, ties to even.
 * ERANGE when v rounds above the largest value or, unless it is 0, to 0. */
static int nearest(const struct layout *f, double v, uint64_t *code)
{
	uint64_t lo = 0, hi = f->max, mid;
	double low, high;

	while (lo < hi) {
		mid = hi - (hi - lo) / 2;
		if (magnitude(f, mid) <= v)
			lo = mid;
		else
			hi = mid - 1;
	}
	low = magnitude(f, lo);
	high = magnitude(f, lo + 1); /* beyond max: the next code */
	if (v < low)
		return ERANGE; /* the format has no zero */
	if (v - low > high - v || (v - low == high - v && (lo & 1) != 0))
		lo++;
	if (lo > f->max || (lo == 0 && v > 0 && f->sign))
		return ERANGE;
	*code = lo;
	return 0;
}

#define DIGITS "0123456789"

static size_t skip_digits(const char **s)
{
	size_t n = strspn(*s, DIGITS);

	*s += n;
	return n;
}

static bool is_decimal(const char *s)
{
	size_t digits = skip_digits(&s);

	if (*s == '.') {
		s++;
		digits += skip_digits(&s);
	}
	if (digits > 0 && (*s == 'e' || *s == 'E')) {
		s++;
		s += *s == '+' || *s == '-';
		digits = skip_digits(&s);
	}
	return digits > 0 && *s == '\0';
}

/* s is a NUL-terminated unsigned decimal number. */
static int decimal(const struct layout *f, const char *s, uint64_t *code)
{
	bool zero = strspn(s, "0.") == strcspn(s, "eE");
	double d;
	float x;

	if (f == &layout_f32) {
		uint32_t bits;

		x = strtof(s, NULL);
		if (isinf(x) || (x == 0 && !zero))
			return ERANGE;
		memcpy(&bits, &x, sizeof(bits));
		*code = bits;
		return 0;
	}
	d = strtod(s, NULL);
	if (isinf(d) || (d == 0 && !zero))
		return ERANGE;
	if (f != &layout_f64)
		return nearest(f, d, code);
	memcpy(code, &d, sizeof(d));
	return 0;
}

/* *v = the number of s[0..n), hexadecimal digits; it must fit in bits bits. */
static int parse_hex(const char *s, size_t n, unsigned bits, uint64_t *v)
{
	if (n == 0 || strspn(s, "0123456789abcdefABCDEF") < n)
		return EINVAL;
	while (n > 1 && *s == '0') {
		s++;
		n--;
	}
	if (4 * n > bits)
		return ERANGE;
	*v = strtoull(s, NULL, 16); /* which ends behind the digits */
	return 0;
}

/* Parse NaN, or NaN(0xCODE), which is any NaN but the canonical quiet one. */
static int parse_nan(const struct layout *f, const char *s, uint64_t *code)
{
	size_t n = strlen(s);
	int rc;

	*code = f->nan;
	if (n == 3)
		return 0;
	if (n < 7 || strncmp(s + 3, "(0x", 3) != 0 || s[n - 1] != ')')
		return EINVAL;
	rc = parse_hex(s + 6, n - 7, f->bits, code);
	return rc != 0 || is_nan(f, *code) ? rc : EINVAL;
}

static int negate(const struct layout *f, uint64_t *code)
{
	if (!f->sign)
		return ERANGE;
	/* The "uz" formats have one zero and one NaN, both without sign. */
	if (f->first != 0 || (*code != 0 && *code != f->nan))
		*code |= sign_bit(f);
	return 0;
}

/* s is NUL-terminated and trimmed. */
static int parse_float(const struct layout *f, const char *s, uint64_t *code)
{
	bool minus = *s == '-';
	int rc;

	if (*s == '-' || *s == '+')
		s++;
	if (strncasecmp(s, "nan", 3) == 0)
		rc = parse_nan(f, s, code);
	else if (strcasecmp(s, "inf") == 0 || strcasecmp(s, "infinity") == 0)
		rc = f->inf == 0 ? ERANGE : (*code = f->inf, 0);
	else if (!is_decimal(s))
		rc = EINVAL;
	else
		rc = decimal(f, s, code);
	return rc == 0 && minus ? negate(f, code) : rc;
}

/* Round v > 0 to n significant digits. */
static void to_digits(double v, int n, struct ofs_decimal *out)
{
	char text[40];

	snprintf(text, sizeof(text), "%.*e", n - 1, v);
	out->d[0] = text[0];
	if (n > 1)
		memcpy(out->d + 1, text + 2, (size_t)n - 1);
	out->n = n;
	out->point = atoi(strchr(text, 'e') + 1) + 1;
}

/* Add one in the last place. */
static void bump(struct ofs_decimal *g)
{
	int i = g->n;

	while (i > 0 && g->d[i - 1] == '9')
		g->d[--i] = '0';
	if (i > 0) {
		g->d[i - 1]++;
		return;
	}
	g->d[0] = '1'; /* 999 -> 100, with point + 1 */
	g->point++;
}

static bool reads_back(const struct layout *f, const struct ofs_decimal *g,
    uint64_t code)
{
	char text[48];
	uint64_t got;

	snprintf(text, sizeof(text), "0.%.*se%d", g->n, g->d, g->point);
	return decimal(f, text, &got) == 0 && got == code;
}

/* The fewest digits that parse back to the code of v in f, and of those the
 * nearest to it. Just below a power of two codes are closer together than above
 * it, so the nearest decimal may fail where the next one succeeds. */
static void shortest(const struct layout *f, uint64_t code, double v,
    struct ofs_decimal *g)
{
	for (int n = 1; n <= 17; n++) {
		to_digits(v, n, g);
		if (reads_back(f, g, code))
			break;
		bump(g);
		if (reads_back(f, g, code))
			break;
	}
	while (g->n > 1 && g->d[g->n - 1] == '0')
		g->n--;
}

/* Write a number as Python does: with a point from 0.0001 to 1e16, else with an
 * exponent of at least two digits. */
static size_t layout_digits(const struct ofs_decimal *g, char *text)
{
	int n = 0;

	if (g->point > 16 || g->point < -3)
		return (size_t)sprintf(text, "%c%s%.*se%+03d", g->d[0],
		    g->n > 1 ? "." : "", g->n - 1, g->d + 1, g->point - 1);
	if (g->point <= 0)
		return (size_t)sprintf(text, "0.%.*s%.*s", -g->point, "000",
		    g->n, g->d);
	for (; n < g->point; n++)
		text[n] = n < g->n ? g->d[n] : '0';
	return (size_t)n +
	    (size_t)sprintf(text + n, ".%.*s", n < g->n ? g->n - n : 1,
		n < g->n ? g->d + n : "0");
}

/* v >= 0. The value of a narrower type is printed as the double that it equals,
 * as Python's item() does, so that a program that parses doubles gets the exact
 * value. */
static size_t print_finite(double v, char *text)
{
	struct ofs_decimal g;
	uint64_t code;

	/* Whole numbers are printed in full, as for a step count. */
	if (v < 1e15 && v == floor(v))
		return (size_t)sprintf(text, "%.1f", v);
	memcpy(&code, &v, sizeof(code));
	shortest(&layout_f64, code, v, &g);
	return layout_digits(&g, text);
}

static size_t print_float(const struct layout *f, uint64_t code, char *text)
{
	uint64_t sign = sign_bit(f);
	size_t n = 0;

	/* JSON has one NaN, so sign and payload are dropped. */
	if (is_nan(f, code))
		return (size_t)sprintf(text, "NaN");
	if ((code & sign) != 0)
		text[n++] = '-';
	code &= ~sign;
	if (f->inf != 0 && code == f->inf)
		return n + (size_t)sprintf(text + n, "Infinity");
	return n + print_finite(magnitude(f, code), text + n);
}

/* As Python prints the parts of a complex number. */
static void print_part(const struct layout *f, uint64_t code, char *text)
{
	size_t n = print_float(f, code, text);

	if (n > 2 && strcmp(text + n - 2, ".0") == 0)
		text[n - 2] = '\0';
	else if (strcmp(text, "NaN") == 0)
		strcpy(text, "nan");
	else if (n >= 8 && strcmp(text + n - 8, "Infinity") == 0)
		strcpy(text + n - 8, "inf");
}

static size_t print_complex(const struct layout *f, const uint8_t *p,
    char *text)
{
	size_t half = f->bits / 8u;
	char re[32], im[32];

	print_part(f, ofs_get_le(p, half), re);
	print_part(f, ofs_get_le(p + half, half), im);
	if (strcmp(re, "0") == 0)
		return (size_t)sprintf(text, "%sj", im);
	return (size_t)sprintf(text, "(%s%s%sj)", re, im[0] == '-' ? "" : "+",
	    im);
}

static double float_number(const struct layout *f, uint64_t code)
{
	uint64_t sign = sign_bit(f);
	double v;

	if (is_nan(f, code))
		return NAN;
	if (f->inf != 0 && (code & ~sign) == f->inf)
		v = INFINITY;
	else
		v = magnitude(f, code & ~sign);
	return (code & sign) != 0 ? -v : v;
}

bool ofs_dtype_decimal(enum ofs_dtype t, const void *p, struct ofs_decimal *out)
{
	const struct layout *f = layouts[t];
	uint64_t code, magnitude_code;
	struct ofs_decimal g = { .d = "0", .n = 1, .point = 1 };
	locale_t before;

	if (f == NULL)
		return false;
	code = ofs_get_le(p, f->bits / 8u);
	magnitude_code = code & ~sign_bit(f);
	if (is_nan(f, code) || (f->inf != 0 && magnitude_code == f->inf))
		return false;
	if (magnitude_code != 0 || !f->sign) {
		before = enter_c();
		shortest(f, magnitude_code, magnitude(f, magnitude_code), &g);
		uselocale(before);
	}
	g.negative = (code & sign_bit(f)) != 0;
	*out = g;
	return true;
}

static bool is_signed(enum ofs_dtype t)
{
	return (t >= OFS_INT64 && t <= OFS_INT8) || t == OFS_QINT8 ||
	    t == OFS_QINT32;
}

static bool is_unsigned(enum ofs_dtype t)
{
	return (t >= OFS_UINT64 && t <= OFS_UINT8) || t == OFS_QUINT8;
}

/* The number with this two's complement of size bytes. */
static int64_t extend(uint64_t v, size_t size)
{
	return (int64_t)(v << (64 - 8 * size)) >> (64 - 8 * size);
}

double ofs_dtype_number(enum ofs_dtype t, const void *p)
{
	const struct layout *f = layouts[t];
	size_t size = ofs_dtype_size(t);
	uint64_t v;

	if (f != NULL)
		return float_number(f, ofs_get_le(p, f->bits / 8u));
	v = ofs_get_le(p, size > 8 ? 8 : size);
	if (is_signed(t))
		return (double)extend(v, size);
	if (t == OFS_BOOL)
		return v != 0;
	return is_unsigned(t) ? (double)v : NAN;
}

size_t ofs_dtype_print(enum ofs_dtype t, const void *p, char text[80])
{
	const struct layout *f = layouts[t];
	size_t size = ofs_dtype_size(t), n;
	uint64_t v = ofs_get_le(p, size > 8 ? 8 : size);
	locale_t before;

	text[0] = '\0';
	if (size == 0)
		return 0;
	if (t == OFS_BOOL)
		return (size_t)sprintf(text, "%s", v != 0 ? "true" : "false");
	if (is_signed(t))
		return (size_t)sprintf(text, "%" PRId64, extend(v, size));
	if (is_unsigned(t))
		return (size_t)sprintf(text, "%" PRIu64, v);
	if (f == NULL)
		return (size_t)sprintf(text, "0x%0*" PRIx64, (int)size * 2, v);
	before = enter_c();
	if (size * 8 == 2u * f->bits)
		n = print_complex(f, p, text);
	else
		n = print_float(f, v, text);
	uselocale(before);
	return n;
}

static void store_double(uint8_t *le, double v)
{
	uint64_t code = layout_f64.nan;

	if (!isnan(v))
		memcpy(&code, &v, sizeof(v));
	ofs_put_le(le, code, sizeof(code));
}

size_t ofs_print_double(double v, char text[80])
{
	uint8_t le[8];

	store_double(le, v);
	return ofs_dtype_print(OFS_FLOAT64, le, text);
}

size_t ofs_print_complex(double re, double im, char text[80])
{
	uint8_t le[16];

	store_double(le, re);
	store_double(le + 8, im);
	return ofs_dtype_print(OFS_COMPLEX128, le, text);
}

/* Parse "(1-2j)" or "2j"; the parentheses are optional. Overwrites s. */
static int parse_complex(const struct layout *f, char *s, uint64_t part[2])
{
	size_t n = strlen(s), at;
	char im[TEXT_MAX + 1];
	int rc;

	if (n >= 2 && s[0] == '(' && s[n - 1] == ')') {
		s[n - 1] = '\0';
		s++;
		n -= 2;
	}
	if (n < 2 || s[n - 1] != 'j')
		return EINVAL;
	s[n - 1] = '\0';
	for (at = n - 2; at > 0; at--)
		if ((s[at] == '+' || s[at] == '-') && s[at - 1] != 'e' &&
		    s[at - 1] != 'E')
			break;
	strcpy(im, s + at);
	s[at] = '\0';
	rc = at == 0 ? 0 : parse_float(f, s, &part[0]);
	return rc != 0 ? rc : parse_float(f, im, &part[1]);
}

static int parse_bool(const char *s, uint64_t *v)
{
	if (strcasecmp(s, "true") == 0 || strcmp(s, "1") == 0)
		*v = 1;
	else if (strcasecmp(s, "false") == 0 || strcmp(s, "0") == 0)
		*v = 0;
	else
		return EINVAL;
	return 0;
}

static int parse_int(size_t size, bool is_signed, const char *s, uint64_t *v)
{
	bool minus = *s == '-';
	uint64_t limit = UINT64_MAX >> (64 - 8 * size);

	if (*s == '-' || *s == '+')
		s++;
	if (*s == '\0' || s[strspn(s, DIGITS)] != '\0')
		return EINVAL;
	errno = 0;
	*v = strtoull(s, NULL, 10);
	if (errno != 0)
		return ERANGE;
	if (is_signed)
		limit = limit / 2 + minus;
	else if (minus)
		limit = 0;
	if (*v > limit)
		return ERANGE;
	if (minus)
		*v = 0 - *v;
	return 0;
}

static int parse_bits(size_t size, const char *s, uint64_t *v)
{
	if (strncasecmp(s, "0x", 2) != 0)
		return parse_int(size, false, s, v);
	return parse_hex(s + 2, strlen(s + 2), 8 * (unsigned)size, v);
}

static int parse_into(enum ofs_dtype t, char *s, uint8_t *p)
{
	const struct layout *f = layouts[t];
	size_t size = ofs_dtype_size(t);
	uint64_t v[2] = { 0, 0 };
	int rc;

	if (f != NULL && size * 8 == 2u * f->bits) {
		rc = parse_complex(f, s, v);
		if (rc == 0) {
			ofs_put_le(p, v[0], (unsigned)size / 2);
			ofs_put_le(p + size / 2, v[1], (unsigned)size / 2);
		}
		return rc;
	}
	if (f != NULL)
		rc = parse_float(f, s, v);
	else if (t == OFS_BOOL)
		rc = parse_bool(s, v);
	else if (is_signed(t))
		rc = parse_int(size, true, s, v);
	else
		rc = parse_bits(size, s, v);
	if (rc == 0)
		ofs_put_le(p, v[0], (unsigned)size);
	return rc;
}

int ofs_dtype_parse(enum ofs_dtype t, const char *text, size_t n, void *p)
{
	char s[TEXT_MAX + 1];
	locale_t before;
	int rc;

	while (n > 0 && isspace((unsigned char)text[n - 1]))
		n--;
	for (; n > 0 && isspace((unsigned char)*text); n--)
		text++;
	if (ofs_dtype_size(t) == 0 || n == 0 || n > TEXT_MAX ||
	    memchr(text, '\0', n) != NULL)
		return EINVAL;
	memcpy(s, text, n);
	s[n] = '\0';
	before = enter_c();
	rc = parse_into(t, s, p);
	uselocale(before);
	return rc;
}
