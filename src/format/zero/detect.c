/* detect.c - detection of DeepSpeed checkpoints */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "format/zero/render.h"
#include "format/zero/update.h"
#include "format/zero/zero.h"
#include "layout/option.h"

/* Megatron also uses the name mp_rank_00, but for directories. A file with one
 * rank's weights is DeepSpeed's because of its name. */
static bool has_files(const struct ofs_dir *dir, const struct ofs_names *names)
{
	struct ofs_zero_name id;

	for (size_t i = 0; i < names->n; i++)
		if (ofs_zero_name(names->name[i], &id) &&
		    ofs_probe_is_file(dir, names->name[i]))
			return true;
	return false;
}

/* Is there a zero/ with a directory per parameter? 1, 0; -1: ENOMEM. */
static int bid_universal(const struct ofs_dir *dir,
    const struct ofs_names *names, struct optimfs_error *err)
{
	struct ofs_names params = { 0 };
	char *fp32;
	int bid = 0, ret;

	if (!ofs_probe_has(names, "zero"))
		return 0;
	ret = ofs_probe_names(dir, "zero", &params, err);
	for (size_t i = 0; i < params.n && ret == 1 && bid == 0; i++) {
		if (asprintf(&fp32, "zero/%s/fp32.pt", params.name[i]) == -1) {
			ret = ofs_no_memory(err);
			continue;
		}
		bid = ofs_probe_is_file(dir, fp32) ? 95 : 0;
		free(fp32);
	}
	ofs_names_free(&params);
	return ret == -1 ? -1 : bid;
}

/* A universal checkpoint also contains copies of the weight files. */
static int bid_deepspeed(const struct ofs_dir *dir,
    const struct ofs_names *names, struct optimfs_error *err)
{
	int universal;

	if (!has_files(dir, names))
		return 0;
	universal = bid_universal(dir, names, err);
	if (universal == -1)
		return -1;
	return universal > 0 ? OFS_BID_ASKED : 90;
}

/* The bid of format for the sub-directory name. */
static int bid_below(const struct ofs_format *format, const struct ofs_dir *dir,
    const char *name, struct optimfs_error *err)
{
	struct ofs_names names;
	struct ofs_dir sub;
	int ret = ofs_probe_open(dir, name, &sub, &names, err);

	if (ret != 1)
		return ret;
	ret = format->bid(&sub, &names, err);
	ofs_dir_close(&sub);
	ofs_names_free(&names);
	return ret;
}

/* Reads a directory name from file. 1: *name is malloc'ed; 0: not in this
 * format. */
static int latest_of(const struct ofs_format *format, const struct ofs_dir *dir,
    const struct ofs_names *names, const char *file, char **name,
    struct optimfs_error *err)
{
	int ret;

	if (!ofs_probe_has(names, file) || !ofs_probe_is_file(dir, file))
		return 0;
	if (ofs_probe_tracker(dir, file, name, err) == -1)
		return -1;
	ret = bid_below(format, dir, *name, err);
	if (ret > 0)
		return 1;
	/* any other checkpoint in dir is not DeepSpeed's last one */
	if (ret == 0 && !ofs_probe_is_dir(dir, *name) &&
	    ofs_probe_has(names, "zero_to_fp32.py"))
		ret = optimfs_fail(err, EIO,
		    "OFS676 %s: %s names %.200s, which does not "
		    "exist",
		    dir->path, file, *name);
	free(*name);
	*name = NULL;
	return ret;
}

static int latest(const struct ofs_format *format, const struct ofs_dir *dir,
    const struct ofs_names *names, char **name, struct optimfs_error *err)
{
	int ret;

	*name = NULL;
	ret = latest_of(format, dir, names, "latest", name, err);
	return ret != 0
	    ? ret
	    : latest_of(format, dir, names, "latest_universal", name, err);
}

static int latest_deepspeed(const struct ofs_dir *dir,
    const struct ofs_names *names, char **name, struct optimfs_error *err)
{
	return latest(&ofs_format_deepspeed, dir, names, name, err);
}

static int latest_universal(const struct ofs_dir *dir,
    const struct ofs_names *names, char **name, struct optimfs_error *err)
{
	return latest(&ofs_format_universal, dir, names, name, err);
}

static const char *const listed[] = { "universal", NULL };
static const char *const listed1[] = { "zero1@8", NULL };
static const char *const listed2[] = { "zero2@8", NULL };
static const char *const listed3[] = { "zero3@8", NULL };

/* No views of model or optimizer alone, or in another dtype: the loaders need a
 * whole checkpoint in its own dtypes. */

static const struct ofs_view_kind universal[] = {
	{ .name = "universal", .listed = listed },
	{ .name = NULL },
};

/* The variant is the stage; 0: a universal checkpoint. */
static const struct ofs_view_kind stages[] = {
	{ .name = "zero1", .ranked = true, .variant = 1, .listed = listed1 },
	{ .name = "zero2", .ranked = true, .variant = 2, .listed = listed2 },
	{ .name = "zero3", .ranked = true, .variant = 3, .listed = listed3 },
	{ .name = NULL },
};

/* Stage 3 has its weights in the optimizer's files. */
const char *const *ofs_zero_stays(const struct ofs_catalog *cat)
{
	static const char *const weights[] = { "optim/state/*/fp32",
		"extra/optimizer_state_dict", NULL };
	struct ofs_zero_name id;

	for (uint32_t i = 0; i < cat->nobjects; i++)
		if (ofs_zero_name(ofs_path_last(cat->objects[i].path), &id) &&
		    id.kind == OFS_ZERO_MODEL_PART)
			return weights;
	return NULL;
}

static const char *const optim[] = { "extra/optimizer_state_dict", NULL };

const struct ofs_format ofs_format_deepspeed = {
	.name = "deepspeed",
	.title = "DeepSpeed ZeRO (deepspeed)",
	.bid = bid_deepspeed,
	.trainer = "DeepSpeed",
	.has_weights = true,
	.latest = latest_deepspeed,
	.read = ofs_zero_read,
	.views = stages,
	.option = ofs_option_crc,
	.render = &ofs_zero_render,
	.update = ofs_zero_update,
	.optim = optim,
	.stays = ofs_zero_stays,
};

/* A universal checkpoint has its weights among the states of the optimizer, and its
 * loaders want the file with the options. There the step of stage 3 is, too. */
static const char *const *universal_stays(const struct ofs_catalog *cat)
{
	static const char *const files[] = { "optim/state/*/fp32",
		"optim/param_groups", "optim/state/*/step", NULL };
	static const char *const steps[] = { "optim/state/*/fp32",
		"optim/param_groups", NULL };

	for (uint32_t i = 0; i < cat->nobjects; i++)
		if (strcmp(ofs_path_last(cat->objects[i].path), "step.pt") == 0)
			return steps;
	return files;
}

const struct ofs_format ofs_format_universal = {
	.name = "universal",
	.title = "DeepSpeed universal checkpoint (universal)",
	.bid = bid_universal,
	.trainer = "DeepSpeed",
	.has_weights = true,
	.latest = latest_universal,
	.read = ofs_universal_read,
	.views = universal,
	.option = ofs_option_crc,
	.render = &ofs_zero_render,
	.update = ofs_universal_update,
	.stays = universal_stays,
};
