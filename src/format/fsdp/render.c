/* render.c - a checkpoint as FSDP1's rank files, with new flat parameters */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "format/fsdp/render.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Files, in this order: the model's, one per rank; the optimizer's, one per
 * rank; other state; the units. */
enum kind { MODEL, OPTIM, EXTRA, UNITS };

static enum kind kind_of(const struct ofs_fsdp_files *f, uint32_t file,
    uint32_t *rank)
{
	uint32_t models = f->nmodel > 0 ? f->world : 0;
	uint32_t optims = f->m.has_optim ? f->world : 0;

	*rank = file;
	if (file < models)
		return MODEL;
	*rank = file - models;
	if (*rank < optims)
		return OPTIM;
	return *rank == optims && f->has_extra ? EXTRA : UNITS;
}

static struct ofs_fsdp_files *fsdp_files(const struct ofs_files *f)
{
	return (struct ofs_fsdp_files *)(uintptr_t)f;
}

static void stem(const struct ofs_fsdp_files *f, uint32_t file, char *name,
    size_t size)
{
	uint32_t rank;
	enum kind kind = kind_of(f, file, &rank);

	if (kind == EXTRA)
		snprintf(name, size, "extra");
	else
		snprintf(name, size, "%s_rank%u",
		    kind == MODEL ? "model" : "optim", rank);
}

static void file_name(const struct ofs_files *files, uint32_t file,
    char name[OFS_FILE_NAME])
{
	const struct ofs_fsdp_files *f = fsdp_files(files);
	uint32_t rank;

	if (kind_of(f, file, &rank) == UNITS) {
		snprintf(name, OFS_FILE_NAME, OFS_UNITS_FILE);
		return;
	}
	stem(f, file, name, OFS_FILE_NAME - 3);
	strcat(name, ".pt");
}

/* The tensor of the first parameter that has one. */
static const struct ofs_tensor *some_tensor(const struct ofs_fsdp_files *f,
    const struct ofs_fsdp_new_unit *u, ofs_fsdp_new_entry_fn *entry,
    const char *name)
{
	uint32_t i = u->param;

	while (entry(f, i, name) == OFS_NONE)
		i++;
	return ofs_flat_tensor(&f->m, entry(f, i, name));
}

int ofs_fsdp_new_flat(const struct ofs_fsdp_files *f, uint32_t unit,
    uint32_t rank, ofs_fsdp_new_entry_fn *entry, const char *name,
    uint64_t fill, struct ofs_torch_new *a, struct optimfs_error *err)
{
	const struct ofs_fsdp_new_unit *u = &f->unit[unit];
	const struct ofs_tensor *t = some_tensor(f, u, entry, name);
	uint32_t shard = ofs_fsdp_new_shard(f, rank);
	uint64_t held = ofs_flat_held(&u->flat, shard);
	struct ofs_flat_storage x = { .a = a, .cat = f->m.cat };

	x.item = (uint32_t)ofs_dtype_size(ofs_render_dtype(&f->m.to, t));
	if (ofs_torch_new_storage(a, err) == -1)
		return -1;
	for (uint32_t i = 0; i < u->nparams; i++) {
		struct ofs_flat_slice s = ofs_flat_slice(&u->flat, i, shard);
		uint32_t e = entry(f, u->param + i, name);

		if (ofs_flat_put(&x, &s,
			e == OFS_NONE ? OFS_NONE : f->m.cat->entries[e].ref,
			OFS_DTYPE_NONE, fill, err) == -1)
			return -1;
	}
	/* the rest of the shard is zeros */
	if (ofs_flat_pad(&x, held, fill, err) == -1)
		return -1;
	return ofs_flat_pad(&x, u->flat.shard, 0, err);
}

static int build(void *ctx, uint32_t file, struct ofs_torch_new *a,
    struct ofs_buf *pickle, struct optimfs_error *err)
{
	const struct ofs_fsdp_files *f = ctx;
	uint32_t rank;
	enum kind kind = kind_of(f, file, &rank);
	char name[24];

	stem(f, file, name, sizeof(name));
	snprintf(a->prefix, sizeof(a->prefix), "%s/", name);
	return kind == MODEL ? ofs_fsdp_new_model(f, rank, a, pickle, err)
			     : ofs_fsdp_new_optim(f, rank, a, pickle, err);
}

static int spans(const struct ofs_files *files, uint32_t file,
    struct ofs_spans *out, struct optimfs_error *err)
{
	struct ofs_fsdp_files *f = fsdp_files(files);
	uint32_t rank;
	enum kind kind = kind_of(f, file, &rank);

	if (kind == UNITS)
		return ofs_spans_add_bytes(out, f->text.len, 0, err);
	if (kind == EXTRA)
		return ofs_torch_new_spans(&f->extra, out, err);
	return ofs_torch_cache_spans(&f->archives, file, out, err);
}

static int make(const struct ofs_files *files, uint32_t file,
    const struct ofs_span *span, uint64_t at, struct ofs_composition *c,
    struct optimfs_error *err)
{
	struct ofs_fsdp_files *f = fsdp_files(files);
	uint32_t rank;
	enum kind kind = kind_of(f, file, &rank);

	if (kind == UNITS)
		return ofs_composition_bytes(c, f->text.data + span->ref,
		    span->end - at, err);
	if (kind == EXTRA)
		return ofs_torch_new_make(&f->extra, f->m.cat, span, at, c,
		    err);
	return ofs_torch_cache_make(&f->archives, f->m.cat, file, span, at, c,
	    err);
}

static void files_free(struct ofs_files *files)
{
	struct ofs_fsdp_files *f = fsdp_files(files);

	for (uint32_t i = 0; f->unit != NULL && i < f->units.n; i++)
		ofs_flat_fini(&f->unit[i].flat);
	free(f->unit);
	free(f->id);
	free(f->by_id);
	free(f->model);
	free(f->model_param);
	ofs_flat_model_fini(&f->m);
	ofs_units_fini(&f->units);
	ofs_torch_new_fini(&f->extra);
	ofs_buf_fini(&f->text);
	ofs_torch_cache_fini(&f->archives);
	free(f);
}

static int lay(struct ofs_files *files, const struct ofs_render *from,
    const struct ofs_layout *to, struct optimfs_error *err)
{
	struct ofs_fsdp_files *f = fsdp_files(files);
	int extra;

	f->m = (struct ofs_flat_model){
		.from = *from, .cat = from->cat, .to = *to, .code = "OFS171"
	};
	f->world = to->shards * to->replicas;
	f->whole = to->shards == 1;
	ofs_torch_cache_init(&f->archives, to, build, f);
	if (ofs_fsdp_new_plan(f, err) == -1)
		return -1;
	/* what is neither model nor optimizer, as in the view torch */
	extra = ofs_state_archive(&f->extra, from, to, "extra", err);
	f->has_extra = extra == 1;
	if (extra == -1 || ofs_fsdp_new_units(f, err) == -1)
		return -1;
	f->files.n = (f->nmodel > 0 ? f->world : 0) +
	    (f->m.has_optim ? f->world : 0) + f->has_extra + 1;
	return 0;
}

const struct ofs_files_ops ofs_fsdp_render = {
	.size = sizeof(struct ofs_fsdp_files),
	.lay = lay,
	.name = file_name,
	.spans = spans,
	.make = make,
	.free = files_free,
};
