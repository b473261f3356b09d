/* zero_detect.c - is a directory a checkpoint of DeepSpeed's? */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "format/universal.h"
#include "format/zero.h"

static bool has(const struct ofs_names *names, const char *name)
{
	for (size_t i = 0; i < names->n; i++)
		if (strcmp(names->name[i], name) == 0)
			return true;
	return false;
}

static int add(struct ofs_parts *parts, const struct ofs_format *format,
    const char *rel, struct optimfs_error *err)
{
	struct ofs_part_spec spec = {
		.format = format, .rel = rel, .rank = -1
	};

	parts->trainer = "DeepSpeed";
	return ofs_parts_add(parts, &spec, err) == -1 ? -1 : 1;
}

/* Files of Megatron's are called mp_rank_00 too, but are directories; a
 * rank's weights alone are DeepSpeed's by their name. */
static bool has_files(const struct ofs_dir *dir, const struct ofs_names *names)
{
	struct ofs_zero_name id;

	for (size_t i = 0; i < names->n; i++)
		if (ofs_zero_name(names->name[i], &id) &&
		    ofs_detect_is_file(dir, names->name[i]))
			return true;
	return false;
}

const struct ofs_format *ofs_zero_format(const struct ofs_dir *dir,
    const struct ofs_names *names)
{
	/* a universal one has copies of the weights' files */
	if (has(names, "zero") && ofs_is_universal(dir, ""))
		return &ofs_format_universal;
	return has_files(dir, names) ? &ofs_format_deepspeed : NULL;
}

/* The format of the sub-directory tag. */
static const struct ofs_format *format_of(const struct ofs_dir *dir,
    const char *tag)
{
	const struct ofs_format *format = NULL;
	struct ofs_names names;
	struct ofs_dir sub;

	if (ofs_dir_open_sub(dir, tag, &sub, NULL) == -1)
		return NULL;
	if (ofs_dir_list(&sub, &names, NULL) == 0) {
		format = ofs_zero_format(&sub, &names);
		ofs_names_free(&names);
	}
	ofs_dir_close(&sub);
	return format;
}

int ofs_zero_latest(const struct ofs_dir *dir, const struct ofs_names *names,
    const char *file, char **tag, const struct ofs_format **format,
    struct optimfs_error *err)
{
	int ret = 0;

	*tag = NULL;
	*format = NULL;
	if (!has(names, file) || !ofs_detect_is_file(dir, file))
		return 0;
	if (ofs_detect_tracker(dir, file, tag, err) == -1)
		return -1;
	*format = format_of(dir, *tag);
	if (*format != NULL)
		return 1;
	/* what else is there is not what DeepSpeed wrote last */
	if (!ofs_detect_is_dir(dir, *tag) && has(names, "zero_to_fp32.py"))
		ret = optimfs_fail(err, EIO,
		    "OFS676 %s: %s says %.200s, not found", dir->path, file,
		    *tag);
	free(*tag);
	*tag = NULL;
	return ret;
}

int ofs_zero_detect(const struct ofs_dir *dir, const struct ofs_names *names,
    struct ofs_parts *parts, struct optimfs_error *err)
{
	static const char *const files[] = { "latest", "latest_universal" };
	const struct ofs_format *format = ofs_zero_format(dir, names);
	char *tag;
	int ret = 0;

	if (format != NULL)
		return add(parts, format, "", err);
	for (size_t i = 0; i < 2 && ret == 0; i++) {
		ret = ofs_zero_latest(dir, names, files[i], &tag, &format, err);
		if (ret == 1)
			ret = add(parts, format, tag, err);
		free(tag);
	}
	return ret;
}
