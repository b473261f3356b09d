/* overlay.c - creating, replacing and freeing an overlay */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/utf8.h"
#include "overlay/overlay_impl.h"

void ofs_overlay_changed(struct ofs_overlay *o, bool names)
{
	atomic_fetch_add(&o->changed, 1);
	if (names)
		atomic_fetch_add(&o->names_changed, 1);
}

int ofs_overlay_record(struct ofs_overlay *o, const struct ofs_record *r,
    struct optimfs_error *err)
{
	if (o->replaying)
		return 0;
	if (o->stuck.code != 0) {
		if (err != NULL)
			*err = o->stuck;
		return -1;
	}
	return ofs_stage_append(o->stage, r, err);
}

struct ofs_stage *ofs_overlay_stage(const struct ofs_overlay *overlay)
{
	return overlay->stage;
}

uint64_t ofs_overlay_generation(const struct ofs_overlay *overlay)
{
	return atomic_load(&overlay->changed);
}

uint64_t ofs_overlay_names_generation(const struct ofs_overlay *overlay)
{
	return atomic_load(&overlay->names_changed);
}

static void set_base(struct ofs_overlay *o, const struct ofs_overlay_base *base)
{
	o->cat = base->cat;
	o->tree = base->tree;
	o->first = base->first;
	o->reader = base->reader;
	o->reader_ctx = base->ctx;
}

static int new_tables(struct ofs_overlay *o,
    const struct ofs_overlay_base *base, struct optimfs_error *err)
{
	struct ofs_overlay_node **nodes;
	struct ofs_overlay_file **tensors;

	nodes = calloc((size_t)base->first, sizeof(*nodes));
	tensors = calloc((size_t)base->cat->ntensors + 1, sizeof(*tensors));
	if (nodes == NULL || tensors == NULL) {
		free(nodes);
		free(tensors);
		return ofs_no_memory(err);
	}
	o->base = nodes;
	o->tensor = tensors;
	o->files = NULL;
	o->bucket = NULL;
	o->nbuckets = o->nplaced = 0;
	set_base(o, base);
	return 0;
}

struct ofs_overlay *ofs_overlay_new(const struct ofs_overlay_base *base,
    struct ofs_stage *stage, bool scratch, struct optimfs_error *err)
{
	struct ofs_overlay *o = calloc(1, sizeof(*o));

	if (o == NULL) {
		ofs_no_memory(err);
		ofs_stage_close(stage, true);
		return NULL;
	}
	o->stage = stage;
	o->scratch = scratch;
	pthread_rwlock_init(&o->names, NULL);
	pthread_mutex_init(&o->doing_lock, NULL);
	if (new_tables(o, base, err) == 0)
		return o;
	o->keep = true;
	ofs_overlay_free(o);
	return NULL;
}

static void node_free(struct ofs_overlay_node *v)
{
	if (v == NULL)
		return;
	free(v->name);
	free(v->child);
	ofs_blob_unref(v->accepted);
	free(v);
}

static void free_tables(struct ofs_overlay *o)
{
	for (uint32_t i = 0; o->base != NULL && i < o->first; i++)
		node_free(o->base[i]);
	for (uint32_t i = 0; i < o->nmade; i++)
		node_free(o->made[i]);
	for (struct ofs_overlay_file *f = o->files, *next; f != NULL;
	     f = next) {
		next = f->next;
		ofs_overlay_file_free(f);
	}
	free(o->base);
	free(o->made);
	free(o->tensor);
	free(o->bucket);
}

bool ofs_overlay_dirty(struct ofs_overlay *o)
{
	struct ofs_overlay_status s;

	ofs_overlay_status(o, &s);
	return s.files > 0;
}

void ofs_overlay_free(struct ofs_overlay *o)
{
	if (o == NULL)
		return;
	if (o->stage != NULL && !o->passed_on)
		ofs_stage_close(o->stage,
		    o->keep ||
			(o->hidden != NULL ? !o->published
					   : ofs_overlay_dirty(o)));
	free_tables(o);
	free(o->hidden);
	free(o->same);
	free(o->supply);
	pthread_rwlock_destroy(&o->names);
	pthread_mutex_destroy(&o->doing_lock);
	free(o);
}

