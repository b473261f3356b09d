/* file_name.c - names of the files of a DeepSpeed checkpoint */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stddef.h>
#include <string.h>

#include "base/str.h"
#include "format/zero/zero.h"

/* As ofs_probe_numbers takes them. */
static const struct {
	const char *pattern;
	enum ofs_zero_kind kind;
	int rank, mp; /* which of the numbers is R or MM; -1: none */
} names[] = {
	{ "mp_rank_#_model_states.pt", OFS_ZERO_MODEL, -1, 0 },
	{ "zero_pp_rank_#_mp_rank_#_model_states.pt", OFS_ZERO_MODEL_PART, 0,
	    1 },
	{ "zero_pp_rank_#_mp_rank_#_optim_states.pt", OFS_ZERO_OPTIM, 0, 1 },
	/* from 2020 */
	{ "zero_pp_rank_#_mp_rank_#optim_states.pt", OFS_ZERO_OPTIM, 0, 1 },
	{ "bf16_zero_pp_rank_#_mp_rank_#_optim_states.pt", OFS_ZERO_OPTIM, 0,
	    1 },
	{ "fp16_zero_pp_rank_#_mp_rank_#_optim_states.pt", OFS_ZERO_OPTIM, 0,
	    1 },
	{ "layer_#-model_#-model_states.pt", OFS_ZERO_LAYER, 0, 1 },
	{ "layer_#-model_states.pt", OFS_ZERO_LAYER, 0, -1 },
	{ "layer_#_expert_#_mp_rank_#_model_states.pt", OFS_ZERO_EXPERT, 1, 2 },
	{ "expert_#_mp_rank_#_model_states.pt", OFS_ZERO_EXPERT, 0, 1 },
	{ "expp_rank_#_mp_rank_#_optim_states.pt", OFS_ZERO_EXPERT_OPTIM, 0,
	    1 },
};

bool ofs_zero_name(const char *name, struct ofs_zero_name *out)
{
	int v[3];

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		if (ofs_probe_numbers(name, names[i].pattern, v, 3) == -1)
			continue;
		out->kind = names[i].kind;
		out->rank = names[i].rank == -1 ? 0 : v[names[i].rank];
		out->mp = names[i].mp == -1 ? 0 : v[names[i].mp];
		out->layer = names[i].rank == 1 ? v[0] : 0;
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
