/* dir.c - the format of a directory as a whole */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdlib.h>

#include "detect/detect.h"
#include "detect/registry.h"
#include "format/probe.h"

int ofs_detect_dir(const struct ofs_dir *dir, const struct ofs_names *names,
    const struct ofs_format **format, struct optimfs_error *err)
{
	const struct ofs_format *f;
	int bid, highest = OFS_BID_ASKED;

	*format = NULL;
	for (size_t i = 0; (f = ofs_format_at(i)) != NULL; i++) {
		bid = f->bid == NULL ? 0 : f->bid(dir, names, err);
		if (bid == -1)
			return -1;
		if (bid > highest) {
			highest = bid;
			*format = f;
		}
	}
	return *format != NULL;
}

int ofs_detect_sub(const struct ofs_dir *dir, const char *rel,
    const struct ofs_format **format, struct optimfs_error *err)
{
	struct ofs_names names;
	struct ofs_dir sub;
	int ret = ofs_probe_open(dir, rel, &sub, &names, err);

	*format = NULL;
	if (ret != 1)
		return ret;
	ret = ofs_detect_dir(&sub, &names, format, err);
	ofs_dir_close(&sub);
	ofs_names_free(&names);
	return ret;
}

int ofs_detect_lone(const struct ofs_dir *dir, const char *name,
    const char *format, const char *prefix, struct ofs_parts *parts,
    struct optimfs_error *err)
{
	struct ofs_part_spec spec = {
		.rel = name,
		.format = ofs_format_find(format),
		.prefix = { prefix },
		.rank = -1,
		.optional = true,
	};

	return ofs_probe_is_file(dir, name) ? ofs_parts_add(parts, &spec, err)
					    : 0;
}

int ofs_detect_add(const struct ofs_dir *dir, const struct ofs_format *format,
    struct ofs_parts *parts, struct optimfs_error *err)
{
	struct ofs_part_spec spec = {
		.rel = "",
		.format = format,
		.prefix = { format->prefix },
		.rank = -1,
	};

	if (format->trainer != NULL)
		parts->trainer = format->trainer;
	if (ofs_parts_add(parts, &spec, err) == -1)
		return -1;
	return format->beside == NULL
	    ? 0
	    : ofs_detect_lone(dir, format->beside, "torch",
		  format->beside_prefix, parts, err);
}

int ofs_detect_latest(const struct ofs_dir *dir, const struct ofs_names *names,
    const struct ofs_format *format, struct ofs_parts *parts,
    struct optimfs_error *err)
{
	struct ofs_part_spec spec = { .format = format, .rank = -1 };
	char *name;
	int ret;

	if (format->latest == NULL)
		return 0;
	ret = format->latest(dir, names, &name, err);
	if (ret != 1)
		return ret;
	parts->trainer = format->trainer;
	parts->chosen = true;
	spec.rel = name;
	ret = ofs_parts_add(parts, &spec, err) == -1 ? -1 : 1;
	free(name);
	return ret;
}
