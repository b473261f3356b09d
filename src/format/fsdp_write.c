/* fsdp_write.c - a checkpoint as FSDP1's rank files, flattened anew */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "format/fsdp_write.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cast.h"
#include "format/format.h"

#define SLICE (64u << 10)

/* Files, in this order: one a rank of the model, of the optimizer, what is
 * neither, the units. */
enum kind { MODEL, OPTIM, EXTRA, UNITS };

static enum kind kind_of(const struct ofs_fsdp_files *f, uint32_t file,
    uint32_t *rank)
{
	uint32_t models = f->nmodel > 0 ? f->world : 0;
	uint32_t optims = f->has_optim ? f->world : 0;

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

int ofs_fsdp_new_flat(const struct ofs_fsdp_files *f, uint32_t unit,
    uint32_t rank, ofs_fsdp_new_entry_fn *entry, const char *name,
    uint64_t fill, struct ofs_torch_new *a, struct optimfs_error *err)
{
	const struct ofs_fsdp_new_unit *u = &f->unit[unit];
	const struct ofs_tensor *t =
	    ofs_fsdp_new_tensor(f, entry(f, u->param, name));
	uint32_t shard = ofs_fsdp_new_shard(f, rank);
	struct ofs_torch_part pad = { .tensor = OFS_NONE, .first = fill };
	uint64_t at = 0, held = ofs_flat_held(&u->flat, shard);

	pad.item = (uint32_t)ofs_dtype_size(ofs_render_dtype(&f->to, t));
	if (ofs_torch_new_storage(a, err) == -1)
		return -1;
	for (uint32_t i = 0; i < u->nparams; i++) {
		struct ofs_flat_slice s = ofs_flat_slice(&u->flat, i, shard);
		struct ofs_torch_part part = { .first = s.first,
			.count = s.count };

		if (s.count == 0)
			continue;
		pad.count = s.at - at;
		part.tensor = f->cat->entries[entry(f, u->param + i, name)].ref;
		if (ofs_torch_new_part(a, f->cat, &pad, err) == -1 ||
		    ofs_torch_new_part(a, f->cat, &part, err) == -1)
			return -1;
		at = s.at + s.count;
	}
	pad.count = held - at;
	if (ofs_torch_new_part(a, f->cat, &pad, err) == -1)
		return -1;
	/* beyond the flat parameter there are zeros */
	pad.count = u->flat.shard - held;
	pad.first = 0;
	return ofs_torch_new_part(a, f->cat, &pad, err);
}

/* Archives. */

static void archive_free(struct ofs_fsdp_archive *x)
{
	if (x != NULL)
		ofs_torch_new_fini(&x->a);
	free(x);
}

static struct ofs_fsdp_archive *build(struct ofs_fsdp_files *f, uint32_t file,
    struct optimfs_error *err)
{
	struct ofs_fsdp_archive *x = calloc(1, sizeof(*x));
	struct ofs_buf pickle = { 0 };
	uint32_t rank;
	enum kind kind = kind_of(f, file, &rank);
	char name[24];
	int ret;

	if (x == NULL) {
		optimfs_fail(err, ENOMEM, "a file of a view");
		return NULL;
	}
	x->file = file;
	x->refs = 1;
	stem(f, file, name, sizeof(name));
	snprintf(x->a.prefix, sizeof(x->a.prefix), "%s/", name);
	x->a.crc = f->to.crc;
	x->a.cast = f->to.dtype;
	if (kind == MODEL)
		ret = ofs_fsdp_new_model(f, rank, &x->a, &pickle, err);
	else
		ret = ofs_fsdp_new_optim(f, rank, &x->a, &pickle, err);
	if (ret == 0)
		ret = ofs_torch_new_lay(&x->a, &pickle, err);
	ofs_buf_fini(&pickle);
	if (ret == 0)
		return x;
	archive_free(x);
	return NULL;
}

/* Put x where there is room, or where nobody looks at what was not used for
 * longest; what has no place is its user's alone. */
static void keep(struct ofs_fsdp_files *f, struct ofs_fsdp_archive *x)
{
	struct ofs_fsdp_archive **best = NULL;

	for (unsigned i = 0; i < OFS_FSDP_CACHED; i++) {
		struct ofs_fsdp_archive **slot = &f->cached[i];

		if (*slot == NULL) {
			best = slot;
			break;
		}
		if ((*slot)->refs == 0 &&
		    (best == NULL || (*slot)->used < (*best)->used))
			best = slot;
	}
	if (best == NULL)
		return;
	archive_free(*best);
	*best = x;
}

static struct ofs_fsdp_archive *acquire(struct ofs_fsdp_files *f, uint32_t file,
    struct optimfs_error *err)
{
	struct ofs_fsdp_archive *x = NULL;

	pthread_mutex_lock(&f->lock);
	for (unsigned i = 0; i < OFS_FSDP_CACHED && x == NULL; i++)
		if (f->cached[i] != NULL && f->cached[i]->file == file)
			x = f->cached[i];
	if (x != NULL)
		x->refs++;
	pthread_mutex_unlock(&f->lock);
	if (x != NULL)
		return x;
	x = build(f, file, err);
	if (x == NULL)
		return NULL;
	pthread_mutex_lock(&f->lock);
	keep(f, x);
	pthread_mutex_unlock(&f->lock);
	return x;
}

static void release(struct ofs_fsdp_files *f, struct ofs_fsdp_archive *x)
{
	bool kept = false;

	pthread_mutex_lock(&f->lock);
	x->refs--;
	x->used = ++f->clock;
	for (unsigned i = 0; i < OFS_FSDP_CACHED; i++)
		kept = kept || f->cached[i] == x;
	pthread_mutex_unlock(&f->lock);
	if (!kept)
		archive_free(x);
}

static int text_spans(const struct ofs_buf *text, struct ofs_spans *out,
    struct optimfs_error *err)
{
	for (uint64_t i = 0; i < text->len; i += SLICE)
		if (ofs_spans_add(out,
			text->len - i < SLICE ? text->len - i : SLICE, i, 0,
			err) == -1)
			return -1;
	return 0;
}

static int spans(const struct ofs_files *files, uint32_t file,
    struct ofs_spans *out, struct optimfs_error *err)
{
	struct ofs_fsdp_files *f = fsdp_files(files);
	struct ofs_fsdp_archive *x;
	uint32_t rank;
	enum kind kind = kind_of(f, file, &rank);
	int ret;

	if (kind == UNITS)
		return text_spans(&f->text, out, err);
	if (kind == EXTRA)
		return ofs_torch_new_spans(&f->extra, out, err);
	x = acquire(f, file, err);
	if (x == NULL)
		return -1;
	ret = ofs_torch_new_spans(&x->a, out, err);
	release(f, x);
	return ret;
}

static int make(const struct ofs_files *files, uint32_t file,
    const struct ofs_span *span, uint64_t at, struct ofs_composition *c,
    struct optimfs_error *err)
{
	struct ofs_fsdp_files *f = fsdp_files(files);
	struct ofs_fsdp_archive *x;
	uint32_t rank;
	enum kind kind = kind_of(f, file, &rank);
	int ret;

	if (kind == UNITS)
		return ofs_composition_bytes(c, f->text.data + span->ref,
		    span->end - at, err);
	if (kind == EXTRA)
		return ofs_torch_new_make(&f->extra, f->cat, span, at, c, err);
	x = acquire(f, file, err);
	if (x == NULL)
		return -1;
	ret = ofs_torch_new_make(&x->a, f->cat, span, at, c, err);
	release(f, x);
	return ret;
}

static void files_free(struct ofs_files *files)
{
	struct ofs_fsdp_files *f = fsdp_files(files);

	for (unsigned i = 0; i < OFS_FSDP_CACHED; i++)
		archive_free(f->cached[i]);
	for (uint32_t i = 0; f->unit != NULL && i < f->units.n; i++)
		ofs_flat_fini(&f->unit[i].flat);
	free(f->unit);
	free(f->param);
	free(f->state);
	free(f->id);
	free(f->by_id);
	free(f->model);
	free(f->model_param);
	ofs_map_fini(&f->names);
	if (f->has_optim)
		ofs_groups_fini(&f->groups);
	ofs_state_fini(&f->optim);
	ofs_units_fini(&f->units);
	ofs_torch_new_fini(&f->extra);
	ofs_buf_fini(&f->text);
	pthread_mutex_destroy(&f->lock);
	free(f);
}

static const struct ofs_files_ops ops = {
	.name = file_name,
	.spans = spans,
	.make = make,
	.free = files_free,
};

/* What is neither model nor optimizer: as in the view torch. */
static int add_extra(struct ofs_fsdp_files *f, struct optimfs_error *err)
{
	struct ofs_state state;
	struct ofs_buf pickle = { 0 };
	int ret;

	if (ofs_state_build(&state, &f->from, &f->to, "extra", err) == -1)
		return -1;
	f->has_extra = state.n > 1;
	snprintf(f->extra.prefix, sizeof(f->extra.prefix), "extra/");
	f->extra.crc = f->to.crc;
	f->extra.cast = f->to.dtype;
	ret =
	    ofs_state_pickle(&state, &f->from, &f->to, &pickle, &f->extra, err);
	if (ret == 0)
		ret = ofs_torch_new_lay(&f->extra, &pickle, err);
	ofs_buf_fini(&pickle);
	ofs_state_fini(&state);
	return ret;
}

static int render(const struct ofs_render *from, const struct ofs_layout *to,
    struct ofs_files **out, struct optimfs_error *err)
{
	struct ofs_fsdp_files *f = calloc(1, sizeof(*f));

	if (f == NULL)
		return optimfs_fail(err, ENOMEM, "a view");
	f->files.ops = &ops;
	f->from = *from;
	f->cat = from->cat;
	f->to = *to;
	f->world = to->shards * to->replicas;
	f->whole = to->shards == 1;
	pthread_mutex_init(&f->lock, NULL);
	if (ofs_fsdp_new_plan(f, err) == -1 || add_extra(f, err) == -1 ||
	    ofs_fsdp_new_units(f, err) == -1) {
		files_free(&f->files);
		return -1;
	}
	f->files.n = (f->nmodel > 0 ? f->world : 0) +
	    (f->has_optim ? f->world : 0) + f->has_extra + 1;
	*out = &f->files;
	return 0;
}

const struct ofs_format ofs_format_fsdp = {
	.name = "fsdp",
	.render = render,
};