void ofs_overlay_keep(struct ofs_overlay *o)
{
	o->keep = true;
}

static void count_file(const struct ofs_overlay_file *f,
    struct ofs_overlay_status *s)
{
	if (f->dead || !ofs_overlay_file_differs(f))
		return;
	s->bytes += f->text ? (f->accepted == NULL ? 0 : f->accepted->len)
			    : ofs_ranges_total(&f->written);
}

/* Does a made file take the place of a removed one? One of them counts. */
static bool replaces_removed(const struct ofs_overlay *o, uint32_t index)
{
	uint32_t base = ofs_overlay_stands_for(o, index);

	return o->hidden == NULL && base != OFS_NONE && o->base[base] != NULL &&
	    o->base[base]->gone && o->base[base]->parent == OFS_NONE;
}

static bool node_differs(const struct ofs_overlay *o,
    const struct ofs_overlay_node *v)
{
	struct ofs_overlay_file *f;
	bool differs;

	if (v == NULL || v->dead)
		return false;
	if (ofs_overlay_is_made(o, v->index))
		return v->parent != OFS_NONE && !v->dir &&
		    !replaces_removed(o, v->index);
	if (o->hidden != NULL)
		return !v->dir && !v->gone;
	if (v->gone) /* the files of a removed directory count */
		return !v->dir || v->parent != OFS_NONE;
	f = v->dir ? NULL : ofs_overlay_file(o, v->index);
	if (f == NULL)
		return false;
	pthread_rwlock_rdlock(&f->lock);
	differs = ofs_overlay_file_differs(f);
	pthread_rwlock_unlock(&f->lock);
	return differs;
}

static void put_progress(struct ofs_overlay *o, struct ofs_overlay_status *s)
{
	s->done = atomic_load(&o->done);
	s->total = atomic_load(&o->total);
	pthread_mutex_lock(&o->doing_lock);
	memcpy(s->doing, o->doing, sizeof(s->doing));
	pthread_mutex_unlock(&o->doing_lock);
}

void ofs_overlay_status(struct ofs_overlay *o, struct ofs_overlay_status *s)
{
	*s = (struct ofs_overlay_status){
		.percent = (int)atomic_load(&o->percent) - 1,
	};
	if (s->percent >= 0)
		put_progress(o, s);
	if (o->published)
		return;
	pthread_rwlock_rdlock(&o->names);
	for (uint32_t i = 0; i < o->first; i++)
		s->files += node_differs(o, o->base[i]);
	for (uint32_t i = 0; i < o->nmade; i++)
		s->files += node_differs(o, o->made[i]);
	for (struct ofs_overlay_file *f = o->files; f != NULL; f = f->next) {
		pthread_rwlock_rdlock(&f->lock);
		count_file(f, s);
		pthread_rwlock_unlock(&f->lock);
	}
	pthread_rwlock_unlock(&o->names);
}

void ofs_overlay_progress(struct ofs_overlay *o, unsigned percent,
    uint64_t done, uint64_t total)
{
	atomic_store(&o->done, done);
	atomic_store(&o->total, total);
	atomic_store(&o->percent, percent + 1);
}

/* Keeps the start of a long name. */
void ofs_overlay_doing(struct ofs_overlay *o, const char *what)
{
	pthread_mutex_lock(&o->doing_lock);
	snprintf(o->doing, sizeof(o->doing), "%s", what);
	ofs_utf8_disarm(o->doing);
	pthread_mutex_unlock(&o->doing_lock);
}

