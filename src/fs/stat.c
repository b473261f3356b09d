/* stat.c - .optimfs/stat: statistics of the elements of a tensor */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdlib.h>

#include "base/dtype.h"
#include "base/memory.h"
#include "fs/fs.h"
#include "overlay/overlay.h"
#include "stats/hash.h"
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

/* A tensor that is being read step by step. */
struct summing {
	struct optimfs_file *file;
	size_t item;
	struct ofs_stats *all, *step;
	struct ofs_stats_hash *hash;
	uint8_t *buf;
	uint64_t off;
};

/* How many steps from here on have only elements that are all equal, if that is
 * known without reading; otherwise 1. */
static uint64_t equal_steps(const struct summing *s)
{
	uint64_t n =
	    ofs_file_alike_in(s->file, s->off / s->item, 2 * STEP, UINT64_MAX);

	return n < STEP ? 1 : n / STEP;
}

static void add_step(struct summing *s, size_t n, uint64_t times)
{
	if (times == 1) {
		ofs_stats_add(s->all, s->buf, n / s->item);
	} else {
		ofs_stats_clear(s->step);
		ofs_stats_add(s->step, s->buf, n / s->item);
		ofs_stats_join(s->all, s->step, times);
	}
	ofs_stats_hash_add(s->hash, s->buf, n, times);
	s->off += times * n;
}

static int add_all(struct summing *s, uint64_t *hash, struct optimfs_error *err)
{
	uint64_t times;
	ssize_t n;

	do {
		times = equal_steps(s);
		n = ofs_file_read(s->file, s->buf, STEP * s->item, s->off, err);
		if (n > 0)
			add_step(s, (size_t)n, times);
	} while (n > 0);
	*hash = ofs_stats_hash_value(s->hash);
	return n == -1 ? -1 : 0;
}

/* Reads the file of the tree, with staged changes. */
static int read_tree(struct ofs_snapshot *snap, uint32_t index,
    enum ofs_dtype dtype, struct ofs_stats *s, uint64_t *hash,
    struct optimfs_error *err)
{
	struct ofs_at at = { OFS_SPACE_TREE, index };
	size_t item = ofs_dtype_size(dtype);
	struct summing sum = { .item = item,
		.all = s,
		.step = ofs_stats_new(dtype, err),
		.hash = ofs_stats_hash_new(err),
		.buf = malloc(STEP * item) };
	int ret = -1;

	if (sum.step == NULL || sum.hash == NULL || sum.buf == NULL)
		ofs_no_memory(err);
	else if (ofs_file_open(snap, at, &sum.file, err) == 0)
		ret = add_all(&sum, hash, err);
	optimfs_file_close(sum.file);
	ofs_stats_free(sum.step);
	ofs_stats_hash_free(sum.hash);
	free(sum.buf);
	return ret;
}

static int stat_text(struct ofs_snapshot *snap, uint32_t index,
    enum ofs_dtype dtype, struct ofs_stats *s, struct ofs_buf *out,
    struct optimfs_error *err)
{
	struct optimfs_statistics result;
	uint64_t hash;

	if (read_tree(snap, index, dtype, s, &hash, err) == -1 ||
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
	if (stat_text(snap, index, dtype, s, &out, err) == 0) {
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
