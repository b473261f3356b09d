/* write_commit.c - commit, abort, and what is written to control */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cluster/commit/coordinator.h"
#include "fs/commit.h"
#include "fs/write_impl.h"

/* Fails while a file is being written: the commit would take it away from its
 * writer. */
static int check_writers(const struct ofs_overlay *o, struct optimfs_error *err)
{
	for (const struct ofs_overlay_file *f = o->files; f != NULL;
	     f = f->next)
		if (f->writers > 0) {
			char *path = ofs_overlay_path(o, f->index, NULL, NULL);

			optimfs_fail(err, EBUSY,
			    "OFS815 %s is open for writing: close it, then "
			    "commit",
			    path == NULL ? "a removed file" : path);
			free(path);
			return -1;
		}
	return 0;
}

int ofs_not_shown(const struct optimfs_error *why, struct optimfs_error *err)
{
	return optimfs_fail(err, ESTALE,
	    "OFS835 it was committed, but the new state could not be read: "
	    "commit again, or mount it again (%.200s)",
	    why->text);
}

/* After a commit: shows the new state. With several directories, their files
 * are listed again first. */
static int show(struct optimfs *fs, struct optimfs_error *err)
{
	if (fs->coordinator != NULL &&
	    ofs_coordinator_refresh(fs->coordinator, err) == -1)
		return -1;
	return ofs_fs_reopen(fs, err);
}

static void show_or_say(struct optimfs *fs)
{
	struct optimfs_error why;

	if (show(fs, &why) == 0)
		return;
	fs->now->overlay->why = why;
	optimfs_log_error(fs, &why);
}

/* Publishes. Readers that fail meanwhile wait for the result. */
static int publish(struct optimfs *fs, bool (*stop)(void *ctx), void *ctx,
    struct optimfs_error *err)
{
	int ret;

	ret =
	    (ofs_overlay_hides(fs->now->overlay) ? fs->fill->commit
						 : ofs_fs_commit)(fs, stop, ctx,
		err);
	if (ret != -1)
		show_or_say(fs);
	ofs_set_replacing(fs, false);
	return ret;
}

/* The writers are held. */
static int commit_held(struct optimfs *fs, bool (*stop)(void *ctx), void *ctx,
    struct optimfs_error *err)
{
	struct optimfs_error why;
	int ret;

	if (fs->now->overlay->published) {
		if (show(fs, &why) == 0)
			return 0;
		return ofs_not_shown(&why, err);
	}
	pthread_rwlock_rdlock(&fs->now->overlay->names);
	ret = check_writers(fs->now->overlay, err);
	pthread_rwlock_unlock(&fs->now->overlay->names);
	return ret == -1 ? -1 : publish(fs, stop, ctx, err);
}

static int commit(struct optimfs *fs, bool (*stop)(void *ctx), void *ctx,
    struct optimfs_error *err)
{
	struct ofs_overlay *o;
	int ret = 0;

	if (fs->options.scratch)
		return optimfs_fail(err, EROFS,
		    "OFS819 mounted with scratch: nothing can be committed");
	if (ofs_hold_writers(fs, true, err) == -1)
		return -1;
	o = fs->now->overlay;
	if (o->unsafe) {
		*err = o->stuck;
		ret = 1;
	} else if (o->hidden != NULL || o->published || ofs_overlay_dirty(o)) {
		ofs_overlay_doing(o, "");
		ofs_overlay_progress(o, 0, 0, 0);
		ret = commit_held(fs, stop, ctx, err);
		/* of the next overlay */
		atomic_store(&fs->now->overlay->percent, 0);
	}
	ofs_let_writers(fs);
	return ret;
}

/* Keeps the result of the last command for readers of control. */
static int keep_result(struct optimfs *fs, int ret,
    const struct optimfs_error *own, struct optimfs_error *err)
{
	pthread_mutex_lock(&fs->lock);
	fs->control = *own;
	fs->unsynced = ret == 1;
	pthread_mutex_unlock(&fs->lock);
	if (ret != 0)
		optimfs_log_error(fs, own);
	if (err != NULL)
		*err = *own;
	return ret;
}

int optimfs_commit(struct optimfs *fs, bool (*stop)(void *ctx), void *ctx,
    struct optimfs_error *err)
{
	struct optimfs_error own = { 0 };

	if (ofs_may_write(fs, err) == -1)
		return -1;
	return keep_result(fs, commit(fs, stop, ctx, &own), &own, err);
}

void ofs_control_result(struct optimfs *fs, struct ofs_buf *out)
{
	if (!fs->changes)
		return;
	pthread_mutex_lock(&fs->lock);
	if (fs->control.code != 0)
		ofs_buf_printf(out, "%s %s\n",
		    fs->unsynced ? "unsynced" : "failed", fs->control.text);
	pthread_mutex_unlock(&fs->lock);
}

static int drop_all(struct optimfs *fs, struct optimfs_error *err)
{
	int ret;

	if (ofs_hold_writers(fs, true, err) == -1)
		return -1;
	ret = ofs_overlay_abort(fs->now->overlay, err);
	if (fs->fill != NULL)
		fs->fill->end(fs);
	ofs_let_writers(fs);
	return ret;
}

int optimfs_abort(struct optimfs *fs, struct optimfs_error *err)
{
	struct optimfs_error own = { 0 };

	if (ofs_may_write(fs, err) == -1)
		return -1;
	return keep_result(fs, drop_all(fs, &own), &own, err);
}

/* An unmount that follows says that they are kept: so they are on the disk. */
static int keep_all(struct optimfs *fs, struct optimfs_error *err)
{
	struct optimfs_error own = { 0 };

	if (keep_result(fs, optimfs_sync(fs, &own), &own, err) == -1)
		return -1;
	atomic_store(&fs->explicit_commit, true);
	return 0;
}

static bool is_order(const char *text, size_t len, const char *order)
{
	return len == strlen(order) && memcmp(text, order, len) == 0;
}

int optimfs_control(struct optimfs *fs, const char *text, size_t len,
    bool (*stop)(void *ctx), void *ctx, struct optimfs_error *err)
{
	if (ofs_may_write(fs, err) == -1)
		return -1;
	while (len > 0 && (text[len - 1] == '\n' || text[len - 1] == ' '))
		len--;
	if (is_order(text, len, "commit"))
		return optimfs_commit(fs, stop, ctx, err) == 0 ? 0 : -1;
	if (is_order(text, len, "abort"))
		return optimfs_abort(fs, err);
	if (!is_order(text, len, "keep"))
		return optimfs_fail(err, EINVAL,
		    "OFS818 control takes commit, abort and keep");
	return keep_all(fs, err);
}

bool optimfs_file_is_control(const struct optimfs_file *file)
{
	return file->control;
}
