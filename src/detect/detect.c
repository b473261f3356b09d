/* detect.c - which formats a directory or file holds */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "detect/detect.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "format/dcp/dcp.h"
#include "format/safetensors/hf_index.h"
#include "format/zero/zero.h"

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
	if (ofs_detect_is_roles(dir, names))
		return 0;
	if (ofs_detect_trainer(dir, names, parts, err) == -1)
		return -1;
	return is_complete(parts) ? 0
				  : ofs_detect_files(dir, names, parts, err);
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
	if (ofs_detect_files(dir, names, parts, err) == -1)
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
		ret = ofs_detect_one(dir, rel, parts, err);
	else
		ret = detect_dir(dir, parts, err);
	if (ret == -1)
		ofs_parts_free(parts);
	return ret;
}
