/* read.c - DeepSpeed checkpoints of ZeRO 1, 2 and 3 */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/str.h"
#include "format/globals.h"
#include "format/zero/zero.h"

/* ZeRO flattens the trained parameters of a group to one vector, and cuts it by
 * ranks. Of parameters a (5 elements) and b (3) on two ranks,
 *
 *     stages 1, 2   rank 0: a0 a1 a2 a3     rank 1: a4 b0 b1 b2
 *     stage 3       rank 0: a0 a1 a2 b0 b1  rank 1: a3 a4 -  b2 -
 *
 * The vectors are in the optimizer's files (weights in fp32, exp_avg, ...), and
 * have no names. Names and shapes, in the order of the vector, are param_shapes
 * in a file of the model. The layout (layout.h) is computed from them, the stage
 * and the number of ranks; each parameter then becomes a tensor whose shards are
 * slices of the files' vectors. Nothing says where a slice begins, so what the
 * files do say is compared with the layout: the lengths of the vectors, the
 * number of ranks, the rank in a name.
 *
 * A checkpoint of pipeline stages is several of these, each with an
 * mp_rank_MM: a column here, a struct ofs_zero. It is read in three steps:
 *
 *     open_column   its files as two sets of ranks, shapes, layout
 *     add_column    first what is shown as it was saved (_collect), so that
 *                   ranks are compared, then what is joined (_add)
 *     read_stages   the columns together: parameters that two have, the names
 *                   of param_groups, which are lists over all of them
 *
 * - A missing rank loses its slices: they are EIO where they are read. A missing
 *   model file of a column loses the names, so it fails the mount.
 * - The weights of model/ are the tensors of the model's files. Those of stage
 *   3 are empty: there they are the fp32 vector, rounded to their type.
 * - The same files may come from tensor parallelism, where a parameter is cut
 *   before it is flattened, and nothing says along which dimension. It is
 *   recognized by a name in two columns, and refused (OFS696), except modules
 *   that stages share by intention (SHARED). */

/* Names. */

uint32_t ofs_zero_word(struct ofs_zero *z, const char *word,
    struct optimfs_error *err)
{
	return ofs_catalog_str(z->cat, word, strlen(word), err);
}

/* Puts the prefix before n components. */
static bool add_prefix(const struct ofs_zero *z, const uint32_t *part, size_t n,
    uint32_t path[OFS_PART_PREFIX + 4])
{
	memcpy(path, z->prefix, sizeof(z->prefix));
	for (size_t i = 0; i < n; i++) {
		if (part[i] == OFS_NONE)
			return false;
		path[z->npref + i] = part[i];
	}
	return true;
}

uint32_t ofs_zero_path(struct ofs_zero *z, const uint32_t *part, size_t n,
    struct optimfs_error *err)
{
	uint32_t path[OFS_PART_PREFIX + 4];

	return add_prefix(z, part, n, path)
	    ? ofs_catalog_path(z->cat, path, z->npref + n, err)
	    : OFS_NONE;
}

int ofs_zero_collect(struct ofs_zero *z, struct ofs_ranks *set, uint32_t file,
    uint32_t node, const uint32_t *part, size_t n, struct optimfs_error *err)
{
	uint32_t path[OFS_PART_PREFIX + 4];

	return add_prefix(z, part, n, path)
	    ? ofs_ranks_collect(set, file, node, path, z->npref + n, err)
	    : -1;
}

uint32_t ofs_zero_state_path(struct ofs_zero *z, const struct ofs_str *param,
    const struct ofs_str *state, struct optimfs_error *err)
{
	uint32_t part[4] = {
		ofs_zero_word(z, "optim", err),
		ofs_zero_word(z, "state", err),
		ofs_catalog_str(z->cat, param->p, param->len, err),
		ofs_catalog_str(z->cat, state->p, state->len, err),
	};

	return ofs_zero_path(z, part, 4, err);
}

/* Files. */

static int by_id(const void *va, const void *vb)
{
	const struct ofs_zero_file *a = va, *b = vb;

	if (a->id.mp != b->id.mp)
		return a->id.mp < b->id.mp ? -1 : 1;
	if (a->id.rank != b->id.rank)
		return a->id.rank < b->id.rank ? -1 : 1;
	return strcmp(a->rel, b->rel);
}

