/* natural.c - the order in which people expect names */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "base/natural.h"

#include <ctype.h>
#include <stddef.h>
#include <string.h>

static size_t zeros(const char *s)
{
	return strspn(s, "0");
}

static size_t digits(const char *s)
{
	return strspn(s, "0123456789");
}

/* Compares numbers of any length at *a and *b, and moves both behind them. */
static int numbers(const char **a, const char **b)
{
	const char *x = *a + zeros(*a), *y = *b + zeros(*b);
	size_t n = digits(x), m = digits(y);

	*a = x + n;
	*b = y + m;
	if (n != m)
		return n < m ? -1 : 1;
	return memcmp(x, y, n);
}

static int rank_of(char c)
{
	return c == '/' ? 0 : (unsigned char)c + 1;
}

int ofs_natural(const char *a, const char *b)
{
	const char *x = a, *y = b;

	while (*x != '\0' && *y != '\0') {
		int c;

		if (isdigit((unsigned char)*x) && isdigit((unsigned char)*y))
			c = numbers(&x, &y);
		else
			c = rank_of(*x++) - rank_of(*y++);
		if (c != 0)
			return c;
	}
	if (*x != *y)
		return *x == '\0' ? -1 : 1;
	return strcmp(a, b); /* "01" and "1" */
}
