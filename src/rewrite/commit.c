/* commit.c - what a writer changed becomes the checkpoint */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "rewrite/commit.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "cluster/commit/coordinator.h"
#include "rewrite/commit_impl.h"
#include "rewrite/update.h"

int ofs_commit_grow(void *array, size_t *cap, size_t n, size_t size,
    struct optimfs_error *err)
{
	size_t want = *cap == 0 ? 16 : *cap * 2;
	void *old, *new;

	if (n < *cap)
		return 0;
	memcpy(&old, array, sizeof(old));
	new = reallocarray(old, want, size);
	if (new == NULL)
		return optimfs_fail(err, ENOMEM, "table of a commit");
	memcpy(array, &new, sizeof(new));
	*cap = want;
	return 0;
}

int ofs_commit_go_on(const struct ofs_commit *c, struct optimfs_error *err)
{
	if (c->stop == NULL || !c->stop(c->stop_ctx))
		return 0;
	return optimfs_fail(err, ECANCELED,
	    "the commit was stopped; nothing has changed");
}

/* Percent that a commit has when what it begins with is done: changes have
 * their places, new files are written, they were read again. Between the first
 * two it is bytes that count. */
#define PLACED   5
#define WRITTEN  60
#define VERIFIED 95

static void reached(const struct ofs_commit *c, unsigned percent)
{
	if (c->fs->edit != NULL)
		ofs_overlay_progress(c->fs->edit, percent);
}

void ofs_commit_did(struct ofs_commit *c, uint64_t bytes)
{
	c->done += bytes;
	if (c->done < c->total)
		reached(c,
		    PLACED +
			(unsigned)(c->done * (WRITTEN - PLACED) / c->total));
}

/* What no part took a place for. */
static int check_done(const struct ofs_commit *c, struct optimfs_error *err)
{
	for (size_t i = 0; i < c->ntasks; i++)
		if (!c->task[i].done)
			return ofs_commit_no_place(&c->task[i],
			    "the checkpoint has no place for it", err);
	return 0;
}

/* Objects that are rewritten for their bytes alone. */
static int clone_rest(struct ofs_commit *c, struct optimfs_error *err)
{
	for (size_t i = 0; i < c->nmoved; i++)
		if (c->moved[i].fd == -1 &&
		    ofs_commit_clone(c, c->moved[i].object, NULL, err) == -1)
			return -1;
	return 0;
}

/* Bytes that are copied or added. Rewritten values are small. */
static uint64_t new_bytes(const struct ofs_commit *c)
{
	const struct ofs_object *objects = c->cat->objects;
	const struct ofs_update_ops *first = c->parts.part[0].format->update;
	bool items = first != NULL && first->items;
	uint32_t last = OFS_NONE;
	uint64_t need = 0;

	for (size_t i = 0; i < c->nmoved; i++) {
		const struct ofs_moved *m = &c->moved[i];

		if (items)
			need += m->len;
		else if (m->object != last)
			need += objects[m->object].size;
		last = m->object;
	}
	for (size_t i = 0; i < c->ntasks; i++)
		need += c->task[i].op == OFS_TASK_ADD
		    ? ofs_commit_bytes(&c->task[i])
		    : 0;
	return need;
}

/* Is there room for that? */
static int check_room(struct ofs_commit *c, struct optimfs_error *err)
{
	uint64_t need = new_bytes(c), left;
	struct statvfs st;

	c->total = need;
	for (size_t i = 0; i < c->changes->n; i++)
		c->total += ofs_ranges_total(&c->changes->v[i].written);
	reached(c, PLACED);
	if (fstatvfs(c->stage, &st) == -1)
		return optimfs_fail(err, errno, "OFS821 %s: %m", c->fs->source);
	left = (uint64_t)st.f_bavail * st.f_frsize;
	if (need == 0 || need + need / 20 <= left)
		return 0;
	return optimfs_fail(err, ENOSPC,
	    "OFS801 the commit needs %" PRIu64 " bytes beside the checkpoint, "
	    "%" PRIu64 " are free",
	    need + need / 20, left);
}

static const struct ofs_update_ops *ops_of(const struct ofs_commit *c, size_t i)
{
	static const struct ofs_update_ops none;
	const struct ofs_update_ops *ops = c->parts.part[i].format->update;

	return ops == NULL ? &none : ops;
}

/* All new files, with all new bytes in them. */
static int prepare(struct ofs_commit *c, void **state,
    struct optimfs_error *err)
{
	for (size_t i = 0; i < c->parts.n; i++)
		if (ops_of(c, i)->begin != NULL &&
		    ops_of(c, i)->begin(c, &c->parts.part[i], &state[i], err) ==
			-1)
			return -1;
	if (check_done(c, err) == -1 || clone_rest(c, err) == -1 ||
	    ofs_commit_scatter(c, err) == -1 ||
	    ofs_commit_shared(c, err) == -1 || ofs_commit_sums(c, err) == -1)
		return -1;
	for (size_t i = 0; i < c->parts.n; i++)
		if (ops_of(c, i)->end != NULL &&
		    ops_of(c, i)->end(state[i], err) == -1)
			return -1;
	return 0;
}

