/* trainers.c - directories that trainers write around their state */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/search.h"
#include "detect/detect.h"
#include "detect/registry.h"
#include "format/jobs.h"
#include "format/probe.h"

/* docs/formats/trainers.md says where these names come from. */

/* A rule for a file or directory name, in which "#" stands for a number. Files
 * without a rule become parts under their own names (src/detect/detect.c). */
struct rule {
	const char *pattern;
	const char *prefix; /* NULL: the name without its extension */
	enum { ANY_FILE, RAW_FILE, DIRECTORY } kind;
	bool bare; /* no prefix (when the number is 0): the keys suffice */
	bool rank; /* the number is a rank */
};

struct layout {
	const char *trainer;
	/* One of these must exist; a name with "/" at the end is a
	 * directory. */
	const char *sign[6];
	struct rule rule[8];
};

static const struct layout layouts[] = {
	{
	    .trainer = "Hugging Face Trainer",
	    .sign = { "trainer_state.json" },
	    .rule = {
		{ .pattern = "pytorch_model_fsdp_#", .kind = DIRECTORY,
		    .bare = true },
		{ .pattern = "optimizer_#", .kind = DIRECTORY, .bare = true },
		{ .pattern = "rng_state_#.pth", .rank = true },
		{ .pattern = "trainer_state.json",
		    .prefix = "trainer_state.json", .kind = RAW_FILE },
		{ .pattern = "config.json", .prefix = "config.json",
		    .kind = RAW_FILE },
		{ .pattern = "adapter_config.json",
		    .prefix = "adapter_config.json", .kind = RAW_FILE },
	    },
	},
	{
	    .trainer = "Accelerate",
	    .sign = { "pytorch_model_fsdp_#/", "optimizer_#/",
		"pytorch_model_fsdp.bin", "random_states_#.pkl" },
	    .rule = {
		{ .pattern = "pytorch_model_fsdp_#", .kind = DIRECTORY,
		    .bare = true },
		{ .pattern = "optimizer_#", .kind = DIRECTORY, .bare = true },
		{ .pattern = "random_states_#.pkl", .rank = true },
	    },
	},
	{
	    .trainer = "NeMo",
	    .sign = { "context/" },
	    .rule = {
		{ .pattern = "weights", .kind = DIRECTORY, .bare = true },
		{ .pattern = "weights/common.pt",
		    .prefix = "common_state" },
		{ .pattern = "context/model.yaml", .prefix = "model.yaml",
		    .kind = RAW_FILE },
	    },
	},
	{
	    .trainer = "NeMo RL",
	    .sign = { "training_info.json" },
	    .rule = {
		{ .pattern = "policy/weights", .kind = DIRECTORY,
		    .bare = true },
		{ .pattern = "policy/weights/model", .prefix = "model",
		    .kind = DIRECTORY },
		{ .pattern = "policy/optimizer", .kind = DIRECTORY,
		    .bare = true },
		{ .pattern = "policy/optimizer/optim", .kind = DIRECTORY,
		    .bare = true },
		{ .pattern = "training_info.json",
		    .prefix = "training_info.json", .kind = RAW_FILE },
	    },
	},
	{
	    .trainer = "torchtune",
	    .sign = { "recipe_state.pt" },
	    .rule = {
		{ .pattern = "recipe_state.pt", .bare = true },
	    },
	},
};

/* Does a name match sign? */
static bool has_sign(const struct ofs_dir *dir, const struct ofs_names *names,
    const char *sign)
{
	char pattern[64];
	size_t n = strlen(sign);
	bool want_dir = n > 0 && sign[n - 1] == '/';
	int number;

	snprintf(pattern, sizeof(pattern), "%.*s", (int)(n - want_dir), sign);
	for (size_t i = 0; i < names->n; i++)
		if (ofs_probe_match(names->name[i], pattern, &number) &&
		    (want_dir ? ofs_probe_is_dir(dir, names->name[i])
			      : ofs_probe_is_file(dir, names->name[i])))
			return true;
	return false;
}

/* The first sign of l that exists, or NULL. */
static const char *find_sign(const struct ofs_dir *dir,
    const struct ofs_names *names, const struct layout *l)
{
	for (int i = 0; i < 6 && l->sign[i] != NULL; i++)
		if (has_sign(dir, names, l->sign[i]))
			return l->sign[i];
	return NULL;
}

