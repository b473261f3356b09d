/* many.c - directories in which each file is a part */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/str.h"
#include "detect/detect.h"
#include "detect/inventory.h"
#include "detect/registry.h"
#include "detect/series_name.h"
#include "format/probe.h"

/* Most programs write no index. They leave a directory with model.pt, optimizer.pt
 * and scheduler.pt, or with model_world_size_8_rank_3.pt for each rank, and none of
 * the files says which others it belongs to. So names decide, and the first bytes
 * of each file, which tell its format; more is read only where a name leaves open
 * whether its number is that of a rank (series.c). docs/formats/trainers.md has the
 * rules.
 *
 * Names can mislead, and what is wrong here is not noticed later: a model of step
 * 100 with the optimizer of step 200 is a fine tree. Therefore no file of a known
 * format is dropped in silence. It belongs to exactly one part, or is left out with
 * a reason, or the directory is refused with the names between which the user has
 * to choose. ofs_detect_files has this order:
 *
 *   pieces            are refused first: each looks like a model.
 *   add_all           a part for each file, in the order of names. The first file
 *                     of a series takes the others with it.
 *   temporary         files that a save has not finished are tried only if there is
 *                     no other: alone in a directory, such a file is what the user
 *                     means.
 *   check_jobs,       refuse parts that are not of one save: of jobs with different
 *   check_steps       numbers of ranks, or of several steps.
 *   drop_prefix_of_one  counts the parts that hold something,
 *   add_empty_files   so these come later, and after the checks. An empty file has
 *                     no format; it is a part so that its reader reports it.
 *   add_missing       the shards that should be there, by the names of those that
 *                     are.
 *   add_indexes       of the parts, when all of these are known.
 *
 * Two questions are not asked here. Which of several forms of a model is read,
 * model.safetensors or pytorch_model.bin, is decided when the directories beside
 * the files are known, too (copies.c); until then both have the prefix "model". And
 * a file of an unknown name is no error: the inventory lists it. */

/* The most files of one model that are looked for. */
#define SHARDS_MAX 4096ul

/* Is dir a checkpoint as a whole? */
static bool is_in_checkpoint(const struct ofs_dir *dir)
{
	const struct ofs_format *format;
	struct ofs_names names;
	bool yes;

	if (ofs_dir_list(dir, &names, NULL) == -1)
		return false;
	yes = ofs_detect_dir(dir, &names, &format, NULL) == 1;
	ofs_names_free(&names);
	return yes;
}

/* Frees name. */
static int refuse_tracker(const struct ofs_dir *dir, const char *rel,
    char *name, struct optimfs_error *err)
{
	if (ofs_probe_is_dir(dir, name))
		optimfs_fail(err, EINVAL,
		    "OFS677 %s only names the latest checkpoint: give %s/%s",
		    rel, dir->path, name);
	else
		optimfs_fail(err, EIO,
		    "OFS676 %s/%s names %s, which does not exist", dir->path,
		    rel, name);
	free(name);
	return -1;
}

/* Reports why a file is not a checkpoint. */
static int refuse_file(const struct ofs_dir *dir, const char *rel,
    const struct optimfs_error *why, struct optimfs_error *err)
{
	struct ofs_input in;
	struct stat st = { 0 };
	char *name;

	if (why->code != 0)
		return optimfs_fail_with(err, why);
	if (ofs_dir_open_input(dir, rel, &in, &st, err) == -1)
		return -1;
	ofs_input_close(&in);
	if (ofs_detect_named(dir, rel, &name, err) == -1)
		return -1;
	if (name != NULL)
		return refuse_tracker(dir, rel, name, err);
	if (ofs_format_is_shard(rel))
		return optimfs_fail(err, EINVAL,
		    "OFS677 %s is one file of a checkpoint: give its "
		    "directory, %s",
		    rel, dir->path);
	if (is_in_checkpoint(dir))
		return optimfs_fail(err, EINVAL,
		    "OFS677 %s is not a checkpoint by itself; its directory is "
		    "one: %s",
		    rel, dir->path);
	if (S_ISREG(st.st_mode) && st.st_size == 0)
		return optimfs_fail(err, EOPNOTSUPP, "OFS678 %s/%s is empty",
		    dir->path, rel);
	return optimfs_fail(err, EOPNOTSUPP,
	    "OFS678 %s/%s: not a file of torch.save, safetensors or NumPy, and "
	    "not a pickle of protocol 2 or later",
	    dir->path, rel);
}

/* Extends *spec, the format of a file, to the series of rank files that it
 * belongs to: 1, stem gets the common name; 0: no series. */
