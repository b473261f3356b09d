/* fsck.c - check a checkpoint: its index for consistency */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "fsck/fsck.h"

#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/step.h"
#include "cluster/manifest.h"

/* Interval of asking for failures of other ranks. */
enum { LOOK_MS = 200 };

bool ofs_fsck_begin_step(struct ofs_fsck *c, uint32_t object)
{
	bool ours = true;

	c->step++;
	if (c->group != NULL)
		ours =
		    c->group->rank == (object == OFS_NONE ? 0 : c->who[object]);
	if (ours && object != OFS_NONE)
		c->object[object] |= OFS_FSCK_TOUCHED;
	return ours;
}

/* Reports notes about the checkpoint as a whole. Errors belong to an entry and
 * are reported there. */
static void check_notes(struct ofs_fsck *c)
{
	const struct ofs_catalog *cat = c->snap->cat;
	struct optimfs_error what;

	for (uint32_t i = 0; i < cat->nnotes; i++) {
		const struct ofs_note *n = &cat->notes[i];

		if (n->kind != OFS_NOTE_WARNING && n->kind != OFS_NOTE_MISSING)
			continue;
		ofs_note_error(n, &what);
		ofs_fsck_found(c, ofs_note_is_loss(n), "", &what);
	}
}

bool ofs_fsck_opens(struct ofs_fsck *c, uint32_t object,
    struct optimfs_error *why)
{
	const struct ofs_catalog *cat = c->snap->cat;

	if ((c->object[object] & OFS_FSCK_OPENED) == 0 &&
	    ofs_object_opens(cat, &cat->objects[object], why) == -1)
		return false;
	c->object[object] |= OFS_FSCK_OPENED;
	return true;
}

/* Is an extent of the entry in a file that we may not open? Reading its data
 * would report that. */
static bool is_closed(struct ofs_fsck *c, const struct ofs_entry *e,
    struct optimfs_error *why)
{
	const struct ofs_extent *at;

	for (uint32_t i = 0;
	     (at = ofs_entry_extent(c->snap->cat, e, i)) != NULL; i++)
		if (!ofs_fsck_opens(c, at->object, why))
			return true;
	return false;
}

static int check_entry(struct ofs_fsck *c, uint32_t index, bool data,
    struct optimfs_error *err)
{
	struct ofs_at at = { OFS_SPACE_TREE, index };
	const struct ofs_entry *e = ofs_at_entry(c->snap, at);
	struct optimfs_error why;
	bool sound, ours, unread;

	if (e == NULL)
		return 0;
	ofs_at_path(c->snap, at, c->path, sizeof(c->path));
	ours = ofs_fsck_begin_step(c, OFS_NONE);
	sound = ofs_entry_sound(c->snap->cat, e, &why) == 0;
	/* which is no damage */
	unread = !sound &&
	    (why.code == EOPNOTSUPP ||
		ofs_entry_is_pickled(c->snap->cat, e, NULL, NULL));
	if (ours && !sound)
		ofs_fsck_found(c, !unread, c->path, &why);
	else if (ours &&
	    (ofs_entry_lost(c->snap->cat, e, &why) ||
		(!data && is_closed(c, e, &why))))
		ofs_fsck_found(c, true, c->path, &why);
	if (sound && !data)
		ofs_fsck_heads(c, e);
	return data && sound ? ofs_fsck_data(c, index, err) : 0;
}

/* Work sharing. */

/* Assigns each file to a rank that has it, or to the one that works for that
 * rank; a file that no rank has to rank 0. */
static int divide(struct ofs_fsck *c, struct optimfs_error *err)
{
	const struct ofs_catalog *cat = c->snap->cat;
	const struct ofs_manifest *s = ofs_manifest_of(cat->dir.names);
	struct ofs_task_job *job =
	    ofs_alloc((size_t)cat->nobjects + 1, sizeof(*job), err);
	int *worker = ofs_task_workers(c->group, err);
	uint32_t file;
	int ret = -1;

	c->who = ofs_alloc((size_t)cat->nobjects + 1, sizeof(*c->who), err);
	if (job == NULL || worker == NULL || c->who == NULL)
		goto out;
	for (uint32_t i = 0; i < cat->nobjects; i++) {
		job[i].size = cat->objects[i].size;
		if (!ofs_dir_shared(&cat->dir, cat->objects[i].path, &file))
			continue;
		job[i].may = s->owner + s->file[file].owner;
		job[i].nmay = s->file[file].nowners;
	}
	ret = ofs_task_assign(job, cat->nobjects, worker, c->group->size, err);
	for (uint32_t i = 0; i < cat->nobjects; i++)
		c->who[i] = job[i].rank;
out:
	free(worker);
	free(job);
	return ret;
}

