/* writethrough_commit.c - publish a complete template as the checkpoint */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

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
#include "push/rest.h"
#include "push/template.h"
#include "push/writethrough.h"
#include "rewrite/merge.h"

/* The order of steps, on which recovery relies:
 *
 *  1. Write what the template has besides tensors, as it is now: values, 0-dim
 *     elements, checksums (rest.h). Where a value takes more or fewer bytes than
 *     at first, or items are to be compressed, render everything to filled/.
 *     Both can be repeated.
 *  2. Sync everything.
 *  3. Rename template.info to template.done. From here on only names change.
 *  4. Rename the directory over the empty destination.
 *  5. Sync its parent: durable.
 *  6. Remove the rest of the template, template.done last.
 *
 * If interrupted before 4, the destination is empty and the template is intact;
 * after it, only 6 is left to do. */
#define FILLED "filled"

struct committing {
	struct optimfs *fs;
	struct ofs_overlay *o;
	struct ofs_template template;
	struct ofs_merged *merged;
	struct ofs_rest rest; /* files of the template */
	int stage;            /* the stage */
	bool (*stop)(void *ctx);
	void *ctx;
};

static bool stopped(void *ctx)
{
	struct committing *c = ctx;

	return c->stop != NULL && c->stop(c->ctx);
}

static int tick(void *ctx, uint64_t done, uint64_t total, const char *name,
    struct optimfs_error *err)
{
	struct committing *c = ctx;

	ofs_overlay_doing(c->o, name);
	ofs_overlay_progress(c->o,
	    done < total ? (unsigned)(done * 99 / total) : 99, done, total);
	if (stopped(c))
		return optimfs_fail(err, ECANCELED, "given up");
	return 0;
}

/* Accepts texts that were created empty, where empty is valid. */
static int accept_empty(void *ctx, uint32_t index, struct ofs_overlay_file *f,
    struct optimfs_error *err)
{
	struct ofs_overlay *o = ctx;
	struct optimfs_error own;

	(void)err;
	if (!f->unwritten)
		return 0;
	f->draft.len = 0;
	f->has_draft = true;
	if (ofs_overlay_text_accept(o, f, index, &own) == -1)
		f->has_draft = false;
	return 0;
}

static int put_element(void *ctx, uint32_t index, struct ofs_overlay_file *f,
    struct optimfs_error *err)
{
	struct committing *c = ctx;

	/* computed tensors are not stored */
	if (ofs_tree_tensor(c->o->tree, c->o->cat, index) == NULL ||
	    ofs_writethrough_is_rounded(c->o, c->o->tree->node[index].entry))
		return 0;
	return ofs_writethrough_element(c->o, f, err);
}

static int open_in_stage(const struct committing *c, const char *name,
    struct optimfs_error *err)
{
	int dir = openat(c->stage, name,
	    O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	return dir == -1 ? optimfs_fail(err, errno, "OFS801 %s: %m", name)
			 : dir;
}

static void follow(void *ctx, uint64_t done, uint64_t total, const char *file)
{
	(void)tick(ctx, done, total, file, NULL);
}

/* Renders a new generation beside the template, from its elements. */
static int render_anew(struct committing *c, struct optimfs_error *err)
{
	struct optimfs_reshard how = {
		.to = c->template.layout,
		.watch = { .progress = follow, .stop = stopped, .ctx = c },
	};
	char *place, *path;
	int ret;

	ofs_publish_clear(c->stage, FILLED);
	ofs_publish_clear(c->stage, "." FILLED ".optimfs");
	place = ofs_stage_place(ofs_writethrough_destination(c->o), err);
	if (place == NULL)
		return -1;
	ret = asprintf(&path, "%s/" FILLED, place);
	free(place);
	if (ret == -1)
		return ofs_no_memory(err);
	ret = optimfs_reshard(c->fs, path, &how, err);
	free(path);
	return ret == 1 ? optimfs_fail(err, EIO, "OFS802 %s: fsync", FILLED)
			: ret;
}

/* Writes what is left; *from gets the directory with the complete files. */
static int write_rest(struct committing *c, const char **from,
    struct optimfs_error *err)
{
	struct ofs_snapshot *snap = c->fs->now;
	bool compressed;
	int ret = -1;

	c->rest = (struct ofs_rest){
		.snap = snap, .filled = c->o, .tick = tick, .ctx = c
	};
	c->rest.dir = open_in_stage(c, OFS_TEMPLATE, err);
	if (c->rest.dir == -1)
		return -1;
	if (ofs_template_view(snap, c->template.layout, &c->rest.view,
		&compressed, err) == 0 &&
	    ofs_rest_open(&c->rest, err) == 0)
		ret = compressed ? 0 : ofs_rest_fits(&c->rest, err);
	*from = ret == 1 ? OFS_TEMPLATE : FILLED;
	if (ret != -1)
		ret = ret == 1 ? ofs_rest_write(&c->rest, err)
			       : render_anew(c, err);
	close(c->rest.dir);
	return ret;
}

/* From now on views show the values that were written. */
static int show_values(struct committing *c, struct optimfs_error *err)
{
	c->merged = ofs_merge(&c->fs->now->reader, c->o, err);
	if (c->merged == NULL)
		return -1;
	ofs_views_override(c->fs->now, c->merged);
	return 0;
}

static void end(struct committing *c)
{
	ofs_rest_close(&c->rest);
	if (c->merged != NULL)
		ofs_views_override(c->fs->now, NULL);
	ofs_merged_unref(c->merged);
	ofs_template_fini(&c->template);
}

/* Copies the mode of the destination directory. */
static int like_destination(int fd, const char *destination,
    struct optimfs_error *err)
{
	struct stat st;

