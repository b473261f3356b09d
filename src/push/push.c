/* push.c - the first commit of a new checkpoint */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "push/push.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/sys.h"
#include "cluster/commit/coordinator.h"
#include "fs/view.h"
#include "journal/publish.h"
#include "overlay/overlay_impl.h"
#include "push/early.h"
#include "push/template.h"
#include "reshard/reshard.h"
#include "rewrite/merge.h"

/* The order of steps, on which recovery relies:
 *
 *  1. Check that everything was written, and reshard the tree, as it was written,
 *     to filled/. This can be repeated.
 *  2. Sync everything.
 *  3. Rename template.info to template.done. From here on only names change.
 *  4. Rename the directory over the empty destination.
 *  5. Sync its parent: durable.
 *  6. Remove what is left, template.done last.
 *
 * If interrupted before 4, the destination is empty and all that was staged is
 * there; after it, only 6 is left to do. */
#define FILLED "filled"

struct filling {
	struct optimfs *fs;
	struct ofs_overlay *o;
	struct ofs_template template;
	struct ofs_merged *merged;
	struct ofs_at view;
	const struct ofs_engine_early *early;
	char *to; /* the destination */
	int stage;
	bool (*stop)(void *ctx);
	void *ctx;
};

static bool stopped(void *ctx)
{
	struct filling *c = ctx;

	return c->stop != NULL && c->stop(c->ctx);
}

static void follow(void *ctx, uint64_t done, uint64_t total, const char *file)
{
	struct filling *c = ctx;

	ofs_overlay_doing(c->o, file);
	ofs_overlay_progress(c->o,
	    done < total ? (unsigned)(done * 99 / total) : 99, done, total);
}

static char *filled_path(const struct filling *c, struct optimfs_error *err)
{
	char *place = ofs_stage_place(c->to, err), *path;

	if (place == NULL)
		return NULL;
	if (asprintf(&path, "%s/" FILLED, place) == -1) {
		path = NULL;
		ofs_no_memory(err);
	}
	free(place);
	return path;
}

static int write_files(struct filling *c, struct optimfs_error *err)
{
	struct optimfs_reshard how = {
		.to = c->template.layout,
		.watch = { .progress = follow, .stop = stopped, .ctx = c },
	};
	char *path = filled_path(c, err);
	int ret;

	if (path == NULL)
		return -1;
	ofs_publish_clear(c->stage, FILLED);
	ofs_publish_clear(c->stage, "." FILLED ".optimfs");
	ret = ofs_reshard_after(c->fs, path, &how, c->early, err);
	if (ret == 1)
		ret = optimfs_fail(err, EIO, "OFS802 %s: fsync", FILLED);
	if (ret == 0)
		ret = ofs_push_check(c->fs->now, c->view, path, &how.watch,
		    err);
	free(path);
	return ret;
}

/* From now on views show what was written, also the one of the layout. */
static int show_values(struct filling *c, struct optimfs_error *err)
{
	struct ofs_snapshot *snap = c->fs->now;
	struct ofs_changes changes;
	int ret;

	if (ofs_overlay_changes(c->o, &changes, err) == -1)
		return -1;
	ret = ofs_changes_check(&changes, err);
	ofs_changes_free(&changes);
	if (ret == 0)
		c->merged = ofs_merge(&snap->reader, c->o, err);
	if (c->merged == NULL)
		return -1;
	ofs_views_override(snap, c->merged);
	return ofs_view_make_summed(snap, c->template.layout, &c->view, err);
}

static void end(struct filling *c)
{
	if (c->merged != NULL)
		ofs_views_override(c->fs->now, NULL);
	ofs_merged_unref(c->merged);
	ofs_template_fini(&c->template);
	free(c->to);
}