static int keep_ours(struct ofs_zero_files *files,
    const struct ofs_names *names, const char *rel, struct optimfs_error *err)
{
	files->file = calloc(names->n + 1, sizeof(*files->file));
	if (files->file == NULL)
		return ofs_no_memory(err);
	for (size_t i = 0; i < names->n; i++) {
		struct ofs_zero_file *f = &files->file[files->n];

		if (!ofs_zero_name(names->name[i], &f->id))
			continue;
		f->rel = ofs_path_join(rel, names->name[i]);
		if (f->rel == NULL)
			return ofs_no_memory(err);
		files->n++;
	}
	qsort(files->file, files->n, sizeof(*files->file), by_id);
	return 0;
}

int ofs_zero_list(struct ofs_zero_files *files, const struct ofs_dir *dir,
    const char *rel, struct optimfs_error *err)
{
	struct ofs_names names;
	int ret;

	*files = (struct ofs_zero_files){ 0 };
	if (ofs_dir_list_sub(dir, rel, &names, err) == -1)
		return -1;
	ret = keep_ours(files, &names, rel, err);
	ofs_names_free(&names);
	if (ret == -1)
		ofs_zero_files_fini(files);
	return ret;
}

void ofs_zero_files_fini(struct ofs_zero_files *files)
{
	for (size_t i = 0; i < files->n; i++)
		free(files->file[i].rel);
	free(files->file);
	*files = (struct ofs_zero_files){ 0 };
}

/* Is there a file of this kind and of rank mp, or with -1 of any? */
static bool has_kind(const struct ofs_zero_files *files,
    enum ofs_zero_kind kind, int mp)
{
	for (size_t i = 0; i < files->n; i++)
		if (files->file[i].id.kind == kind &&
		    (mp == -1 || files->file[i].id.mp == mp))
			return true;
	return false;
}

int ofs_zero_open(struct ofs_zero *z, struct ofs_ranks *set,
    const struct ofs_zero_files *files, enum ofs_zero_kind kind,
    struct optimfs_error *err)
{
	if (ofs_ranks_begin(set, z->cat, files->n, err) == -1)
		return -1;
	for (size_t i = 0; i < files->n; i++) {
		const struct ofs_zero_file *f = &files->file[i];

		if (f->id.kind != kind || f->id.mp != z->mp)
			continue;
		if (ofs_ranks_try(set, f->rel, f->id.rank, false, err) == -1)
			return -1;
	}
	return 0;
}

static int check_ranks(struct ofs_ranks *set, struct optimfs_error *err)
{
	return ofs_ranks_check(set, err) == -1 ? -1
					       : ofs_ranks_absent(set, err);
}

/* The rank in the name under which a file was saved: torch.save calls the archive
 * after it. So files that were swapped are noticed (OFS181); nothing else in them
 * has the rank. */
static int written_rank(const struct ofs_ranks_file *f)
{
	struct ofs_zero_name now, then;
	struct ofs_str prefix = f->source.zip.prefix;
	char name[128];

	if (!f->source.is_zip || prefix.len == 0 ||
	    prefix.len >= sizeof(name) - 3)
		return f->rank;
	snprintf(name, sizeof(name), "%.*s.pt", (int)prefix.len - 1, prefix.p);
	return ofs_zero_name(ofs_path_last(f->rel), &now) &&
		ofs_zero_name(name, &then) && now.kind == then.kind &&
		now.mp == then.mp
	    ? then.rank
	    : f->rank;
}

/* Sets the ranks of files by that, if they are all different: a file may also have
 * been copied in place of a lost one. */
static void set_written_ranks(struct ofs_ranks *set)
{
	bool distinct = true;

	for (uint32_t i = 0; i < set->nfiles; i++) {
		set->file[i].said_rank = written_rank(&set->file[i]);
		for (uint32_t k = 0; k < i; k++)
			distinct = distinct &&
			    set->file[k].said_rank != set->file[i].said_rank;
	}
	for (uint32_t i = 0; i < set->nfiles && !distinct; i++)
		set->file[i].said_rank = set->file[i].rank;
}

/* One rank of model parallelism. */

