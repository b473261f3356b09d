/* detect.c - find the formats of a directory or file */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "detect/detect.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/memory.h"
#include "base/nearest.h"
#include "detect/candidates.h"
#include "detect/registry.h"
#include "format/probe.h"

/* docs/formats/trainers.md */

/* A checkpoint that occupies the whole directory is complete: other files do
 * not belong to it. */
static bool is_complete(const struct ofs_parts *parts)
{
	return parts->n > 0 && parts->part[0].rel[0] == '\0';
}

/* Detects a directory that is a checkpoint itself; no parts if it is not. */
static int detect_itself(const struct ofs_dir *dir,
    const struct ofs_names *names, struct ofs_parts *parts,
    struct optimfs_error *err)
{
	if (ofs_detect_foreign_dir(dir, names, true, err))
		return -1;
	if (ofs_detect_is_roles(dir, names))
		return 0;
	if (ofs_detect_trainer(dir, names, parts, err) == -1)
		return -1;
	if (is_complete(parts))
		return ofs_detect_others(dir, names, parts, err);
	if (ofs_detect_files(dir, names, NULL, parts, err) == -1 ||
	    ofs_detect_copies(dir, parts, err) == -1 ||
	    (parts->n > 0 &&
		ofs_detect_members(dir, names, parts, err) == -1) ||
	    ofs_detect_adapters(dir, names, parts, err) == -1)
		return -1;
	if (parts->n == 0)
		return 0;
	return parts->chosen ? ofs_detect_say_chosen(dir, names, parts, err)
			     : ofs_detect_others(dir, names, parts, err);
}

static int nothing_here(const struct ofs_dir *dir, struct optimfs_error *err)
{
	return optimfs_fail(err, ENOENT,
	    "OFS680 %s: not a checkpoint: no .metadata, no file of "
	    "torch.save, safetensors or NumPy",
	    dir->path);
}

/* Handles type=, the user's choice. */

static int unknown_type(const char *name, struct optimfs_error *err)
{
	const struct ofs_format *f;
	struct ofs_nearest near;
	struct ofs_buf b = { 0 };

	ofs_nearest_init(&near, name);
	for (size_t i = 0; (f = ofs_format_at(i)) != NULL; i++) {
		if (f->read == NULL)
			continue;
		ofs_buf_printf(&b, "%s%s", b.len > 0 ? ", " : "", f->name);
		ofs_nearest_try(&near, f->name);
	}
	ofs_buf_putc(&b, '\0');
	optimfs_fail(err, EINVAL,
	    "OFS679 type=%.60s: no such type" OFS_NEAREST_FMT "%s There are %s",
	    name, OFS_NEAREST(&near), near.best[0] == '\0' ? "." : "",
	    b.bad ? "others" : (char *)b.data);
	ofs_buf_fini(&b);
	return -1;
}

static int none_of(const struct ofs_dir *dir, const struct ofs_format *format,
    const char *what, struct optimfs_error *err)
{
	return optimfs_fail(err, ENOENT,
	    "OFS680 %s: no %s for type=%s; without type=, optimfs finds the format",
	    dir->path, what, format->name);
}

/* Adds dir itself, unless the format excludes it: 1; 0: not this format. */
static int add_itself(const struct ofs_dir *dir, const struct ofs_names *names,
    const struct ofs_format *format, struct ofs_parts *parts,
    struct optimfs_error *err)
{
	int bid = format->bid == NULL ? 0 : format->bid(dir, names, err);

	if (bid <= 0)
		return bid;
	return ofs_detect_add(dir, format, parts, err) == -1 ? -1 : 1;
}

/* Adds the only checkpoint below dir, in this format; NULL: in any. */
static int add_below(const struct ofs_dir *dir, const struct ofs_names *names,
    const struct ofs_format *format, struct ofs_parts *parts,
    struct optimfs_error *err)
{
	struct ofs_parts found = { 0 };
	struct ofs_names below;
	struct ofs_dir sub;
	char *only;
	int ret = -1;

	if (ofs_detect_parent(dir, names, &only, &parts->chosen, err) == -1)
		return -1;
	if (ofs_dir_open_sub(dir, only, &sub, err) == 0) {
		if (ofs_dir_list(&sub, &below, err) == 0) {
			ret = format == NULL
			    ? detect_itself(&sub, &below, &found, err)
			    : add_itself(&sub, &below, format, &found, err);
			ofs_names_free(&below);
		}
		if (ret != -1 && found.n == 0)
			ret = format == NULL
			    ? nothing_here(&sub, err)
			    : none_of(&sub, format, "checkpoint", err);
		ofs_dir_close(&sub);
	}
	if (ret != -1)
		ret = ofs_parts_move(&found, only, err);
	if (ret != -1)
		ret = ofs_parts_join(parts, &found, err);
	if (ret != -1)
		ret = ofs_detect_role_data(dir, only, parts, err);
	ofs_parts_free(&found);
	free(only);
	if (ret == -1)
		return -1;
	return parts->chosen ? ofs_detect_say_chosen(dir, names, parts, err)
			     : ofs_detect_others(dir, names, parts, err);
}

