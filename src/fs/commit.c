/* commit.c - publish the changes of an opened checkpoint */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "fs/commit.h"

#include <errno.h>
#include <stdlib.h>

#include "base/memory.h"
#include "cluster/commit/coordinator.h"
#include "cluster/source.h"
#include "format/format.h"
#include "fs/fs.h"
#include "rewrite/commit.h"

/* write_commit.c says whether a commit may begin, and shows the new state. This
 * file joins what a commit works on: the changes of the overlay, the parts of
 * the checkpoint with their formats, and the publisher of its directories. */

static int same(void *ctx, struct optimfs_error *err)
{
	return ofs_indexes_same(((struct optimfs *)ctx)->now, err);
}

static const char *path_of(const struct optimfs *fs)
{
	return fs->coordinator == NULL ? fs->real : fs->source;
}

static struct ofs_catalog *reread(void *ctx, int upper, const char *const *gone,
    size_t n, struct optimfs_error *err)
{
	struct optimfs *fs = ctx;

	return ofs_read_over(path_of(fs), upper, gone, n, &fs->options, err);
}

static struct ofs_publish *begin(const struct optimfs *fs, int stage,
    struct optimfs_error *err)
{
	return fs->coordinator != NULL
	    ? ofs_publish_begin_all(fs->coordinator, stage, err)
	    : ofs_publish_begin(fs->now->cat->dir.path, fs->now->cat->dir.fd,
		  stage, err);
}

static int run(const struct ofs_commit_job *job, const struct ofs_parts *parts,
    struct optimfs_error *err)
{
	struct ofs_commit_job with_parts = *job;
	struct ofs_commit_part *part = calloc(parts->n + 1, sizeof(*part));
	int ret;

	if (part == NULL)
		return ofs_no_memory(err);
	for (size_t i = 0; i < parts->n; i++)
		part[i] = (struct ofs_commit_part){ &parts->part[i],
			parts->part[i].format->update };
	with_parts.part = part;
	with_parts.nparts = parts->n;
	ret = ofs_commit_run(&with_parts, err);
	free(part);
	return ret;
}

int ofs_fs_commit_changes(struct optimfs *fs, const struct ofs_changes *changes,
    int stage, bool (*stop)(void *ctx), void *ctx, struct optimfs_error *err)
{
	struct ofs_commit_job job = {
		.source = fs->source,
		.reader = &fs->now->reader,
		.tree = &fs->now->tree,
		.options = &fs->options,
		.overlay = fs->now->overlay,
		.changes = changes,
		.stage = stage,
		.many = fs->coordinator != NULL,
		.stop = stop,
		.stop_ctx = ctx,
		.same = same,
		.reread = reread,
		.ctx = fs,
	};
	struct ofs_parts parts;
	int ret = -1;

	if (path_of(fs) == NULL)
		return optimfs_fail(err, EROFS,
		    "OFS826 %s: it is not on this machine", fs->source);
	if (ofs_find_parts(path_of(fs), &fs->options, &parts, err) == -1)
		return -1;
	job.publish = begin(fs, stage, err);
	if (job.publish != NULL)
		ret = run(&job, &parts, err);
	ofs_publish_free(job.publish);
	ofs_parts_free(&parts);
	return ret;
}

/* Removes the record of the commit. With several directories, recovery may
 * still be needed. */
static void forget(const struct optimfs *fs, bool safe)
{
	struct ofs_overlay *o = fs->now->overlay;
	struct optimfs_error why;
	int ret = 0;

	if (fs->coordinator == NULL)
		ret = ofs_publish_forget(ofs_stage_beside(ofs_overlay_stage(o)),
		    &why);
	else if (safe)
		ret = ofs_coordinator_forget(fs->coordinator, &why);
	if (ret == -1)
		ofs_overlay_stop(o, &why);
}

int ofs_fs_commit(struct optimfs *fs, bool (*stop)(void *ctx), void *ctx,
    struct optimfs_error *err)
{
	struct ofs_stage *stage = ofs_overlay_stage(fs->now->overlay);
	struct ofs_changes changes;
	int ret;

	if (ofs_overlay_changes(fs->now->overlay, &changes, err) == -1)
		return -1;
	if (ofs_changes_check(&changes, err) == -1 ||
	    ofs_stage_held(stage, err) == -1)
		ret = -1;
	else
		ret = ofs_fs_commit_changes(fs, &changes,
		    ofs_stage_beside(stage), stop, ctx, err);
	ofs_changes_free(&changes);
	/* the record of the commit stays until the journal is empty: in between
	 * it says that the journal has been applied */
	if (ret != -1 &&
	    ofs_overlay_published(fs->now->overlay, ret == 1 ? err : NULL) == 0)
		forget(fs, ret == 0);
	return ret;
}