/* Add rel as the rule says. 0 also if the rule does not apply to it. */
static int apply(const struct ofs_dir *dir, const char *rel,
    const struct rule *rule, int number, struct ofs_parts *parts,
    struct optimfs_error *err)
{
	struct ofs_part_spec spec = {
		.rel = rel,
		.rank = rule->rank ? number : -1,
		.optional = rule->kind != DIRECTORY,
	};
	struct optimfs_error why = { 0 };
	const char *dot;
	char *stem;
	int ret;

	if (rule->kind == DIRECTORY) {
		ret = ofs_detect_sub(dir, rel, &spec.format, err);
		if (ret != 1)
			return ret;
	} else if (!ofs_probe_is_file(dir, rel)) {
		return 0;
	} else if (rule->kind == RAW_FILE) {
		spec.format = ofs_format_find("raw");
	} else {
		spec.format = ofs_detect_file(dir, rel, &why);
		if (why.code != 0)
			return optimfs_fail_with(err, &why);
		if (spec.format == NULL)
			return 0;
	}
	if (rule->bare && number <= 0)
		return ofs_parts_add(parts, &spec, err);
	dot = strrchr(rel, '.');
	stem = rule->prefix != NULL ? strdup(rule->prefix)
	    : dot == NULL           ? strdup(rel)
				    : strndup(rel, (size_t)(dot - rel));
	if (stem == NULL)
		return ofs_no_memory(err);
	spec.prefix[0] = stem;
	ret = ofs_parts_add(parts, &spec, err);
	free(stem);
	return ret;
}

static int apply_layout(const struct ofs_dir *dir,
    const struct ofs_names *names, const struct layout *l,
    struct ofs_parts *parts, struct optimfs_error *err)
{
	int number;

	for (const struct rule *r = l->rule; r->pattern != NULL; r++) {
		if (strchr(r->pattern, '/') != NULL) {
			if (apply(dir, r->pattern, r, -1, parts, err) == -1)
				return -1;
			continue;
		}
		for (size_t i = 0; i < names->n; i++)
			if (ofs_probe_match(names->name[i], r->pattern,
				&number) &&
			    apply(dir, names->name[i], r, number, parts, err) ==
				-1)
				return -1;
	}
	return parts->n > 0;
}

/* A save by fewer ranks leaves the files of the others: those of the highest
 * ranks, older than all else of the save. Where a copy has changed the times,
 * that is true of none, or of other ranks. */

/* When the files of a part were last changed; of a directory, its index. */
static int64_t part_time(const struct ofs_dir *dir, const struct ofs_part *p)
{
	char *index;
	int64_t ns;

	if (ofs_probe_is_file(dir, p->rel))
		return ofs_jobs_mtime(dir, p->rel);
	if (asprintf(&index, "%s/.metadata", p->rel) == -1)
		return 0;
	ns = ofs_jobs_mtime(dir, index);
	free(index);
	return ns;
}

/* The first time of the parts that are of no rank; 0: unknown. */
static int64_t first_time(const struct ofs_dir *dir,
    const struct ofs_parts *parts)
{
	int64_t first = 0, ns;

	for (size_t i = 0; i < parts->n; i++) {
		if (parts->part[i].rank != -1)
			continue;
		ns = part_time(dir, &parts->part[i]);
		if (ns == 0)
			return 0;
		if (first == 0 || ns < first)
			first = ns;
	}
	return first;
}

static int leave_ranks(const struct ofs_dir *dir, struct ofs_parts *parts,
    struct optimfs_error *err)
{
	int64_t first = first_time(dir, parts);
	int last = -1;

	for (size_t i = 0; i < parts->n; i++)
		if (parts->part[i].rank > last &&
		    part_time(dir, &parts->part[i]) >= first)
			last = parts->part[i].rank;
	for (size_t i = 0; i < parts->n && last != -1;) {
		const struct ofs_part *p = &parts->part[i];

		if (p->rank <= last) {
			i++;
			continue;
		}
		if (ofs_parts_note(parts, err,
			"OFS181 %.200s is left out: it is older than the model, "
			"so that it is left from a job of more ranks",
			p->rel) == -1 ||
		    ofs_parts_drop(parts, i, OFS_LEFT_OLDER,
			"of a job of more ranks", err) == -1)
			return -1;
	}
	return 0;
}

