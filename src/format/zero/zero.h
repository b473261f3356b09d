/* zero.h - what the parts of the reader of DeepSpeed's checkpoints share */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FORMAT_ZERO_H
#define OFS_FORMAT_ZERO_H

#include <stdbool.h>
#include <stdint.h>

#include "optimfs/error.h"

#include "format/format.h"
#include "format/part.h"
#include "format/probe.h"
#include "format/ranks/pieces.h"
#include "format/ranks/ranks.h"
#include "format/zero/file_name.h"
#include "format/zero/layout.h"
#include "format/zero/name_index.h"

/* The files of one directory by kind, in the order of mp and rank. */
struct ofs_zero_files {
	struct ofs_zero_file {
		char *rel;
		struct ofs_zero_name id;
	} * file;
	size_t n;
};

int ofs_zero_list(struct ofs_zero_files *files, const struct ofs_dir *dir,
    const char *rel, struct optimfs_error *err);
void ofs_zero_files_fini(struct ofs_zero_files *files);

/* What one rank of model parallelism, a stage of a pipeline, has. */
struct ofs_zero {
	struct ofs_catalog *cat;
	uint32_t prefix[OFS_PART_PREFIX];
	size_t npref;
	int mp;
	struct ofs_ranks model; /* files of weights: of each rank in stage 3 */
	struct ofs_ranks optim; /* and of each rank's optimizer */
	struct ofs_zero_optim *rank; /* what those say, in that order */
	struct ofs_zero_shapes shapes, frozen;
	struct ofs_zero_layout layout, frozen_layout;
	struct ofs_zero_index shared, module; /* of the first rank */
	struct optimfs_error *why; /* what is wrong with each group */
	struct {
		const struct ofs_pickle *doc;
		uint32_t node; /* param_groups; OFS_NONE */
	} groups;
	bool sharded; /* weights are where the optimizer's are */
	bool hidden;  /* what is neither weight nor state was shown before */
	bool *again;  /* parameters that a stage before has too; or NULL */
	struct ofs_zero *next; /* the pipeline's next stage */
	/* The fp32 weights of a parameter, into x: from the optimizer's files,
	 * or those of a universal checkpoint. */
	int (*master)(struct ofs_zero *z, uint32_t param, struct ofs_pieces *x,
	    struct optimfs_error *err);
	struct ofs_universal *universal;
};

/* The path of n components behind the prefix; a component is a string of the
 * catalog. OFS_NONE: failed. */
uint32_t ofs_zero_path(struct ofs_zero *z, const uint32_t *part, size_t n,
    struct optimfs_error *err);
/* optim/state/<name of param>/<state>. */
uint32_t ofs_zero_state_path(struct ofs_zero *z, const struct ofs_str *param,
    const struct ofs_str *state, struct optimfs_error *err);
uint32_t ofs_zero_word(struct ofs_zero *z, const char *word,
    struct optimfs_error *err);

/* Open the files of one kind and mp as a set. What cannot be read is left out,
 * with a note, as if it were missing. */
int ofs_zero_open(struct ofs_zero *z, struct ofs_ranks *set,
    const struct ofs_zero_files *files, enum ofs_zero_kind kind,
    struct optimfs_error *err);

/* model.c: names and shapes, from the model's files. 1: they are not
 * there. */
int ofs_zero_read_shapes(struct ofs_zero *z, struct optimfs_error *err);
/* Collect what is to be shown as it is; then, once that has its entries, put
 * together the rest. */
int ofs_zero_model_collect(struct ofs_zero *z, struct optimfs_error *err);
int ofs_zero_model_add(struct ofs_zero *z, struct optimfs_error *err);
/* Layers of a pipeline. */
int ofs_zero_layers(struct ofs_zero *z, const struct ofs_zero_files *files,
    struct optimfs_error *err);

/* optim.c: the same for the optimizer. */
int ofs_zero_optim_collect(struct ofs_zero *z, struct optimfs_error *err);
int ofs_zero_optim_add(struct ofs_zero *z, struct optimfs_error *err);
/* param_groups, the node of a set's file; and the lists of names in them, of
 * all stages from z on, whose groups are set by then. */
int ofs_zero_groups(struct ofs_zero *z, struct ofs_ranks *set, uint32_t file,
    uint32_t node, struct optimfs_error *err);
int ofs_zero_names(struct ofs_zero *z, struct optimfs_error *err);
/* A value that several parameters have alike: as an entry of each. */
int ofs_zero_spread(struct ofs_zero *z, struct ofs_ranks *set,
    struct ofs_ranks_group *g, uint32_t first, uint32_t n, struct ofs_str state,
    struct optimfs_error *err);

/* flat_groups.c: leave in the catalog which parameters of z, and of all stages
 * behind it, are trained. */
int ofs_zero_flat(struct ofs_zero *z, struct optimfs_error *err);

/* What else is in the dict of an optimizer: below optimizer_state_dict. */
int ofs_zero_extras(struct ofs_zero *z, struct ofs_ranks *set, uint32_t file,
    uint32_t dict, struct optimfs_error *err);

/* read.c: the files of weights without an optimizer's, names and layout. */
int ofs_zero_open_models(struct ofs_zero *z, const struct ofs_zero_files *files,
    struct optimfs_error *err);
void ofs_zero_fini(struct ofs_zero *z);

extern const struct ofs_format ofs_format_deepspeed;

/* read.c: the member of the format. */
int ofs_zero_read(struct ofs_catalog *cat, const struct ofs_part *part,
    const struct optimfs_options *opt, struct optimfs_error *err);

#endif