static int read_optims(struct ofs_zero *z, struct optimfs_error *err)
{
	if (z->by_id)
		return check_ranks(&z->optim, err);
	z->rank = calloc(z->optim.nfiles + 1ull, sizeof(*z->rank));
	if (z->rank == NULL)
		return ofs_no_memory(err);
	for (uint32_t i = 0; i < z->optim.nfiles; i++) {
		struct ofs_ranks_file *f = &z->optim.file[i];

		if (ofs_zero_optim_read(&z->rank[i], f->doc, err) == -1)
			return optimfs_fail_in(err, "%s", f->rel);
		f->said_world = (int)z->rank[i].world;
	}
	set_written_ranks(&z->optim);
	return z->optim.nfiles == 0 ? 0 : check_ranks(&z->optim, err);
}

/* The weights and the optimizer must be shared by the same number of ranks. */
static int check_models(struct ofs_zero *z, struct optimfs_error *err)
{
	for (uint32_t i = 0; i < z->model.nfiles && z->sharded; i++) {
		struct ofs_ranks_file *f = &z->model.file[i];
		uint32_t node = ofs_pk_get(f->doc, ofs_pickle_root(f->doc),
		    "dp_world_size");
		int64_t world;

		if (z->optim.world > 0)
			f->said_world = z->optim.world;
		else if (ofs_zero_world(f->doc, node, &world))
			f->said_world = (int)world;
	}
	if (z->model.nfiles == 0)
		return 0;
	if (z->sharded)
		set_written_ranks(&z->model);
	return z->sharded ? check_ranks(&z->model, err)
			  : ofs_ranks_check(&z->model, err);
}

static int no_shapes(const struct ofs_zero *z, struct optimfs_error *err)
{
	if (z->model.ndamaged > 0)
		return optimfs_fail_with(err, &z->model.why);
	if (z->model.nfiles == 0)
		return optimfs_fail(err, EIO,
		    "OFS140 mp_rank_%02d_model_states.pt is missing, as are "
		    "all zero_pp_rank_*_mp_rank_%02d_model_states.pt: nothing "
		    "else has the names and shapes of parameters",
		    z->mp, z->mp);
	return optimfs_fail(err, EUCLEAN,
	    "OFS695 %s: there is no param_shapes, which says what is in the "
	    "flat groups",
	    z->model.file[0].rel);
}

static int lay_out(struct ofs_zero *z, struct optimfs_error *err)
{
	int none = ofs_zero_read_shapes(z, err), stage = 3;
	uint32_t world = z->model.world < 1 ? 1 : (uint32_t)z->model.world;

	if (none == -1 || (none == 1 && z->rank != NULL && z->optim.nfiles > 0))
		return none == -1 ? -1 : no_shapes(z, err);
	if (z->rank != NULL && z->optim.nfiles > 0) {
		stage = z->rank[0].stage;
		world = z->optim.world < 1 ? 1 : (uint32_t)z->optim.world;
	}
	if ((stage != 3 && ofs_zero_experts_split(z, err) == -1) ||
	    ofs_zero_layout_init(&z->layout, &z->shapes, stage, world, err) ==
		-1)
		return -1;
	return ofs_zero_layout_init(&z->frozen_layout, &z->frozen, 3, world,
	    err);
}

/* Records what the files say about the program that wrote them. */
static int describe(struct ofs_zero *z, struct optimfs_error *err)
{
	const struct ofs_pickle *doc = z->model.file[0].doc;
	struct ofs_str v = ofs_pk_str(doc,
	    ofs_pk_get(doc, ofs_pickle_root(doc), "ds_version"));
	char text[80];
	int stage = 0, n;

	if (z->optim.nfiles > 0 && z->rank != NULL)
		stage = ofs_zero_stage_of(z->rank[0].doc,
		    ofs_pk_get(z->rank[0].doc, z->rank[0].state, "zero_stage"));
	n = snprintf(text, sizeof(text), "%.*s", OFS_STR_ARGS(v, 40));
	if (stage > 0)
		snprintf(text + n, sizeof(text) - (size_t)n,
		    "%s(ZeRO stage %d)", n > 0 ? " " : "", stage);
	if (text[0] == '\0')
		return 0;
	z->cat->version = ofs_arena_strndup(&z->cat->arena, text, strlen(text));
	return z->cat->version == NULL ? ofs_no_memory(err) : 0;
}