/* The name of a directory proves little: its contents must match as well. */
static int try_layout(const struct ofs_dir *dir, const struct ofs_names *names,
    const struct layout *l, struct ofs_parts *parts, struct optimfs_error *err)
{
	const char *sign = find_sign(dir, names, l);
	int ret;

	if (sign == NULL)
		return 0;
	ret = apply_layout(dir, names, l, parts, err);
	if (ret == 1 && leave_ranks(dir, parts, err) == -1)
		return -1;
	if (ret == 1 || (ret == 0 && strchr(sign, '/') == NULL))
		parts->trainer = l->trainer;
	return ret;
}

/* OLMo and OLMo-core: model_and_optim/ beside train/rankN.pt. */

static int add_train_ranks(const struct ofs_dir *dir, struct ofs_parts *parts,
    struct optimfs_error *err)
{
	struct ofs_names names;
	int ret = ofs_probe_names(dir, "train", &names, err), rank;

	if (ret != 1)
		return ret;
	ret = 0;
	for (size_t i = 0; i < names.n && ret == 0; i++) {
		char stem[32], rel[64];
		struct ofs_part_spec spec = {
			.rel = rel,
			.format = ofs_format_find("torch"),
			.prefix = { "train", stem },
			.optional = true,
		};

		if (!ofs_probe_match(names.name[i], "rank#.pt", &rank))
			continue;
		snprintf(stem, sizeof(stem), "rank%d", rank);
		snprintf(rel, sizeof(rel), "train/%.40s", names.name[i]);
		spec.rank = rank;
		ret = ofs_parts_add(parts, &spec, err);
	}
	ofs_names_free(&names);
	return ret;
}

static int add_raw(const struct ofs_dir *dir, const char *name,
    struct ofs_parts *parts, struct optimfs_error *err)
{
	return ofs_detect_lone(dir, name, "raw", name, parts, err);
}

/* OLMo's local checkpoints: model/rankN.pt and optim/rankN.pt have the flat
 * parameters of FSDP with their descriptions. */

OFS_COMPARE_BY(by_rank, struct ofs_part_file, rank)

static int add_ranks_of(const char *sub, const struct ofs_names *names,
    struct ofs_parts *parts, struct optimfs_error *err)
{
	struct ofs_part_file *file = calloc(names->n + 1, sizeof(*file));
	struct ofs_part_spec spec = { .format = ofs_format_find("torch"),
		.file = file,
		.prefix = { sub } };
	int ret = 0, rank;

	for (size_t i = 0; file != NULL && ret == 0 && i < names->n; i++) {
		if (!ofs_probe_match(names->name[i], "rank#.pt", &rank))
			continue;
		file[spec.nfiles].rank = rank;
		ret = asprintf(&file[spec.nfiles].rel, "%s/%s", sub,
			  names->name[i]) == -1
		    ? -1
		    : 0;
		spec.nfiles += ret == 0;
	}
	if (file == NULL || ret == -1) {
		ret = ofs_no_memory(err);
	} else if (spec.nfiles > 0) {
		qsort(file, spec.nfiles, sizeof(*file), by_rank);
		spec.rel = file[0].rel;
		spec.rank = file[0].rank;
		ret = ofs_parts_add(parts, &spec, err);
	}
	while (spec.nfiles > 0)
		free(file[--spec.nfiles].rel);
	free(file);
	return ret;
}

static int add_rank_dir(const struct ofs_dir *dir, const char *sub,
    struct ofs_parts *parts, struct optimfs_error *err)
{
	struct ofs_names names;
	int ret = ofs_probe_names(dir, sub, &names, err);

	if (ret != 1)
		return ret;
	ret = add_ranks_of(sub, &names, parts, err);
	ofs_names_free(&names);
	return ret;
}

static int olmo_local(const struct ofs_dir *dir, const struct ofs_names *names,
    struct ofs_parts *parts, struct optimfs_error *err)
{
	size_t n = parts->n;

	if (!ofs_probe_has(names, "model") ||
	    !ofs_probe_has(names, "metadata.yaml"))
		return 0;
	if (add_rank_dir(dir, "model", parts, err) == -1)
		return -1;
	if (parts->n == n)
		return 0;
	parts->trainer = "OLMo";
	if (add_rank_dir(dir, "optim", parts, err) == -1 ||
	    add_train_ranks(dir, parts, err) == -1 ||
	    add_raw(dir, "metadata.yaml", parts, err) == -1 ||
	    add_raw(dir, "config.yaml", parts, err) == -1)
		return -1;
	return 1;
}

static int olmo(const struct ofs_dir *dir, const struct ofs_names *names,
    struct ofs_parts *parts, struct optimfs_error *err)
{
	struct ofs_part_spec spec = { .rel = "model_and_optim", .rank = -1 };
	int ret;

