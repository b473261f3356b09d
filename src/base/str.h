/* str.h - strings that are borrowed */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_BASE_STR_H
#define OFS_BASE_STR_H

#include <stdbool.h>
#include <string.h>

#include "base/types.h"

static inline bool ofs_str_is(struct ofs_str s, const char *word)
{
	return s.len == strlen(word) && memcmp(s.p, word, s.len) == 0;
}

static inline bool ofs_str_equal(struct ofs_str a, struct ofs_str b)
{
	return a.len == b.len && (a.len == 0 || memcmp(a.p, b.p, a.len) == 0);
}

/* Bytewise, then by length. */
static inline int ofs_str_compare(struct ofs_str a, struct ofs_str b)
{
	uint32_t n = a.len < b.len ? a.len : b.len;
	int c = n == 0 ? 0 : memcmp(a.p, b.p, n);

	return c != 0 ? c : (a.len > b.len) - (a.len < b.len);
}

/* Digits, and nothing else, of a number below 10^9. */
static inline bool ofs_str_digits(struct ofs_str s, uint32_t *v)
{
	uint32_t number = 0;

	if (s.len == 0 || s.len > 9)
		return false;
	for (uint32_t i = 0; i < s.len; i++) {
		if (s.p[i] < '0' || s.p[i] > '9')
			return false;
		number = number * 10 + (uint32_t)(s.p[i] - '0');
	}
	*v = number;
	return true;
}

/* The same for the one spelling that a number has: no leading zeros. */
static inline bool ofs_str_number(struct ofs_str s, uint32_t *v)
{
	return (s.len <= 1 || s.p[0] != '0') && ofs_str_digits(s, v);
}

#endif