/* Is the checkpoint still the one that was mounted (K11)? */
static int check_source(const struct ofs_commit *c, struct optimfs_error *err)
{
	const struct ofs_dir *dir = &c->cat->dir;
	struct optimfs_error why;
	struct stat named, st;

	if (ofs_indexes_same(c->fs, &why) == -1)
		return optimfs_fail(err, ESTALE,
		    "OFS805 what is staged was made for another checkpoint: "
		    "%.300s",
		    why.text);
	if (stat(dir->path, &named) == 0 && fstat(dir->fd, &st) == 0 &&
	    named.st_ino == st.st_ino && named.st_dev == st.st_dev)
		return 0;
	return optimfs_fail(err, ESTALE,
	    "OFS805 %s is not the directory that was mounted", dir->path);
}

static int run(struct ofs_commit *c, void **state, struct optimfs_error *err)
{
	if (check_source(c, err) == -1 || ofs_commit_place(c, err) == -1 ||
	    ofs_commit_names(c, err) == -1 ||
	    ofs_commit_extents(c, err) == -1 || check_room(c, err) == -1 ||
	    prepare(c, state, err) == -1)
		return -1;
	if (!ofs_publish_any(c->publish))
		return 0;
	reached(c, WRITTEN);
	if (ofs_commit_verify(c, err) == -1 || check_source(c, err) == -1)
		return -1;
	reached(c, VERIFIED);
	if (ofs_commit_go_on(c, err) == -1)
		return -1;
	if (c->fs->edit != NULL)
		ofs_overlay_shut(c->fs->edit);
	return ofs_publish_commit(c->publish, err);
}

static void fini(struct ofs_commit *c)
{
	ofs_commit_place_fini(c);
	for (size_t i = 0; i < c->ntouched; i++)
		ofs_ranges_fini(&c->touched[i].ranges);
	free(c->touched);
	free(c->moved);
	free(c->mend);
	ofs_publish_free(c->publish);
	ofs_arena_fini(&c->arena);
}

int ofs_commit_changes(struct optimfs *fs, const struct ofs_changes *changes,
    int stage, bool (*stop)(void *ctx), void *ctx, struct optimfs_error *err)
{
	struct ofs_commit c = { .fs = fs,
		.cat = fs->cat,
		.changes = changes,
		.stop = stop,
		.stop_ctx = ctx };
	struct ofs_coordinator *sites = fs->sites;
	void **state;
	int ret = -1;

	if (sites == NULL && fs->real == NULL)
		return optimfs_fail(err, EROFS,
		    "OFS826 %s: it is not on this machine", fs->source);
	c.path = sites == NULL ? fs->real : fs->source;
	c.stage = stage;
	ofs_arena_init(&c.arena, 0);
	if (ofs_find_parts(c.path, &fs->options, &c.parts, err) == -1)
		return -1;
	state = calloc(c.parts.n + 1, sizeof(*state));
	if (state == NULL)
		optimfs_fail(err, ENOMEM, "commit");
	else if (sites != NULL)
		c.publish = ofs_publish_begin_sites(sites, stage, err);
	else
		c.publish = ofs_publish_begin(fs->cat->dir.path,
		    fs->cat->dir.fd, stage, err);
	if (c.publish != NULL)
		ret = run(&c, state, err);
	for (size_t i = 0; state != NULL && i < c.parts.n; i++)
		if (ops_of(&c, i)->free != NULL)
			ops_of(&c, i)->free(state[i]);
	free(state);
	ofs_parts_free(&c.parts);
	fini(&c);
	return ret;
}

/* What was to be finished if we had died. Of several directories some may still
 * have to be. */
static void forget(const struct optimfs *fs, bool safe)
{
	if (fs->sites == NULL)
		ofs_publish_forget(
		    ofs_stage_beside(ofs_overlay_stage(fs->edit)));
	else if (safe)
		ofs_coordinator_forget(fs->sites);
}

int ofs_commit(struct optimfs *fs, bool (*stop)(void *ctx), void *ctx,
    struct optimfs_error *err)
{
	struct ofs_stage *stage = ofs_overlay_stage(fs->edit);
	struct ofs_changes changes;
	int ret;

	if (ofs_overlay_changes(fs->edit, &changes, err) == -1)
		return -1;
	if (ofs_changes_check(&changes, err) == -1 ||
	    ofs_stage_held(stage, err) == -1)
		ret = -1;
	else
		ret = ofs_commit_changes(fs, &changes, ofs_stage_beside(stage),
		    stop, ctx, err);
	ofs_changes_free(&changes);
	/* the record of the commit stays until the journal is empty: between
	 * the two, what it says is that the journal is done with */
	if (ret != -1 &&
	    ofs_overlay_published(fs->edit, ret == 1 ? err : NULL) == 0)
		forget(fs, ret == 0);
	return ret;
}
