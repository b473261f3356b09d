/* option.c - options of views that several formats have */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "layout/option.h"

#include <string.h>

#include "base/str.h"

bool ofs_option_is(const char *s, size_t n, const char *word)
{
	return strlen(word) == n && memcmp(s, word, n) == 0;
}

size_t ofs_option_number(const char *s, uint32_t max, uint32_t *v)
{
	struct ofs_str left = ofs_str_of(s);
	uint64_t number;

	*v = 0;
	if (*s == '0' || !ofs_str_take_number(&left, &number) || number > max)
		return 0;
	*v = (uint32_t)number;
	return (size_t)(left.p - s);
}

bool ofs_option_narrow(const char *s, size_t n, struct ofs_layout *l)
{
	if (ofs_option_is(s, n, "only=optim"))
		l->only = OFS_ONLY_OPTIM;
	else if (ofs_option_is(s, n, "only=model"))
		l->only = OFS_ONLY_MODEL;
	else if (ofs_option_is(s, n, "dtype=bf16"))
		l->dtype = OFS_BFLOAT16;
	else if (ofs_option_is(s, n, "dtype=f16"))
		l->dtype = OFS_FLOAT16;
	else if (ofs_option_is(s, n, "dtype=f32"))
		l->dtype = OFS_FLOAT32;
	else if (ofs_option_is(s, n, "dequantize"))
		l->dequantize = true;
	else
		return false;
	return true;
}

bool ofs_option_keys(const char *s, size_t n, struct ofs_layout *l)
{
	if (!ofs_option_is(s, n, "keys=fqn"))
		return false;
	l->keys = OFS_KEYS_FQN;
	return true;
}

bool ofs_option_crc(const char *s, size_t n, struct ofs_layout *l)
{
	if (!ofs_option_is(s, n, "crc"))
		return false;
	l->crc = true;
	return true;
}

/* Levels above 19 need too much memory, also in the reader. */
bool ofs_option_zstd(const char *s, size_t n, struct ofs_layout *l)
{
	static const char name[] = "zstd=";
	uint32_t level;

	if (ofs_option_is(s, n, "zstd"))
		level = 3;
	else if (n < sizeof(name) || memcmp(s, name, sizeof(name) - 1) != 0 ||
	    ofs_option_number(s + 5, 19, &level) != n - 5)
		return false;
	l->zstd = level;
	return true;
}
