/* detect.c - which formats a directory or file holds */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "format/detect.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "buf.h"
#include "cursor.h"
#include "format/hf_index.h"
#include "format/safetensors_item.h"
#include "format/torch.h"
#include "format/zero.h"

/* docs/formats/trainers.md */

static const struct ofs_format *const formats[] = {
	&ofs_format_dcp,
	&ofs_format_megatron,
	&ofs_format_torch,
	&ofs_format_pickle,
	&ofs_format_safetensors,
	&ofs_format_deepspeed,
	&ofs_format_universal,
	&ofs_format_raw,
};
#define NFORMATS (sizeof(formats) / sizeof(formats[0]))

/* Files. */

int ofs_detect_names(const struct ofs_dir *dir, const char *rel,
    struct ofs_names *names, struct optimfs_error *err)
{
	struct optimfs_error why = { 0 };
	struct ofs_dir sub;
	int ret;

	ret = ofs_dir_open_sub(dir, rel, &sub, &why);
	if (ret == 0) {
		ret = ofs_dir_list(&sub, names, &why);
		ofs_dir_close(&sub);
	}
	if (ret == 0)
		return 1;
	return why.code == ENOMEM
	    ? optimfs_fail(err, ENOMEM, "OFS443 detection: out of memory")
	    : 0;
}

bool ofs_detect_is_dir(const struct ofs_dir *dir, const char *rel)
{
	struct stat st;

	return ofs_dir_stat(dir, rel, &st) && S_ISDIR(st.st_mode);
}

bool ofs_detect_is_file(const struct ofs_dir *dir, const char *rel)
{
	struct stat st;

	return ofs_dir_stat(dir, rel, &st) && S_ISREG(st.st_mode);
}

/* A header length that fits, then "{": bytes of a file of that size. */
static bool safetensors_magic(const uint8_t *p, size_t n, uint64_t size)
{
	uint64_t header;

	if (n < 9)
		return false;
	header = ofs_le64(p);
	return p[8] == '{' && header >= 2 && header <= size - 8 &&
	    header <= OFS_SAFETENSORS_HEADER_MAX;
}

static bool has_end_record(const struct ofs_input *in, uint64_t size)
{
	uint8_t tail[22];

	return size >= sizeof(tail) &&
	    ofs_input_read(in, tail, sizeof(tail), size - sizeof(tail), NULL) ==
	    0 &&
	    memcmp(tail, "PK\5\6", 4) == 0;
}

static bool is_called_safetensors(const char *rel)
{
	const char *dot = strrchr(rel, '.');

	return dot != NULL && strcmp(dot, ".safetensors") == 0;
}

const struct ofs_format *ofs_detect_file(const struct ofs_dir *dir,
    const char *rel, struct optimfs_error *err)
{
	uint8_t head[512];
	struct ofs_input in;
	struct stat st;
	size_t n = sizeof(head);
	int magic;
	bool safetensors, zip;

	if (ofs_dir_open_input(dir, rel, &in, &st, NULL) == -1)
		return NULL;
	if ((uint64_t)st.st_size < n)
		n = (size_t)st.st_size;
	if (ofs_input_read(&in, head, n, 0, NULL) == -1)
		n = 0;
	magic = ofs_torch_magic(head, n);
	safetensors = safetensors_magic(head, n, (uint64_t)st.st_size);
	zip = magic == 1 || has_end_record(&in, (uint64_t)st.st_size);
	ofs_input_close(&in);
	if (safetensors && zip) {
		optimfs_fail(err, EUCLEAN,
		    "OFS662 %s: ambiguous type: a zip archive and safetensors "
		    "at once (-o type=)",
		    rel);
		return NULL;
	}
	if (safetensors)
		return &ofs_format_safetensors;
	/* by its name it should be one: what is wrong with it has a name then */
	if (magic == 0)
		return is_called_safetensors(rel) ? &ofs_format_safetensors
						  : NULL;
	return magic == 4 ? &ofs_format_pickle : &ofs_format_torch;
}

