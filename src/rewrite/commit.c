/* commit.c - write the changes to a new generation of the checkpoint */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "rewrite/commit.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "base/copy.h"
#include "base/memory.h"
#include "rewrite/rewrite_impl.h"
#include "rewrite/update.h"

int ofs_commit_go_on(const struct ofs_commit *c, struct optimfs_error *err)
{
	if (c->job->stop == NULL || !c->job->stop(c->job->stop_ctx))
		return 0;
	return optimfs_fail(err, ECANCELED,
	    "the commit was stopped; nothing has changed");
}

/* Percent of a commit after each phase: changes have places; new files are
 * written; they were read back. Between the first two, bytes count. */
#define PLACED   5
#define WRITTEN  60
#define VERIFIED 95

static void reached(const struct ofs_commit *c, unsigned percent)
{
	if (c->job->overlay != NULL)
		ofs_overlay_progress(c->job->overlay, percent, c->done,
		    c->total);
}

void ofs_commit_doing(const struct ofs_commit *c, const char *what)
{
	if (c->job->overlay != NULL)
		ofs_overlay_doing(c->job->overlay, what);
}

void ofs_commit_did(struct ofs_commit *c, uint64_t bytes)
{
	c->done += bytes;
	if (c->done < c->total)
		reached(c,
		    PLACED +
			(unsigned)(c->done * (WRITTEN - PLACED) / c->total));
}

int ofs_commit_make(struct ofs_commit *c, const char *rel, const char *like,
    int *fd, struct optimfs_error *err)
{
	ofs_commit_doing(c, rel);
	return ofs_publish_file(c->publish, rel, like, fd, err);
}

/* Fails if a change got no place. */
static int check_done(const struct ofs_commit *c, struct optimfs_error *err)
{
	for (size_t i = 0; i < c->ntasks; i++)
		if (!c->task[i].done)
			return ofs_commit_no_place(&c->task[i],
			    "the checkpoint has no place for it", err);
	return 0;
}

/* Adds the objects in which only bytes change. */
static int add_rest(struct ofs_commit *c, struct optimfs_error *err)
{
	for (size_t i = 0; i < c->nmoved; i++)
		if (c->moved[i].fd == -1 && !c->moved[i].whole &&
		    ofs_commit_whole(c, c->moved[i].object, NULL, err) == -1)
			return -1;
	return 0;
}

static const struct ofs_update_ops *ops_of(const struct ofs_commit *c, size_t i)
{
	static const struct ofs_update_ops none;
	const struct ofs_update_ops *ops = c->job->part[i].ops;

	return ops == NULL ? &none : ops;
}

/* Bytes to copy or add. Rewritten values are small. */
static uint64_t new_bytes(const struct ofs_commit *c)
{
	const struct ofs_object *objects = c->cat->objects;
	bool items = ops_of(c, 0)->items;
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

/* Is there enough space on the disk? */
static int check_room(struct ofs_commit *c, struct optimfs_error *err)
{
	uint64_t need = new_bytes(c), left;
	struct statvfs st;

	c->total = need;
	for (size_t i = 0; i < c->changes->n; i++)
		c->total += ofs_ranges_total(&c->changes->v[i].written);
	reached(c, PLACED);
	if (fstatvfs(c->job->stage, &st) == -1)
		return optimfs_fail(err, errno, "OFS821 %s: %m",
		    c->job->source);
	left = (uint64_t)st.f_bavail * st.f_frsize;
	if (need == 0 || need + need / 20 <= left)
		return 0;
	return optimfs_fail(err, ENOSPC,
	    "OFS801 the commit needs %" PRIu64 " bytes beside the checkpoint, "
	    "%" PRIu64 " are free",
	    need + need / 20, left);
}

/* Writes all new files. */
static int prepare(struct ofs_commit *c, void **state,
    struct optimfs_error *err)
{
	for (size_t i = 0; i < c->job->nparts; i++)
		if (ops_of(c, i)->begin != NULL &&
		    ops_of(c, i)->begin(c, c->job->part[i].part, &state[i],
			err) == -1)
			return -1;
	if (check_done(c, err) == -1 || add_rest(c, err) == -1 ||
	    ofs_commit_shared(c, err) == -1 || ofs_commit_write(c, err) == -1 ||
	    ofs_commit_scatter(c, err) == -1 || ofs_commit_sums(c, err) == -1)
		return -1;
	for (size_t i = 0; i < c->job->nparts; i++)
		if (ops_of(c, i)->end != NULL &&
		    ops_of(c, i)->end(state[i], err) == -1)
			return -1;
	return 0;
}

/* Is the checkpoint still the one that was mounted? */
static int check_source(const struct ofs_commit *c, struct optimfs_error *err)
{
	const struct ofs_dir *dir = &c->cat->dir;
	struct optimfs_error why;
	struct stat named, st;

	if (c->job->same(c->job->ctx, &why) == -1)
		return optimfs_fail(err, ESTALE,
		    "OFS805 the staged changes belong to another checkpoint: "
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
	ofs_commit_doing(c, "reading the new files again");
	if (ofs_commit_verify(c, err) == -1 || check_source(c, err) == -1)
		return -1;
	reached(c, VERIFIED);
	ofs_commit_doing(c, "putting them in place");
	if (ofs_commit_go_on(c, err) == -1)
		return -1;
	if (c->job->overlay != NULL)
		ofs_overlay_shut(c->job->overlay);
	return ofs_publish_commit(c->publish, err);
}

static void fini(struct ofs_commit *c)
{
	ofs_commit_place_fini(c);
	for (size_t i = 0; i < c->ntouched; i++)
		ofs_ranges_fini(&c->touched[i].ranges);
	free(c->touched);
	ofs_commit_files_fini(c);
	ofs_patches_fini(&c->patches);
	free(c->moved);
	free(c->fix);
	ofs_arena_fini(&c->arena);
}

int ofs_commit_run(const struct ofs_commit_job *job, struct optimfs_error *err)
{
	struct ofs_commit c = {
		.job = job,
		.reader = job->reader,
		.cat = job->reader->cat,
		.changes = job->changes,
		.publish = job->publish,
	};
	void **state = calloc(job->nparts + 1, sizeof(*state));
	int ret;

	if (state == NULL)
		return ofs_no_memory(err);
	ret = run(&c, state, err);
	for (size_t i = 0; i < job->nparts; i++)
		if (ops_of(&c, i)->free != NULL)
			ops_of(&c, i)->free(state[i]);
	free(state);
	fini(&c);
	return ret;
}
