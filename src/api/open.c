/* open.c - opening a checkpoint */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "store/http/open.h"

#include <errno.h>
#include <stdlib.h>

#include "api/api.h"
#include "base/absent.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/step.h"
#include "cluster/commit/locks.h"
#include "cluster/manifest.h"
#include "cluster/source.h"
#include "cluster/task.h"
#include "detect/registry.h"
#include "detect/view_name.h"
#include "journal/stage.h"
#include "push/push.h"
#include "push/template.h"
#include "run/run.h"

/* A file that could not be read for the moment leaves names out of the tree:
 * whoever changes the rest would change less than there is, and the commit would
 * find names that were not there. */
static int was_all_read(const struct ofs_catalog *cat, const char *path,
    const char *what, struct optimfs_error *err)
{
	struct optimfs_error why = { 0 };

	for (uint32_t i = 0; i < cat->nnotes; i++) {
		if (cat->notes[i].kind != OFS_NOTE_MISSING ||
		    cat->notes[i].number != 755)
			continue;
		ofs_note_error(&cat->notes[i], &why);
		optimfs_fail_with(err, &why);
		return optimfs_fail_in(err,
		    "%s cannot %s while this cannot be read", path, what);
	}
	return 0;
}

/* Reads a checkpoint that is to be changed. */
static struct ofs_catalog *read_for_writing(const char *path,
    const struct optimfs_options *options, struct optimfs_error *err)
{
	struct ofs_catalog *cat = ofs_read_checkpoint(path, options, err);
	const struct ofs_format *f =
	    cat == NULL ? NULL : ofs_format_find(cat->format);

	if (f != NULL && f->read_only)
		optimfs_fail(err, EOPNOTSUPP,
		    "OFS820 %s: format %s cannot be written: mount it without "
		    "rw, or with scratch for changes that are not kept",
		    path, f->name);
	else if (cat == NULL || was_all_read(cat, path, "be changed", err) == 0)
		return cat;
	ofs_catalog_free(cat);
	return NULL;
}

/* An empty directory that waits for its first commit shows the tree of the
 * checkpoint that it is made like. */
static struct optimfs *open_template(const char *path,
    const struct optimfs_options *options, struct ofs_stage *stage,
    struct optimfs_error *err)
{
	struct ofs_writing_to to = { .stage = stage, .fill = &ofs_push_ops };
	struct optimfs_options like = *options;
	struct ofs_catalog *cat = NULL;
	struct ofs_layout layout = { .only = OFS_ONLY_ALL };
	struct ofs_template t;

	if (ofs_template_load(ofs_stage_beside(stage), &t, err) == -1) {
		ofs_stage_close(stage, true);
		return NULL;
	}
	like.group = NULL;
	if (ofs_layout_parse(t.layout, &layout, err) == 0 &&
	    ofs_template_options(&t, &like, err) == 0)
		cat = ofs_read_checkpoint(t.like, &like, err);
	if (cat != NULL &&
	    (was_all_read(cat, t.like, "give its names to a new one", err) ==
		    -1 ||
		ofs_template_same(&t, cat, err) == -1)) {
		ofs_catalog_free(cat);
		cat = NULL;
	}
	if (cat == NULL) {
		optimfs_fail_in(err, "%.200s, which the new one is made like",
		    t.like);
		ofs_stage_close(stage, true);
	}
	ofs_template_fini(&t);
	if (layout.only != OFS_ONLY_ALL)
		to.only = layout.only == OFS_ONLY_OPTIM ? "optim" : "model";
	return cat == NULL ? NULL
			   : ofs_fs_new_staged(cat, path, options, &to, err);
}

static struct optimfs *open_staged(struct ofs_catalog *cat, const char *path,
    const struct optimfs_options *options, struct ofs_stage *stage,
    struct optimfs_error *err)
{
	const struct ofs_writing_to to = { .stage = stage };

	if (cat != NULL)
		return ofs_fs_new_staged(cat, path, options, &to, err);
	ofs_stage_close(stage, true);
	return NULL;
}

/* The lock comes first: whatever another writer, or a dead one, was about to
 * change must be finished before the checkpoint is read. The path must stay
 * valid when the process changes directory. */
static struct optimfs *open_rw(const char *path,
    const struct optimfs_options *options, struct optimfs_error *err)
{
	char *real = realpath(path, NULL);
	struct ofs_stage *stage;
	struct optimfs *fs = NULL;
	bool template;

	if (real == NULL) {
		if (errno == ENOENT)
			ofs_fail_absent(path, err);
		else
			optimfs_fail(err, errno, "%s: %m", path);
		return NULL;
	}
	stage =
	    ofs_stage_for_writing(real, options, NULL, &template, NULL, err);
	if (stage != NULL)
		fs = template
		    ? open_template(real, options, stage, err)
		    : open_staged(read_for_writing(real, options, err), real,
			  options, stage, err);
	free(real);
	return fs;
}

