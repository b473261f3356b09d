/* numbers.c - numbers as NumPy prints them: alone, and in arrays */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "cli/numbers.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* An array shows at most 8 digits after the point, and an exponent for all
 * numbers if one needs it or the largest is more than 1000 times the smallest. */
#define PRECISION 8

/* The text of a number in three pieces, which are aligned. */
struct pieces {
	char whole[24], fraction[24]; /* "-12", "5" */
	char exponent[8];             /* "-05" */
};

static bool is_real(enum ofs_dtype t)
{
	return ofs_dtype_is_float(t) || t == OFS_FLOAT8_E8M0FNU;
}

/* The bytes of a number, which has two parts if it is complex. */
static const uint8_t *part_of(enum ofs_dtype t, const void *p, size_t i,
    unsigned part)
{
	return (const uint8_t *)p + i * ofs_dtype_size(t) +
	    part * (ofs_dtype_size(t) / 2);
}

static void trim(char *digits)
{
	size_t n = strlen(digits);

	while (n > 0 && digits[n - 1] == '0')
		digits[--n] = '\0';
}

/* v >= 0, below 1e8. */
static void split_plain(const struct ofs_decimal *g, double v, struct pieces *s)
{
	int whole = g->point > 0 ? g->point : 0, zeros;
	char text[40], *point;

	if (g->n - g->point > PRECISION) {
		snprintf(text, sizeof(text), "%.*f", PRECISION, v);
		point = strchr(text, '.');
		snprintf(s->whole + g->negative, sizeof(s->whole) - 1, "%.*s",
		    (int)(point - text), text);
		snprintf(s->fraction, sizeof(s->fraction), "%s", point + 1);
	} else if (whole == 0) {
		strcpy(s->whole + g->negative, "0");
		snprintf(s->fraction, sizeof(s->fraction), "%.*s%.*s",
		    -g->point, "00000000", g->n, g->d);
	} else {
		zeros = whole > g->n ? whole - g->n : 0;
		snprintf(s->whole + g->negative, sizeof(s->whole) - 1,
		    "%.*s%.*s", whole - zeros, g->d, zeros, "00000000");
		snprintf(s->fraction, sizeof(s->fraction), "%.*s",
		    zeros > 0 ? 0 : g->n - whole, g->d + whole);
	}
	trim(s->fraction);
}

/* Of a number with fewer digits than others NumPy shows those of its exact
 * value. */
static void split_exponent(const struct ofs_decimal *g, double v, int fraction,
    struct pieces *s)
{
	int exponent = g->point - 1, digits = g->n - 1;
	char text[40];

	if (digits > PRECISION || digits < fraction) {
		digits = digits > PRECISION ? PRECISION : fraction;
		snprintf(text, sizeof(text), "%.*e", digits, v);
		exponent = atoi(strchr(text, 'e') + 1);
		s->whole[g->negative] = text[0];
		memcpy(s->fraction, text + 2, (size_t)digits);
	} else {
		s->whole[g->negative] = g->d[0];
		memcpy(s->fraction, g->d + 1, (size_t)digits);
	}
	trim(s->fraction);
	snprintf(s->exponent, sizeof(s->exponent), "%+03d", exponent);
}

/* False: NaN or infinite. */
static bool split(const struct ofs_number_form *f, enum ofs_dtype t,
    const void *p, struct pieces *s)
{
	struct ofs_decimal g;
	double v = fabs(ofs_dtype_number(t, p));

	memset(s, 0, sizeof(*s));
	if (!ofs_dtype_decimal(t, p, &g))
		return false;
	if (g.negative)
		s->whole[0] = '-';
	if (f->exponent)
		split_exponent(&g, v, f->fraction, s);
	else
		split_plain(&g, v, s);
	if (f->plus && !g.negative) {
		memmove(s->whole + 1, s->whole, sizeof(s->whole) - 1);
		s->whole[0] = '+';
	}
	return true;
}

static const char *name_of(double v, bool plus)
{
	if (isnan(v))
		return plus ? "+nan" : "nan";
	return v < 0 ? "-inf" : plus ? "+inf" : "inf";
}

static bool needs_exponent(enum ofs_dtype t, const void *p, size_t n,
    unsigned part)
{
	double max = 0, min = HUGE_VAL, v;
	struct ofs_decimal g;

	for (size_t i = 0; i < n; i++) {
		v = fabs(ofs_dtype_number(t, part_of(t, p, i, part)));
		if (!isfinite(v) || v == 0)
			continue;
		/* 0.0001 of any type is the least without */
		if (ofs_dtype_decimal(t, part_of(t, p, i, part), &g) &&
		    g.point < -3)
			return true;
		max = fmax(max, v);
		min = fmin(min, v);
	}
	return max >= 1e8 || (max > 0 && max / min > 1000);
}

static void widen(int *width, size_t n)
{
	if ((int)n > *width)
		*width = (int)n;
}