static int find_set(const struct ofs_dir *dir, const struct ofs_names *names,
    size_t i, struct ofs_part_spec *spec, char *stem, size_t size,
    struct ofs_parts *parts, struct optimfs_error *err)
{
	return spec->format->ranked
	    ? ofs_detect_series(dir, names, i, spec, stem, size, parts, err)
	    : 0;
}

static void free_set(struct ofs_part_spec *spec)
{
	free((void *)(uintptr_t)spec->file);
	spec->file = NULL;
}

int ofs_detect_one(const struct ofs_dir *dir, const char *rel,
    struct ofs_parts *parts, struct optimfs_error *err)
{
	struct ofs_part_spec spec = { .rel = rel, .rank = -1 };
	struct optimfs_error why = { 0 };
	struct ofs_names names;
	char stem[256];
	size_t i = 0;
	int ret = 0;

	if (ofs_detect_foreign(dir, rel, err))
		return -1;
	spec.format =
	    ofs_format_is_shard(rel) ? NULL : ofs_detect_file(dir, rel, &why);
	if (spec.format == NULL)
		return refuse_file(dir, rel, &why, err);
	if (ofs_dir_list(dir, &names, &why) == -1)
		return ofs_probe_failed(&why)
		    ? optimfs_fail_with(err, &why)
		    : ofs_parts_add(parts, &spec, err);
	while (i < names.n && strcmp(names.name[i], rel) != 0)
		i++;
	if (i < names.n)
		ret = find_set(dir, &names, i, &spec, stem, sizeof(stem), parts,
		    err);
	if (ret != -1)
		ret = ofs_parts_add(parts, &spec, err);
	free_set(&spec);
	ofs_names_free(&names);
	return ret;
}

/* Directories with nothing but such files: each file is a part. */

/* The extension of the name, if some format uses it, or the end of a name
 * without one; else NULL. */
static const char *extension(const char *name)
{
	const struct ofs_format *f;
	const char *dot = NULL;

	if (strchr(name, '.') == NULL)
		return name + strlen(name);
	for (size_t i = 0; dot == NULL && (f = ofs_format_at(i)) != NULL; i++)
		dot = ofs_probe_extension(name, f->extensions);
	return dot;
}

/* "model-00001-of-00002": one of several files of a model. */
static bool is_model_shard(const char *stem)
{
	const char *of = strstr(stem, "-of-");
	char first[64];
	int number;

	if (of == NULL || (size_t)(of - stem) >= sizeof(first) ||
	    !ofs_probe_match(of, "-of-#", &number))
		return false;
	memcpy(first, stem, (size_t)(of - stem));
	first[of - stem] = '\0';
	return ofs_probe_match(first, "model-#", &number) ||
	    ofs_probe_match(first, "ft-model-#", &number) ||
	    ofs_probe_match(first, "pytorch_model-#", &number);
}

/* Names that trainers use for the model and the optimizer; other files keep
 * their own names. */
static const char *conventional(const char *stem)
{
	static const char *const names[][2] = {
		{ "model", "model" },
		{ "pytorch_model", "model" },
		{ "pytorch_model_fsdp", "model" },
		{ "adapter_model", "model" }, /* PEFT */
		{ "consolidated", "model" },  /* Mistral, metaseq */
		{ "optim", "optim" },
		{ "optimizer", "optimizer" },
	};

	int number;

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (strcmp(stem, names[i][0]) == 0)
			return names[i][1];
	if (ofs_probe_match(stem, "pytorch_model_fsdp_#", &number))
		return "model";
	return is_model_shard(stem) ? "model" : NULL;
}

/* The rank in "optim_rank3": 3; -1: none. */
static int rank_of_stem(const char *name, size_t len)
{
	char stem[256];
	const char *at;
	int rank;

	if (len >= sizeof(stem))
		return -1;
	memcpy(stem, name, len);
	stem[len] = '\0';
	at = strstr(stem, "rank");
	return at != NULL &&
		(ofs_probe_match(at, "rank#", &rank) ||
		    ofs_probe_match(at, "rank_#", &rank))
	    ? rank
	    : -1;
}

/* Does another file have the same name with another extension? */
static bool stem_is_shared(const struct ofs_names *names, size_t me,
    const char *stem, size_t len)
{
	for (size_t i = 0; i < names->n; i++) {
		const char *dot = extension(names->name[i]);

		if (i != me && dot != NULL &&
		    (size_t)(dot - names->name[i]) == len &&
		    memcmp(names->name[i], stem, len) == 0)
			return true;
	}
	return false;
}

