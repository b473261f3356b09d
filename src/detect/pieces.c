/* pieces.c - files that hold pieces of all tensors, in ways that are not read */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <fnmatch.h>
#include <string.h>

#include "base/str.h"
#include "detect/detect.h"

/* Model-parallel programs save one file per rank, in which every tensor has its
 * full name and only a piece of its elements, or all of them in a flat one.
 * Side by side the files look like several models. docs/formats/trainers.md,
 * "Pieces" */

static const struct pieces {
	const char *pattern; /* of fnmatch(3); two files must match */
	const char *beside;  /* a file that must exist; NULL: none */
	const char *who, *todo;
} pieces[] = {
	{ "*-shard[0-9]*.pt", NULL, "FairScale's FSDP (fairseq, metaseq)",
	    "join them with FullyShardedDataParallel.consolidate_shard_weights "
	    "of FairScale" },
	{ "*-model_part-[0-9]*.pt", NULL,
	    "Megatron's tensor parallelism in fairseq or metaseq",
	    "join them with metaseq/scripts/convert_to_singleton.py" },
	{ "consolidated.[0-9][0-9].pth", NULL,
	    "Llama's model parallelism (Meta)",
	    "join them with convert_llama_weights_to_hf.py of transformers" },
	{ "model_[0-9]*_[0-9]*_[0-9]*.pt", "smp_config.pt",
	    "SageMaker's model parallelism",
	    "load them with smp.resume_from_checkpoint, and save them with "
	    "partial=False" },
	{ "*_pp-rank-[0-9]*_tp-rank-[0-9]*.safetensors", NULL,
	    "nanotron's tensor parallelism",
	    "convert them with examples/llama/convert_nanotron_to_hf.py of "
	    "nanotron" },
	{ "optimizer_pp-[0-9]*_tp-[0-9]*.pt", NULL,
	    "nanotron's tensor parallelism",
	    "load them with nanotron: it converts weights, but no optimizer" },
};

/* The first file of p in names; NULL: there are fewer than two. */
static const char *first_piece(const struct pieces *p,
    const struct ofs_names *names)
{
	const char *first = NULL;
	bool beside = p->beside == NULL;
	size_t n = 0;

	for (size_t i = 0; i < names->n; i++) {
		const char *name = names->name[i];

		beside = beside || strcmp(name, p->beside) == 0;
		if (fnmatch(p->pattern, name, 0) != 0)
			continue;
		n++;
		if (first == NULL || strcmp(name, first) < 0)
			first = name;
	}
	return n > 1 && beside ? first : NULL;
}

int ofs_detect_pieces(const struct ofs_dir *dir, const struct ofs_names *names,
    struct optimfs_error *err)
{
	for (size_t i = 0; i < sizeof(pieces) / sizeof(pieces[0]); i++) {
		const char *first = first_piece(&pieces[i], names);

		if (first != NULL)
			return optimfs_fail(err, EOPNOTSUPP,
			    "OFS641 %s: files of %s, each with its own pieces "
			    "of the tensors, which are not joined here: %s. To "
			    "see the pieces in one, give its path, such as %s, "
			    "or -o type=%s for all as they are",
			    dir->path, pieces[i].who, pieces[i].todo, first,
			    ofs_str_ends(ofs_str_of(first), ".safetensors")
				? "safetensors"
				: "torch");
	}
	return 0;
}
