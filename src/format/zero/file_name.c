/* file_name.c - names of the files of a DeepSpeed checkpoint */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "format/zero/zero.h"

#include <stddef.h>
#include <string.h>

#include "base/str.h"

/* "#" stands for digits: the first for the rank, the last for MM. "%" stands
 * for other digits. */
static const struct {
	const char *pattern;
	enum ofs_zero_kind kind;
	bool rank; /* the first number is R */
} names[] = {
	{ "mp_rank_#_model_states.pt", OFS_ZERO_MODEL, false },
	{ "zero_pp_rank_#_mp_rank_#_model_states.pt", OFS_ZERO_MODEL_PART,
	    true },
	{ "zero_pp_rank_#_mp_rank_#_optim_states.pt", OFS_ZERO_OPTIM, true },
	/* from 2020 */
	{ "zero_pp_rank_#_mp_rank_#optim_states.pt", OFS_ZERO_OPTIM, true },
	{ "bf16_zero_pp_rank_#_mp_rank_#_optim_states.pt", OFS_ZERO_OPTIM,
	    true },
	{ "fp16_zero_pp_rank_#_mp_rank_#_optim_states.pt", OFS_ZERO_OPTIM,
	    true },
	{ "layer_#-model_#-model_states.pt", OFS_ZERO_LAYER, true },
	{ "layer_#-model_states.pt", OFS_ZERO_LAYER, true },
	{ "layer_%_expert_#_mp_rank_#_model_states.pt", OFS_ZERO_EXPERT, true },
	{ "expert_#_mp_rank_#_model_states.pt", OFS_ZERO_EXPERT, true },
	{ "expp_rank_#_mp_rank_#_optim_states.pt", OFS_ZERO_EXPERT_OPTIM,
	    true },
};

/* The number at *s; moves *s past it. -1: none, or too long. */
static int number(const char **s)
{
	int v = 0, n = 0;

	for (; **s >= '0' && **s <= '9' && n < 8; n++)
		v = 10 * v + (*(*s)++ - '0');
	return n == 0 || n == 8 ? -1 : v;
}

static bool match(const char *s, const char *pattern, int *first, int *last)
{
	*first = *last = -1;
	for (; *pattern != '\0'; pattern++) {
		int v;

		if (*pattern != '#' && *pattern != '%') {
			if (*s++ != *pattern)
				return false;
			continue;
		}
		v = number(&s);
		if (v == -1)
			return false;
		if (*pattern == '%')
			continue;
		if (*first == -1)
			*first = v;
		else
			*last = v;
	}
	return *s == '\0';
}

bool ofs_zero_name(const char *name, struct ofs_zero_name *out)
{
	int first, last;

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		if (!match(name, names[i].pattern, &first, &last))
			continue;
		out->kind = names[i].kind;
		out->rank = names[i].rank ? first : 0;
		out->mp = !names[i].rank ? first : last == -1 ? 0 : last;
		return true;
	}
	return false;
}

bool ofs_zero_fits_name(struct ofs_str s, uint32_t most)
{
	return s.len > 0 && s.len <= most && memchr(s.p, '/', s.len) == NULL &&
	    memchr(s.p, '\0', s.len) == NULL && !ofs_str_is(s, ".") &&
	    !ofs_str_is(s, "..");
}