static int open_filled(const struct filling *c, struct optimfs_error *err)
{
	int dir = openat(c->stage, FILLED,
	    O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	return dir == -1 ? optimfs_fail(err, errno, "OFS801 " FILLED ": %m")
			 : dir;
}

/* Copies the mode of the destination directory. */
static int like_destination(const struct filling *c, struct optimfs_error *err)
{
	int fd = open_filled(c, err), ret = -1;
	struct stat st;

	if (fd == -1)
		return -1;
	if (stat(c->to, &st) == -1 ||
	    ofs_sys_chmod(fd, st.st_mode & 07777) == -1)
		optimfs_fail(err, errno, "OFS801 %s: %m", c->to);
	else if (ofs_sys_chown(fd, st.st_uid, st.st_gid),
	    ofs_sys_fsync(fd) == -1)
		optimfs_fail(err, errno, "OFS802 fsync: %m");
	else
		ret = 0;
	close(fd);
	return ret;
}

static int mark_done(const struct filling *c, struct optimfs_error *err)
{
	if (ofs_sys_rename(c->stage, OFS_TEMPLATE_INFO, c->stage,
		OFS_TEMPLATE_DONE, 0) == -1 ||
	    ofs_sys_fsync(c->stage) == -1)
		return optimfs_fail(err, errno, "OFS802 %s: %m",
		    OFS_TEMPLATE_DONE);
	return 0;
}

/* Is it the file that readers look for first? */
static bool is_index(const char *name)
{
	size_t n = strlen(name), k = strlen(".index.json");

	return strcmp(name, ".metadata") == 0 ||
	    (n > k && strcmp(name + n - k, ".index.json") == 0);
}

static int link_files(const struct filling *c, struct ofs_publish *p, int dir,
    bool last, struct optimfs_error *err)
{
	struct ofs_snapshot *snap = c->fs->now;
	struct ofs_at at = { c->view.space, 1 };
	char name[OFS_FILE_NAME];
	uint32_t n;

	if (ofs_view_count(snap, c->view, &n, err) == -1)
		return -1;
	for (; at.index < n; at.index++) {
		ofs_view_path(snap, at, name);
		if (!ofs_view_is_dir(snap, at) && is_index(name) == last &&
		    ofs_publish_link(p, dir, name, last, err) == -1)
			return -1;
	}
	return 0;
}

/* Distributes the files to several directories. filled/ keeps them until all
 * directories are complete. */
static int give_to_participants(struct filling *c, struct optimfs_error *err)
{
	int dir = open_filled(c, err);
	struct ofs_publish *p = NULL;
	int ret = -1;

	if (dir == -1)
		return -1;
	if (ofs_stage_held(c->o->stage, err) == 0)
		p = ofs_publish_begin_all(c->fs->coordinator, c->stage, err);
	if (p != NULL && link_files(c, p, dir, false, err) == 0 &&
	    link_files(c, p, dir, true, err) == 0 && mark_done(c, err) == 0) {
		ofs_overlay_shut(c->o);
		ret = ofs_publish_commit(p, err);
		if (ret == -1)
			ofs_push_settle(c->o->stage, false);
	}
	ofs_publish_free(p);
	close(dir);
	return ret;
}

/* After the decision. */
static int seal_participants(struct filling *c, int ret,
    struct optimfs_error *err)
{
	struct optimfs_error why;

	if (ret == 1) {
		(void)ofs_overlay_published(c->o, err);
	} else if (ofs_overlay_published(c->o, NULL) == 0) {
		if (ofs_coordinator_forget(c->fs->coordinator, &why) == -1)
			ofs_overlay_stop(c->o, &why);
		ofs_push_settle(c->o->stage, true);
	}
	return ret;
}

static int give_name(struct filling *c, struct optimfs_error *err)
{
	int ret;

	if (like_destination(c, err) == -1 ||
	    ofs_stage_held(c->o->stage, err) == -1)
		return -1;
	if (ofs_dir_empty(c->to) != 1)
		return optimfs_fail(err, ENOTEMPTY,
		    "OFS830 %s is no longer an empty directory", c->to);
	ofs_overlay_shut(c->o);
	ret = mark_done(c, err);
	if (ret == 0 &&
	    ofs_sys_rename(c->stage, FILLED, AT_FDCWD, c->to, 0) == -1)
		ret = optimfs_fail(err, errno, "OFS802 %s: %m", c->to);
	if (ret == -1)
		ofs_push_settle(c->o->stage, false);
	return ret;
}

/* After the rename: whatever fails, the new checkpoint exists. */
static int seal(struct filling *c, struct optimfs_error *err)
{
	if (ofs_sync_parent(c->to) == -1) {
		optimfs_fail(err, errno,
		    "OFS803 %s is there, but may not survive a crash of the "
		    "machine: its directory could not be synced: %m",
		    c->to);
		(void)ofs_overlay_published(c->o, err);
		return 1;
	}
	/* until the journal is empty, the mark says that it has been applied */
	if (ofs_overlay_published(c->o, NULL) == 0)
		ofs_push_settle(c->o->stage, true);
	return 0;
}

void ofs_push_settle(struct ofs_stage *st, bool published)
{
	static const char *const rests[] = { FILLED, "." FILLED ".optimfs" };
	int stage = ofs_stage_beside(st);

	if (!published) {
		(void)ofs_sys_rename(stage, OFS_TEMPLATE_DONE, stage,
		    OFS_TEMPLATE_INFO, 0);
		return;
	}
	for (size_t i = 0; i < sizeof(rests) / sizeof(*rests); i++) {
		ofs_publish_clear(stage, rests[i]);
		if (faccessat(stage, rests[i], F_OK, AT_SYMLINK_NOFOLLOW) == 0)
			return; /* left to the next mount */
	}
	(void)ofs_sys_unlink(stage, OFS_TEMPLATE_DONE);
}

static int fill(struct filling *c, struct optimfs_error *err)
{
	bool many = c->fs->coordinator != NULL;
	int ret;

	c->to = realpath(c->fs->source, NULL);
	if (c->to == NULL)
		return optimfs_fail(err, errno, "OFS809 %s: %m", c->fs->source);
	if (ofs_overlay_complete(c->o, err) == -1 ||
	    ofs_stage_held(c->o->stage, err) == -1)
		return -1;
	/* an attempt that failed may have left its mark */
	ofs_push_settle(c->o->stage, false);
	if (ofs_template_load(c->stage, &c->template, err) == -1 ||
	    show_values(c, err) == -1 || write_files(c, err) == -1)
		return -1;
	ret = many ? give_to_participants(c, err) : give_name(c, err);
	if (ret == -1)
		return -1;
	c->o->published = true;
	return many ? seal_participants(c, ret, err) : seal(c, err);
}

static int push(struct optimfs *fs, bool (*stop)(void *ctx), void *ctx,
    struct optimfs_error *err)
{
	struct filling c = {
		.fs = fs,
		.o = fs->now->overlay,
		.stage = ofs_stage_beside(fs->now->overlay->stage),
		.early = ofs_push_early(fs),
		.stop = stop,
		.ctx = ctx,
	};
	int ret = fill(&c, err);

	if (ret == -1)
		ofs_overlay_incomplete(c.o);
	end(&c);
	ofs_push_early_end(fs);
	return ret;
}

const struct ofs_filling_ops ofs_push_ops = {
	.commit = push,
	.whole = ofs_push_whole,
	.end = ofs_push_early_end,
};
