/* stat.c - .optimfs/stat: statistics of the elements of a tensor */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdlib.h>
#include <xxhash.h>

#include "base/dtype.h"
#include "base/memory.h"
#include "fs/fs.h"
#include "overlay/overlay.h"
#include "stats/stats.h"

/* A whole number of blocks for every dtype. */
#define STEP (OFS_STATS_BLOCK * 256u)

static bool stat_holds(const struct ofs_snapshot *snap,
    const struct ofs_space *s, const struct ofs_entry *e)
{
	const struct ofs_tensor *t = ofs_entry_tensor(snap->cat, e);

	(void)s;
	return t != NULL && t->ndim > 0 &&
	    ofs_dtype_size((enum ofs_dtype)t->dtype) > 0;
}

/* The size is only known after reading the tensor: too slow for stat. */
static int stat_size(struct ofs_snapshot *snap, const struct ofs_space *s,
    uint32_t index, struct optimfs_attr *attr, struct optimfs_error *err)
{
	(void)snap;
	(void)s;
	(void)index;
	(void)err;
	attr->size = OFS_STATS_TEXT_MAX;
	attr->exact = false;
	return 0;
}

static int add_all(struct optimfs_file *file, struct ofs_stats *s, size_t item,
    uint64_t *hash, struct optimfs_error *err)
{
	XXH3_state_t *sum = XXH3_createState();
	uint8_t *buf = malloc(STEP * item);
	uint64_t off = 0;
	ssize_t n = -1;

	if (sum == NULL || buf == NULL) {
		ofs_no_memory(err);
		goto out;
	}
	XXH3_64bits_reset(sum);
	while ((n = ofs_file_read(file, buf, STEP * item, off, err)) > 0) {
		ofs_stats_add(s, buf, (size_t)n / item);
		XXH3_64bits_update(sum, buf, (size_t)n);
		off += (uint64_t)n;
	}
	*hash = XXH3_64bits_digest(sum);
out:
	XXH3_freeState(sum);
	free(buf);
	return n == -1 ? -1 : 0;
}

/* Reads the file of the tree, with staged changes. */
static int read_tree(struct ofs_snapshot *snap, uint32_t index,
    struct ofs_stats *s, size_t item, uint64_t *hash, struct optimfs_error *err)
{
	struct ofs_at at = { OFS_SPACE_TREE, index };
	struct optimfs_file *file;
	int ret;

	if (ofs_file_open(snap, at, &file, err) == -1)
		return -1;
	ret = add_all(file, s, item, hash, err);
	optimfs_file_close(file);
	return ret;
}

static int stat_text(struct ofs_snapshot *snap, uint32_t index,
    struct ofs_stats *s, size_t item, struct ofs_buf *out,
    struct optimfs_error *err)
{
	struct optimfs_statistics result;
	uint64_t hash;

	if (read_tree(snap, index, s, item, &hash, err) == -1 ||
	    ofs_stats_result(s, &result, err) == -1)
		return -1;
	result.xxh3 = hash;
	ofs_stats_text(&result, out);
	optimfs_statistics_fini(&result);
	return 0;
}

/* The element type of the file of the tree: a writer may have added the tensor,
 * or changed its type. */
static enum ofs_dtype dtype_of(struct ofs_snapshot *snap, uint32_t index)
{
	struct ofs_overlay_form form = { 0 };

	if (snap->overlay != NULL)
		ofs_overlay_form(snap->overlay, index, &form);
	if (form.dtype != OFS_DTYPE_NONE)
		return (enum ofs_dtype)form.dtype;
	return (enum ofs_dtype)ofs_tree_tensor(&snap->tree, snap->cat, index)
	    ->dtype;
}

static int stat_open(struct ofs_snapshot *snap, const struct ofs_space *space,
    uint32_t index, struct optimfs_file *file, struct optimfs_error *err)
{
	enum ofs_dtype dtype = dtype_of(snap, index);
	struct ofs_stats *s = ofs_stats_new(dtype, err);
	struct ofs_buf out = { 0 };
	int ret = -1;

	(void)space;
	if (s == NULL)
		return -1;
	if (stat_text(snap, index, s, ofs_dtype_size(dtype), &out, err) == 0) {
		file->blob = ofs_blob_of(&out, err);
		ret = file->blob == NULL ? -1 : 0;
	}
	ofs_buf_fini(&out);
	ofs_stats_free(s);
	return ret;
}

const struct ofs_space_ops ofs_space_stat = {
	.suffix = "",
	.holds = stat_holds,
	.size = stat_size,
	.open = stat_open,
};
