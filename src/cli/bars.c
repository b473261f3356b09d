/* bars.c - a bar in one column of the terminal */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "cli/bars.h"

const char *ofs_bar(bool utf8, unsigned eighths)
{
	static const char *const blocks[] = { "\u00b7", "\u2581", "\u2582",
		"\u2583", "\u2584", "\u2585", "\u2586", "\u2587", "\u2588" };
	static const char *const digits[] = { ".", "1", "2", "3", "4", "5", "6",
		"7", "8" };

	return utf8 ? blocks[eighths] : digits[eighths];
}