/* ColossalAI: one of the files of an index, whose number it does not tell. */
static bool is_indexed(const struct ofs_names *names, const char *stem)
{
	int number;

	return (ofs_probe_match(stem, "model-#", &number) &&
		   ofs_probe_has(names, "model.safetensors.index.json")) ||
	    (ofs_probe_match(stem, "pytorch_model-#", &number) &&
		ofs_probe_has(names, "pytorch_model.bin.index.json"));
}

/* The prefix of the file at i, the only one of its name. A job with one rank
 * gets the same names as one with many. */
static char *name_alone(const struct ofs_names *names, size_t i, size_t len)
{
	const char *name = names->name[i];
	char stem[256];

	/* of a model in several forms, one is left (copies.c) */
	snprintf(stem, sizeof(stem), "%.*s", (int)len, name);
	if (conventional(stem) != NULL)
		return strdup(stem);
	if (is_indexed(names, stem))
		return strdup("model");

	if (ofs_series_only_rank(names, i, stem, sizeof(stem)) &&
	    !stem_is_shared(names, i, stem, strlen(stem)))
		return strdup(stem);
	return stem_is_shared(names, i, name, len) ? strdup(name)
						   : strndup(name, len);
}

/* ColossalAI: the states and the groups of the optimizer. */
static const char *colossal(const char *stem)
{
	int number;

	if (strcmp(stem, "pytorch_optim_group") == 0)
		return "param_groups";
	return ofs_probe_match(stem, "pytorch_optim-#", &number) ? "state"
								 : NULL;
}

static bool has_file(const struct ofs_part *part, const char *rel)
{
	for (size_t i = 0; i < part->nfiles; i++)
		if (strcmp(part->file[i].rel, rel) == 0)
			return true;
	return strcmp(part->rel, rel) == 0;
}

static bool is_part(const struct ofs_parts *parts, const char *rel)
{
	for (size_t i = 0; i < parts->n; i++)
		if (has_file(&parts->part[i], rel))
			return true;
	return false;
}

static int add_one_of_many(const struct ofs_dir *dir,
    const struct ofs_names *names, size_t i, struct ofs_parts *parts,
    struct optimfs_error *err)
{
	struct ofs_part_spec spec = { .rel = names->name[i], .optional = true };
	const char *dot = extension(names->name[i]);
	struct optimfs_error why = { 0 };
	char name[256], *stem;
	int set, ret;

	if (dot == NULL || is_part(parts, names->name[i]) ||
	    ofs_parts_left(parts, names->name[i]))
		return 0;
	if (ofs_detect_foreign(dir, names->name[i], &why))
		return ofs_parts_leave(parts, names->name[i], OFS_LEFT_FOREIGN,
		    ofs_detect_foreign_words(&why), err);
	spec.format = ofs_detect_file(dir, names->name[i], &why);
	if (why.code != 0)
		return optimfs_fail_with(err, &why);
	if (spec.format == NULL)
		return 0;
	set = find_set(dir, names, i, &spec, name, sizeof(name), parts, err);
	if (set == -1)
		return -1;
	stem = set == 1 ? strdup(name)
			: name_alone(names, i, (size_t)(dot - names->name[i]));
	if (stem == NULL) {
		free_set(&spec);
		return ofs_no_memory(err);
	}
	if (set == 0)
		spec.rank = rank_of_stem(names->name[i],
		    (size_t)(dot - names->name[i]));
	spec.prefix[0] = conventional(stem);
	/* files written by a view belong to extra/ anyway */
	if (spec.prefix[0] == NULL && strcmp(stem, "extra") != 0)
		spec.prefix[0] = stem;
	if (colossal(stem) != NULL) {
		spec.prefix[0] = "optimizer";
		spec.prefix[1] = colossal(stem);
	}
	ret = ofs_parts_add(parts, &spec, err);
	free_set(&spec);
	free(stem);
	return ret;
}

static int add_all(const struct ofs_dir *dir, const struct ofs_names *names,
    bool temporary, struct ofs_parts *parts, struct optimfs_error *err)
{
	for (size_t i = 0; i < names->n; i++)
		if ((ofs_unfinished_file(names->name[i]) != NULL) ==
			temporary &&
		    add_one_of_many(dir, names, i, parts, err) == -1)
			return -1;
	return 0;
}

