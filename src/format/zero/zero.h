/* zero.h - shared declarations of the reader of DeepSpeed checkpoints */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FORMAT_ZERO_ZERO_H
#define OFS_FORMAT_ZERO_ZERO_H

#include <stdbool.h>
#include <stdint.h>

#include "optimfs/error.h"
#include "optimfs/optimfs.h"

#include "catalog/catalog.h"
#include "format/format.h"
#include "format/part.h"
#include "format/probe.h"
#include "format/ranks/pieces.h"
#include "format/ranks/ranks.h"
#include "format/zero/layout.h"
#include "pickle/name_index.h"

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
	int layer; /* L of a file of experts */
	int mp;   /* MM: the rank in model parallelism */
};

/* Parses a name; docs/formats/deepspeed.md has the grammar. */
bool ofs_zero_name(const char *name, struct ofs_zero_name *out);
/* Can s, of at most most bytes, be the name of a file or a directory? */
bool ofs_zero_fits_name(struct ofs_str s, uint32_t most);

/* The files of one directory, sorted by kind, mp and rank. */
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

/* The files of one rank of model parallelism, or of one pipeline stage. */
struct ofs_zero {
	struct ofs_catalog *cat;
	uint32_t prefix[OFS_PART_PREFIX];
	size_t npref;
	int mp;
	struct ofs_ranks model;      /* weight files; in stage 3 one per rank */
	struct ofs_ranks experts;    /* weight files of experts */
	struct ofs_zero_name *expert; /* of each of them */
	bool by_id;                   /* optim are the files of expp_rank_R */
	struct ofs_ranks optim;      /* optimizer files, one per rank */
	struct ofs_zero_optim *rank; /* of each file of optim */
	struct ofs_zero_shapes shapes, frozen;
	struct ofs_zero_layout layout, frozen_layout;
	struct ofs_pk_names shared, module; /* of the first rank */
	struct optimfs_error *why; /* of each group: why it is unreadable */
	struct {
		const struct ofs_pickle *doc;
		uint32_t node; /* param_groups; OFS_NONE: none */
	} groups;
	bool sharded; /* weights are in the optimizer's files */
	bool hidden;  /* the first stage shows the other values */
	bool *again;  /* parameters that an earlier stage has, too; or NULL */
	/* parameters whose fp32 weights are not their weights; or NULL */
	bool *disproved;
	struct ofs_zero *next; /* the next pipeline stage */
	/* Adds the fp32 weights of a parameter to x: from the optimizer's
	 * files, or from those of a universal checkpoint. */
	int (*master)(struct ofs_zero *z, uint32_t param, struct ofs_pieces *x,
	    struct optimfs_error *err);
	struct ofs_universal *universal;
};

/* The path of the prefix and n components, strings of the catalog. OFS_NONE:
 * failed, or a component is OFS_NONE. */
uint32_t ofs_zero_path(struct ofs_zero *z, const uint32_t *part, size_t n,
    struct optimfs_error *err);
/* As ofs_ranks_collect, for a path as above. */
int ofs_zero_collect(struct ofs_zero *z, struct ofs_ranks *set, uint32_t file,
    uint32_t node, const uint32_t *part, size_t n, struct optimfs_error *err);
/* The path optim/state/<param>/<state>. */
uint32_t ofs_zero_state_path(struct ofs_zero *z, const struct ofs_str *param,
    const struct ofs_str *state, struct optimfs_error *err);
uint32_t ofs_zero_word(struct ofs_zero *z, const char *word,
    struct optimfs_error *err);

/* Opens the files of one kind and mp as a set. An unreadable file counts as
 * missing, with a note. */
int ofs_zero_open(struct ofs_zero *z, struct ofs_ranks *set,
    const struct ofs_zero_files *files, enum ofs_zero_kind kind,
    struct optimfs_error *err);

