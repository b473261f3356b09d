/* detect.c - is a directory a checkpoint of DeepSpeed's? */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "format/zero/universal.h"
#include "format/zero/zero.h"

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
		    ofs_probe_is_file(dir, names->name[i]))
			return true;
	return false;
}

int ofs_zero_format(const struct ofs_dir *dir, const struct ofs_names *names,
    const struct ofs_format **format, struct optimfs_error *err)
{
	/* a universal one has copies of the weights' files */
	int universal = has(names, "zero") ? ofs_is_universal(dir, "", err) : 0;

	*format = NULL;
	if (universal == 1)
		*format = &ofs_format_universal;
	else if (universal == 0 && has_files(dir, names))
		*format = &ofs_format_deepspeed;
	return universal == -1 ? -1 : *format != NULL;
}

/* The format of the sub-directory tag. */
static int format_of(const struct ofs_dir *dir, const char *tag,
    const struct ofs_format **format, struct optimfs_error *err)
{
	struct ofs_names names = { 0 };
	struct ofs_dir sub;
	int ret = ofs_probe_names(dir, tag, &names, err);

	if (ret == 1 && ofs_dir_open_sub(dir, tag, &sub, err) == 0) {
		ret = ofs_zero_format(&sub, &names, format, err);
		ofs_dir_close(&sub);
	} else if (ret == 1) {
		ret = -1;
	}
	ofs_names_free(&names);
	return ret;
}

int ofs_zero_latest(const struct ofs_dir *dir, const struct ofs_names *names,
    const char *file, char **tag, const struct ofs_format **format,
    struct optimfs_error *err)
{
	int ret = 0;

	*tag = NULL;
	*format = NULL;
	if (!has(names, file) || !ofs_probe_is_file(dir, file))
		return 0;
	if (ofs_probe_tracker(dir, file, tag, err) == -1)
		return -1;
	ret = format_of(dir, *tag, format, err);
	if (ret == 1)
		return 1;
	/* what else is there is not what DeepSpeed wrote last */
	if (ret == 0 && !ofs_probe_is_dir(dir, *tag) &&
	    has(names, "zero_to_fp32.py"))
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
	const struct ofs_format *format;
	char *tag;
	int ret = ofs_zero_format(dir, names, &format, err);

	if (ret != 0)
		return ret == 1 ? add(parts, format, "", err) : -1;
	for (size_t i = 0; i < 2 && ret == 0; i++) {
		ret = ofs_zero_latest(dir, names, files[i], &tag, &format, err);
		if (ret == 1)
			ret = add(parts, format, tag, err);
		free(tag);
	}
	return ret;
}
