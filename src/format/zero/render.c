/* render.c - a checkpoint as DeepSpeed's files, for any number of ranks */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "format/zero/render.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "format/zero/zero.h"

/* Files, in this order: latest, weights, optimizer. A universal checkpoint has,
 * instead of the optimizer's, optimizer_state.pt and a file for each state of
 * each parameter. */
enum kind { LATEST, MODEL, OPTIM, GLOBALS, STATE };

static struct ofs_zero_new *zero_new(const struct ofs_files *f)
{
	return (struct ofs_zero_new *)(uintptr_t)f;
}

static uint32_t count_models(const struct ofs_zero_new *z)
{
	return z->stage == 3 ? z->world : 1;
}

/* The kind of a file; *i gets its index in that kind. */
static enum kind kind_of(const struct ofs_zero_new *z, uint32_t file,
    uint32_t *i)
{
	uint32_t models = count_models(z);

	*i = file - 1;
	if (file == 0)
		return LATEST;
	if (*i < models)
		return MODEL;
	*i -= models;
	if (!z->universal)
		return OPTIM;
	return (*i)-- == 0 ? GLOBALS : STATE;
}

/* The name of a file without .pt, which is also the name in its archive. */
static void stem(const struct ofs_zero_new *z, enum kind kind, uint32_t i,
    char *name, size_t size)
{
	if (kind == MODEL && z->stage == 3)
		snprintf(name, size, "zero_pp_rank_%u_mp_rank_00_model_states",
		    i);
	else if (kind == MODEL)
		snprintf(name, size, "mp_rank_00_model_states");
	else if (kind == OPTIM)
		snprintf(name, size,
		    "%szero_pp_rank_%u_mp_rank_00_optim_states",
		    z->bf16 ? "bf16_" : "", i);
	else if (kind == GLOBALS)
		snprintf(name, size, "optimizer_state");
	else
		snprintf(name, size, "%s", z->file[i].name);
}

static void file_name(const struct ofs_files *files, uint32_t file,
    char name[OFS_FILE_NAME])
{
	const struct ofs_zero_new *z = zero_new(files);
	uint32_t i;
	enum kind kind = kind_of(z, file, &i);
	char own[256];

	if (kind == LATEST) {
		snprintf(name, OFS_FILE_NAME, "latest%s",
		    z->universal ? "_universal" : "");
		return;
	}
	stem(z, kind, i, own, sizeof(own));
	if (kind == STATE)
		snprintf(name, OFS_FILE_NAME, "%s/zero/%.255s/%s.pt", z->latest,
		    z->m.param[z->file[i].param].fqn.p, own);
	else
		snprintf(name, OFS_FILE_NAME, "%s/%s%s.pt", z->latest,
		    kind == GLOBALS ? "zero/" : "", own);
}

static int build(void *ctx, uint32_t file, struct ofs_torch_new *a,
    struct ofs_buf *pickle, struct optimfs_error *err)
{
	const struct ofs_zero_new *z = ctx;
	uint32_t i;
	enum kind kind = kind_of(z, file, &i);
	char name[256];

	stem(z, kind, i, name, sizeof(name));
	snprintf(a->prefix, sizeof(a->prefix), "%.*s/",
	    (int)sizeof(a->prefix) - 2, name);
	if (kind == MODEL)
		return ofs_zero_new_model(z, i, a, pickle, err);
	if (kind == OPTIM)
		return ofs_zero_new_optim(z, i, a, pickle, err);
	if (kind == GLOBALS)
		return ofs_zero_new_globals(z, a, pickle, err);
	return ofs_zero_new_one(z, &z->file[i], a, pickle, err);
}

static int spans(const struct ofs_files *files, uint32_t file,
    struct ofs_spans *out, struct optimfs_error *err)
{
	struct ofs_zero_new *z = zero_new(files);

	if (file == 0)
		return ofs_spans_add(out, strlen(z->latest), 0, 0, err);
	return ofs_torch_cache_spans(&z->archives, file, out, err);
}

static int make(const struct ofs_files *files, uint32_t file,
    const struct ofs_span *span, uint64_t at, struct ofs_composition *c,
    struct optimfs_error *err)
{
	struct ofs_zero_new *z = zero_new(files);

	if (file == 0)
		return ofs_composition_bytes(c, z->latest, strlen(z->latest),
		    err);
	return ofs_torch_cache_make(&z->archives, z->m.cat, file, span, at, c,
	    err);
}

