/* copies.c - one model in several forms, of which one is read */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "detect/detect.h"
#include "format/jobs.h"
#include "format/probe.h"

/* Programs keep the same weights in several forms: as they are sharded for
 * training, merged, in the format before. Each says that it is the model, and
 * only one is what is loaded: the form of the lowest order in this table. The
 * others are left out, with a warning, because nothing proves that they are
 * equal. docs/formats/trainers.md, "Copies" */

#define INDEX_MAX (UINT64_C(64) << 20)

#define TRAINER "the trainer"
#define HUB     "from_pretrained"

static const struct form {
	const char *pattern; /* of the last component of the path */
	enum ofs_role role;
	int order;
	const char *loader;
} forms[] = {
	{ "pytorch_model_fsdp_#", OFS_ROLE_MODEL, 10, TRAINER },
	{ "pytorch_model_fsdp.bin", OFS_ROLE_MODEL, 11, TRAINER },
	{ "model.safetensors", OFS_ROLE_MODEL, 20, HUB },
	{ "model-#-of-#.safetensors", OFS_ROLE_MODEL, 21, HUB },
	{ "model-#.safetensors", OFS_ROLE_MODEL, 21, HUB },
	{ "model.safetensors.index.json", OFS_ROLE_MODEL, 21, HUB },
	{ "pytorch_model.bin", OFS_ROLE_MODEL, 22, HUB },
	{ "pytorch_model-#-of-#.bin", OFS_ROLE_MODEL, 23, HUB },
	{ "pytorch_model-#.bin", OFS_ROLE_MODEL, 23, HUB },
	{ "pytorch_model.bin.index.json", OFS_ROLE_MODEL, 23, HUB },
	{ "consolidated.safetensors", OFS_ROLE_MODEL, 24, "Mistral" },
	{ "optimizer_#", OFS_ROLE_OPTIM, 10, TRAINER },
	{ "optimizer.bin", OFS_ROLE_OPTIM, 11, TRAINER },
	{ "optimizer.pt", OFS_ROLE_OPTIM, 12, TRAINER },
	{ "adapter_model.safetensors", OFS_ROLE_ADAPTER, 20, HUB },
	{ "adapter_model.bin", OFS_ROLE_ADAPTER, 21, HUB },
	{ "adapter_model.pt", OFS_ROLE_ADAPTER, 22, HUB },
};
/* The trainer's own state, in a format of its own or one file a rank, comes
 * before what was merged from it. Other files that say they are the model only
 * differ in their extension. */
#define WHOLE_ORDER 5
#define RANKS_ORDER 15
#define OTHER_ORDER 30
static const char *const extensions[] = { ".safetensors", ".bin", ".pt", ".pth",
	".ckpt", ".tar", ".pyth", ".th", ".pkl", ".pickle", ".npz" };

/* Does the part have no prefix, or only that of the role? Then its entries are
 * those of the model, or of the optimizer. */
static bool has_prefix(const struct ofs_part *p, enum ofs_role role)
{
	const char *first = p->prefix[0];

	if (first == NULL)
		return true;
	if (p->prefix[1] != NULL)
		return false;
	return role == OFS_ROLE_OPTIM
	    ? strcmp(first, "optim") == 0 || strcmp(first, "optimizer") == 0
	    : strcmp(first, "model") == 0;
}

static int order_of_extension(const char *name)
{
	const char *dot = strrchr(name, '.');
	size_t n = sizeof(extensions) / sizeof(extensions[0]), i = 0;

	while (i < n && (dot == NULL || strcmp(dot, extensions[i]) != 0))
		i++;
	return OTHER_ORDER + (int)i;
}

/* The order of a part among those of one role; -1: it has another role. *loader
 * gets what loads this form. */
static int order_of(const struct ofs_part *p, enum ofs_role role,
    const char **loader)
{
	const char *name = ofs_path_last(p->rel);
	int number[2];

	*loader = TRAINER;
	if (p->format->has_weights)
		return role == OFS_ROLE_ADAPTER ? -1 : WHOLE_ORDER;
	if (!has_prefix(p, role))
		return -1;
	for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
		if (ofs_probe_numbers(name, forms[i].pattern, number, 2) == -1)
			continue;
		*loader = forms[i].loader;
		return forms[i].role == role ? forms[i].order : -1;
	}
	if (role == OFS_ROLE_ADAPTER || p->prefix[0] == NULL)
		return -1;
	return p->nfiles > 0 ? RANKS_ORDER : order_of_extension(name);
}

