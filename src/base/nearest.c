/* nearest.c - the nearest of many names, for suggestions */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "base/nearest.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

#define MAX_NAME     255
#define MAX_DISTANCE 6

void ofs_nearest_init(struct ofs_nearest *n, const char *word)
{
	size_t allowed = (strlen(word) + 1) / 3 + 1;

	*n = (struct ofs_nearest){ .word = word };
	n->distance =
	    (unsigned)(allowed < MAX_DISTANCE ? allowed : MAX_DISTANCE);
}

static unsigned min(unsigned a, unsigned b)
{
	return a < b ? a : b;
}

static bool same(char a, char b)
{
	return tolower((unsigned char)a) == tolower((unsigned char)b);
}

/* The edit distance of a and b, or limit when it is at least that. Three rows
 * of the usual table, because a swap looks two rows back. */
static unsigned distance(const char *a, size_t n, const char *b, size_t m,
    unsigned limit)
{
	unsigned rows[3][MAX_NAME + 1];
	unsigned *before = rows[0], *last = rows[1], *row = rows[2];

	for (size_t j = 0; j <= m; j++)
		last[j] = (unsigned)j;
	for (size_t i = 1; i <= n; i++) {
		unsigned *old = before, least;

		row[0] = least = (unsigned)i;
		for (size_t j = 1; j <= m; j++) {
			row[j] = min(last[j - 1] + !same(a[i - 1], b[j - 1]),
			    min(last[j], row[j - 1]) + 1);
			if (i > 1 && j > 1 && same(a[i - 1], b[j - 2]) &&
			    same(a[i - 2], b[j - 1]))
				row[j] = min(row[j], before[j - 2] + 1);
			least = min(least, row[j]);
		}
		if (least > limit)
			return limit;
		before = last;
		last = row;
		row = old;
	}
	return min(last[m], limit);
}

void ofs_nearest_try(struct ofs_nearest *n, const char *name)
{
	size_t a = strlen(n->word), b = strlen(name);
	unsigned d;

	if (a > MAX_NAME || b > MAX_NAME ||
	    (a > b ? a - b : b - a) >= n->distance)
		return;
	d = distance(n->word, a, name, b, n->distance);
	if (d >= n->distance)
		return;
	n->distance = d;
	memcpy(n->best, name, b + 1);
}
