/* edit.c - what a writer has changed: its beginning and end */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "direct.h"
#include "edit_impl.h"
#include "publish.h"
#include "skeleton.h"

void ofs_edit_enter(struct ofs_edit *e)
{
	pthread_mutex_lock(&e->gate);
	while (e->held)
		pthread_cond_wait(&e->passed, &e->gate);
	e->inside++;
	pthread_mutex_unlock(&e->gate);
}

void ofs_edit_leave(struct ofs_edit *e)
{
	pthread_mutex_lock(&e->gate);
	e->inside--;
	pthread_cond_broadcast(&e->passed);
	pthread_mutex_unlock(&e->gate);
}

int ofs_edit_hold(struct ofs_edit *e, struct optimfs_error *err)
{
	int ret = 0;

	pthread_mutex_lock(&e->gate);
	if (e->held)
		ret = optimfs_fail(err, EBUSY,
		    "OFS815 a commit is under way already");
	else
		e->held = true;
	while (ret == 0 && e->inside > 0)
		pthread_cond_wait(&e->passed, &e->gate);
	pthread_mutex_unlock(&e->gate);
	return ret;
}

void ofs_edit_let(struct ofs_edit *e)
{
	pthread_mutex_lock(&e->gate);
	e->held = false;
	pthread_cond_broadcast(&e->passed);
	pthread_mutex_unlock(&e->gate);
}

void ofs_edit_changed(struct ofs_edit *e, bool names)
{
	atomic_fetch_add(&e->changed, 1);
	if (names)
		atomic_fetch_add(&e->names_changed, 1);
}

int ofs_edit_record(struct ofs_edit *e, const struct ofs_record *r,
    struct optimfs_error *err)
{
	return e->replaying ? 0 : ofs_stage_append(e->stage, r, err);
}

struct ofs_stage *ofs_edit_stage(const struct ofs_edit *edit)
{
	return edit->stage;
}

static struct ofs_edit *edit_new(struct optimfs *fs, struct optimfs_error *err)
{
	struct ofs_edit *e = calloc(1, sizeof(*e));

	if (e == NULL) {
		optimfs_fail(err, ENOMEM, "changes");
		return NULL;
	}
	e->fs = fs;
	e->first = fs->tree.n + OFS_NSTATIC;
	pthread_mutex_init(&e->gate, NULL);
	pthread_cond_init(&e->passed, NULL);
	pthread_rwlock_init(&e->names, NULL);
	e->base = calloc((size_t)e->first, sizeof(struct ofs_edit_node *));
	e->tensor = calloc((size_t)fs->cat->ntensors + 1,
	    sizeof(struct ofs_edit_file *));
	if (e->base != NULL && e->tensor != NULL)
		return e;
	optimfs_fail(err, ENOMEM, "changes");
	ofs_edit_free(e);
	return NULL;
}

static void node_free(struct ofs_edit_node *v)
{
	if (v == NULL)
		return;
	free(v->name);
	free(v->child);
	ofs_blob_unref(v->said);
	free(v);
}

bool ofs_edit_is_direct(const struct ofs_edit *edit)
{
	return edit->direct != NULL && !edit->published;
}

bool ofs_edit_dirty(struct ofs_edit *e)
{
	struct ofs_edit_status s;

	ofs_edit_status(e, &s);
	return s.files > 0;
}

void ofs_edit_free(struct ofs_edit *e)
{
	if (e == NULL)
		return;
	if (e->stage != NULL)
		ofs_stage_close(e->stage,
		    e->direct != NULL ? !e->published : ofs_edit_dirty(e));
	for (uint32_t i = 0; e->base != NULL && i < e->first; i++)
		node_free(e->base[i]);
	for (uint32_t i = 0; i < e->nmade; i++)
		node_free(e->made[i]);
	for (struct ofs_edit_file *f = e->files, *next; f != NULL; f = next) {
		next = f->next;
		ofs_edit_file_free(f);
	}
	ofs_direct_free(e->direct);
	free(e->destination);
	free(e->base);
	free(e->made);
	free(e->tensor);
	free(e->bucket);
	pthread_rwlock_destroy(&e->names);
	pthread_cond_destroy(&e->passed);
	pthread_mutex_destroy(&e->gate);
	free(e);
}

/* A commit that a crash cut short is finished or undone; one that was published
 * has made what is staged the checkpoint. */
