/* raw.c - a file of any kind as one leaf of bytes */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "format/format.h"

#include <errno.h>
#include <string.h>

#include "format/part.h"

/* The file is a uint8 tensor, since only its size is needed at mount; a reader
 * gets the bytes later. */
static uint32_t add_bytes(struct ofs_catalog *cat, uint32_t object,
    struct optimfs_error *err)
{
	uint64_t size = cat->objects[object].size;
	struct ofs_shard s = { .at = { .len = size, .object = object },
		.box = OFS_NONE,
		.view = OFS_NONE };
	struct ofs_tensor t = { .ndim = 1,
		.grid_ndim = 1,
		.dtype = OFS_UINT8,
		.shard = cat->nshards,
		.nshards = size > 0,
		.error = OFS_NONE,
		.flags = OFS_TENSOR_FILE };

	t.shape = t.grid = ofs_catalog_dims(cat, &size, 1, err);
	if (size > 0)
		ofs_catalog_shard(cat, &s, err);
	return ofs_catalog_tensor(cat, &t, err);
}

/* The leaf has the file's name unless the part has a prefix. */
static uint32_t add_path(struct ofs_catalog *cat, const struct ofs_part *part,
    struct optimfs_error *err)
{
	const char *name = ofs_path_last(part->rel);
	uint32_t path[OFS_PART_PREFIX];
	size_t n;

	if (ofs_part_prefix(cat, part, path, &n, err) == -1)
		return OFS_NONE;
	if (n == 0)
		path[n++] = ofs_catalog_str(cat, name, strlen(name), err);
	return ofs_catalog_path(cat, path, n, err);
}

static int read_raw(struct ofs_catalog *cat, const struct ofs_part *part,
    const struct optimfs_options *opt, struct optimfs_error *err)
{
	uint32_t object;

	(void)opt;
	object = ofs_catalog_object(cat, part->rel, part->rank, err);
	if (object == OFS_NONE)
		return -1;
	if (cat->objects[object].missing || cat->objects[object].refused)
		return optimfs_fail(err, EIO, "OFS603 %s cannot be read",
		    part->rel);
	return ofs_catalog_add(cat, add_path(cat, part, err), OFS_ENTRY_TENSOR,
	    add_bytes(cat, object, err), OFS_KEY_FREE, err);
}

const struct ofs_format ofs_format_raw = {
	.name = "raw",
	.read = read_raw,
};