static bool has_order(const struct ofs_parts *parts, enum ofs_role role,
    int order)
{
	const char *loader;

	for (size_t i = 0; i < parts->n; i++)
		if (order_of(&parts->part[i], role, &loader) == order)
			return true;
	return false;
}

bool ofs_detect_has_role(const struct ofs_parts *parts, enum ofs_role role)
{
	const char *loader;

	for (size_t i = 0; i < parts->n; i++)
		if (order_of(&parts->part[i], role, &loader) != -1)
			return true;
	return false;
}

/* The lowest order of all; -1: no part has this role. Accelerate saves model and
 * optimizer in the same way: where the model is there in both, its optimizer
 * tells which one was the last. */
static int best_order(const struct ofs_parts *parts, enum ofs_role role)
{
	const char *loader;
	int best = -1;

	if (role == OFS_ROLE_MODEL && has_order(parts, role, 11) &&
	    has_order(parts, OFS_ROLE_OPTIM, 11) &&
	    !has_order(parts, OFS_ROLE_OPTIM, 10))
		return 11;
	for (size_t i = 0; i < parts->n; i++) {
		int order = order_of(&parts->part[i], role, &loader);

		if (order != -1 && (best == -1 || order < best))
			best = order;
	}
	return best;
}

/* The first part of this order. */
static const struct ofs_part *part_of(const struct ofs_parts *parts,
    enum ofs_role role, int order, const char **loader)
{
	size_t i = 0;

	while (order_of(&parts->part[i], role, loader) != order)
		i++;
	return &parts->part[i];
}

/* Leaves out the parts of role that are not in the best form, whose first file
 * is rel. */
static int drop_others(struct ofs_parts *parts, enum ofs_role role,
    const char *rel, const char *what, const char *loader,
    struct optimfs_error *err)
{
	int best = best_order(parts, role), told = -1, order;
	const char *other;
	char why[300];

	snprintf(why, sizeof(why), "%.200s has the %s, too", rel, what);
	for (size_t i = 0; i < parts->n;) {
		order = order_of(&parts->part[i], role, &other);
		if (order == -1 || order == best) {
			i++;
			continue;
		}
		if (told != order &&
		    ofs_parts_note(parts, err,
			"OFS685 %.200s is left out: %.200s has the %s, too, "
			"and is what %s loads",
			parts->part[i].rel, rel, what, loader) == -1)
			return -1;
		told = order;
		if (ofs_parts_drop(parts, i, OFS_LEFT_COPY, why, err) == -1)
			return -1;
	}
	return 0;
}

static int settle(struct ofs_parts *parts, enum ofs_role role, const char *what,
    struct optimfs_error *err)
{
	int best = best_order(parts, role), ret;
	const char *loader;
	char *rel;

	if (best == -1)
		return 0;
	rel = strdup(part_of(parts, role, best, &loader)->rel);
	if (rel == NULL)
		return ofs_no_memory(err);
	ret = drop_others(parts, role, rel, what, loader, err);
	free(rel);
	return ret;
}

/* An adapter beside the model that it was made for is another model. */
static int part_adapter(struct ofs_parts *parts, struct optimfs_error *err)
{
	const char *loader;

	if (!ofs_detect_has_role(parts, OFS_ROLE_MODEL))
		return 0;
	for (size_t i = 0; i < parts->n; i++) {
		struct ofs_part *p = &parts->part[i];
		char *own;

		if (order_of(p, OFS_ROLE_ADAPTER, &loader) == -1)
			continue;
		own = strdup("adapter_model");
		if (own == NULL)
			return ofs_no_memory(err);
		free(p->prefix[0]);
		p->prefix[0] = own;
		if (ofs_parts_note(parts, err,
			"OFS685 %.200s is an adapter for the model beside it: "
			"it is shown below extra/, not as the model",
			p->rel) == -1)
			return -1;
	}
	return 0;
}

/* Shards of a model, model-I-of-N: a later save in another number of files does
 * not remove those of the one before it. The index tells which one it is of. */