static int recover(struct optimfs *fs, struct optimfs_error *err)
{
	struct ofs_stage *stage = fs->edit->stage;
	int ret;

	if (fs->edit->scratch || fs->cat->dir.fd == -1)
		return 0;
	ret = ofs_publish_recover(fs->cat->dir.path, fs->cat->dir.fd,
	    ofs_stage_beside(stage), err);
	if (ret != 1)
		return ret;
	if (ofs_stage_reset(stage, err) == -1)
		return -1;
	ofs_publish_forget(ofs_stage_beside(stage));
	return 0;
}

/* Of a skeleton all is hidden until it is created. */
static int begin_direct(struct ofs_edit *e, const char *source,
    struct optimfs_error *err)
{
	e->destination = realpath(source, NULL);
	if (e->destination == NULL)
		return optimfs_fail(err, errno, "OFS809 %s: %m", source);
	e->direct = ofs_direct_new(e->fs, err);
	return e->direct == NULL ? -1 : ofs_direct_hide(e, err);
}

int ofs_edit_open(struct optimfs *fs, const char *source,
    struct optimfs_error *err)
{
	const struct optimfs_options *o = &fs->options;
	struct ofs_stage_config config = {
		.source = source,
		.upper = o->upper,
		.recover = (enum ofs_recover)o->recover,
		.scratch = o->scratch,
	};
	bool direct = fs->cat->filling;
	bool done = !o->scratch && ofs_skeleton_done(source);
	struct optimfs_error note;
	char words[256];

	if (done && !direct) /* it was the skeleton's, and is in source now */
		config.recover = OFS_RECOVER_DISCARD;
	fs->edit = edit_new(fs, err);
	if (fs->edit == NULL)
		return -1;
	fs->edit->scratch = o->scratch;
	fs->edit->stage = ofs_stage_open(&config, words, err);
	if (fs->edit->stage == NULL)
		return -1;
	if (words[0] != '\0') {
		optimfs_fail(&note, EBUSY, "%s", words);
		optimfs_log_error(fs, &note);
	}
	if (done)
		ofs_direct_settle(fs->edit->stage, !direct);
	if (direct ? begin_direct(fs->edit, source, err) == -1
		   : recover(fs, err) == -1)
		return -1;
	return ofs_edit_replay(fs->edit, err);
}

static void count_file(const struct ofs_edit_file *f, struct ofs_edit_status *s)
{
	if (f->dead || !ofs_edit_file_differs(f))
		return;
	s->bytes += f->text ? (f->said == NULL ? 0 : f->said->len)
			    : ofs_ranges_total(&f->written);
}

static bool node_differs(const struct ofs_edit *e,
    const struct ofs_edit_node *v)
{
	const struct ofs_edit_file *f;

	if (v == NULL || v->dead)
		return false;
	if (ofs_edit_is_made(e, v->index))
		return v->parent != OFS_NONE && !v->dir;
	if (e->direct != NULL)
		return !v->dir && !v->gone && !e->published;
	if (v->gone)
		return true;
	f = v->dir ? NULL : ofs_edit_file(e, v->index);
	return f != NULL && ofs_edit_file_differs(f);
}

void ofs_edit_status(struct ofs_edit *e, struct ofs_edit_status *s)
{
	*s = (struct ofs_edit_status){ 0 };
	pthread_rwlock_rdlock(&e->names);
	for (uint32_t i = 0; i < e->first; i++)
		s->files += node_differs(e, e->base[i]);
	for (uint32_t i = 0; i < e->nmade; i++)
		s->files += node_differs(e, e->made[i]);
	for (struct ofs_edit_file *f = e->files; f != NULL; f = f->next) {
		pthread_rwlock_rdlock(&f->lock);
		count_file(f, s);
		pthread_rwlock_unlock(&f->lock);
	}
	pthread_rwlock_unlock(&e->names);
	s->percent = (int)atomic_load(&e->percent) - 1;
}

/* What was made is no more; the rest is as the checkpoint has it. */
static void forget(struct ofs_edit *e)
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
	for (struct ofs_edit_file *f = e->files; f != NULL; f = f->next)
		ofs_edit_file_revert(e, f);
}

int ofs_edit_reset(struct ofs_edit *e, struct optimfs_error *err)
{
	int ret;

	pthread_rwlock_wrlock(&e->names);
	forget(e);
	ret = ofs_stage_reset(e->stage, err);
	pthread_rwlock_unlock(&e->names);
	ofs_edit_changed(e, true);
	return ret;
}

int ofs_edit_abort(struct ofs_edit *e, struct optimfs_error *err)
{
	int ret;

	if (ofs_edit_hold(e, err) == -1)
		return -1;
	ret = ofs_edit_reset(e, err);
	ofs_edit_let(e);
	return ret;
}
