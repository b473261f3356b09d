/* overlay.c - creating, replacing and freeing an overlay */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "overlay/overlay_impl.h"

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
		if (err != NULL)
			*err = e->stuck;
		return -1;
	}
	return ofs_stage_append(e->stage, r, err);
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

static void set_base(struct ofs_overlay *e, const struct ofs_overlay_base *base)
{
	e->cat = base->cat;
	e->tree = base->tree;
	e->first = base->first;
	e->reader = base->reader;
	e->reader_ctx = base->ctx;
}

static int new_tables(struct ofs_overlay *e,
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
	e->base = nodes;
	e->tensor = tensors;
	e->files = NULL;
	e->bucket = NULL;
	e->nbuckets = e->nplaced = 0;
	set_base(e, base);
	return 0;
}

struct ofs_overlay *ofs_overlay_new(const struct ofs_overlay_base *base,
    struct ofs_stage *stage, bool scratch, struct optimfs_error *err)
{
	struct ofs_overlay *e = calloc(1, sizeof(*e));

	if (e == NULL) {
		ofs_no_memory(err);
		ofs_stage_close(stage, true);
		return NULL;
	}
	e->ops = &ofs_overlay_staged_ops;
	e->stage = stage;
	e->scratch = scratch;
	pthread_rwlock_init(&e->names, NULL);
	pthread_mutex_init(&e->told, NULL);
	if (new_tables(e, base, err) == 0)
		return e;
	e->keep = true;
	ofs_overlay_free(e);
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

bool ofs_overlay_is_template(const struct ofs_overlay *overlay)
{
	return overlay->ops->hidden && !overlay->published;
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
	if (e->stage != NULL && !e->passed_on)
		ofs_stage_close(e->stage,
		    e->keep ||
			(e->ops->hidden ? !e->published
					: ofs_overlay_dirty(e)));
	free_tables(e);
	e->ops->free(e->ops_ctx);
	pthread_rwlock_destroy(&e->names);
	pthread_mutex_destroy(&e->told);
	free(e);
}

void ofs_overlay_keep(struct ofs_overlay *e)
{
	e->keep = true;
}

static void count_file(const struct ofs_overlay_file *f,
    struct ofs_overlay_status *s)
{
	if (f->dead || !ofs_overlay_file_differs(f))
		return;
	s->bytes += f->text ? (f->accepted == NULL ? 0 : f->accepted->len)
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
	if (e->ops->hidden)
		return !v->dir && !v->gone;
	if (v->gone)
		return true;
	f = v->dir ? NULL : ofs_overlay_file(e, v->index);
	return f != NULL && ofs_overlay_file_differs(f);
}

static void put_progress(struct ofs_overlay *e, struct ofs_overlay_status *s)
{
	s->done = atomic_load(&e->done);
	s->total = atomic_load(&e->total);
	pthread_mutex_lock(&e->told);
	memcpy(s->doing, e->doing, sizeof(s->doing));
	pthread_mutex_unlock(&e->told);
}

void ofs_overlay_status(struct ofs_overlay *e, struct ofs_overlay_status *s)
{
	*s = (struct ofs_overlay_status){
		.percent = (int)atomic_load(&e->percent) - 1,
	};
	if (s->percent >= 0)
		put_progress(e, s);
	if (e->published)
		return;
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
}

void ofs_overlay_progress(struct ofs_overlay *e, unsigned percent,
    uint64_t done, uint64_t total)
{
	atomic_store(&e->done, done);
	atomic_store(&e->total, total);
	atomic_store(&e->percent, percent + 1);
}

/* Keeps the end of a long name; replaces control characters. */
void ofs_overlay_doing(struct ofs_overlay *e, const char *what)
{
	pthread_mutex_lock(&e->told);
	snprintf(e->doing, sizeof(e->doing), "%s", what);
	for (char *p = e->doing; *p != '\0'; p++)
		if ((unsigned char)*p < 0x20 || *p == 0x7f)
			*p = '?';
	pthread_mutex_unlock(&e->told);
}

/* Removes the added nodes and resets the others. */
static void forget(struct ofs_overlay *e)
{
	for (uint32_t i = 0; i < e->nbuckets; i++)
		e->bucket[i] = NULL;
	e->nplaced = 0;
	for (uint32_t i = 0; i < e->first; i++)
		if (e->base[i] != NULL) {
			e->base[i]->gone = e->ops->hidden && i != 0;
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

static int reset(struct ofs_overlay *e, struct optimfs_error *err)
{
	int ret;

	pthread_rwlock_wrlock(&e->names);
	forget(e);
	ret = ofs_stage_reset(e->stage, err);
	pthread_rwlock_unlock(&e->names);
	ofs_overlay_changed(e, true);
	return ret;
}

/* Refuses all further changes: their records would be discarded with those
 * before. */
static void stick(struct ofs_overlay *e, const struct optimfs_error *why)
{
	e->stuck = *why;
	optimfs_fail_in(&e->stuck, "to write again, mount again");
	e->keep = true;
}

void ofs_overlay_shut(struct ofs_overlay *e)
{
	e->reader->shut(e->reader_ctx);
}

int ofs_overlay_published(struct ofs_overlay *e,
    const struct optimfs_error *unsafe)
{
	struct optimfs_error err;
	int ret;

	ofs_overlay_shut(e); /* in case no file was replaced */
	e->published = true;
	ret = unsafe == NULL ? ofs_stage_reset(e->stage, &err) : -1;
	if (ret == 0)
		return 0;
	e->unsafe = unsafe != NULL;
	if (unsafe == NULL)
		ofs_overlay_stop(e, &err);
	else
		stick(e, unsafe);
	return -1;
}

void ofs_overlay_stop(struct ofs_overlay *e, const struct optimfs_error *why)
{
	e->reader->log(e->reader_ctx, why);
	stick(e, why);
}

int ofs_overlay_abort(struct ofs_overlay *e, struct optimfs_error *err)
{
	return e->stuck.code != 0 ? 0 : reset(e, err);
}

/* Numbers of added nodes are not reused while they could be mistaken: the new
 * overlay has dead nodes in their place. */
static int keep_numbers(struct ofs_overlay *e, const struct ofs_overlay *old,
    struct optimfs_error *err)
{
	e->made = calloc((size_t)old->nmade + 1, sizeof(*e->made));
	if (e->made == NULL)
		return ofs_no_memory(err);
	e->cap = old->nmade + 1;
	for (uint32_t i = 0; i < old->nmade; i++) {
		struct ofs_overlay_node *v = calloc(1, sizeof(*v));

		if (v == NULL)
			return ofs_no_memory(err);
		v->index = e->first + i;
		v->ino = old->made[i]->ino;
		v->dir = old->made[i]->dir;
		v->dead = true;
		v->parent = OFS_NONE;
		e->made[e->nmade++] = v;
	}
	return 0;
}

struct ofs_overlay *ofs_overlay_next(struct ofs_overlay *old,
    const struct ofs_overlay_base *base, bool same, struct optimfs_error *err)
{
	struct ofs_overlay *e = ofs_overlay_new(base, NULL, old->scratch, err);

	if (e == NULL)
		return NULL;
	if (same && keep_numbers(e, old, err) == -1) {
		ofs_overlay_free(e);
		return NULL;
	}
	e->stage = old->stage;
	old->passed_on = true;
	e->keep = old->keep;
	e->stuck = old->stuck;
	e->unsafe = old->unsafe;
	e->last_id = old->last_id;
	e->percent = old->percent;
	e->done = atomic_load(&old->done);
	e->total = atomic_load(&old->total);
	e->changed = old->changed + 1;
	e->names_changed = old->names_changed + 1;
	return e;
}