/* Is part i such a shard? */
static bool is_shard(const struct ofs_part *p, struct ofs_job_file *f)
{
	static const char *const patterns[] = { "model-#-of-#.safetensors",
		"pytorch_model-#-of-#.bin", "model-#-of-#.bin",
		"model-#-of-#.pt" };
	int v[2];

	*f = (struct ofs_job_file){ .rel = p->rel };
	if (p->nfiles > 0)
		return false;
	for (size_t i = 0; i < sizeof(patterns) / sizeof(patterns[0]); i++)
		if (ofs_probe_numbers(ofs_path_last(p->rel), patterns[i], v,
			2) == 2) {
			f->rank = v[0];
			f->world = v[1];
			return true;
		}
	return false;
}

/* *total is the number of files in the index beside rel; 0: none, or it is
 * unclear. */
static int told_files(const struct ofs_dir *dir, const char *rel, int *total,
    struct optimfs_error *err)
{
	char name[300], *of;
	uint8_t *bytes;
	uint64_t n;
	int ret;

	*total = 0;
	snprintf(name, sizeof(name), "%.200s", rel);
	of = strstr(name, "-of-");
	if (of == NULL)
		return 0;
	*strchr(name, '-') = '\0';
	snprintf(name + strlen(name), 60, "%s.index.json", strrchr(rel, '.'));
	ret = ofs_probe_text(dir, name, INDEX_MAX, &bytes, &n, err);
	if (ret != 1)
		return ret;
	of = strstr((char *)bytes, "-of-");
	if (of != NULL)
		*total = atoi(of + 4);
	free(bytes);
	return 0;
}

static int drop_left(struct ofs_parts *parts, const struct ofs_job_file *f,
    size_t n, int world, struct optimfs_error *err)
{
	struct ofs_job_file same;
	char why[80];

	for (size_t k = 0; k < n; k++) {
		if (!f[k].left)
			continue;
		snprintf(why, sizeof(why), "of a save in %d files, not in %d",
		    f[k].world, world);
		if (ofs_parts_note(parts, err,
			"OFS181 %.200s is left out: it is of a save in %d "
			"files, and the others are of one in %d%s",
			f[k].rel, f[k].world, world,
			f[k].later ? OFS_JOB_LATER : "") == -1)
			return -1;
		for (size_t i = 0; i < parts->n; i++)
			if (is_shard(&parts->part[i], &same) &&
			    same.rel == f[k].rel) {
				if (ofs_parts_drop(parts, i,
					f[k].later ? OFS_LEFT_UNFINISHED
						   : OFS_LEFT_OLDER,
					why, err) == -1)
					return -1;
				break; /* f[k].rel is gone */
			}
	}
	return 0;
}

static int settle_shards(const struct ofs_dir *dir, struct ofs_parts *parts,
    struct optimfs_error *err)
{
	struct ofs_job_file *f = calloc(parts->n + 1, sizeof(*f));
	bool zero = false;
	int told = 0, world, ret = 0;
	size_t n = 0;

	if (f == NULL)
		return ofs_no_memory(err);
	for (size_t i = 0; i < parts->n; i++)
		if (is_shard(&parts->part[i], &f[n])) {
			zero = zero || f[n].rank == 0;
			f[n].mtime_ns = ofs_jobs_mtime(dir, f[n].rel);
			n++;
		}
	for (size_t i = 0; i < n; i++)
		f[i].rank -= zero ? 0 : 1;
	if (n > 0)
		ret = told_files(dir, f[0].rel, &told, err);
	if (ret == 0)
		ret = ofs_jobs_judge(f, n, told, &world, err);
	if (ret == 0)
		ret = drop_left(parts, f, n, world, err);
	free(f);
	return ret;
}

int ofs_detect_copies(const struct ofs_dir *dir, struct ofs_parts *parts,
    struct optimfs_error *err)
{
	if (settle(parts, OFS_ROLE_MODEL, "model", err) == -1 ||
	    settle(parts, OFS_ROLE_OPTIM, "optimizer", err) == -1 ||
	    settle(parts, OFS_ROLE_ADAPTER, "adapter", err) == -1)
		return -1;
	if (part_adapter(parts, err) == -1)
		return -1;
	return settle_shards(dir, parts, err);
}