/* With several ranks, rank 0 writes. The lock was taken when path was offered.
 * If everything is in one directory on this machine, no other rank is needed to
 * read it. */
static struct optimfs *open_rw_shared(const char *path,
    const struct optimfs_options *options, struct optimfs_error *err)
{
	struct ofs_manifest *s = ofs_group_manifest(options->group, path, err);
	struct ofs_writing *w = s == NULL ? NULL : s->writing;
	struct optimfs_options o = *options;
	struct optimfs *fs = NULL;
	const char *source = path;
	char *here = NULL;

	if (s != NULL && w == NULL)
		optimfs_fail(err, EROFS,
		    "OFS842 %s: only rank 0 can write; this is rank %d, which "
		    "shows what rank 0 commits",
		    path, options->group->rank);
	if (w == NULL)
		return NULL;
	if (w->coordinator == NULL || w->template) {
		source = here = ofs_manifest_here(s, err);
		o.group = NULL;
	}
	if (w->template && s->nfiles > 0) {
		optimfs_fail(err, EEXIST,
		    "OFS830 %s must be empty for a new checkpoint, but rank %d "
		    "has a file there: %.200s",
		    path, s->owner[s->file[0].owner].rank, s->file[0].path);
		source = NULL;
	}
	if (source != NULL) {
		fs = w->template
		    ? open_template(source, &o, w->stage, err)
		    : open_staged(read_for_writing(source, &o, err), source, &o,
			  w->stage, err);
		w->stage = NULL;
	}
	if (fs != NULL) {
		fs->coordinator = w->coordinator;
		w->coordinator = NULL;
	}
	ofs_writing_free(w);
	s->writing = NULL;
	free(here);
	return fs;
}

/* Returns an empty catalog for a directory that waits for its first commit. */
static struct ofs_catalog *read_nothing(const struct ofs_manifest *s,
    struct optimfs_error *err)
{
	struct ofs_catalog *cat;
	struct ofs_dir dir;
	char *rel;

	if (ofs_manifest_dir(s, &dir, &rel, err) == -1)
		return NULL;
	cat = ofs_catalog_new(&dir, err);
	ofs_dir_close(&dir);
	free(rel);
	if (cat == NULL)
		return NULL;
	cat->format = "none";
	if (ofs_catalog_finish(cat, err) == 0)
		return cat;
	ofs_catalog_free(cat);
	return NULL;
}

/* Opens the files of all ranks; rank 0 may write. */
static struct optimfs *open_shared(const char *path,
    const struct optimfs_options *options, struct optimfs_error *err)
{
	const struct ofs_manifest *s =
	    ofs_group_manifest(options->group, path, err);
	struct ofs_catalog *cat;

	if (s == NULL)
		return NULL;
	cat = s->written && s->nfiles == 0
	    ? read_nothing(s, err)
	    : ofs_read_checkpoint(path, options, err);
	return cat == NULL ? NULL : ofs_open_catalog(cat, path, options, err);
}

/* Fails for an empty directory that waits for a template to be filled. */
static int find_template(const char *path, struct optimfs_error *err)
{
	if (!ofs_template_find(path, NULL))
		return 0;
	return optimfs_fail(err, EROFS,
	    "OFS834 %s is an empty template of optimfs mkfs: mount it with "
	    "'optimfs mount -o rw %s MOUNTPOINT', copy files in, unmount it",
	    path, path);
}

struct optimfs *ofs_open_catalog(struct ofs_catalog *cat, const char *source,
    const struct optimfs_options *options, struct optimfs_error *err)
{
	struct ofs_stage *stage;
	bool template;

	if (!options->rw)
		return ofs_fs_new(cat, source, options, err);
	stage =
	    ofs_stage_for_writing(source, options, NULL, &template, NULL, err);
	if (stage != NULL)
		return open_staged(cat, source, options, stage, err);
	ofs_catalog_free(cat);
	return NULL;
}

/* Changes are never kept, so no lock is needed. */
static struct optimfs *open_scratch(const char *path,
    const struct optimfs_options *options, struct optimfs_error *err)
{
	struct ofs_catalog *cat = ofs_read_checkpoint(path, options, err);

	return cat == NULL ? NULL : ofs_open_catalog(cat, path, options, err);
}

static struct optimfs *open_run(const char *path,
    const struct optimfs_options *options, struct optimfs_error *err)
{
	if (options->rw || options->group != NULL) {
		optimfs_fail(err, EROFS,
		    options->rw
			? "OFS854 %s is a run, which is read-only: give one of "
			  "its checkpoints, %s/steps/STEP"
			: "OFS854 %s is a run, which one process reads: without "
			  "mpirun the command shows it, with mpirun give the "
			  "directory of one of its checkpoints, %s/NAME",
		    path, path);
		return NULL;
	}
	return ofs_run_open(path, options, optimfs_open, err);
}