/* Hands findings over from time to time; fails if another rank has failed. */
static int after_entry(struct ofs_fsck *c, int64_t *looked,
    struct optimfs_error *err)
{
	int64_t now;

	if (c->group == NULL) {
		ofs_fsck_hand_over(c);
		ofs_fsck_tell(c);
	} else {
		now = ofs_clock_ms();
		if (now - *looked >= LOOK_MS) {
			*looked = now;
			if (ofs_task_check(c->group, err) == -1)
				return -1;
		}
	}
	if (c->failed.code == 0)
		return 0;
	return optimfs_fail_with(err, &c->failed);
}

static uint64_t bytes_of(const struct ofs_snapshot *snap, uint32_t index)
{
	const struct ofs_tensor *t =
	    ofs_tree_tensor(&snap->tree, snap->cat, index);

	return t == NULL ? 0 : ofs_tensor_bytes(snap->cat, t);
}

static int check_all(struct ofs_fsck *c, bool data, struct optimfs_error *err)
{
	uint64_t done = 0, total = 0;
	int64_t looked = 0;
	int ret = 0;

	if (ofs_fsck_begin_step(c, OFS_NONE))
		check_notes(c);
	for (uint32_t i = 0; data && i < c->snap->tree.n; i++)
		total += bytes_of(c->snap, i);
	for (uint32_t i = 0; i != OFS_NONE && ret == 0;
	     i = ofs_tree_after(&c->snap->tree, 0, i)) {
		ret = check_entry(c, i, data, err);
		if (ret == 0)
			ret = after_entry(c, &looked, err);
		done += bytes_of(c->snap, i);
		if (ret == 0 && data)
			ret = ofs_step(&c->snap->fs->watch,
			    c->snap->tree.node[i].name, done, total, err);
	}
	for (uint32_t i = 0; c->group != NULL && i < c->snap->cat->nobjects;
	     i++)
		if (c->object[i] & OFS_FSCK_TOUCHED)
			ofs_task_did(c->group, c->snap->cat->objects[i].size);
	return ret;
}

static int begin_fsck(struct ofs_fsck *c, struct optimfs_error *err)
{
	c->object =
	    calloc((size_t)c->snap->cat->nobjects + 1, sizeof(*c->object));
	c->buf = malloc(OFS_FSCK_CHUNK);
	return c->object == NULL || c->buf == NULL ? ofs_no_memory(err) : 0;
}

/* All ranks check; rank 0 reports. */
static int check_together(struct ofs_fsck *c, bool data,
    struct optimfs_error *err)
{
	struct optimfs_error own = { 0 };
	int ret;

	if (begin_fsck(c, &own) == 0)
		(void)divide(c, &own);
	if (ofs_task_begin(c->group, ofs_fsck_take, c, &own, err) == -1)
		return -1;
	if (check_all(c, data, &own) == 0) {
		ofs_fsck_hand_over(c);
		own = c->failed;
	}
	ret = ofs_task_barrier(c->group, &own, NULL, NULL, err);
	ofs_task_end(c->group);
	if (ret == 0) {
		ofs_fsck_tell(c);
		ofs_task_tell(c->group, &c->snap->fs->watch);
	}
	return ret;
}

int optimfs_fsck(struct optimfs *fs, bool data, optimfs_report_fn *report,
    void *ctx, uint64_t *problems, struct optimfs_error *err)
{
	struct ofs_fsck c = { .snap = ofs_enter(fs),
		.report = report,
		.ctx = ctx,
		.group = fs->options.together ? fs->options.group : NULL };
	int ret;

	if (c.group != NULL)
		ret = check_together(&c, data, err);
	else if ((ret = ofs_fs_single(fs, err)) == 0 &&
	    (ret = begin_fsck(&c, err)) == 0)
		ret = check_all(&c, data, err);
	ofs_fsck_forget(&c);
	ofs_buf_fini(&c.notes);
	free(c.object);
	free(c.who);
	free(c.buf);
	if (ret == 0)
		*problems = c.problems;
	ofs_leave(c.snap);
	return ret;
}