/* Removes the added nodes and resets the others. */
static void forget(struct ofs_overlay *o)
{
	for (uint32_t i = 0; i < o->nbuckets; i++)
		o->bucket[i] = NULL;
	o->nplaced = 0;
	for (uint32_t i = 0; i < o->first; i++)
		if (o->base[i] != NULL) {
			o->base[i]->gone = o->hidden != NULL && i != 0;
			o->base[i]->parent = OFS_NONE;
			o->base[i]->nchild = 0;
			o->base[i]->mtime_ns = 0;
			ofs_blob_unref(o->base[i]->accepted);
			o->base[i]->accepted = NULL;
		}
	for (uint32_t i = 0; i < o->nmade; i++) {
		o->made[i]->dead = true;
		o->made[i]->parent = OFS_NONE;
		o->made[i]->nchild = 0;
	}
	for (struct ofs_overlay_file *f = o->files; f != NULL; f = f->next)
		ofs_overlay_file_revert(o, f);
}

static int reset(struct ofs_overlay *o, struct optimfs_error *err)
{
	int ret;

	pthread_rwlock_wrlock(&o->names);
	forget(o);
	ret = ofs_stage_reset(o->stage, err);
	pthread_rwlock_unlock(&o->names);
	ofs_overlay_changed(o, true);
	return ret;
}

/* Refuses all further changes: their records would be discarded with those
 * before. */
static void stick(struct ofs_overlay *o, const struct optimfs_error *why)
{
	o->stuck = *why;
	optimfs_fail_in(&o->stuck, "to write again, mount again");
	o->keep = true;
}

void ofs_overlay_shut(struct ofs_overlay *o)
{
	o->reader->shut(o->reader_ctx);
}

int ofs_overlay_published(struct ofs_overlay *o,
    const struct optimfs_error *unsafe)
{
	struct optimfs_error err;
	int ret;

	ofs_overlay_shut(o); /* in case no file was replaced */
	o->published = true;
	ret = unsafe == NULL ? ofs_stage_reset(o->stage, &err) : -1;
	if (ret == 0)
		return 0;
	o->unsafe = unsafe != NULL;
	if (unsafe == NULL)
		ofs_overlay_stop(o, &err);
	else
		stick(o, unsafe);
	return -1;
}

void ofs_overlay_stop(struct ofs_overlay *o, const struct optimfs_error *why)
{
	o->reader->log(o->reader_ctx, why);
	stick(o, why);
}

int ofs_overlay_abort(struct ofs_overlay *o, struct optimfs_error *err)
{
	return o->stuck.code != 0 ? 0 : reset(o, err);
}

/* Numbers of added nodes are not reused while they could be mistaken: the new
 * overlay has dead nodes in their place. */
static int keep_numbers(struct ofs_overlay *o, const struct ofs_overlay *old,
    struct optimfs_error *err)
{
	o->made = calloc((size_t)old->nmade + 1, sizeof(*o->made));
	if (o->made == NULL)
		return ofs_no_memory(err);
	o->cap = old->nmade + 1;
	for (uint32_t i = 0; i < old->nmade; i++) {
		struct ofs_overlay_node *v = calloc(1, sizeof(*v));

		if (v == NULL)
			return ofs_no_memory(err);
		v->index = o->first + i;
		v->ino = old->made[i]->ino;
		v->dir = old->made[i]->dir;
		v->dead = true;
		v->parent = OFS_NONE;
		o->made[o->nmade++] = v;
	}
	return 0;
}

struct ofs_overlay *ofs_overlay_next(struct ofs_overlay *old,
    const struct ofs_overlay_base *base, bool same, struct optimfs_error *err)
{
	struct ofs_overlay *o = ofs_overlay_new(base, NULL, old->scratch, err);

	if (o == NULL)
		return NULL;
	if (same && keep_numbers(o, old, err) == -1) {
		ofs_overlay_free(o);
		return NULL;
	}
	o->stage = old->stage;
	old->passed_on = true;
	o->keep = old->keep;
	o->stuck = old->stuck;
	o->unsafe = old->unsafe;
	o->last_id = old->last_id;
	o->percent = old->percent;
	o->done = atomic_load(&old->done);
	o->total = atomic_load(&old->total);
	o->changed = old->changed + 1;
	o->names_changed = old->names_changed + 1;
	return o;
}