	if (stat(destination, &st) == -1)
		return optimfs_fail(err, errno, "OFS801 %s: %m", destination);
	if (ofs_sys_chmod(fd, st.st_mode & 07777) == -1)
		return optimfs_fail(err, errno, "OFS801 %s: %m", destination);
	(void)ofs_sys_chown(fd, st.st_uid, st.st_gid);
	if (ofs_sys_fsync(fd) == -1)
		return optimfs_fail(err, errno, "OFS802 fsync: %m");
	return 0;
}

static int mark_done(const struct committing *c, struct optimfs_error *err)
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

static int link_files(const struct committing *c, struct ofs_publish *p,
    int dir, bool last, struct optimfs_error *err)
{
	char name[OFS_FILE_NAME];

	for (uint32_t i = 0; i < c->rest.engine.n; i++) {
		ofs_rest_name(&c->rest, i, name);
		if (is_index(name) == last &&
		    ofs_publish_link(p, dir, name, last, err) == -1)
			return -1;
	}
	return 0;
}

/* Distributes the files to several directories. The template keeps them until
 * all directories are complete. */
static int give_to_participants(struct committing *c, const char *from,
    struct optimfs_error *err)
{
	int dir = open_in_stage(c, from, err);
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
			ofs_writethrough_settle(c->o->stage, false);
	}
	ofs_publish_free(p);
	close(dir);
	return ret;
}

/* After the decision. */
static int seal_participants(struct committing *c, int ret,
    struct optimfs_error *err)
{
	struct optimfs_error why;

	if (ret == 1) {
		(void)ofs_overlay_published(c->o, err);
	} else if (ofs_overlay_published(c->o, NULL) == 0) {
		if (ofs_coordinator_forget(c->fs->coordinator, &why) == -1)
			ofs_overlay_stop(c->o, &why);
		ofs_writethrough_settle(c->o->stage, true);
	}
	return ret;
}

static int give_name(struct committing *c, const char *from,
    struct optimfs_error *err)
{
	const char *to = ofs_writethrough_destination(c->o);
	int fd = open_in_stage(c, from, err), ret;

	if (fd == -1)
		return -1;
	ret = like_destination(fd, to, err);
	close(fd);
	if (ret == -1 || ofs_stage_held(c->o->stage, err) == -1)
		return -1;
	if (ofs_dir_empty(to) != 1)
		return optimfs_fail(err, ENOTEMPTY,
		    "OFS830 %s is no longer an empty directory", to);
	ofs_overlay_shut(c->o);
	ret = mark_done(c, err);
	if (ret == 0 && ofs_sys_rename(c->stage, from, AT_FDCWD, to, 0) == -1)
		ret = optimfs_fail(err, errno, "OFS802 %s: %m", to);
	if (ret == -1)
		ofs_writethrough_settle(c->o->stage, false);
	return ret;
}

/* After the rename: whatever fails, the new checkpoint exists. */
static int seal(struct committing *c, struct optimfs_error *err)
{
	if (ofs_sync_parent(ofs_writethrough_destination(c->o)) == -1) {
		optimfs_fail(err, errno,
		    "OFS803 %s is there, but may not survive a crash of the "
		    "machine: its directory could not be synced: %m",
		    ofs_writethrough_destination(c->o));
		(void)ofs_overlay_published(c->o, err);
		return 1;
	}
	/* until the journal is empty, the mark says that it has been applied */
	if (ofs_overlay_published(c->o, NULL) == 0)
		ofs_writethrough_settle(c->o->stage, true);
	return 0;
}

void ofs_writethrough_settle(struct ofs_stage *st, bool published)
{
	static const char *const rests[] = { OFS_TEMPLATE, FILLED,
		"." FILLED ".optimfs" };
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

static int commit(struct committing *c, struct optimfs_error *err)
{
	const char *from;
	int ret;

	if (ofs_writethrough_texts(c->o, accept_empty, c->o, err) == -1 ||
	    ofs_writethrough_check(c->o, err) == -1 ||
	    ofs_writethrough_coupled(c->o, err) == -1 ||
	    ofs_writethrough_derive(c->o, err) == -1 ||
	    ofs_writethrough_rounded(c->o, err) == -1 ||
	    ofs_stage_held(c->o->stage, err) == -1)
		return -1;
	/* an attempt that failed may have left its mark */
	ofs_writethrough_settle(c->o->stage, false);
	if (ofs_template_load(c->stage, &c->template, err) == -1 ||
	    ofs_writethrough_texts(c->o, put_element, c, err) == -1 ||
	    show_values(c, err) == -1 || write_rest(c, &from, err) == -1)
		return -1;
	ret = c->fs->coordinator != NULL ? give_to_participants(c, from, err)
					 : give_name(c, from, err);
	if (ret == -1)
		return -1;
	c->o->published = true;
	return c->fs->coordinator != NULL ? seal_participants(c, ret, err)
					  : seal(c, err);
}

int ofs_writethrough_commit(struct optimfs *fs, bool (*stop)(void *ctx),
    void *ctx, struct optimfs_error *err)
{
	struct committing c = {
		.fs = fs,
		.o = fs->now->overlay,
		.stage = ofs_stage_beside(fs->now->overlay->stage),
		.stop = stop,
		.ctx = ctx,
	};
	int ret;

	ret = fs->now->overlay->published ? 0 : commit(&c, err);
	if (ret == -1)
		ofs_writethrough_forget(fs->now->overlay);
	end(&c);
	return ret;
}