	if (!ofs_probe_has(names, "model_and_optim"))
		return 0;
	ret = ofs_detect_sub(dir, spec.rel, &spec.format, err);
	if (ret != 1)
		return ret;
	parts->trainer =
	    ofs_probe_has(names, ".metadata.json") ? "OLMo-core" : "OLMo";
	if (ofs_parts_add(parts, &spec, err) == -1 ||
	    add_train_ranks(dir, parts, err) == -1 ||
	    add_raw(dir, ".metadata.json", parts, err) == -1 ||
	    add_raw(dir, "config.json", parts, err) == -1 ||
	    add_raw(dir, "config.yaml", parts, err) == -1)
		return -1;
	return 1;
}

/* Checkpoints that are a whole directory. */

/* The trainer whose directories have such a name; NULL: none. */
static const char *trainer_of_name(const char *path)
{
	const char *name = ofs_path_last(path);
	const char *batch = strstr(name, "-ba");
	int number;

	if (ofs_probe_match(name, "step-#", &number))
		return "torchtitan";
	if (strncmp(name, "ep", 2) == 0 && batch != NULL &&
	    ofs_probe_match(batch, "-ba#", &number))
		return "Composer";
	return NULL;
}

/* A DCP checkpoint with Lightning's own state in meta.pt. Other files may be
 * beside it. */
static int lightning(const struct ofs_dir *dir, const struct ofs_names *names,
    struct ofs_parts *parts, struct optimfs_error *err)
{
	const struct ofs_format *dcp = ofs_format_find("dcp");

	if (!ofs_probe_has(names, "meta.pt") || dcp->bid(dir, names, err) <= 0)
		return 0;
	parts->trainer = "Lightning";
	if (ofs_detect_add(dir, dcp, parts, err) == -1 ||
	    ofs_detect_lone(dir, "meta.pt", "torch", NULL, parts, err) == -1)
		return -1;
	return 1;
}

/* A directory that is a whole checkpoint. */
static int whole(const struct ofs_dir *dir, const struct ofs_names *names,
    struct ofs_parts *parts, struct optimfs_error *err)
{
	const struct ofs_format *format;
	int ret = ofs_detect_dir(dir, names, &format, err);

	if (ret != 1)
		return ret;
	parts->trainer = trainer_of_name(dir->path);
	return ofs_detect_add(dir, format, parts, err) == -1 ? -1 : 1;
}

/* A directory with a file that names the latest checkpoint in it. */
static int latest(const struct ofs_dir *dir, const struct ofs_names *names,
    struct ofs_parts *parts, struct optimfs_error *err)
{
	const struct ofs_format *f;
	int ret = 0;

	for (size_t i = 0; ret == 0 && (f = ofs_format_at(i)) != NULL; i++)
		ret = ofs_detect_latest(dir, names, f, parts, err);
	return ret;
}

/* The files that a trainer put next to such a directory. */
static int beside_latest(const struct ofs_dir *dir,
    const struct ofs_names *names, struct ofs_parts *parts,
    struct optimfs_error *err)
{
	for (size_t i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++) {
		if (find_sign(dir, names, &layouts[i]) == NULL)
			continue;
		parts->trainer = layouts[i].trainer;
		return apply_layout(dir, names, &layouts[i], parts, err);
	}
	return 1;
}

int ofs_detect_trainer(const struct ofs_dir *dir, const struct ofs_names *names,
    struct ofs_parts *parts, struct optimfs_error *err)
{
	int ret = ofs_detect_verl(dir, names, parts, err);

	if (ret == 0)
		ret = ofs_detect_torch_checkpointing(dir, names, parts, err);
	if (ret == 0)
		ret = lightning(dir, names, parts, err);
	if (ret == 0)
		ret = whole(dir, names, parts, err);
	if (ret == 0) {
		ret = latest(dir, names, parts, err);
		if (ret == 1)
			return beside_latest(dir, names, parts, err);
	}
	if (ret == 0)
		ret = olmo(dir, names, parts, err);
	if (ret == 0)
		ret = olmo_local(dir, names, parts, err);
	for (size_t i = 0; ret == 0 && i < sizeof(layouts) / sizeof(layouts[0]);
	     i++)
		ret = try_layout(dir, names, &layouts[i], parts, err);
	if (ret == 0 && parts->n == 0)
		ret = ofs_detect_members(dir, names, parts, err);
	return ret;
}
