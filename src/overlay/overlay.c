/* overlay.c - what a writer has changed: its beginning and end */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cluster/commit/coordinator.h"
#include "journal/publish.h"
#include "overlay/overlay_impl.h"
#include "push/template.h"
#include "push/writethrough.h"
#include "reshard/leftover.h"

void ofs_overlay_changed(struct ofs_overlay *e, bool names)
{
	atomic_fetch_add(&e->changed, 1);
	if (names)
		atomic_fetch_add(&e->names_changed, 1);
}

int ofs_overlay_record(struct ofs_overlay *e, const struct ofs_record *r,
    struct optimfs_error *err)
{
	if (e->replaying)
		return 0;
	if (e->stuck.code != 0) {
		*err = e->stuck;
		return -1;
	}
	return ofs_stage_append(e->stage, r, err);
}

struct ofs_stage *ofs_overlay_stage(const struct ofs_overlay *edit)
{
	return edit->stage;
}

void ofs_overlay_set_sites(struct ofs_overlay *edit,
    struct ofs_coordinator *sites)
{
	edit->sites = sites;
}

struct ofs_coordinator *ofs_overlay_sites(const struct ofs_overlay *edit)
{
	return edit->sites;
}

static struct ofs_overlay *edit_new(struct optimfs *fs,
    struct optimfs_error *err)
{
	struct ofs_overlay *e = calloc(1, sizeof(*e));

	if (e == NULL) {
		optimfs_fail(err, ENOMEM, "changes");
		return NULL;
	}
	e->fs = fs;
	e->first = fs->tree.n + OFS_NSTATIC;
	pthread_rwlock_init(&e->names, NULL);
	e->base = calloc((size_t)e->first, sizeof(struct ofs_overlay_node *));
	e->tensor = calloc((size_t)fs->cat->ntensors + 1,
	    sizeof(struct ofs_overlay_file *));
	if (e->base != NULL && e->tensor != NULL)
		return e;
	optimfs_fail(err, ENOMEM, "changes");
	ofs_overlay_free(e);
	return NULL;
}

static void node_free(struct ofs_overlay_node *v)
{
	if (v == NULL)
		return;
	free(v->name);
	free(v->child);
	ofs_blob_unref(v->said);
	free(v);
}

bool ofs_overlay_is_direct(const struct ofs_overlay *edit)
{
	return edit->direct != NULL && !edit->published;
}

static void free_tables(struct ofs_overlay *e)
{
	for (uint32_t i = 0; e->base != NULL && i < e->first; i++)
		node_free(e->base[i]);
	for (uint32_t i = 0; i < e->nmade; i++)
		node_free(e->made[i]);
	for (struct ofs_overlay_file *f = e->files, *next; f != NULL;
	     f = next) {
		next = f->next;
		ofs_overlay_file_free(f);
	}
	free(e->base);
	free(e->made);
	free(e->tensor);
	free(e->bucket);
}

bool ofs_overlay_dirty(struct ofs_overlay *e)
{
	struct ofs_overlay_status s;

	ofs_overlay_status(e, &s);
	return s.files > 0;
}

void ofs_overlay_free(struct ofs_overlay *e)
{
	if (e == NULL)
		return;
	if (e->stage != NULL)
		ofs_stage_close(e->stage,
		    e->keep ||
			(e->direct != NULL ? !e->published
					   : ofs_overlay_dirty(e)));
	free_tables(e);
	ofs_coordinator_free(e->sites);
	ofs_writethrough_free(e->direct);
	free(e->destination);
	pthread_rwlock_destroy(&e->names);
	free(e);
}

/* What is found beside a checkpoint when its lock is taken. */
struct beside {
	const char *path;
	char *skeleton;             /* path is empty, and to become this */
	bool done;                  /* a skeleton was about to get its name */
	struct ofs_manifest *share; /* of several ranks; NULL */
	struct ofs_coordinator
	    *sites;   /* their directories, if they are several */
	bool settled; /* what they were to publish is done */
};

/* Who sees other directories than ours takes their locks. What is in one that
 * we see needs no others. */
static int look_for_others(struct beside *b, int beside,
    struct optimfs_error *err)
{
	char id[OFS_LOCK_ID];
	int ret;

	ofs_lock_peek(beside, id);
	b->sites = ofs_coordinator_open(b->share, id, beside, err);
	if (b->sites == NULL)
		return -1;
	if (ofs_coordinator_alone(b->sites)) {
		ofs_coordinator_free(b->sites);
		b->sites = NULL;
		return 0;
	}
	ret = ofs_coordinator_settle(b->sites, err);
	b->settled = ret == 1;
	return ret;
}

/* What was staged for a commit that was published is done. */
static int finish_commit(const struct beside *b, int beside,
    struct optimfs_error *err)
{
	char *dir = strdup(b->path);
	struct stat st;
	int fd, ret = -1;