static int detect_dir(const struct ofs_dir *dir, struct ofs_parts *parts,
    struct optimfs_error *err)
{
	struct ofs_names names;
	int ret;

	if (ofs_dir_list(dir, &names, err) == -1)
		return -1;
	ret = detect_itself(dir, &names, parts, err);
	if (ret == 0 && parts->n == 0)
		ret = ofs_detect_rank_dirs(dir, &names, parts, err);
	if (ret == 0 && parts->n == 0)
		ret = add_below(dir, &names, NULL, parts, err);
	ofs_names_free(&names);
	return ret;
}

static int dir_as(const struct ofs_dir *dir, const struct ofs_names *names,
    const struct ofs_format *format, struct ofs_parts *parts,
    struct optimfs_error *err)
{
	int ret = add_itself(dir, names, format, parts, err);

	if (ret != 0)
		return ret;
	if (format->bid == NULL || format->bid_file != NULL) {
		ret = ofs_detect_files(dir, names, format, parts, err);
		return ret == 0 && parts->n == 0
		    ? none_of(dir, format, "files", err)
		    : ret;
	}
	ret = ofs_detect_latest(dir, names, format, parts, err);
	if (ret == 1)
		ret = ofs_detect_say_chosen(dir, names, parts, err);
	else if (ret == 0)
		ret = add_below(dir, names, format, parts, err);
	return ret;
}

static int detect_as(const struct ofs_dir *dir, const char *rel,
    const char *type, struct ofs_parts *parts, struct optimfs_error *err)
{
	struct ofs_part_spec spec = { .rel = rel, .rank = -1 };
	struct ofs_names names;
	int ret;

	spec.format = ofs_format_find(type);
	if (spec.format == NULL)
		return unknown_type(type, err);
	if (rel[0] != '\0') {
		if (spec.format->bid != NULL && spec.format->bid_file == NULL)
			return optimfs_fail(err, EINVAL,
			    "OFS679 type=%s: %.200s is a file, not a "
			    "directory",
			    type, rel);
		return ofs_parts_add(parts, &spec, err);
	}
	if (ofs_dir_list(dir, &names, err) == -1)
		return -1;
	ret = dir_as(dir, &names, spec.format, parts, err);
	ofs_names_free(&names);
	return ret == -1 ? -1 : 0;
}

/* Detects the directory or file rel, and moves its parts below dir. */
static int detect_below(const struct ofs_dir *dir, const char *rel,
    const struct optimfs_options *opt, struct ofs_parts *parts,
    struct optimfs_error *err)
{
	const char *name = ofs_path_last(rel);
	bool is_dir = rel[0] == '\0' || ofs_probe_is_dir(dir, rel);
	char *above = strndup(rel, is_dir ? strlen(rel) : (size_t)(name - rel));
	struct ofs_dir sub;
	size_t n = above == NULL ? 0 : strlen(above);
	int ret;

	if (above == NULL)
		return ofs_no_memory(err);
	while (n > 0 && above[n - 1] == '/')
		above[--n] = '\0';
	ret = n == 0 ? ofs_dir_copy(dir, &sub, err)
		     : ofs_dir_open_sub(dir, above, &sub, err);
	if (ret == 0) {
		ret = ofs_detect(&sub, is_dir ? "" : name, opt, parts, err);
		ofs_dir_close(&sub);
	}
	if (ret == 0 && n > 0)
		ret = ofs_parts_move(parts, above, err);
	if (ret == 0 && is_dir)
		ret = ofs_detect_prefix(parts, above, err);
	free(above);
	return ret;
}

int ofs_detect_both(const struct ofs_dir *dir, const char *rel,
    const char *other, const struct optimfs_options *opt,
    struct ofs_parts *parts, struct optimfs_error *err)
{
	struct ofs_parts second = { 0 };
	int ret;

	*parts = (struct ofs_parts){ 0 };
	ret = detect_below(dir, rel, opt, parts, err);
	if (ret == 0)
		ret = detect_below(dir, other, opt, &second, err);
	if (ret == 0)
		ret = ofs_parts_join(parts, &second, err);
	ofs_parts_free(&second);
	if (ret == -1)
		ofs_parts_free(parts);
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
