/* commit.c - write the changes to a new generation of the checkpoint */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "rewrite/commit.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "base/checked.h"
#include "rewrite/rewrite_impl.h"

/* A commit turns what a user has changed in the tree into a new generation of the
 * checkpoint's own files. It does not change files: it describes new ones, lets
 * the engine write them, and publishes them with one rename. A new file is a
 * composition, as every file of a mount is, of four kinds of pieces:
 *
 *     stored bytes of a file of the checkpoint, with what is staged over them
 *     literal bytes: a pickle with its changed opcodes, headers of an archive
 *     a box of a tensor that was added
 *     the checksum of other bytes of the file
 *
 * So nobody writes elements to where they belong, and nobody corrects a file
 * after it was written. Which bytes of a stored file an edit replaces is one
 * question, which read/patch.c answers for any format: from the catalog, which
 * says where the elements of each tensor lie.
 *
 * What is left to a format is what only it can know: which files change if a
 * value is set, added or removed, and what they are composed of (update). What is
 * only bytes of tensors is not its business, unless it puts changed tensors
 * elsewhere, as DCP does, whose index says where each of them is. All files with
 * changed bytes that no format has laid out are laid out here as they are, from
 * their first byte to their last.
 *
 * The steps, and what each of them may rely on:
 *
 *   1. Is it still the checkpoint that was mounted? Nothing is believed that was
 *      read from another one.
 *   2. resolve_key.c gives each change its key in the source, or the commit ends
 *      here. From now on a change of a value is a task.
 *   3. data.c finds the extents with changed bytes (c->changed), and makes the
 *      patches: from here on, the stored bytes of any file can be read as they
 *      will be.
 *   4. The formats add files. Each marks the tasks as done and the extents as
 *      placed that it has taken care of. A task that is left is an error, an
 *      extent that is left means its whole file.
 *   5. The size of all new files is known, and is compared with the free space.
 *   6. shared.c compares what tensors that share bytes will have. It reads the
 *      patches, so a commit that it refuses has written nothing.
 *   7. The engine writes all files, with several threads. What is not touched is
 *      copied by the kernel in whole blocks, which file systems can share.
 *   8. An index that needs to know how long compressed items have become is made
 *      and written.
 *   9. verify.c opens the new files with our own reader, together with the old
 *      ones that stay, and trusts none of the steps before: the same tensors, the
 *      new values, no new damage.
 *  10. Once more step 1, then journal/publish.c.
 *
 * Until step 10 everything is in the stage's new/, and a failure removes it. If the
 * process is killed in step 7, the next commit takes the large files that were
 * finished, if it would write the same (key.c). */

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
	for (size_t i = 0; i < c->nchanged; i++)
		if (!c->changed[i].placed &&
		    ofs_commit_whole(c, c->changed[i].at.object, NULL, err) ==
			-1)
			return -1;
	return 0;
}

/* Is there enough space on the disk? */
static int check_room(struct ofs_commit *c, struct optimfs_error *err)
{
	uint64_t need = ofs_commit_size(c), left;
	struct statvfs st;

	c->total = need;
	reached(c, PLACED);
	if (fstatvfs(c->job->stage, &st) == -1)
		return optimfs_fail(err, errno, "OFS821 %s: %m",
		    c->job->source);
	/* what an earlier commit has finished is used, or makes room */
	left = (uint64_t)st.f_bavail * st.f_frsize +
	    ofs_publish_kept(c->publish, false);
	if (need == 0 || need + need / 20 <= left)
		return 0;
	return optimfs_fail(err, ENOSPC,
	    "OFS801 the commit needs %" PRIu64 " bytes beside the checkpoint, "
	    "%" PRIu64 " are free",
	    need + need / 20, left);
}

/* The files of the formats, and those in which only bytes change. */
int ofs_commit_lay_out(struct ofs_commit *c, struct optimfs_error *err)
{
	if (ofs_commit_place(c, err) == -1 || ofs_commit_names(c, err) == -1 ||
	    ofs_commit_extents(c, err) == -1)
		return -1;
	for (size_t i = 0; i < c->job->nparts; i++) {
		const struct ofs_commit_part *p = &c->job->part[i];

		if (p->update != NULL && p->update(c, p->part, err) == -1)
			return -1;
	}
	return check_done(c, err) == -1 ? -1 : add_rest(c, err);
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

/* Is a file that the new generation replaces or removes the one that was read?
 * What was there when its successor was made is known to the publisher. */
static int check_old(void *ctx, const char *rel, struct optimfs_error *err)
{
	const struct ofs_commit *c = ctx;
	const struct ofs_object *o = c->cat->objects;
	struct stat st;

	for (uint32_t i = 0; i < c->cat->nobjects; i++, o++)
		if (strcmp(o->path, rel) == 0 && !o->missing &&
		    ofs_dir_stat(&c->cat->dir, rel, &st) &&
		    (uint64_t)st.st_size == o->size && st.st_ino == o->ino &&
		    ofs_time_ns(&st.st_mtim) == o->mtime_ns)
			return 0;
	return optimfs_fail(err, ESTALE,
	    "OFS805 %.200s changed since the checkpoint was mounted", rel);
}

static int write_and_publish(struct ofs_commit *c, struct optimfs_error *err)
{
	if (check_source(c, err) == -1 || ofs_commit_lay_out(c, err) == -1 ||
	    check_room(c, err) == -1 || ofs_commit_shared(c, err) == -1 ||
	    ofs_commit_write(c, err) == -1)
		return -1;
	if (!ofs_publish_any(c->publish))
		return 0;
	reached(c, WRITTEN);
	ofs_commit_doing(c, "reading the new files again");
	if (ofs_commit_verify(c, err) == -1 || check_source(c, err) == -1 ||
	    ofs_publish_each_old(c->publish, check_old, c, err) == -1)
		return -1;
	reached(c, VERIFIED);
	ofs_commit_doing(c, "putting them in place");
	if (ofs_commit_go_on(c, err) == -1)
		return -1;
	if (c->job->overlay != NULL)
		ofs_overlay_shut(c->job->overlay);
	return ofs_publish_commit(c->publish, err);
}

void ofs_commit_init(struct ofs_commit *c, const struct ofs_commit_job *job)
{
	*c = (struct ofs_commit){
		.job = job,
		.reader = job->reader,
		.cat = job->reader->cat,
		.changes = job->changes,
		.publish = job->publish,
	};
}

void ofs_commit_fini(struct ofs_commit *c)
{
	ofs_commit_place_fini(c);
	ofs_commit_files_fini(c);
	ofs_patches_fini(&c->patches);
	ofs_catalog_free(c->added);
	free(c->added_task);
	free(c->added_of);
	free(c->changed);
	free(c->gone);
	ofs_arena_fini(&c->arena);
}

int ofs_commit_run(const struct ofs_commit_job *job, struct optimfs_error *err)
{
	struct ofs_commit c;
	int ret;

	ofs_commit_init(&c, job);
	ret = write_and_publish(&c, err);
	ofs_commit_fini(&c);
	return ret;
}