	if (dir == NULL)
		return optimfs_fail(err, ENOMEM, "%s", b->path);
	if (stat(dir, &st) == 0 && !S_ISDIR(st.st_mode))
		*strrchr(dir, '/') = '\0'; /* a file: the directory it is in */
	fd = open(dir[0] == '\0' ? "/" : dir,
	    O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd == -1)
		optimfs_fail(err, errno, "%s: %m", dir);
	else
		ret = ofs_publish_recover(dir[0] == '\0' ? "/" : dir, fd,
		    beside, err);
	if (fd != -1)
		close(fd);
	free(dir);
	return ret;
}

static int look_beside(void *ctx, int beside, struct optimfs_error *err)
{
	struct beside *b = ctx;
	int found = 0;

	if (b->share != NULL)
		found = look_for_others(b, beside, err);
	if (found != 0) {
		b->done = ofs_template_done(b->path);
		return found;
	}
	found = ofs_template_find(b->path, &b->skeleton, err);
	if (found == -1)
		return -1;
	b->done = ofs_template_done(b->path);
	if (found == 1)
		return 0;
	/* what was the skeleton is in path now */
	return b->done || ofs_reshard_rest(beside)
	    ? 1
	    : finish_commit(b, beside, err);
}

/* The stage is open, and what was staged before is dropped if it is done. */
static int settle(struct ofs_stage *st, const struct beside *b,
    struct optimfs_error *err)
{
	if (ofs_stage_sync(st, err) == -1)
		return -1;
	if (b->settled)
		ofs_coordinator_forget(b->sites);
	else if (b->sites == NULL)
		ofs_publish_forget(ofs_stage_beside(st));
	if (b->done)
		ofs_writethrough_settle(st, b->skeleton == NULL);
	return 0;
}

struct ofs_stage *ofs_overlay_stage_open(const char *path,
    const struct optimfs_options *options, struct ofs_manifest *share,
    char **skeleton, struct ofs_coordinator **sites, struct optimfs_error *err)
{
	struct beside beside = { .path = path, .share = share };
	const struct ofs_stage_config config = {
		.source = path,
		.upper = options->upper,
		.recover = (enum ofs_recover)options->recover,
		.scratch = options->scratch,
		.published = look_beside,
		.ctx = &beside,
	};
	struct ofs_stage *st;

	st = ofs_stage_open(&config, err);
	if (st != NULL && !options->scratch && settle(st, &beside, err) == -1) {
		ofs_stage_close(st, true);
		st = NULL;
	}
	if (st == NULL) {
		ofs_coordinator_free(beside.sites);
		free(beside.skeleton);
		return NULL;
	}
	*skeleton = beside.skeleton;
	if (share != NULL)
		*sites = beside.sites;
	return st;
}

/* A file that stands for others would be locked, not they. */
static int check_source(const struct optimfs *fs, struct optimfs_error *err)
{
	struct stat st;

	if (fs->cat->filling || fs->cat->nobjects < 2 ||
	    stat(fs->source, &st) == -1 || S_ISDIR(st.st_mode))
		return 0;
	return optimfs_fail(err, EINVAL,
	    "OFS809 %s is one of several files: to write them, mount their "
	    "directory",
	    fs->source);
}

/* Of a skeleton all is hidden until it is created. */
static int begin_direct(struct ofs_overlay *e, struct optimfs_error *err)
{
	const char *source = e->fs->source;

	e->destination = realpath(source, NULL);
	if (e->destination == NULL)
		return optimfs_fail(err, errno, "OFS809 %s: %m", source);
	e->direct = ofs_writethrough_new(e->fs, err);
	return e->direct == NULL ? -1 : ofs_writethrough_hide(e, err);
}

int ofs_overlay_open(struct optimfs *fs, struct ofs_stage *stage,
    struct optimfs_error *err)
{
	struct optimfs_error note;

	fs->edit = edit_new(fs, err);
	if (fs->edit == NULL) {
		ofs_stage_close(stage, true);
		return -1;
	}
	fs->edit->scratch = fs->options.scratch;
	atomic_init(&fs->edit->explicit_commit, fs->options.explicit_commit);
	fs->edit->stage = stage;
	if (ofs_stage_note(stage)[0] != '\0') {
		optimfs_fail_as(&note, EBUSY, "%s", ofs_stage_note(stage));
		optimfs_log_error(fs, &note);
	}
	if (check_source(fs, err) == -1 ||
	    (fs->cat->filling && begin_direct(fs->edit, err) == -1) ||
	    ofs_overlay_replay(fs->edit, err) == -1) {
		fs->edit->keep = true;
		return -1;
	}
	return 0;
}

static void count_file(const struct ofs_overlay_file *f,
    struct ofs_overlay_status *s)
{
	if (f->dead || !ofs_overlay_file_differs(f))
		return;
	s->bytes += f->text ? (f->said == NULL ? 0 : f->said->len)
			    : ofs_ranges_total(&f->written);
}

