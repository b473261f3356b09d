/* file_name.h - names of the files of a DeepSpeed checkpoint */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FORMAT_ZERO_FILE_NAME_H
#define OFS_FORMAT_ZERO_FILE_NAME_H

#include <stdbool.h>

enum ofs_zero_kind {
	OFS_ZERO_MODEL,        /* mp_rank_MM_model_states.pt */
	OFS_ZERO_MODEL_PART,   /* zero_pp_rank_R_mp_rank_MM_model_states.pt */
	OFS_ZERO_OPTIM,        /* [bf16_]zero_pp_rank_R_..._optim_states.pt */
	OFS_ZERO_LAYER,        /* layer_R-model_MM-model_states.pt */
	OFS_ZERO_EXPERT,       /* layer_L_expert_R_mp_rank_MM_model_... */
	OFS_ZERO_EXPERT_OPTIM, /* expp_rank_R_mp_rank_MM_optim_states.pt */
};

struct ofs_zero_name {
	enum ofs_zero_kind kind;
	int rank; /* R; 0 if the name has none */
	int mp;   /* MM: the rank in model parallelism */
};

/* Parses a name; docs/formats/deepspeed.md has the grammar. */
bool ofs_zero_name(const char *name, struct ofs_zero_name *out);

#endif