static void fit(struct ofs_number_form *f, enum ofs_dtype t, const void *p,
    size_t n, unsigned part)
{
	size_t odd = 0; /* the longest name of what is not finite */
	int fraction = 0;
	struct pieces s;

	*f = (struct ofs_number_form){ .plus = part == 1 };
	f->exponent = needs_exponent(t, p, n, part);
	for (size_t i = 0; i < n; i++) {
		const void *at = part_of(t, p, i, part);

		if (!split(f, t, at, &s)) {
			size_t k =
			    strlen(name_of(ofs_dtype_number(t, at), f->plus));

			odd = k > odd ? k : odd;
			continue;
		}
		widen(&f->left, strlen(s.whole));
		widen(f->exponent ? &fraction : &f->right, strlen(s.fraction));
		if (f->exponent)
			widen(&f->exponent_digits, strlen(s.exponent) - 1);
	}
	f->fraction = fraction;
	if (f->exponent)
		f->right = fraction + f->exponent_digits + 2;
	/* a complex number leaves room for the sign of an infinity */
	if (odd > 0 && f->plus)
		odd = 4;
	if ((int)odd > f->left + 1 + f->right)
		f->left = (int)odd - 1 - f->right;
}

static void put_part(const struct ofs_number_form *f, enum ofs_dtype t,
    const void *p, const char *suffix, struct ofs_buf *b)
{
	int width = f->left + 1 + f->right, pad;
	struct pieces s;

	if (!split(f, t, p, &s)) {
		ofs_buf_printf(b, "%*s%s", width,
		    name_of(ofs_dtype_number(t, p), f->plus), suffix);
		return;
	}
	ofs_buf_printf(b, "%*s.%s", f->left, s.whole, s.fraction);
	if (f->exponent) {
		pad = f->fraction - (int)strlen(s.fraction);
		ofs_buf_printf(b, "%.*se%c%0*d%s", pad, "00000000",
		    s.exponent[0], f->exponent_digits, atoi(s.exponent + 1),
		    suffix);
		return;
	}
	pad = f->right - (int)strlen(s.fraction);
	ofs_buf_printf(b, "%s%*s", suffix, pad, "");
}

/* The text of an element that is no number with a fraction. */
static const char *plain(enum ofs_dtype t, const void *p, char text[80])
{
	if (t == OFS_BOOL)
		return ofs_dtype_number(t, p) != 0 ? "True" : "False";
	ofs_dtype_print(t, p, text);
	return text;
}

void ofs_numbers_init(struct ofs_numbers *f, enum ofs_dtype t, const void *p,
    size_t n)
{
	char text[80];

	*f = (struct ofs_numbers){ .t = t };
	if (ofs_dtype_is_complex(t)) {
		fit(&f->part[0], t, p, n, 0);
		fit(&f->part[1], t, p, n, 1);
	} else if (is_real(t)) {
		fit(&f->part[0], t, p, n, 0);
	} else {
		f->width = t == OFS_BOOL ? 5 : 0;
		for (size_t i = 0; i < n; i++)
			widen(&f->width,
			    strlen(plain(t, part_of(t, p, i, 0), text)));
	}
}

void ofs_numbers_put(const struct ofs_numbers *f, const void *p,
    struct ofs_buf *b)
{
	char text[80];

	if (ofs_dtype_is_complex(f->t)) {
		put_part(&f->part[0], f->t, p, "", b);
		put_part(&f->part[1], f->t, part_of(f->t, p, 0, 1), "j", b);
	} else if (is_real(f->t)) {
		put_part(&f->part[0], f->t, p, "", b);
	} else {
		ofs_buf_printf(b, "%*s", f->width, plain(f->t, p, text));
	}
}

/* As Python prints a float; a part of a complex number has no ".0". */
static void put_alone(enum ofs_dtype t, const void *p, bool plus,
    const char *whole, struct ofs_buf *b)
{
	struct ofs_decimal g;

	if (!ofs_dtype_decimal(t, p, &g)) {
		ofs_buf_puts(b, name_of(ofs_dtype_number(t, p), plus));
		return;
	}
	if (g.negative || plus)
		ofs_buf_putc(b, g.negative ? '-' : '+');
	if (g.point > 16 || g.point < -3)
		ofs_buf_printf(b, "%c%s%.*se%+03d", g.d[0], g.n > 1 ? "." : "",
		    g.n - 1, g.d + 1, g.point - 1);
	else if (g.point <= 0)
		ofs_buf_printf(b, "0.%.*s%.*s", -g.point, "000", g.n, g.d);
	else if (g.n > g.point)
		ofs_buf_printf(b, "%.*s.%.*s", g.point, g.d, g.n - g.point,
		    g.d + g.point);
	else
		ofs_buf_printf(b, "%.*s%.*s%s", g.n, g.d, g.point - g.n,
		    "0000000000000000", whole);
}

void ofs_number_put(enum ofs_dtype t, const void *p, struct ofs_buf *b)
{
	struct ofs_decimal g;
	char text[80];
	bool imaginary;

	if (is_real(t)) {
		put_alone(t, p, false, ".0", b);
		return;
	}
	if (!ofs_dtype_is_complex(t)) {
		ofs_buf_puts(b, plain(t, p, text));
		return;
	}
	imaginary = ofs_dtype_decimal(t, p, &g) && g.d[0] == '0' && !g.negative;
	if (!imaginary) {
		ofs_buf_putc(b, '(');
		put_alone(t, p, false, "", b);
	}
	put_alone(t, part_of(t, p, 0, 1), !imaginary, "", b);
	ofs_buf_puts(b, imaginary ? "j" : "j)");
}