bool ofs_detect_match(const char *name, const char *pattern, int *number)
{
	const char *hole = strchr(pattern, '#');
	unsigned long v;
	char *end;
	size_t n;

	*number = -1;
	if (hole == NULL)
		return strcmp(name, pattern) == 0;
	n = (size_t)(hole - pattern);
	if (strncmp(name, pattern, n) != 0 || name[n] < '0' || name[n] > '9')
		return false;
	v = strtoul(name + n, &end, 10);
	if (strcmp(end, hole + 1) != 0 || v > 1 << 20)
		return false;
	*number = (int)v;
	return true;
}

/* Why a file has no format. */
static int refuse_file(const struct ofs_dir *dir, const char *rel,
    const struct optimfs_error *why, struct optimfs_error *err)
{
	struct ofs_input in;

	if (why->code != 0)
		return optimfs_fail(err, why->code, "%s", why->text);
	if (ofs_dir_open_input(dir, rel, &in, NULL, err) == -1)
		return -1;
	ofs_input_close(&in);
	return optimfs_fail(err, EOPNOTSUPP,
	    "OFS678 %s: not a torch.save file, a pickle or "
	    "safetensors (-o type=raw shows it as bytes)",
	    rel);
}

static bool has_ranks(const struct ofs_format *format)
{
	return format == &ofs_format_torch || format == &ofs_format_pickle;
}

/* Make *spec, which has a file's format, that of the set of rank files that
 * the file is one of: 1, stem gets what it is called; 0: it is none. */
static int find_set(const struct ofs_dir *dir, const struct ofs_names *names,
    size_t i, struct ofs_part_spec *spec, char *stem, size_t size,
    struct optimfs_error *err)
{
	struct ofs_part_file *file;
	size_t n;

	if (!has_ranks(spec->format))
		return 0;
	switch (ofs_detect_series(dir, names, i, &file, &n, stem, size, err)) {
	case -1:
		return -1;
	case 0:
		return 0;
	default:
		spec->file = file;
		spec->nfiles = n;
		spec->rel = file[0].rel;
		spec->rank = file[0].rank;
		return 1;
	}
}

static void free_set(struct ofs_part_spec *spec)
{
	free((void *)(uintptr_t)spec->file);
	spec->file = NULL;
}

static int add_file(const struct ofs_dir *dir, const char *rel,
    struct ofs_parts *parts, struct optimfs_error *err)
{
	struct ofs_part_spec spec = { .rel = rel, .rank = -1 };
	struct optimfs_error why = { 0 };
	struct ofs_names names;
	char stem[256];
	size_t i = 0;
	int ret = 0;

	spec.format = ofs_detect_file(dir, rel, &why);
	if (spec.format == NULL)
		return refuse_file(dir, rel, &why, err);
	if (ofs_dir_list(dir, &names, &why) == -1)
		return why.code == ENOMEM
		    ? optimfs_fail(err, ENOMEM, "%s", why.text)
		    : ofs_parts_add(parts, &spec, err);
	while (i < names.n && strcmp(names.name[i], rel) != 0)
		i++;
	if (i < names.n)
		ret = find_set(dir, &names, i, &spec, stem, sizeof(stem), err);
	if (ret != -1)
		ret = ofs_parts_add(parts, &spec, err);
	free_set(&spec);
	ofs_names_free(&names);
	return ret;
}

/* Directories that hold nothing but such files: each is a part. */

static const char *extension(const char *name)
{
	static const char *const known[] = { ".pt", ".pth", ".bin", ".ckpt",
		".pkl", ".safetensors", NULL };
	const char *dot = strrchr(name, '.');

	for (int i = 0; dot != NULL && dot != name && known[i] != NULL; i++)
		if (strcmp(dot, known[i]) == 0)
			return dot;
	return NULL;
}

/* "model-00001-of-00002": one file of several that are one model. */
static bool is_model_shard(const char *stem)
{
	const char *of = strstr(stem, "-of-");
	char first[64];
	int number;

	if (of == NULL || (size_t)(of - stem) >= sizeof(first) ||
	    !ofs_detect_match(of, "-of-#", &number))
		return false;
	memcpy(first, stem, (size_t)(of - stem));
	first[of - stem] = '\0';
	return ofs_detect_match(first, "model-#", &number) ||
	    ofs_detect_match(first, "ft-model-#", &number) ||
	    ofs_detect_match(first, "pytorch_model-#", &number);
}

/* Names by which trainers call the two parts everybody has; the rest of the
 * directory then goes by its own names. */