/* Leaves out the files that a save or a copy has not finished. */
static int say_temporary(const struct ofs_dir *dir,
    const struct ofs_names *names, struct ofs_parts *parts,
    struct optimfs_error *err)
{
	for (size_t i = 0; i < names->n; i++) {
		const char *name = names->name[i];
		const char *why = ofs_unfinished_file(name);

		if (why == NULL || is_part(parts, name) ||
		    ofs_parts_left(parts, name) ||
		    !ofs_probe_is_file(dir, name))
			continue;
		if (ofs_parts_note(parts, err, "OFS688 %.200s is left out: %s",
			name, why) == -1 ||
		    ofs_parts_leave(parts, name, OFS_LEFT_UNFINISHED, why,
			err) == -1)
			return -1;
	}
	return 0;
}

/* Beside files of a checkpoint, an empty one is a save or a copy that did not
 * complete: its reader says so. */
static int add_empty_files(const struct ofs_dir *dir,
    const struct ofs_names *names, struct ofs_parts *parts,
    struct optimfs_error *err)
{
	for (size_t i = 0; i < names->n; i++) {
		struct ofs_part_spec spec = { .rel = names->name[i],
			.format = ofs_detect_name(names->name[i]),
			.rank = -1,
			.optional = true };

		/* the list of parts is long where few files are empty */
		if (spec.format != NULL &&
		    ofs_unfinished_file(spec.rel) == NULL &&
		    ofs_probe_is_empty(dir, spec.rel) &&
		    !is_part(parts, spec.rel) &&
		    ofs_parts_add(parts, &spec, err) == -1)
			return -1;
	}
	return 0;
}

/* A single file needs no prefix, unless its name says which part of a
 * checkpoint it is. */
static void drop_prefix_of_one(struct ofs_parts *parts)
{
	struct ofs_part *p = parts->part;

	if (parts->n != 1)
		return;
	p->optional = false;
	if (p->prefix[0] == NULL || conventional(p->prefix[0]) != NULL)
		return;
	free(p->prefix[0]);
	p->prefix[0] = NULL;
}

/* Without an index only the names of "model-00001-of-00002.safetensors" tell that
 * there are more such files. */

/* Is it such a name? Then *at is where its number is, of *digits digits, and *total
 * the number of files. */
static bool is_one_of(const char *name, size_t *at, size_t *digits,
    unsigned long *total)
{
	const char *of = strstr(name, "-of-");
	char *end;

	if (of == NULL)
		return false;
	*digits = 0;
	while (of - *digits > name && of[-1 - (ptrdiff_t)*digits] >= '0' &&
	    of[-1 - (ptrdiff_t)*digits] <= '9')
		++*digits;
	*at = (size_t)(of - name) - *digits;
	*total = strtoul(of + 4, &end, 10);
	return *digits > 0 && *digits < 10 && *total > 1 &&
	    *total <= SHARDS_MAX &&
	    (strcmp(end, ".safetensors") == 0 || strcmp(end, ".bin") == 0 ||
		strcmp(end, ".pt") == 0 || strcmp(end, ".pth") == 0);
}

/* The name of another file of a series. */
static void put_number(const char *name, size_t at, size_t digits,
    unsigned long n, char out[NAME_MAX + 1])
{
	snprintf(out, NAME_MAX + 1, "%.*s%0*lu%s", (int)at, name, (int)digits,
	    n, name + at + digits);
}

/* Lists the files of a series that are not there, if names->name[i] is the first
 * of those that are. Numbers begin with 1, or with 0 if that is there. */
static int list_missing(const struct ofs_names *names, size_t i,
    struct ofs_parts *parts, struct optimfs_error *err)
{
	const char *name = names->name[i];
	char other[NAME_MAX + 1];
	unsigned long total, first;
	size_t at, digits;

	if (!is_one_of(name, &at, &digits, &total))
		return 0;
	put_number(name, at, digits, 0, other);
	first = ofs_probe_has(names, other) ? 0 : 1;
	for (unsigned long n = first; n < first + total; n++) {
		put_number(name, at, digits, n, other);
		if (strcmp(other, name) == 0)
			break;
		if (ofs_probe_has(names, other))
			return 0; /* it has listed them */
	}
	for (unsigned long n = first; n < first + total; n++) {
		put_number(name, at, digits, n, other);
		if (ofs_probe_has(names, other))
			continue;
		if (ofs_names_add(&parts->missing, other, strlen(other), err) ==
		    -1)
			return -1;
	}
	return 0;
}

static int add_missing(const struct ofs_names *names, struct ofs_parts *parts,
    struct optimfs_error *err)
{
	for (size_t i = 0; i < names->n; i++)
		if (ofs_str_ends(ofs_str_of(names->name[i]), ".index.json"))
			return 0;
	for (size_t i = 0; i < names->n; i++)
		if (is_part(parts, names->name[i]) &&
		    list_missing(names, i, parts, err) == -1)
			return -1;
	return 0;
}

