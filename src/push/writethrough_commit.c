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
#include "detect/view_name.h"
#include "fs/view.h"
#include "journal/publish.h"
#include "overlay/overlay_impl.h"
#include "push/template.h"
#include "push/writethrough.h"

/* The order of steps, on which recovery relies:
 *
 *  1. Fill in 0-dim elements and checksums; or, if values differ from the
 *     template or items are to be compressed, render everything to filled/.
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
	int stage; /* the stage */
	bool (*stop)(void *ctx);
	void *ctx;
	_Atomic uint64_t done;
	uint64_t total;
	uint32_t *object; /* object of each file of the template, or OFS_NONE */
};

static bool stopped(void *ctx)
{
	struct committing *c = ctx;
	uint64_t done = atomic_load(&c->done);

	if (c->total > 0)
		ofs_overlay_progress(c->o,
		    done < c->total ? (unsigned)(done * 99 / c->total) : 99,
		    done, c->total);
	return c->stop != NULL && c->stop(c->ctx);
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

/* Starts write-back of all files before waiting for the first. */
static void start_files(const struct committing *c, int dir)
{
	for (uint32_t i = 0; i < c->template.n; i++) {
		int fd = openat(dir, c->template.file[i].name,
		    O_RDWR | O_NOFOLLOW | O_CLOEXEC);

		if (fd == -1)
			continue;
		(void)sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE);
		close(fd);
	}
}

static int sync_files(const struct committing *c, int dir,
    struct optimfs_error *err)
{
	start_files(c, dir);
	for (uint32_t i = 0; i < c->template.n; i++) {
		const char *name = c->template.file[i].name;
		int fd = openat(dir, name, O_RDWR | O_NOFOLLOW | O_CLOEXEC);

		if (fd == -1)
			return optimfs_fail(err, errno, "OFS801 %s: %m", name);
		if (ofs_sys_fsync(fd) == -1) {
			optimfs_fail(err, errno, "OFS802 %s: fsync: %m", name);
			close(fd);
			return -1;
		}
		close(fd);
	}
	return 0;
}

static int match_objects(struct committing *c, struct optimfs_error *err)
{
	const struct ofs_catalog *cat = c->fs->now->cat;

	c->object = calloc((size_t)c->template.n + 1, sizeof(*c->object));
	if (c->object == NULL)
		return ofs_no_memory(err);
	for (uint32_t i = 0; i < c->template.n; i++)
		c->object[i] =
		    ofs_catalog_find_object(cat, c->template.file[i].name);
	return 0;
}

static bool seen(void *ctx, uint32_t file, uint64_t from, uint64_t n,
    uint32_t *crc)
{
	const struct committing *c = ctx;

	return c->object[file] != OFS_NONE &&
	    ofs_writethrough_sum(c->o, c->object[file], from, n, crc);
}

static int open_in_stage(const struct committing *c, const char *name,
    struct optimfs_error *err)
{
	int dir = openat(c->stage, name,
	    O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	return dir == -1 ? optimfs_fail(err, errno, "OFS801 %s: %m", name)
			 : dir;
}

/* For unchanged values: fills in the files of the template. */
static int fill(struct committing *c, struct optimfs_error *err)
{
	int dir = open_in_stage(c, OFS_TEMPLATE, err);
	const struct ofs_template_summing how = { &c->done, stopped, seen, c };
	int ret;

	if (dir == -1)
		return -1;
	for (size_t i = 0; i < c->template.nsums; i++)
		c->total += c->template.sum[i].n;
	ofs_overlay_doing(c->o, "checksums");
	ret = match_objects(c, err);
	if (ret == 0)
		ret = ofs_template_sums(&c->template, dir, &how, err);
	if (ret == 0)
		ret = sync_files(c, dir, err);
	close(dir);
	return ret;
}

static void follow(void *ctx, uint64_t done, uint64_t total, const char *file)
{
	struct committing *c = ctx;

	atomic_store(&c->done, done);
	c->total = total;
	ofs_overlay_doing(c->o, file);
	(void)stopped(c);
}

/* Renders a new generation beside the template, from its elements. */
static int render_anew(struct committing *c, struct ofs_overrides *values,
    struct optimfs_error *err)
{
	struct optimfs_reshard how = {
		.to = c->template.layout,
		.watch = { .progress = follow, .ctx = c },
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
	ofs_views_override(c->fs->now, &values->base);
	ret = optimfs_reshard(c->fs, path, &how, err);
	ofs_views_override(c->fs->now, NULL);
	free(path);
	return ret == 1 ? optimfs_fail(err, EIO, "OFS802 %s: fsync", FILLED)
			: ret;
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
	for (uint32_t i = 0; i < c->template.n; i++) {
		const char *name = c->template.file[i].name;

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

static bool is_compressed(const struct committing *c)
{
	struct ofs_layout layout;

	return ofs_layout_parse(c->template.layout, &layout, NULL) == 0 &&
	    layout.zstd != 0;
}

static int commit(struct committing *c, struct optimfs_error *err)
{
	struct ofs_overrides *values;
	bool anew;
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
	    ofs_writethrough_texts(c->o, put_element, c, err) == -1)
		return -1;
	values = ofs_writethrough_overrides(c->o, err);
	if (values == NULL)
		return -1;
	anew = values->differs || is_compressed(c);
	ret = anew ? render_anew(c, values, err) : fill(c, err);
	ofs_edition_unref(&values->base);
	if (ret == 0 && c->fs->coordinator != NULL)
		ret =
		    give_to_participants(c, anew ? FILLED : OFS_TEMPLATE, err);
	else if (ret == 0)
		ret = give_name(c, anew ? FILLED : OFS_TEMPLATE, err);
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
	ofs_template_fini(&c.template);
	free(c.object);
	return ret;
}