/* What is on a server. */
static struct optimfs *open_address(const char *path,
    const struct optimfs_options *options, struct optimfs_error *err)
{
	if (options->rw)
		optimfs_fail(err, EROFS,
		    "OFS926 %s is on a server, and read-only: make a copy with "
		    "optimfs reshard, and change that",
		    path);
	else
		return ofs_fs_open(path, options, err);
	return NULL;
}

static struct optimfs *open_one(const char *path,
    const struct optimfs_options *options, struct optimfs_error *err)
{
	struct optimfs *fs = NULL;

	if (ofs_http_is_address(path))
		return open_address(path, options, err);
	if (options->rw && !options->scratch && options->group != NULL) {
		fs = open_rw_shared(path, options, err);
	} else if (options->rw && !options->scratch) {
		fs = open_rw(path, options, err);
	} else if (options->group != NULL) {
		fs = open_shared(path, options, err);
	} else if (find_template(path, err) == 0) {
		fs = options->rw ? open_scratch(path, options, err)
				 : ofs_fs_open(path, options, err);
	}
	return fs;
}

/* The errors for a directory that has checkpoints. */
static bool has_several(const struct optimfs_error *err)
{
	return err->number == 681 || err->number == 676 || err->number == 886;
}

static struct optimfs *open_any(const char *path,
    const struct optimfs_options *options, struct optimfs_error *err)
{
	struct optimfs_error why = { 0 };
	struct optimfs *fs;

	if (options->run == OPTIMFS_RUN_YES)
		return open_run(path, options, err);
	fs = open_one(path, options, err);
	if (fs != NULL || options->run != OPTIMFS_RUN_AUTO || !has_several(err))
		return fs;
	fs = open_run(path, options, &why);
	if (fs == NULL && (why.number == 854 || ofs_must_stop(&why)))
		optimfs_fail_with(err, &why);
	if (fs == NULL || ofs_run_is_evident(&fs->run->members))
		return fs;
	optimfs_close(fs);
	return NULL;
}

/* Opens what path names in a run: a checkpoint with files of its own, or one
 * that is computed. */
static struct optimfs *open_found(const char *path, const char *real,
    const char *rest, const struct optimfs_options *options,
    struct optimfs_error *err)
{
	if (*rest != '\0') {
		optimfs_fail(err, ENOENT,
		    "OFS851 %s: the path in the checkpoint, %s, comes after it",
		    path, rest);
		return NULL;
	}
	return real != NULL ? open_any(real, options, err)
			    : ofs_open_named(path, options, err);
}

/* Adds the path of the checkpoint to an error about one of its files. */
static void name_checkpoint(const char *path, struct optimfs_error *err)
{
	/* an address that is refused may hold a secret, and one of several
	 * servers leaves no room for anything else */
	if (err->number != 920 && path[0] != '{' &&
	    strstr(err->text, ofs_path_last(path)) == NULL)
		optimfs_fail_in(err, "%.200s", path);
}

/* A message that will still be true when the checkpoint is open. */
static void keep_note(void *ctx, const char *text)
{
	struct optimfs_error note;

	optimfs_fail_as(&note, EPERM, "%s", text);
	if (note.number != 0)
		*(struct optimfs_error *)ctx = note;
}

bool optimfs_is_address(const char *path)
{
	return ofs_http_is_address(path);
}

int optimfs_connect(const char *path, const struct optimfs_options *options,
    struct optimfs_error *err)
{
	return ofs_http_is_address(path) ? ofs_http_prepare(path, options, err)
					 : 0;
}

struct optimfs *optimfs_open(const char *path,
    const struct optimfs_options *options, struct optimfs_error *err)
{
	static const struct optimfs_options none;
	struct optimfs_error note = { 0 };
	struct optimfs *fs = NULL;
	const char *rest;
	char *real = NULL;
	int named = 0;

	if (options == NULL)
		options = &none;
	err = OFS_SOME_ERROR(err);
	named = optimfs_connect(path, options, err);
	if (named == 0 && options->group == NULL)
		named = optimfs_run_find(path, &real, &rest, err);
	if (named != -1 &&
	    optimfs_await(real != NULL ? real : path, keep_note, &note, err) ==
		0)
		fs = named == 0 ? open_any(path, options, err)
				: open_found(path, real, rest, options, err);
	free(real);
	if (fs != NULL && note.number != 0)
		optimfs_log_error(fs, &note);
	if (fs == NULL && options->group == NULL)
		name_checkpoint(path, err);
	/* no other rank makes a collective call when all have offered */
	if (options->together)
		options->group->together = options->group->reader != NULL;
	if (options->together &&
	    (ofs_task_agree(options->group, fs == NULL ? -1 : 0, err) == -1 ||
		optimfs_group_compare(options->group, fs, err) == -1)) {
		optimfs_close(fs);
		fs = NULL;
	}
	ofs_give_back();
	return fs;
}