static int open_models(struct ofs_zero *z, const struct ofs_zero_files *files,
    struct optimfs_error *err)
{
	z->sharded = !has_kind(files, OFS_ZERO_MODEL, z->mp);
	return ofs_zero_open(z, &z->model, files,
	    z->sharded ? OFS_ZERO_MODEL_PART : OFS_ZERO_MODEL, err);
}

int ofs_zero_open_models(struct ofs_zero *z, const struct ofs_zero_files *files,
    struct optimfs_error *err)
{
	if (open_models(z, files, err) == -1)
		return -1;
	if (z->model.nfiles == 0)
		return 0;
	if (check_models(z, err) == -1 || lay_out(z, err) == -1)
		return -1;
	return describe(z, err);
}

/* A model's file of ZeRO has param_shapes, which say what is in the flat groups
 * of the optimizer's files, and their number. Without any of those, only weights
 * are left. Without param_shapes, too, there never was an optimizer, or it was
 * dropped (update.c). */
static int note_no_optim(struct ofs_zero *z, struct optimfs_error *err)
{
	const struct ofs_ranks_file *f = z->model.file;
	int64_t world;

	if (z->optim.nfiles > 0 || z->optim.ndamaged > 0 ||
	    z->model.nfiles == 0 ||
	    !ofs_zero_world(f->doc,
		ofs_pk_get(f->doc, ofs_pickle_root(f->doc), "dp_world_size"),
		&world))
		return 0;
	if (z->cat->world_size < world)
		z->cat->world_size = (int)world;
	if (z->shapes.n == 0)
		return 0;
	return ofs_catalog_note(z->cat, OFS_NOTE_MISSING, EIO, err,
	    "OFS180 the optimizer's files of all %d ranks are missing "
	    "(*zero_pp_rank_*_mp_rank_%02d_optim_states.pt, beside %.200s)",
	    (int)world, z->mp, f->rel);
}

static int open_column(struct ofs_zero *z, const struct ofs_zero_files *files,
    struct optimfs_error *err)
{
	z->by_id = has_kind(files, OFS_ZERO_EXPERT_OPTIM, z->mp);
	if (open_models(z, files, err) == -1 ||
	    ofs_zero_open(z, &z->optim, files,
		z->by_id ? OFS_ZERO_EXPERT_OPTIM : OFS_ZERO_OPTIM, err) == -1 ||
	    read_optims(z, err) == -1 || check_models(z, err) == -1 ||
	    lay_out(z, err) == -1 || note_no_optim(z, err) == -1 ||
	    ofs_zero_experts_open(z, files, err) == -1)
		return -1;
	return z->model.nfiles == 0 ? 0 : describe(z, err);
}

/* Adds everything, if there are no flat groups. */
static int add_by_id(struct ofs_zero *z, struct optimfs_error *err)
{
	if (ofs_zero_model_collect(z, err) == -1 ||
	    ofs_ranks_group(&z->model, err) == -1 ||
	    ofs_ranks_merge(&z->model, err) == -1 ||
	    ofs_zero_experts_add(z, err) == -1)
		return -1;
	return ofs_zero_experts_ids(z, err);
}

/* Adds first the values that are shown unchanged, then the joined ones. */
static int add_column(struct ofs_zero *z, struct optimfs_error *err)
{
	uint32_t first = z->cat->nentries;

	if (z->by_id)
		return add_by_id(z, err);
	if ((z->optim.nfiles > 0 && ofs_zero_optim_collect(z, err) == -1) ||
	    ofs_zero_model_collect(z, err) == -1 ||
	    ofs_ranks_group(&z->model, err) == -1 ||
	    ofs_ranks_group(&z->optim, err) == -1 ||
	    ofs_ranks_merge(&z->model, err) == -1 ||
	    ofs_ranks_merge(&z->optim, err) == -1 ||
	    ofs_zero_experts_add(z, err) == -1 ||
	    ofs_zero_experts_prove(z, err) == -1 ||
	    ofs_zero_model_add(z, first, err) == -1 ||
	    ofs_zero_optim_add(z, err) == -1)
		return -1;
	return 0;
}

