/* utf8.c - one UTF-8 character: is it valid, may it be shown? */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "base/utf8.h"

#include <string.h>

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

/* The controls, the separators of lines and paragraphs, the anchors of
 * interlinear text, and what Unicode 15.1 calls Default_Ignorable_Code_Point
 * (DerivedCoreProperties.txt), which has all bidirectional controls but
 * U+061C. */
static const uint32_t hidden[][2] = {
	{ 0x00, 0x1f }, { 0x7f, 0x9f }, { 0xad, 0xad }, /* soft hyphen */
	{ 0x34f, 0x34f }, { 0x61c, 0x61c },             /* Arabic letter mark */
	{ 0x115f, 0x1160 }, { 0x17b4, 0x17b5 }, { 0x180b, 0x180f },
	{ 0x200b, 0x200f }, /* zero width; marks of direction */
	{ 0x2028, 0x202e }, /* separators; embedding and override */
	{ 0x2060, 0x206f }, /* word joiner; isolates */
	{ 0x3164, 0x3164 }, { 0xfe00, 0xfe0f }, /* variation selectors */
	{ 0xfeff, 0xfeff },                     /* byte order mark */
	{ 0xffa0, 0xffa0 }, { 0xfff0, 0xfffb }, { 0x1bca0, 0x1bca3 },
	{ 0x1d173, 0x1d17a },
	{ 0xe0000, 0xe0fff }, /* tags; variation selectors */
};

uint32_t ofs_utf8_code(const uint8_t *p, size_t n)
{
	uint32_t c = n == 1 ? p[0] : p[0] & (0x7fu >> n);

	for (size_t i = 1; i < n; i++)
		c = c << 6 | (p[i] & 0x3fu);
	return c;
}

size_t ofs_utf8_shown(const uint8_t *p, size_t n)
{
	size_t len = ofs_utf8_length(p, n);
	uint32_t c;

	if (len == 0 || (p[0] >= 0x20 && p[0] < 0x7f))
		return len;
	c = ofs_utf8_code(p, len);
	for (size_t i = 0; i < sizeof(hidden) / sizeof(hidden[0]); i++)
		if (c >= hidden[i][0] && c <= hidden[i][1])
			return 0;
	return len;
}

void ofs_utf8_disarm(char *text)
{
	size_t n = strlen(text), k;

	for (size_t i = 0; i < n; i += k) {
		k = ofs_utf8_shown((uint8_t *)text + i, n - i);
		if (k > 0)
			continue;
		k = ofs_utf8_length((uint8_t *)text + i, n - i);
		k = k == 0 ? 1 : k;
		memset(text + i, '?', k);
	}
}