static const char *conventional(const char *stem)
{
	static const char *const names[][2] = {
		{ "model", "model" },
		{ "pytorch_model", "model" },
		{ "pytorch_model_fsdp", "model" },
		{ "optim", "optim" },
		{ "optimizer", "optimizer" },
	};

	int number;

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (strcmp(stem, names[i][0]) == 0)
			return names[i][1];
	if (ofs_detect_match(stem, "pytorch_model_fsdp_#", &number))
		return "model";
	return is_model_shard(stem) ? "model" : NULL;
}

/* "optim_rank3": 3; -1 when the name says nothing. */
static int rank_of_stem(const char *stem)
{
	const char *at = strstr(stem, "rank");
	int rank;

	return at != NULL &&
		(ofs_detect_match(at, "rank#", &rank) ||
		    ofs_detect_match(at, "rank_#", &rank))
	    ? rank
	    : -1;
}

static bool stem_is_shared(const struct ofs_names *names, size_t me,
    size_t stem)
{
	for (size_t i = 0; i < names->n; i++) {
		const char *dot = extension(names->name[i]);

		if (i != me && dot != NULL &&
		    (size_t)(dot - names->name[i]) == stem &&
		    memcmp(names->name[i], names->name[me], stem) == 0)
			return true;
	}
	return false;
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

static bool has_deepspeed(const struct ofs_parts *parts)
{
	for (size_t i = 0; i < parts->n; i++)
		if (parts->part[i].format == &ofs_format_deepspeed ||
		    parts->part[i].format == &ofs_format_universal)
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

	if (dot == NULL || is_part(parts, names->name[i]))
		return 0;
	stem = strndup(names->name[i], (size_t)(dot - names->name[i]));
	if (stem == NULL)
		return optimfs_fail(err, ENOMEM,
		    "OFS443 detection: out of memory");
	/* weights that a trainer put together beside DeepSpeed's own */
	ret = has_deepspeed(parts) && conventional(stem) != NULL;
	free(stem);
	if (ret == 1)
		return 0;
	spec.format = ofs_detect_file(dir, names->name[i], &why);
	if (why.code != 0)
		return optimfs_fail(err, why.code, "%s", why.text);
	if (spec.format == NULL)
		return 0;
	set = find_set(dir, names, i, &spec, name, sizeof(name), err);
	if (set == -1)
		return -1;
	stem = set == 1 ? strdup(name)
	    : stem_is_shared(names, i, (size_t)(dot - names->name[i]))
	    ? strdup(names->name[i])
	    : strndup(names->name[i], (size_t)(dot - names->name[i]));
	if (stem == NULL) {
		free_set(&spec);
		return optimfs_fail(err, ENOMEM,
		    "OFS443 detection: out of memory");
	}
	if (set == 0)
		spec.rank = rank_of_stem(stem);
	spec.prefix[0] = conventional(stem);
	/* what a view puts there is in the tree's extra/ anyway */
	if (spec.prefix[0] == NULL && strcmp(stem, "extra") != 0)
		spec.prefix[0] = stem;
	ret = ofs_parts_add(parts, &spec, err);
	free_set(&spec);
	free(stem);
	return ret;
}

/* A file alone needs no name to tell it from others, unless its name says
 * which part of a checkpoint it is. */
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

/* What says which file of a model has which tensor is read when they are. */
static int add_index(const struct ofs_dir *dir, const struct ofs_names *names,
    struct ofs_parts *parts, struct optimfs_error *err)
{
	for (size_t i = 0; i < names->n; i++) {
		struct ofs_part_spec spec = { .rel = names->name[i],
			.format = &ofs_format_hf_index,
			.prefix = { "model" },
			.rank = -1 };

		if (ofs_hf_index_name(spec.rel) &&
		    ofs_detect_is_file(dir, spec.rel) &&
		    ofs_parts_add(parts, &spec, err) == -1)
			return -1;
	}
	return 0;
}

static int add_files(const struct ofs_dir *dir, const struct ofs_names *names,
    struct ofs_parts *parts, struct optimfs_error *err)
{
	size_t before = parts->n;

	for (size_t i = 0; i < names->n; i++)
		if (add_one_of_many(dir, names, i, parts, err) == -1)
			return -1;
	if (before == 0)
		drop_prefix_of_one(parts);
	return add_index(dir, names, parts, err);
}

/* A checkpoint that is the whole directory is all that it is meant to be:
 * other files in it were put there by somebody else. */
static bool is_complete(const struct ofs_parts *parts)
{
	return parts->n > 0 && parts->part[0].rel[0] == '\0';
}

/* All of it. */

static int unknown_type(const char *name, struct optimfs_error *err)
{
	struct ofs_buf b = { 0 };

	for (size_t i = 0; i < NFORMATS; i++) {
		ofs_buf_putc(&b, ' ');
		ofs_buf_puts(&b, formats[i]->name);
	}
	ofs_buf_putc(&b, '\0');
	optimfs_fail(err, EINVAL, "OFS679 type=%.100s: unknown; there are%s",
	    name, b.bad ? " others" : (char *)b.data);
	ofs_buf_fini(&b);
	return -1;
}

static int find_type(const char *name, const struct ofs_format **format,
    struct optimfs_error *err)
{
	for (size_t i = 0; i < NFORMATS; i++)
		if (strcmp(name, formats[i]->name) == 0) {
			*format = formats[i];
			return 0;
		}
	return unknown_type(name, err);
}

/* A directory that is a checkpoint by itself; no parts when it is none. */
static int detect_itself(const struct ofs_dir *dir,
    const struct ofs_names *names, struct ofs_parts *parts,
    struct optimfs_error *err)
{
	if (ofs_detect_trainer(dir, names, parts, err) == -1)
		return -1;
	return is_complete(parts) ? 0 : add_files(dir, names, parts, err);
}

static int nothing_here(const struct ofs_dir *dir, struct optimfs_error *err)
{
	return optimfs_fail(err, ENOENT,
	    "OFS680 %s: no checkpoint that we know: no .metadata, no files of "
	    "torch.save",
	    dir->path);
}

/* The only checkpoint below dir. */
static int detect_only(const struct ofs_dir *dir, const char *rel,
    struct ofs_parts *parts, struct optimfs_error *err)
{
	struct ofs_names names;
	struct ofs_dir sub;
	int ret;

	if (ofs_dir_open_sub(dir, rel, &sub, err) == -1)
		return -1;
	ret = ofs_dir_list(&sub, &names, err);
	if (ret == 0) {
		ret = detect_itself(&sub, &names, parts, err);
		ofs_names_free(&names);
	}
	if (ret == 0 && parts->n == 0)
		ret = nothing_here(&sub, err);
	ofs_dir_close(&sub);
	return ret == -1 ? -1 : ofs_parts_move(parts, rel, err);
}

static int detect_dir(const struct ofs_dir *dir, struct ofs_parts *parts,
    struct optimfs_error *err)
{
	struct ofs_names names;
	char *only = NULL;
	int ret;

	if (ofs_dir_list(dir, &names, err) == -1)
		return -1;
	ret = detect_itself(dir, &names, parts, err);
	if (ret == 0 && parts->n == 0) {
		ret = ofs_detect_parent(dir, &names, &only, err);
		if (ret == 0)
			ret = detect_only(dir, only, parts, err);
		free(only);
	}
	ofs_names_free(&names);
	return ret;
}

static bool is_deepspeed(const struct ofs_format *format)
{
	return format == &ofs_format_deepspeed ||
	    format == &ofs_format_universal;
}

/* A directory of the type that was asked for, or that one's latest. */
static int detect_deepspeed(const struct ofs_dir *dir,
    const struct ofs_names *names, struct ofs_part_spec *spec,
    struct ofs_parts *parts, struct optimfs_error *err)
{
	static const char *const files[] = { "latest", "latest_universal" };
	const struct ofs_format *format = NULL;
	char *tag = NULL;
	int ret = 0;

	if (spec->format->probe(dir, "") > 0)
		return ofs_parts_add(parts, spec, err);
	for (size_t i = 0; i < 2 && ret == 0; i++) {
		free(tag);
		ret = ofs_zero_latest(dir, names, files[i], &tag, &format, err);
		if (ret == 1 && spec->format->probe(dir, tag) == 0)
			ret = 0;
	}
	if (ret == 1) {
		spec->rel = tag;
		ret = ofs_parts_add(parts, spec, err);
	} else if (ret == 0) {
		ret = optimfs_fail(err, ENOENT,
		    "OFS680 %s: no checkpoint for type=%s", dir->path,
		    spec->format->name);
	}
	free(tag);
	return ret;
}

static bool is_dcp(const struct ofs_format *format)
{
	return format == &ofs_format_dcp || format == &ofs_format_megatron;
}

/* dir itself; rel of it, which ofs_detect_parent chose. */
static int add_dcp(const struct ofs_dir *dir, const char *rel,
    const struct ofs_format *format, struct ofs_parts *parts,
    struct optimfs_error *err)
{
	struct ofs_part_spec spec = {
		.rel = rel, .format = format, .rank = -1
	};
	struct ofs_dir sub;
	int ret;

	if (format == &ofs_format_dcp)
		return ofs_parts_add(parts, &spec, err);
	if (rel[0] == '\0')
		return ofs_detect_megatron(dir, parts, err);
	if (ofs_dir_open_sub(dir, rel, &sub, err) == -1)
		return -1;
	ret = ofs_detect_megatron(&sub, parts, err);
	ofs_dir_close(&sub);
	return ret == -1 ? -1 : ofs_parts_move(parts, rel, err);
}

/* A directory of files that an index places, or the parent of one. */
static int detect_dcp(const struct ofs_dir *dir, const char *rel,
    const struct ofs_format *format, struct ofs_parts *parts,
    struct optimfs_error *err)
{
	struct ofs_names names;
	char *only = NULL;
	int ret;

	if (rel[0] != '\0')
		return optimfs_fail(err, EINVAL,
		    "OFS679 type=%s: %.200s is a file, not a directory",
		    format->name, rel);
	if (ofs_dir_list(dir, &names, err) == -1)
		return -1;
	ret = ofs_dcp_sure(&names) > 0
	    ? 0
	    : ofs_detect_parent(dir, &names, &only, err);
	if (ret == 0)
		ret =
		    add_dcp(dir, only == NULL ? "" : only, format, parts, err);
	free(only);
	ofs_names_free(&names);
	return ret;
}

/* Every file of dir as one of the type that was asked for. */
static int detect_files(const struct ofs_dir *dir,
    const struct ofs_names *names, const struct ofs_format *format,
    struct ofs_parts *parts, struct optimfs_error *err)
{
	int ret = format == &ofs_format_safetensors
	    ? ofs_detect_hf_shards(names, parts, err)
	    : 0;

	if (ret != 0)
		return ret == -1 ? -1 : 0;
	if (add_files(dir, names, parts, err) == -1)
		return -1;
	for (size_t i = 0; i < parts->n; i++)
		if (parts->part[i].format != &ofs_format_hf_index)
			parts->part[i].format = format;
	if (parts->n == 0)
		return optimfs_fail(err, ENOENT,
		    "OFS680 %s: no files for type=%s", dir->path, format->name);
	return 0;
}

static int detect_as(const struct ofs_dir *dir, const char *rel,
    const char *type, struct ofs_parts *parts, struct optimfs_error *err)
{
	struct ofs_part_spec spec = { .rel = rel, .rank = -1 };
	struct ofs_names names;
	int ret;

	if (find_type(type, &spec.format, err) == -1)
		return -1;
	if (is_dcp(spec.format))
		return detect_dcp(dir, rel, spec.format, parts, err);
	if (rel[0] != '\0')
		return ofs_parts_add(parts, &spec, err);
	if (ofs_dir_list(dir, &names, err) == -1)
		return -1;
	ret = is_deepspeed(spec.format)
	    ? detect_deepspeed(dir, &names, &spec, parts, err)
	    : detect_files(dir, &names, spec.format, parts, err);
	ofs_names_free(&names);
	return ret;
}

int ofs_detect(const struct ofs_dir *dir, const char *rel,
    const struct optimfs_options *opt, struct ofs_parts *parts,
    struct optimfs_error *err)
{
	int ret;

	*parts = (struct ofs_parts){ 0 };
	if (opt->type != NULL)
		ret = detect_as(dir, rel, opt->type, parts, err);
	else if (rel[0] != '\0')
		ret = add_file(dir, rel, parts, err);
	else
		ret = detect_dir(dir, parts, err);
	if (ret == -1)
		ofs_parts_free(parts);
	return ret;
}