/* model.c: reads names and shapes from the model's files. 1: there are none. */
int ofs_zero_read_shapes(struct ofs_zero *z, struct optimfs_error *err);
/* _collect adds the leaves that are shown unchanged. _add then joins the
 * parameters that are cut, when these have their entries, and puts the weights
 * among the entries from first on into the order of the dict module. */
int ofs_zero_model_collect(struct ofs_zero *z, struct optimfs_error *err);
int ofs_zero_model_add(struct ofs_zero *z, uint32_t first,
    struct optimfs_error *err);
/* Adds the layers of a pipeline. */
int ofs_zero_layers(struct ofs_zero *z, const struct ofs_zero_files *files,
    struct optimfs_error *err);

/* optim.c: the same for the optimizer's state. */
int ofs_zero_optim_collect(struct ofs_zero *z, struct optimfs_error *err);
int ofs_zero_optim_add(struct ofs_zero *z, struct optimfs_error *err);
/* _groups adds the param_groups at node of a file of z->optim; _names adds the
 * lists of names in them, for z and all later stages, after z->groups is set in
 * each. */
int ofs_zero_groups(struct ofs_zero *z, uint32_t file, uint32_t node,
    struct optimfs_error *err);
int ofs_zero_names(struct ofs_zero *z, struct optimfs_error *err);
/* Adds a value that several parameters share, whose leaves are those of g in
 * z->optim, as an entry of each parameter. */
int ofs_zero_spread(struct ofs_zero *z, struct ofs_ranks_group *g,
    uint32_t first, uint32_t n, struct ofs_str state,
    struct optimfs_error *err);

/* optim.c: fills z->why, for the order of ranks in z->layout. */
void ofs_zero_check_groups(struct ofs_zero *z);

/* experts.c: mixtures of experts. Is it the name of a parameter of one? */
bool ofs_zero_is_expert(struct ofs_str name);
/* Makes the groups of each set of ranks from the groups of the files. */
int ofs_zero_experts_split(struct ofs_zero *z, struct optimfs_error *err);
/* Opens the weight files of experts. _add adds what is in them. */
int ofs_zero_experts_open(struct ofs_zero *z,
    const struct ofs_zero_files *files, struct optimfs_error *err);
int ofs_zero_experts_add(struct ofs_zero *z, struct optimfs_error *err);
/* Decides in which order ranks form sets, and which states are not of the expert
 * whose name they would get: compares fp32 weights with weights. _fail says
 * so. */
int ofs_zero_experts_prove(struct ofs_zero *z, struct optimfs_error *err);
int ofs_zero_experts_fail(struct ofs_str name, struct optimfs_error *err);
/* experts_ids.c: adds the state of ZeRO 0, whose files have numbers instead of
 * names. */
int ofs_zero_experts_ids(struct ofs_zero *z, struct optimfs_error *err);

/* flat_groups.c: records in the catalog which parameters of z and of all later
 * stages are trained. */
int ofs_zero_flat(struct ofs_zero *z, struct optimfs_error *err);

/* Adds the other members of an optimizer's dict, below optimizer_state_dict. */
int ofs_zero_extras(struct ofs_zero *z, uint32_t file, uint32_t dict,
    struct optimfs_error *err);

/* read.c: opens the weight files, and reads names and layout, without the
 * optimizer. */
int ofs_zero_open_models(struct ofs_zero *z, const struct ofs_zero_files *files,
    struct optimfs_error *err);
void ofs_zero_fini(struct ofs_zero *z);

extern const struct ofs_format ofs_format_deepspeed;

/* read.c: the format's read function. */
int ofs_zero_read(struct ofs_catalog *cat, const struct ofs_part *part,
    const struct optimfs_options *opt, struct optimfs_error *err);

extern const struct ofs_format ofs_format_universal;

/* The format's read function. */
int ofs_universal_read(struct ofs_catalog *cat, const struct ofs_part *part,
    const struct optimfs_options *opt, struct optimfs_error *err);

/* What of the optimizer stays; as in struct ofs_format. */
const char *const *ofs_zero_stays(const struct ofs_catalog *cat);

#endif
