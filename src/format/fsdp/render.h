/* render.h - a layout as rank files of flat parameters */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FORMAT_FSDP_RENDER_H
#define OFS_FORMAT_FSDP_RENDER_H

#include "format/format.h"
#include "format/fsdp/units.h"
#include "layout/archive_cache.h"
#include "layout/flat.h"
#include "layout/flat_model.h"

/* Only render*.c include this. docs/formats/fsdp.md describes the files:
 * model_rankR.pt as a LOCAL_STATE_DICT, optim_rankR.pt as each rank's
 * optimizer.state_dict(), and the units file. */

struct ofs_fsdp_new_unit {
	struct ofs_flat flat;
	uint32_t param, nparams; /* its parameters in param */
	uint32_t id;             /* of the flat parameter; OFS_NONE: none */
	/* The parameter whose state names are those of the flat parameter. */
	uint32_t primary;
	/* dtype of the model's parameters; OFS_DTYPE_NONE: no model. */
	enum ofs_dtype dtype;
	/* The model entry at which the flat parameter's key is written: the
	 * first or last of its module's state dict. */
	uint32_t at;
};

struct ofs_fsdp_files {
	struct ofs_files files;
	struct ofs_flat_model m; /* flat is the unit */
	uint32_t world;
	bool orig;  /* use_orig_params */
	bool whole; /* NO_SHARD: no parameter is cut */

	struct ofs_units units;
	struct ofs_fsdp_new_unit *unit;

	int64_t *id;     /* of each name of groups: the ID in the files */
	uint32_t *by_id; /* of each ID: its unit or parameter */
	uint32_t nids;

	uint32_t *model; /* entries */
	uint32_t nmodel;
	uint32_t *model_param; /* of each: its parameter; OFS_NONE: none */

	struct ofs_torch_new extra;
	bool has_extra;
	struct ofs_buf text; /* the units file */

	struct ofs_torch_cache archives; /* rank files */
};

/* The parameter with this name; OFS_NONE: none. */
uint32_t ofs_fsdp_new_find(const struct ofs_fsdp_files *f, struct ofs_str fqn);
extern const struct ofs_format ofs_format_fsdp;

/* render.c: the format's render. */
extern const struct ofs_files_ops ofs_fsdp_render;

/* The shard of a flat parameter that a rank has. */
static inline uint32_t ofs_fsdp_new_shard(const struct ofs_fsdp_files *f,
    uint32_t rank)
{
	return f->whole ? 0 : rank % f->m.to.shards;
}

/* render_plan.c: plans units, parameters, their state and their IDs, and checks
 * that the layout is possible. */
int ofs_fsdp_new_plan(struct ofs_fsdp_files *f, struct optimfs_error *err);
/* render_check.c: checks that the parameters of each flat parameter agree. */
int ofs_fsdp_new_check(struct ofs_fsdp_files *f, struct optimfs_error *err);
/* render_units.c: makes the units file. */
int ofs_fsdp_new_units(struct ofs_fsdp_files *f, struct optimfs_error *err);
/* render_model.c, render_optim.c: make one rank's file, up to _lay. */
int ofs_fsdp_new_model(const struct ofs_fsdp_files *f, uint32_t rank,
    struct ofs_torch_new *a, struct ofs_buf *pickle, struct optimfs_error *err);
int ofs_fsdp_new_optim(const struct ofs_fsdp_files *f, uint32_t rank,
    struct ofs_torch_new *a, struct ofs_buf *pickle, struct optimfs_error *err);
/* Adds a rank's shard of a unit as a storage of a: of each parameter the slice
 * of the tensor that entry returns. OFS_NONE means zeros, but not for all
 * parameters. fill: the bits of the padding between parameters. */
typedef uint32_t ofs_fsdp_new_entry_fn(const struct ofs_fsdp_files *f,
    uint32_t param, const char *name);
int ofs_fsdp_new_flat(const struct ofs_fsdp_files *f, uint32_t unit,
    uint32_t rank, ofs_fsdp_new_entry_fn *entry, const char *name,
    uint64_t fill, struct ofs_torch_new *a, struct optimfs_error *err);

#endif