/* Index files are read with the files they describe. */
static int add_indexes(const struct ofs_dir *dir, const struct ofs_names *names,
    struct ofs_parts *parts, struct optimfs_error *err)
{
	const struct ofs_format *f;

	for (size_t i = 0; (f = ofs_format_at(i)) != NULL; i++)
		if (f->add_index != NULL &&
		    f->add_index(dir, names, parts, err) == -1)
			return -1;
	return 0;
}

/* Where files of two jobs were found, model and optimizer must be of the same
 * one: of the last save, only some files may be there. */
static int check_jobs(const struct ofs_parts *parts, struct optimfs_error *err)
{
	const struct ofs_part *first = NULL;
	bool two = false;

	for (size_t i = 0; i < parts->nleft; i++)
		two = two || parts->left[i].kind == OFS_LEFT_OLDER;
	for (size_t i = 0; i < parts->n && two; i++) {
		const struct ofs_part *p = &parts->part[i];

		if (p->world == 0)
			continue;
		if (first == NULL)
			first = p;
		if (p->world != first->world)
			return optimfs_fail(err, EPROTO,
			    "OFS674 there are files of two jobs: of %d ranks "
			    "%.200s is complete, and of %d %.200s: the files "
			    "are not of one save",
			    first->world, first->rel, p->world, p->rel);
	}
	return 0;
}

/* Are both files of one name but for the step? Those that only hold changes of a
 * state have words of their own. */
static bool differ_in_step(const struct ofs_part *a, const struct ofs_part *b)
{
	return a->format == b->format && !a->format->changes &&
	    ofs_series_other_step(a->rel, b->rel);
}

/* The number of other parts that are the state at another time. */
static size_t count_steps(const struct ofs_parts *parts, size_t i)
{
	size_t n = 0;

	for (size_t k = 0; k < parts->n; k++)
		n += k != i && differ_in_step(&parts->part[i], &parts->part[k]);
	return n;
}

/* Beside the files of n ranks, n files whose only numbers are those of the ranks
 * are of one save: step_0.pt, step_1.pt beside model_0.pt, model_1.pt. */
static bool is_of_ranks(const struct ofs_parts *parts, size_t i, size_t n)
{
	const char *rel = parts->part[i].rel;
	const char *number = rel + strcspn(rel, "0123456789");

	if (strtoul(number, NULL, 10) >= n ||
	    number[strcspn(number, "_-=")] != '\0')
		return false;
	for (size_t k = 0; k < parts->n; k++)
		if (parts->part[k].nfiles == n)
			return true;
	return false;
}

/* The files of several steps are no parts of one checkpoint. Where a trainer has
 * written an index they are of one save. */
static int check_steps(const struct ofs_dir *dir, const struct ofs_parts *parts,
    struct optimfs_error *err)
{
	char list[160] = "";
	size_t n = 0, nfound = 0;

	for (size_t i = 0; i < parts->n && parts->trainer == NULL; i++) {
		size_t others = count_steps(parts, i);

		if (others > 0 && !is_of_ranks(parts, i, others + 1) &&
		    nfound++ < 4 && n < sizeof(list))
			n += (size_t)snprintf(list + n, sizeof(list) - n,
			    "%s %s", nfound == 1 ? "" : ",",
			    parts->part[i].rel);
	}
	if (nfound == 0)
		return 0;
	return optimfs_fail(err, ENOENT,
	    "OFS681 %s holds checkpoints, give one of:%s%s", dir->path, list,
	    nfound > 4 ? ", ..." : "");
}

int ofs_detect_files(const struct ofs_dir *dir, const struct ofs_names *names,
    const struct ofs_format *as, struct ofs_parts *parts,
    struct optimfs_error *err)
{
	size_t before = parts->n;

	if ((as == NULL && ofs_detect_pieces(dir, names, err) == -1) ||
	    add_all(dir, names, false, parts, err) == -1)
		return -1;
	/* a temporary file is the checkpoint if there is no other */
	if (parts->n == 0) {
		if (add_all(dir, names, true, parts, err) == -1)
			return -1;
	} else if (say_temporary(dir, names, parts, err) == -1) {
		return -1;
	}
	if (check_jobs(parts, err) == -1 || check_steps(dir, parts, err) == -1)
		return -1;
	for (size_t i = before; as != NULL && i < parts->n; i++)
		parts->part[i].format = as;
	if (before == 0)
		drop_prefix_of_one(parts);
	if (parts->n > before && add_empty_files(dir, names, parts, err) == -1)
		return -1;
	if (add_missing(names, parts, err) == -1)
		return -1;
	return add_indexes(dir, names, parts, err);
}
