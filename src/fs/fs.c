/* fs.c - opening and closing a checkpoint */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "fs/fs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include "base/memory.h"
#include "cluster/commit/coordinator.h"
#include "cluster/source.h"
#include "overlay/overlay.h"

/* Copies the options with their strings, for info.json. */
static int copy_options(struct optimfs *fs, const struct optimfs_options *given,
    struct optimfs_error *err)
{
	struct optimfs_options *o = &fs->options;
	const char **strings[] = { &o->type, &o->optim_key, &o->model_key,
		&o->ids, &o->units, &o->subtree, &o->fill, &o->upper, &o->join,
		&o->base, &o->names };

	*o = *given;
	o->watch = NULL;
	if (o->cache == 0)
		o->cache = ofs_default_cache();
	for (size_t i = 0; i < sizeof(strings) / sizeof(*strings); i++) {
		if (*strings[i] == NULL)
			continue;
		fs->names[i] = strdup(*strings[i]);
		if (fs->names[i] == NULL)
			return ofs_no_memory(err);
		*strings[i] = fs->names[i];
	}
	return 0;
}

/* EINVAL for a file that is an index of others: the lock would be on the wrong
 * one. */
static int check_source(const struct optimfs *fs, struct optimfs_error *err)
{
	const struct ofs_catalog *cat = fs->now->cat;
	struct stat st;

	if (fs->fill != NULL || cat->nobjects < 2 ||
	    stat(fs->source, &st) == -1 || S_ISDIR(st.st_mode))
		return 0;
	return optimfs_fail(err, EINVAL,
	    "OFS809 %s is one of several files: to write them, mount their "
	    "directory",
	    fs->source);
}

static int open_overlay(struct optimfs *fs, const struct ofs_writing_to *to,
    struct optimfs_error *err)
{
	struct ofs_snapshot *snap = fs->now;
	const struct ofs_overlay_base base = ofs_snapshot_base(snap);
	struct optimfs_error note;

	snap->overlay =
	    ofs_overlay_new(&base, to->stage, fs->options.scratch, err);
	if (snap->overlay == NULL)
		return -1;
	fs->changes = true;
	atomic_init(&fs->explicit_commit, fs->options.explicit_commit);
	if (ofs_stage_note(to->stage)[0] != '\0') {
		optimfs_fail_as(&note, EBUSY, "%s", ofs_stage_note(to->stage));
		optimfs_log_error(fs, &note);
	}
	if (check_source(fs, err) == 0 &&
	    (to->fill == NULL ||
		ofs_overlay_hide(snap->overlay, to->only, err) == 0) &&
	    ofs_overlay_replay(snap->overlay, err) == 0)
		return 0;
	ofs_overlay_keep(snap->overlay);
	return -1;
}

static int name_it(struct optimfs *fs, const char *source,
    const struct optimfs_options *options, struct optimfs_error *err)
{
	fs->source = strdup(source);
	fs->real = realpath(source, NULL);
	if (fs->source == NULL)
		return ofs_no_memory(err);
	return copy_options(fs, options, err);
}

struct optimfs *ofs_fs_new_staged(struct ofs_catalog *cat, const char *source,
    const struct optimfs_options *options, const struct ofs_writing_to *to,
    struct optimfs_error *err)
{
	struct optimfs *fs = calloc(1, sizeof(*fs));

	if (fs == NULL) {
		ofs_catalog_free(cat);
		ofs_stage_close(to->stage, true);
		ofs_no_memory(err);
		return NULL;
	}
	atomic_init(&fs->refs, 1);
	fs->nodes = &ofs_nodes_of_checkpoint;
	ofs_entrance_init(&fs->entrance);
	pthread_mutex_init(&fs->lock, NULL);
	ofs_failures_init(&fs->failures);
	if (name_it(fs, source, options, err) == -1 ||
	    ofs_families_init(&fs->families, fs->options.names, err) == -1)
		ofs_catalog_free(cat);
	else
		fs->now = ofs_snapshot_new(fs, cat, err);
	if (fs->now == NULL) {
		ofs_stage_close(to->stage, true);
		optimfs_close(fs);
		return NULL;
	}
	fs->fill = to->fill;
	if (to->stage != NULL && open_overlay(fs, to, err) == -1) {
		optimfs_close(fs);
		return NULL;
	}
	return fs;
}