static void files_free(struct ofs_files *files)
{
	struct ofs_zero_new *z = zero_new(files);

	ofs_torch_cache_fini(&z->archives);
	ofs_zero_layout_fini(&z->layout);
	ofs_zero_shapes_fini(&z->shapes);
	ofs_flat_model_fini(&z->m);
	ofs_state_fini(&z->extra);
	ofs_keys_fini(&z->names);
	free(z->master);
	free(z->weight);
	free(z->order);
	free(z->group);
	free(z->file);
	free(z);
}

/* File names depend on whether the job ran in bf16. */
static bool is_bf16(const struct ofs_zero_new *z)
{
	uint32_t enabled = ofs_zero_new_fact(z, "ds_config/bf16/enabled");

	if (enabled == OFS_NONE)
		enabled = ofs_zero_new_fact(z, "ds_config/bfloat16/enabled");
	if (enabled != OFS_NONE)
		return ofs_zero_new_true(z, enabled);
	return z->m.groups.names.n > 0 &&
	    ofs_flat_tensor(&z->m, z->m.param[0].model)->dtype == OFS_BFLOAT16;
}

/* Uses DeepSpeed's default name of checkpoints. */
static void name_tag(struct ofs_zero_new *z)
{
	snprintf(z->latest, sizeof(z->latest), "global_step%" PRId64 "%s",
	    ofs_zero_new_steps(z), z->universal ? "_universal" : "");
}

/* A universal checkpoint has the weight files of the source's stage and world
 * size. */
static void find_form(struct ofs_zero_new *z)
{
	int64_t world = 1;

	if (!z->universal)
		return;
	z->stage = ofs_zero_new_stage(z);
	if (z->stage == 0)
		z->stage = 1;
	ofs_zero_new_int(z, "dp_world_size", &world);
	z->world = world < 1 || world > 65536 ? 1 : (uint32_t)world;
}

/* deepspeed.moe loads each expert from a file of its own, and all of its groups
 * by sets of ranks. */
static int refuse_experts(const struct ofs_flat_model *m,
    struct optimfs_error *err)
{
	for (uint32_t i = 0; i < m->nparams; i++)
		if (ofs_zero_is_expert(m->param[i].fqn))
			return optimfs_fail(err, EOPNOTSUPP,
			    "OFS765 %.*s: experts of deepspeed.moe are in "
			    "files of their own, which optimfs does not write: "
			    "choose another format",
			    OFS_STR_ARGS(m->param[i].fqn, 120));
	return 0;
}

static int lay_all(struct ofs_zero_new *z, struct optimfs_error *err)
{
	uint64_t n;

	if (ofs_state_build(&z->extra, &z->m.from, &z->m.to, "extra", err) ==
	    -1)
		return -1;
	find_form(z);
	if (ofs_zero_new_plan(z, err) == -1 ||
	    refuse_experts(&z->m, err) == -1 ||
	    ofs_zero_new_order(z, err) == -1 ||
	    (z->universal && ofs_zero_new_list(z, err) == -1))
		return -1;
	z->bf16 = is_bf16(z);
	name_tag(z);
	n = 1ull + count_models(z) +
	    (z->universal ? 1ull + z->nfiles : z->world);
	if (n > UINT32_MAX)
		return optimfs_fail(err, EFBIG,
		    "OFS606 size overflow: too many files");
	z->files.n = (uint32_t)n;
	return 0;
}

static int lay(struct ofs_files *files, const struct ofs_render *from,
    const struct ofs_layout *to, struct optimfs_error *err)
{
	struct ofs_zero_new *z = zero_new(files);

	z->m = (struct ofs_flat_model){
		.from = *from, .cat = from->cat, .to = *to, .code = "OFS684"
	};
	z->universal = to->variant == 0;
	z->stage = to->variant;
	z->world = to->shards;
	ofs_torch_cache_init(&z->archives, to, build, z);
	if (to->replicas != 1)
		return optimfs_fail(err, EINVAL,
		    "OFS771 ZeRO has no replicas: it divides among all ranks, "
		    "as in zero%d@%u",
		    to->variant, to->shards);
	return lay_all(z, err);
}

const struct ofs_files_ops ofs_zero_render = {
	.size = sizeof(struct ofs_zero_new),
	.lay = lay,
	.name = file_name,
	.spans = spans,
	.make = make,
	.free = files_free,
};
