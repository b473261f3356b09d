/* torch_checkpointing.c - a directory with the index of torch_checkpointing */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "format/torch_checkpointing/torch_checkpointing.h"

#include <stdlib.h>

#include "detect/detect.h"

/* The index with its files, then the files of torch.save beside it, by their
 * names. */
static int add_parts(const struct ofs_dir *dir, const struct ofs_names *names,
    const struct ofs_part_file *file, size_t n, struct ofs_parts *parts,
    struct optimfs_error *err)
{
	struct ofs_part_spec spec = { .rel = OFS_TC_INDEX,
		.format = &ofs_format_torch_checkpointing,
		.file = file,
		.nfiles = n,
		.rank = -1 };

	if (ofs_parts_add(parts, &spec, err) == -1)
		return -1;
	parts->trainer = ofs_format_torch_checkpointing.trainer;
	return ofs_detect_files(dir, names, NULL, parts, err) == -1 ? -1 : 1;
}

int ofs_detect_torch_checkpointing(const struct ofs_dir *dir,
    const struct ofs_names *names, struct ofs_parts *parts,
    struct optimfs_error *err)
{
	int ret = ofs_format_torch_checkpointing.bid(dir, names, err);
	struct ofs_part_file *file = NULL;
	size_t n = 0;

	if (ret <= 0)
		return ret;
	ret = ofs_tc_files(dir, &file, &n, err);
	if (ret == 0)
		ret = add_parts(dir, names, file, n, parts, err);
	for (size_t i = 0; i < n; i++)
		free(file[i].rel);
	free(file);
	return ret;
}
