/* render.h - rank files of flat parameters being laid out */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FORMAT_FSDP_RENDER_H
#define OFS_FORMAT_FSDP_RENDER_H

#include "format/format.h"
#include "format/fsdp/units.h"
#include "layout/archive_cache.h"
#include "layout/flat.h"
#include "layout/flat_model.h"

/* Only render*.c include it. What they write is in docs/formats/fsdp.md:
 * model_rankR.pt as a LOCAL_STATE_DICT has it, optim_rankR.pt as each rank's
 * optimizer.state_dict(), and the units file. */

struct ofs_fsdp_new_unit {
	struct ofs_flat flat;
	uint32_t param, nparams; /* a run of param */
	uint32_t align;
	uint32_t id; /* of the flat parameter; OFS_NONE */
	/* Of param: whose names of state are those of the flat parameter. */
	uint32_t primary;
	/* Of the model's parameters; OFS_DTYPE_NONE without a model. */
	enum ofs_dtype dtype;
	/* The entry of the model at which its key stands: in the state dict of
	 * its module, first or last. */
	uint32_t at;
};

struct ofs_fsdp_files {
	struct ofs_files files;
	struct ofs_flat_model m; /* flat: the unit */
	uint32_t world;
	bool orig;  /* use_orig_params */
	bool whole; /* NO_SHARD: nothing is cut */

	struct ofs_units units;
	struct ofs_fsdp_new_unit *unit;
	struct ofs_map names; /* of m.param */

	int64_t *id;     /* of each name of groups, in the files */
	uint32_t *by_id; /* unit or param of each ID */
	uint32_t nids;

	uint32_t *model; /* entries */
	uint32_t nmodel;
	uint32_t *model_param; /* of each: its param; OFS_NONE */

	struct ofs_torch_new extra;
	bool has_extra;
	struct ofs_buf text; /* the units file */

	struct ofs_torch_cache archives; /* rank files */
};

/* The parameter with this name; OFS_NONE. */
uint32_t ofs_fsdp_new_find(const struct ofs_fsdp_files *f, struct ofs_str fqn);
extern const struct ofs_format ofs_format_fsdp;

/* render.c: the member of the format. */
int ofs_fsdp_render(const struct ofs_render *from, const struct ofs_layout *to,
    struct ofs_files **out, struct optimfs_error *err);

/* Which shard of a flat parameter a rank has. */
static inline uint32_t ofs_fsdp_new_shard(const struct ofs_fsdp_files *f,
    uint32_t rank)
{
	return f->whole ? 0 : rank % f->m.to.shards;
}

/* render_plan.c: units, parameters, their state and their IDs, and whether
 * they can be laid out so. */
int ofs_fsdp_new_plan(struct ofs_fsdp_files *f, struct optimfs_error *err);
/* render_check.c: what the parameters of one flat parameter must agree
 * on. */
int ofs_fsdp_new_check(struct ofs_fsdp_files *f, struct optimfs_error *err);
/* render_units.c: the units file. */
int ofs_fsdp_new_units(struct ofs_fsdp_files *f, struct optimfs_error *err);
/* render_model.c, render_optim.c: one rank's file, but for _lay. */
int ofs_fsdp_new_model(const struct ofs_fsdp_files *f, uint32_t rank,
    struct ofs_torch_new *a, struct ofs_buf *pickle, struct optimfs_error *err);
int ofs_fsdp_new_optim(const struct ofs_fsdp_files *f, uint32_t rank,
    struct ofs_torch_new *a, struct ofs_buf *pickle, struct optimfs_error *err);
/* The shard of a unit that a rank has as a storage of a: of each parameter the
 * slice of the tensor that entry gives; OFS_NONE: zeros, which not all of them
 * are. fill: the bits between parameters. */
typedef uint32_t ofs_fsdp_new_entry_fn(const struct ofs_fsdp_files *f,
    uint32_t param, const char *name);
int ofs_fsdp_new_flat(const struct ofs_fsdp_files *f, uint32_t unit,
    uint32_t rank, ofs_fsdp_new_entry_fn *entry, const char *name,
    uint64_t fill, struct ofs_torch_new *a, struct optimfs_error *err);

#endif