void ofs_zero_fini(struct ofs_zero *z)
{
	ofs_zero_layout_fini(&z->layout);
	ofs_zero_layout_fini(&z->frozen_layout);
	ofs_zero_shapes_fini(&z->shapes);
	ofs_zero_shapes_fini(&z->frozen);
	ofs_pk_names_fini(&z->shared);
	ofs_pk_names_fini(&z->module);
	free(z->rank);
	free(z->why);
	free(z->again);
	free(z->disproved);
	free(z->expert);
	ofs_ranks_fini(&z->experts);
	ofs_ranks_fini(&z->model);
	ofs_ranks_fini(&z->optim);
}

static int add_layers(struct ofs_catalog *cat, const struct ofs_part *part,
    const struct ofs_zero_files *files, struct optimfs_error *err)
{
	struct ofs_zero z = { .cat = cat };

	if (!has_kind(files, OFS_ZERO_LAYER, 0))
		return 0;
	if (ofs_part_prefix(cat, part, z.prefix, &z.npref, err) == -1)
		return -1;
	if (!has_kind(files, OFS_ZERO_MODEL, 0) &&
	    ofs_catalog_note(cat, OFS_NOTE_MISSING, EIO, err,
		"OFS140 mp_rank_%s: with the files of layers, such files say "
		"what step this is, and of which ranks",
		has_kind(files, OFS_ZERO_MODEL, -1)
		    ? "00_model_states.pt is missing"
		    : "*_model_states.pt are missing") == -1)
		return -1;
	return ofs_zero_layers(&z, files, err);
}

/* Pipeline stages. A module that several stages share has a name with this
 * prefix, and is the same in each. Other names in two stages belong to tensors
 * that are cut in two. */

#define SHARED "tied_modules."

/* Has a file the patterns by which ds_to_universal.py joins cut parameters? */
static bool has_patterns(const struct ofs_zero *z)
{
	for (uint32_t i = 0; i < z->model.nfiles; i++) {
		const struct ofs_pickle *doc = z->model.file[i].doc;
		uint32_t info = ofs_pk_get(doc, ofs_pickle_root(doc),
		    "universal_checkpoint_info");

		if (ofs_pk_kind(doc, info) == OFS_PK_DICT &&
		    ofs_pk_len(doc, info) > 0)
			return true;
	}
	return false;
}

static int check_name(struct ofs_zero *z, const struct ofs_zero *before,
    uint32_t param, struct optimfs_error *err)
{
	struct ofs_str name = z->shapes.param[param].name;

	if (ofs_zero_find(&before->shapes, name) == OFS_NONE)
		return 0;
	z->again[param] = true;
	if (ofs_str_begins(name, SHARED))
		return 0;
	return optimfs_fail(err, EOPNOTSUPP,
	    "OFS696 %.*s is cut over ranks of model parallelism (mp_rank_%02d "
	    "and mp_rank_%02d have it), %s: make a universal checkpoint of it "
	    "(ds_to_universal.py%s)",
	    OFS_STR_ARGS(name, 100), before->mp, z->mp,
	    has_patterns(z) ? "which only universal_checkpoint_info describes"
			    : "and nothing here says how",
	    has_patterns(z) ? "" : " --inject_missing_state");
}

static int check_names(struct ofs_zero *z, size_t stage,
    struct optimfs_error *err)
{
	struct ofs_zero *me = &z[stage];

	me->again = calloc(me->shapes.n + 1ull, sizeof(*me->again));
	if (me->again == NULL)
		return ofs_no_memory(err);
	for (size_t i = 0; i < stage; i++)
		for (uint32_t p = 0; p < me->shapes.n; p++)
			if (!me->again[p] &&
			    check_name(me, &z[i], p, err) == -1)
				return -1;
	return 0;
}

/* Are there names in its groups? Without the wrapped optimizer, the files of stage 3
 * have only the weights (docs/formats/deepspeed.md, "Without an optimizer"). */
static bool has_optimizer(const struct ofs_zero *z)
{
	bool has = false;

	for (uint32_t i = 0; i < z->optim.nfiles && !z->by_id; i++)
		has |= z->rank[i].stage != 3 || z->rank[i].base != OFS_NONE;
	return has;
}

