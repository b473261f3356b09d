/* fsck.c - check a checkpoint: its index for consistency */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "fsck/fsck.h"

#include <errno.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/step.h"
#include "base/team.h"
#include "cluster/manifest.h"

bool ofs_fsck_begin_step(struct ofs_fsck *c, uint32_t object)
{
	const struct ofs_fsck_all *all = c->all;
	int rank =
	    object == OFS_NONE || all->who == NULL ? 0 : all->who[object];

	c->step++;
	if (all->group != NULL && all->group->rank != rank)
		return false;
	if (object == OFS_NONE)
		return c->me == 0;
	if (c->me != (unsigned)all->thread[object])
		return false;
	c->object[object] |= OFS_FSCK_TOUCHED;
	return true;
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

static int check_entry(struct ofs_fsck *c, uint32_t index,
    struct optimfs_error *err)
{
	bool data = c->all->data;
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
static int divide(struct ofs_fsck_all *c, struct optimfs_error *err)
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

/* Assigns this rank's files to its threads. */
static int divide_here(struct ofs_fsck_all *all, struct optimfs_error *err)
{
	const struct ofs_catalog *cat = all->snap->cat;
	struct ofs_task_job *job =
	    ofs_alloc((size_t)cat->nobjects + 1, sizeof(*job), err);
	struct ofs_owner any[OFS_TEAM_MAX];
	int ret = -1;

	for (unsigned i = 0; i < all->nthreads; i++)
		any[i] = (struct ofs_owner){ .rank = (int)i };
	all->thread =
	    ofs_alloc((size_t)cat->nobjects + 1, sizeof(*all->thread), err);
	if (job == NULL || all->thread == NULL)
		goto out;
	for (uint32_t i = 0; i < cat->nobjects; i++) {
		job[i].may = any;
		job[i].nmay = all->nthreads;
		if (all->who == NULL || all->who[i] == all->group->rank)
			job[i].size = cat->objects[i].size;
	}
	ret =
	    ofs_task_assign(job, cat->nobjects, NULL, (int)all->nthreads, err);
	for (uint32_t i = 0; i < cat->nobjects; i++)
		all->thread[i] = job[i].rank;
out:
	free(job);
	return ret;
}

static uint64_t bytes_of(const struct ofs_snapshot *snap, uint32_t index)
{
	const struct ofs_tensor *t =
	    ofs_tree_tensor(&snap->tree, snap->cat, index);

	return t == NULL ? 0 : ofs_tensor_bytes(snap->cat, t);
}

static int take_steps(struct ofs_fsck *c, struct optimfs_error *err)
{
	int ret = 0;

	if (ofs_fsck_begin_step(c, OFS_NONE))
		check_notes(c);
	for (uint32_t i = 0;
	     i != OFS_NONE && ret == 0 && !atomic_load(&c->all->stop);
	     i = ofs_tree_after(&c->snap->tree, 0, i)) {
		atomic_store(&c->at, i);
		ret = check_entry(c, i, err);
		if (c->all->group == NULL)
			ofs_fsck_hand_over(c);
		atomic_store(&c->passed, c->step);
		atomic_fetch_add(&c->done, bytes_of(c->snap, i));
	}
	ofs_fsck_hand_over(c);
	return ret;
}

static void work(void *ctx, unsigned i)
{
	struct ofs_fsck_all *all = ctx;
	struct ofs_fsck *c = &all->of[i];
	uint32_t nobjects = all->snap->cat->nobjects;
	struct optimfs_error err;
	int ret = 0;

	c->object = calloc((size_t)nobjects + 1, sizeof(*c->object));
	c->buf = malloc(OFS_FSCK_CHUNK);
	if (c->object == NULL || c->buf == NULL)
		ret = ofs_no_memory(&err);
	if (ret == 0)
		ret = take_steps(c, &err);
	if (ret == -1)
		ofs_fsck_fail(all, &err);
	for (uint32_t k = 0; ret == 0 && all->group != NULL && k < nobjects;
	     k++)
		if (c->object[k] & OFS_FSCK_TOUCHED)
			ofs_task_did(all->group,
			    all->snap->cat->objects[k].size);
	ofs_buf_fini(&c->notes);
	free(c->object);
	free(c->buf);
}

/* In this thread: reports what all threads have passed, and progress, and looks for
 * failures of other ranks. */
static void tick(void *ctx)
{
	struct ofs_fsck_all *all = ctx;
	uint32_t at = atomic_load(&all->of[0].at);
	uint64_t done = 0, last = UINT64_MAX;
	struct optimfs_error err;

	for (unsigned i = 0; i < all->nthreads; i++) {
		uint64_t passed = atomic_load(&all->of[i].passed);

		done += atomic_load(&all->of[i].done);
		last = passed < last ? passed : last;
	}
	if (all->group == NULL)
		ofs_fsck_tell(all, last);
	else if (ofs_task_check(all->group, &err) == -1)
		ofs_fsck_fail(all, &err);
	if (all->data &&
	    ofs_step(&all->snap->fs->watch, all->snap->tree.node[at].name,
		done / all->nthreads, all->total, &err) == -1)
		ofs_fsck_fail(all, &err);
}

static int check_all(struct ofs_fsck_all *all, struct optimfs_error *err)
{
	const struct ofs_tree *tree = &all->snap->tree;

	for (uint32_t i = 0; all->data && i < tree->n; i++)
		all->total += bytes_of(all->snap, i);
	all->nthreads = ofs_fs_threads(all->snap->fs);
	all->of = ofs_alloc(all->nthreads, sizeof(*all->of), err);
	if (all->of == NULL || divide_here(all, err) == -1)
		return -1;
	for (unsigned i = 0; i < all->nthreads; i++) {
		all->of[i].all = all;
		all->of[i].snap = all->snap;
		all->of[i].me = i;
	}
	ofs_team_run(all->nthreads, work, tick, all);
	return atomic_load(&all->stop) ? optimfs_fail_with(err, &all->failed)
				       : 0;
}

/* All ranks check; rank 0 reports. */
static int check_together(struct ofs_fsck_all *all, struct optimfs_error *err)
{
	struct optimfs_error own = { 0 };
	int ret;

	(void)divide(all, &own);
	if (ofs_task_begin(all->group, ofs_fsck_take, all, &own, err) == -1)
		return -1;
	(void)check_all(all, &own);
	ret = ofs_task_barrier(all->group, &own, NULL, NULL, err);
	ofs_task_end(all->group);
	if (ret == 0) {
		ofs_fsck_tell(all, UINT64_MAX);
		ofs_task_tell(all->group, &all->snap->fs->watch);
	}
	return ret;
}

int optimfs_fsck(struct optimfs *fs, bool data, optimfs_report_fn *report,
    void *ctx, uint64_t *problems, struct optimfs_error *err)
{
	struct ofs_fsck_all all = { .snap = ofs_enter(fs),
		.report = report,
		.ctx = ctx,
		.data = data,
		.lock = PTHREAD_MUTEX_INITIALIZER,
		.group = fs->options.together ? fs->options.group : NULL };
	int ret;

	if (all.group != NULL)
		ret = check_together(&all, err);
	else if ((ret = ofs_fs_single(fs, err)) == 0)
		ret = check_all(&all, err);
	ofs_fsck_forget(&all);
	free(all.of);
	free(all.thread);
	free(all.who);
	pthread_mutex_destroy(&all.lock);
	if (ret == 0)
		*problems = all.problems;
	ofs_leave(all.snap);
	return ret;
}
