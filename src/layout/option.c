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

static bool has_prefix(const char *s, size_t n, const char *prefix)
{
	return n > strlen(prefix) && memcmp(s, prefix, strlen(prefix)) == 0;
}

/* names=FAMILY or names=megatron:FAMILY. */
static bool option_family(const char *s, size_t n, struct ofs_layout *l)
{
	static const char option[] = "names=";

	if (!has_prefix(s, n, option))
		return false;
	s += strlen(option);
	n -= strlen(option);
	if (n >= sizeof(l->names.name))
		return false;
	memset(l->names.name, 0, sizeof(l->names.name)); /* ofs_layout_same */
	memcpy(l->names.name, s, n);
	return true;
}

/* What the rules of a family need to know. */
static bool option_fact(const char *s, size_t n, struct ofs_layout *l)
{
	const struct {
		const char *option;
		uint32_t *v;
	} known[] = {
		{ "heads=", &l->names.heads },
		{ "groups=", &l->names.groups },
		{ "vocab=", &l->names.vocab },
	};

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		size_t k = strlen(known[i].option);

		if (has_prefix(s, n, known[i].option))
			return ofs_option_number(s + k, INT32_MAX,
				   known[i].v) == n - k;
	}
	return false;
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
		return option_family(s, n, l) || option_fact(s, n, l);
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