static bool node_differs(const struct ofs_overlay *e,
    const struct ofs_overlay_node *v)
{
	const struct ofs_overlay_file *f;

	if (v == NULL || v->dead)
		return false;
	if (ofs_overlay_is_made(e, v->index))
		return v->parent != OFS_NONE && !v->dir;
	if (e->direct != NULL)
		return !v->dir && !v->gone && !e->published;
	if (v->gone)
		return true;
	f = v->dir ? NULL : ofs_overlay_file(e, v->index);
	return f != NULL && ofs_overlay_file_differs(f);
}

void ofs_overlay_status(struct ofs_overlay *e, struct ofs_overlay_status *s)
{
	*s = (struct ofs_overlay_status){ 0 };
	pthread_rwlock_rdlock(&e->names);
	for (uint32_t i = 0; i < e->first; i++)
		s->files += node_differs(e, e->base[i]);
	for (uint32_t i = 0; i < e->nmade; i++)
		s->files += node_differs(e, e->made[i]);
	for (struct ofs_overlay_file *f = e->files; f != NULL; f = f->next) {
		pthread_rwlock_rdlock(&f->lock);
		count_file(f, s);
		pthread_rwlock_unlock(&f->lock);
	}
	pthread_rwlock_unlock(&e->names);
	s->percent = (int)atomic_load(&e->percent) - 1;
}

void ofs_overlay_progress(struct ofs_overlay *e, unsigned percent)
{
	atomic_store(&e->percent, percent + 1);
}

/* What was made is no more; the rest is as the checkpoint has it. */
static void forget(struct ofs_overlay *e)
{
	for (uint32_t i = 0; i < e->nbuckets; i++)
		e->bucket[i] = NULL;
	e->nplaced = 0;
	for (uint32_t i = 0; i < e->first; i++)
		if (e->base[i] != NULL) {
			e->base[i]->gone = e->direct != NULL && i != 0;
			e->base[i]->parent = OFS_NONE;
			e->base[i]->nchild = 0;
			e->base[i]->mtime_ns = 0;
		}
	for (uint32_t i = 0; i < e->nmade; i++) {
		e->made[i]->dead = true;
		e->made[i]->parent = OFS_NONE;
		e->made[i]->nchild = 0;
	}
	for (struct ofs_overlay_file *f = e->files; f != NULL; f = f->next)
		ofs_overlay_file_revert(e, f);
}

int ofs_overlay_reset(struct ofs_overlay *e, struct optimfs_error *err)
{
	int ret;

	pthread_rwlock_wrlock(&e->names);
	forget(e);
	ret = ofs_stage_reset(e->stage, err);
	pthread_rwlock_unlock(&e->names);
	ofs_overlay_changed(e, true);
	return ret;
}

/* No change is taken: its record would be thrown away with those before it. */
static void stick(struct ofs_overlay *e, const struct optimfs_error *why)
{
	e->stuck = *why;
	optimfs_fail_in(&e->stuck, "to write again, mount again");
	e->keep = true;
}

int ofs_overlay_published(struct ofs_overlay *e,
    const struct optimfs_error *unsafe)
{
	struct optimfs_error err;
	int ret;

	/* nobody sees what was there before any of it; opened by who commits,
	 * when all of it is shown */
	(void)ofs_gate_close(e->fs);
	pthread_rwlock_wrlock(&e->names);
	forget(e);
	pthread_rwlock_unlock(&e->names);
	ofs_overlay_changed(e, true);
	ret = unsafe == NULL ? ofs_stage_reset(e->stage, &err) : -1;
	if (ret == 0)
		return 0;
	if (unsafe == NULL)
		optimfs_log_error(e->fs, &err);
	e->unsafe = unsafe != NULL;
	stick(e, unsafe == NULL ? &err : unsafe);
	return -1;
}

int ofs_overlay_abort(struct ofs_overlay *e, struct optimfs_error *err)
{
	int ret;

	if (ofs_gate_hold(e->fs, true, err) == -1)
		return -1;
	ret = e->stuck.code != 0 ? 0 : ofs_overlay_reset(e, err);
	ofs_gate_let(e->fs);
	return ret;
}

/* Numbers that were given to made nodes are not given again, as long as they
 * could be taken for those. */
int ofs_overlay_rebase(struct ofs_overlay *e, bool same,
    struct optimfs_error *err)
{
	struct ofs_overlay *fresh = edit_new(e->fs, err);
	struct ofs_overlay old = *e;

	if (fresh == NULL)
		return -1;
	e->first = fresh->first;
	e->base = fresh->base;
	e->tensor = fresh->tensor;
	e->files = NULL;
	e->bucket = NULL;
	e->nbuckets = e->nplaced = 0;
	if (same) {
		old.made = NULL;
		old.nmade = 0;
		for (uint32_t i = 0; i < e->nmade; i++)
			e->made[i]->file = NULL;
	} else {
		e->made = NULL;
		e->nmade = e->cap = 0;
	}
	free_tables(&old);
	/* a skeleton is one no more */
	ofs_writethrough_free(e->direct);
	e->direct = NULL;
	e->published = false;
	fresh->base = NULL;
	fresh->tensor = NULL;
	ofs_overlay_free(fresh);
	ofs_overlay_changed(e, true);
	return 0;
}
