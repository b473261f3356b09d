/* human.c - numbers in a form for people */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "base/human.h"

#include <inttypes.h>
#include <stdio.h>

/* Three digits and a unit: the first unit in which the rounded number is below
 * 1000. */
static const char *human(uint64_t n, const char *const *units,
    char text[OFS_HUMAN_SIZE])
{
	double v = (double)n;

	while (v >= 999.5 && units[1] != NULL) {
		v /= 1000;
		units++;
	}
	snprintf(text, OFS_HUMAN_SIZE, "%.*f%s",
	    v >= 99.95       ? 0
		: v >= 9.995 ? 1
			     : 2,
	    v, *units);
	return text;
}

const char *ofs_human_bytes(uint64_t n, char text[OFS_HUMAN_SIZE])
{
	static const char *const units[] = { " B", " kB", " MB", " GB", " TB",
		" PB", " EB", NULL };

	if (n >= 1000)
		return human(n, units, text);
	snprintf(text, OFS_HUMAN_SIZE, "%" PRIu64 " B", n);
	return text;
}

const char *ofs_human_count(uint64_t n, char text[OFS_HUMAN_SIZE])
{
	static const char *const units[] = { "", " thousand", " million",
		" billion", " trillion", NULL };

	if (n >= 100000)
		return human(n, units, text);
	snprintf(text, OFS_HUMAN_SIZE, "%" PRIu64, n);
	return text;
}
