/* facts.h - what the rules of a family need to know about a model */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FAMILY_FACTS_H
#define OFS_FAMILY_FACTS_H

#include <stdint.h>

#include "optimfs/error.h"

#include "family/model_files.h"

/* 0: unknown. Where nothing says how many groups there are, each head has its
 * own. */
struct ofs_facts {
	uint64_t heads, groups, vocab;
	/* model_type of config.json; "": unknown */
	char model[32];
};

/* Fill in what is still 0, from the files that describe the model: config.json
 * beside the checkpoint or in it, transformer_config.json, and Megatron's args.
 * EINVAL (OFS893): two of them differ. */
int ofs_facts_find(struct ofs_facts *f, const struct ofs_model_files *beside,
    struct optimfs_error *err);

#endif
