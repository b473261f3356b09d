/* utf8.c - validation of one UTF-8 character */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "base/utf8.h"

static size_t expected(uint8_t lead)
{
	if (lead < 0x80)
		return 1;
	if (lead >= 0xc2 && lead <= 0xdf)
		return 2;
	if (lead >= 0xe0 && lead <= 0xef)
		return 3;
	return lead >= 0xf0 && lead <= 0xf4 ? 4 : 0;
}

size_t ofs_utf8_length(const uint8_t *p, size_t n)
{
	size_t len = n == 0 ? 0 : expected(p[0]);

	if (len == 0 || len > n)
		return 0;
	for (size_t i = 1; i < len; i++)
		if ((p[i] & 0xc0) != 0x80)
			return 0;
	if ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] > 0x9f) ||
	    (p[0] == 0xf0 && p[1] < 0x90) || (p[0] == 0xf4 && p[1] > 0x8f))
		return 0;
	return len;
}