static int read_stages(struct ofs_zero *z, size_t n,
    const struct ofs_zero_files *files, struct optimfs_error *err)
{
	for (size_t i = 0; i < n; i++) {
		z[i].hidden = i > 0;
		z[i].next = i + 1 < n ? &z[i + 1] : NULL;
		if (open_column(&z[i], files, err) == -1 ||
		    check_names(z, i, err) == -1)
			return -1;
	}
	for (size_t i = 0; i < n; i++)
		if (add_column(&z[i], err) == -1)
			return -1;
	if ((has_optimizer(&z[0]) && ofs_zero_names(z, err) == -1) ||
	    ofs_zero_flat(z, err) == -1)
		return -1;
	for (size_t i = 0; i < n; i++)
		if (ofs_ranks_end(&z[i].model, err) == -1 ||
		    ofs_ranks_end(&z[i].experts, err) == -1 ||
		    ofs_ranks_end(&z[i].optim, err) == -1)
			return -1;
	return 0;
}

/* The whole checkpoint. */

static int refuse(const struct ofs_zero_files *files, struct optimfs_error *err)
{
	for (size_t i = 0; i < files->n; i++) {
		const struct ofs_zero_file *f = &files->file[i];

		if ((f->id.kind == OFS_ZERO_EXPERT ||
			f->id.kind == OFS_ZERO_EXPERT_OPTIM) &&
		    f->id.mp != 0)
			return optimfs_fail(err, EOPNOTSUPP,
			    "OFS696 %s: experts that are cut over ranks of "
			    "tensor parallelism, and nothing here says how: "
			    "load it in the job that wrote it, and save it "
			    "there without tensor parallelism",
			    f->rel);
		if (f->id.kind == OFS_ZERO_LAYER && f->id.mp != 0)
			return optimfs_fail(err, EOPNOTSUPP,
			    "OFS696 %s: layers that are cut over ranks of "
			    "tensor parallelism, and nothing here says how: "
			    "make a universal checkpoint of it "
			    "(ds_to_universal.py)",
			    f->rel);
	}
	if (files->n == 0)
		return optimfs_fail(err, EUCLEAN,
		    "OFS695 no files of a DeepSpeed checkpoint");
	return 0;
}

/* Makes the stages from files, which are sorted by mp; *n gets the number of
 * stages. */
static struct ofs_zero *new_stages(struct ofs_catalog *cat,
    const struct ofs_part *part, const struct ofs_zero_files *files, size_t *n,
    struct optimfs_error *err)
{
	struct ofs_zero *z = calloc(files->n + 1, sizeof(*z));

	*n = 0;
	if (z == NULL)
		ofs_no_memory(err);
	for (size_t i = 0; z != NULL && i < files->n; i++) {
		int mp = files->file[i].id.mp;

		if (*n > 0 && z[*n - 1].mp == mp)
			continue;
		z[*n] = (struct ofs_zero){
			.cat = cat, .mp = mp, .groups.node = OFS_NONE
		};
		if (ofs_part_prefix(cat, part, z[*n].prefix, &z[*n].npref,
			err) == -1) {
			free(z);
			return NULL;
		}
		++*n;
	}
	return z;
}

static int read_files(struct ofs_catalog *cat, const struct ofs_part *part,
    const struct ofs_zero_files *files, struct optimfs_error *err)
{
	struct ofs_zero *z;
	size_t n;
	int ret;

	if (refuse(files, err) == -1)
		return -1;
	z = new_stages(cat, part, files, &n, err);
	if (z == NULL)
		return -1;
	ret = read_stages(z, n, files, err);
	for (size_t i = 0; i < n; i++)
		ofs_zero_fini(&z[i]);
	free(z);
	return ret == -1 ? -1 : add_layers(cat, part, files, err);
}

int ofs_zero_read(struct ofs_catalog *cat, const struct ofs_part *part,
    const struct optimfs_options *opt, struct optimfs_error *err)
{
	struct ofs_zero_files files;
	uint32_t notes = cat->nnotes;
	int ret;

	if (ofs_zero_list(&files, &cat->dir, part->rel, err) == -1)
		return -1;
	ret = read_files(cat, part, &files, err);
	ofs_zero_files_fini(&files);
	if (ret == -1)
		return -1;
	return opt != NULL && opt->strict ? ofs_refuse_calls(cat, notes, err)
					  : 0;
}