struct optimfs *ofs_fs_new(struct ofs_catalog *cat, const char *source,
    const struct optimfs_options *options, struct optimfs_error *err)
{
	static const struct ofs_writing_to nothing;

	return ofs_fs_new_staged(cat, source, options, &nothing, err);
}

struct optimfs *ofs_fs_open(const char *path,
    const struct optimfs_options *options, struct optimfs_error *err)
{
	struct ofs_catalog *cat = ofs_read_checkpoint(path, options, err);

	return cat == NULL ? NULL : ofs_fs_new(cat, path, options, err);
}

int ofs_fs_outside(const struct optimfs *fs, const char *place,
    const char *dest, struct optimfs_error *err)
{
	size_t n = fs->real == NULL ? 0 : strlen(fs->real);

	if (n == 0 || strncmp(place, fs->real, n) != 0 ||
	    strchr("/", place[n]) == NULL)
		return 0;
	return optimfs_fail(err, EINVAL,
	    "OFS778 %s is inside the checkpoint that is read, %s", dest,
	    fs->source);
}

struct optimfs *ofs_fs_ref(struct optimfs *fs)
{
	atomic_fetch_add(&fs->refs, 1);
	return fs;
}

void optimfs_close(struct optimfs *fs)
{
	if (fs == NULL || atomic_fetch_sub(&fs->refs, 1) != 1)
		return;
	if (fs->known.p != NULL)
		fs->known.drop(fs->known.p);
	if (fs->fill != NULL)
		fs->fill->end(fs);
	if (fs->nodes->close != NULL)
		fs->nodes->close(fs);
	ofs_snapshot_unref(fs->now);
	ofs_coordinator_free(fs->coordinator);
	ofs_families_fini(&fs->families);
	ofs_failures_fini(&fs->failures);
	for (size_t i = 0; i < sizeof(fs->names) / sizeof(*fs->names); i++)
		free(fs->names[i]);
	free(fs->source);
	free(fs->real);
	pthread_mutex_destroy(&fs->lock);
	ofs_entrance_fini(&fs->entrance);
	free(fs);
}

int optimfs_statvfs(struct optimfs *fs, struct statvfs *st,
    struct optimfs_error *err)
{
	struct ofs_snapshot *snap = ofs_enter(fs);
	int fd = snap->cat->dir.fd, ret = 0;

	*st = (struct statvfs){ .f_bsize = 4096, .f_frsize = 4096 };
	if (fd != -1 && fstatvfs(fd, st) == -1)
		ret = optimfs_fail(err, errno, "%s: statvfs: %m", fs->source);
	ofs_leave(snap);
	return ret;
}

void optimfs_set_mount_info(struct optimfs *fs, char *(*fn)(void *ctx),
    void *ctx)
{
	pthread_mutex_lock(&fs->lock);
	fs->mount_info = (struct ofs_teller){ fn, ctx };
	pthread_mutex_unlock(&fs->lock);
}

void optimfs_set_stats(struct optimfs *fs, char *(*fn)(void *ctx), void *ctx)
{
	pthread_mutex_lock(&fs->lock);
	fs->stats = (struct ofs_teller){ fn, ctx };
	pthread_mutex_unlock(&fs->lock);
}

void optimfs_watch(struct optimfs *fs, const struct optimfs_watch *how)
{
	fs->watch = *how;
}

char *ofs_mount_says(struct optimfs *fs, const struct ofs_teller *teller)
{
	struct ofs_teller t;

	pthread_mutex_lock(&fs->lock);
	t = *teller;
	pthread_mutex_unlock(&fs->lock);
	return t.fn == NULL ? NULL : t.fn(t.ctx);
}

void optimfs_log_error(struct optimfs *fs, const struct optimfs_error *err)
{
	ofs_failures_add(&fs->failures, 0, "-", 0, 0, err);
}
