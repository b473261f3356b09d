/* str.h - strings that are borrowed */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_BASE_STR_H
#define OFS_BASE_STR_H

#include <stdbool.h>
#include <string.h>

#include "base/checked.h"
#include "base/types.h"

static inline struct ofs_str ofs_str_of(const char *s)
{
	return (struct ofs_str){ s, (uint32_t)strlen(s) };
}

/* The arguments of "%.*s" for s, of which a message shows at most max bytes. */
#define OFS_STR_ARGS(s, max) (int)((s).len > (max) ? (max) : (s).len), (s).p

/* s without its first n bytes. */
static inline struct ofs_str ofs_str_after(struct ofs_str s, size_t n)
{
	return (struct ofs_str){ s.p + n, s.len - (uint32_t)n };
}

static inline bool ofs_str_is(struct ofs_str s, const char *word)
{
	return s.len == strlen(word) && memcmp(s.p, word, s.len) == 0;
}

static inline bool ofs_str_equal(struct ofs_str a, struct ofs_str b)
{
	return a.len == b.len &&
	    (a.len == 0 || a.p == b.p || memcmp(a.p, b.p, a.len) == 0);
}

static inline bool ofs_str_begins(struct ofs_str s, const char *word)
{
	size_t n = strlen(word);

	return s.len >= n && memcmp(s.p, word, n) == 0;
}

static inline bool ofs_str_ends(struct ofs_str s, const char *word)
{
	size_t n = strlen(word);

	return s.len >= n && memcmp(s.p + s.len - n, word, n) == 0;
}

/* Remove word from the start of *s. false, with *s unchanged, when it does not
 * begin with it or has nothing more. */
static inline bool ofs_str_take(struct ofs_str *s, const char *word)
{
	size_t n = strlen(word);

	if (s->len <= n || memcmp(s->p, word, n) != 0)
		return false;
	*s = ofs_str_after(*s, n);
	return true;
}

/* Compares bytes, then lengths. */
static inline int ofs_str_compare(struct ofs_str a, struct ofs_str b)
{
	uint32_t n = a.len < b.len ? a.len : b.len;
	int c = n == 0 ? 0 : memcmp(a.p, b.p, n);

	return c != 0 ? c : (a.len > b.len) - (a.len < b.len);
}

/* For qsort(3) and searches of an array of strings. */
static inline int ofs_compare_str(const void *a, const void *b)
{
	return ofs_str_compare(*(const struct ofs_str *)a,
	    *(const struct ofs_str *)b);
}

/* Remove the decimal number at the start of *s. false, with *s unchanged, when
 * there is none or it overflows. */
static inline bool ofs_str_take_number(struct ofs_str *s, uint64_t *v)
{
	uint64_t number = 0;
	uint32_t n = 0;

	for (; n < s->len && s->p[n] >= '0' && s->p[n] <= '9'; n++)
		if (!ofs_mul_u64(number, 10, &number) ||
		    !ofs_add_u64(number, (uint64_t)(s->p[n] - '0'), &number))
			return false;
	if (n == 0)
		return false;
	*s = ofs_str_after(*s, n);
	*v = number;
	return true;
}

/* Is s a non-empty string of decimal digits? */
static inline bool ofs_str_all_digits(struct ofs_str s)
{
	for (uint32_t i = 0; i < s.len; i++)
		if (s.p[i] < '0' || s.p[i] > '9')
			return false;
	return s.len > 0;
}

/* Parse a string of one to nine digits; false for any other. */
static inline bool ofs_str_digits(struct ofs_str s, uint32_t *v)
{
	uint64_t number;

	if (s.len > 9 || !ofs_str_take_number(&s, &number) || s.len > 0)
		return false;
	*v = (uint32_t)number;
	return true;
}

/* As above, but without leading zeros, so that a number has one spelling. */
static inline bool ofs_str_number(struct ofs_str s, uint32_t *v)
{
	return (s.len <= 1 || s.p[0] != '0') && ofs_str_digits(s, v);
}

#endif
