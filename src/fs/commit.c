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

static struct ofs_publish *begin_publish(const struct optimfs *fs, int stage,
    struct optimfs_error *err)
{
	return fs->coordinator != NULL
	    ? ofs_publish_begin_all(fs->coordinator, stage, err)
	    : ofs_publish_begin(fs->now->cat->dir.path, fs->now->cat->dir.fd,
		  stage, err);
}

/* What a commit works on, but for the changes, the parts and the publisher. */
static struct ofs_commit_job job_of(struct ofs_snapshot *snap)
{
	struct optimfs *fs = snap->fs;

	return (struct ofs_commit_job){
		.source = fs->source,
		.reader = &snap->reader,
		.tree = &snap->tree,
		.options = &fs->options,
		.overlay = snap->overlay,
		.many = fs->coordinator != NULL,
		.same = same,
		.reread = reread,
		.ctx = fs,
	};
}

/* The parts of the checkpoint, with their formats. */
static int put_parts(const struct optimfs *fs, struct ofs_commit_job *job,
    struct ofs_parts *parts, struct optimfs_error *err)
{
	struct ofs_commit_part *part;

	if (path_of(fs) == NULL)
		return optimfs_fail(err, EROFS,
		    "OFS826 %s: it is not on this machine", fs->source);
	if (ofs_find_parts(path_of(fs), &fs->options, parts, err) == -1)
		return -1;
	part = ofs_alloc(parts->n + 1, sizeof(*part), err);
	if (part == NULL) {
		ofs_parts_free(parts);
		return -1;
	}
	for (size_t i = 0; i < parts->n; i++)
		part[i] = (struct ofs_commit_part){ &parts->part[i],
			parts->part[i].format->update };
	job->part = part;
	job->nparts = parts->n;
	return 0;
}

static void free_parts(struct ofs_commit_job *job, struct ofs_parts *parts)
{
	free((void *)job->part);
	ofs_parts_free(parts);
}

int ofs_fs_commit_changes(struct optimfs *fs, const struct ofs_changes *changes,
    int stage, bool (*stop)(void *ctx), void *ctx, struct optimfs_error *err)
{
	struct ofs_commit_job job = job_of(fs->now);
	struct ofs_parts parts;
	int ret = -1;

	job.changes = changes;
	job.stage = stage;
	job.stop = stop;
	job.stop_ctx = ctx;
	if (put_parts(fs, &job, &parts, err) == -1)
		return -1;
	job.publish = begin_publish(fs, stage, err);
	if (job.publish != NULL)
		ret = ofs_commit_run(&job, err);
	ofs_publish_free(job.publish);
	free_parts(&job, &parts);
	return ret;
}

/* The writers are held. */
static int lay_changes(struct ofs_snapshot *snap, struct ofs_changes *changes,
    int (*lay)(void *arg, const struct ofs_commit_job *job,
	struct ofs_changes *changes, struct optimfs_error *err),
    void *arg, struct optimfs_error *err)
{
	struct ofs_commit_job job = job_of(snap);
	struct ofs_parts parts = { 0 };
	int ret;

	job.changes = changes;
	if (ofs_changes_check(changes, err) == -1 ||
	    (changes->n > 0 && put_parts(snap->fs, &job, &parts, err) == -1))
		return -1;
	ret = lay(arg, &job, changes, err);
	free_parts(&job, &parts);
	return ret;
}

int ofs_fs_lay_commit(struct ofs_snapshot *snap,
    int (*lay)(void *arg, const struct ofs_commit_job *job,
	struct ofs_changes *changes, struct optimfs_error *err),
    void *arg, struct optimfs_error *err)
{
	struct ofs_changes changes = { 0 };
	int ret;

	if (snap->cat->computed != NULL)
		return optimfs_fail(err, ENOENT,
		    "OFS771 view source: the checkpoint is computed from "
		    "others, and has no files: name a format");
	if (snap->overlay == NULL)
		return lay_changes(snap, &changes, lay, arg, err);
	if (ofs_overlay_hides(snap->overlay))
		return optimfs_fail(err, ENOENT,
		    "OFS771 view source: the checkpoint has no files before "
		    "its commit");
	if (ofs_hold_writers(snap->fs, false, err) == -1)
		return -1;
	ret = ofs_overlay_changes(snap->overlay, &changes, err);
	if (ret == 0)
		ret = lay_changes(snap, &changes, lay, arg, err);
	ofs_let_writers(snap->fs);
	ofs_changes_free(&changes);
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

/* Then the journal is emptied. */
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
