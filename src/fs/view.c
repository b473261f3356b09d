/* view.c - views by name */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "fs/view.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "detect/view_name.h"
#include "format/format.h"
#include "fs/view_impl.h"
#include "layout/render.h"
#include "rewrite/merge.h"

/* Limits for what is kept: unused views with the description of their files,
 * and names of files of all views. For 10^6 tensors a view takes 60 MB, or has
 * a file each. */
#define UNUSED_MAX 4u
#define NAMES_MAX  (8u << 20)
/* From this number of spans on (24 bytes each), memory is returned to the
 * system. */
#define MANY_SPANS 100000u

int ofs_views_init(struct ofs_snapshot *snap, struct optimfs_error *err)
{
	snap->views = calloc(1, sizeof(*snap->views));
	if (snap->views == NULL)
		return ofs_no_memory(err);
	pthread_mutex_init(&snap->views->lock, NULL);
	pthread_mutex_init(&snap->views->elements.lock, NULL);
	ofs_view_table_init(&snap->views->table);
	TAILQ_INIT(&snap->views->unused);
	return 0;
}

bool ofs_views_follow(struct ofs_snapshot *snap, const struct ofs_snapshot *now)
{
	return ofs_view_table_follow(&snap->views->table, &now->views->table);
}

bool ofs_view_is_past(const struct ofs_snapshot *snap, uint32_t space)
{
	return space >= OFS_SPACE_VIEW &&
	    ofs_view_table_past(&snap->views->table, space - OFS_SPACE_VIEW);
}

static void view_free(struct ofs_view_dir *v)
{
	struct ofs_view_names *names = atomic_load(&v->names);

	ofs_files_free(v->files);
	ofs_view_names_free(names);
	ofs_renamed_free(v->renamed);
	ofs_reader_unshare(&v->unpacked_reader);
	ofs_catalog_free(v->unpacked);
	ofs_merged_unref(v->merged);
	free(v);
}

void ofs_views_fini(struct ofs_snapshot *snap)
{
	struct ofs_view_dir *v;

	if (snap->views == NULL)
		return;
	while ((v = ofs_view_table_drop(&snap->views->table, false)) != NULL)
		view_free(v);
	ofs_view_table_fini(&snap->views->table);
	pthread_mutex_destroy(&snap->views->lock);
	pthread_mutex_destroy(&snap->views->elements.lock);
	free(snap->views->elements.slot);
	free(snap->views);
	snap->views = NULL;
}

struct ofs_view_dir *ofs_view_get(const struct ofs_snapshot *snap,
    struct ofs_at at, struct optimfs_error *err)
{
	struct ofs_view_dir *v =
	    ofs_view_table_get(&snap->views->table, at.space - OFS_SPACE_VIEW);

	if (v == NULL)
		optimfs_fail(err, ESTALE,
		    "OFS776 the view was unused for long, and has made room "
		    "for others: look it up again");
	return v;
}

void ofs_view_put(struct ofs_view_dir *v)
{
	if (v != NULL)
		ofs_view_table_put(&v->views->table, v);
}

/* The node was found, so the names exist. */
static struct ofs_view_node *node_of(struct ofs_view_dir *v, struct ofs_at at)
{
	return &atomic_load(&v->names)->v[at.index];
}

uint64_t ofs_view_generation(const struct ofs_snapshot *snap,
    const struct ofs_layout *layout)
{
	if (snap->overlay == NULL)
		return 0;
	return layout->format->render->staged
	    ? ofs_overlay_generation(snap->overlay)
	    : ofs_overlay_names_generation(snap->overlay);
}

/* Drops all but the names. The changes of an older view are only needed by
 * those who have it open. The lock is held. */
static void put_away(struct ofs_views *views, struct ofs_view_dir *v)
{
	TAILQ_REMOVE(&views->unused, v, unused);
	views->nunused--;
	views->nlaid_out--;
	ofs_files_free(v->files);
	v->files = NULL;
	if (v->generation != ofs_view_generation(v->snap, &v->layout)) {
		ofs_merged_unref(v->merged);
		v->merged = NULL;
	}
	ofs_give_back();
}

/* Drops the view that was unused for longest. False: all are in use. The lock is
 * held. */
static bool make_room(struct ofs_views *views, bool named)
{
	struct ofs_view_dir *v = ofs_view_table_drop(&views->table, named);
	struct ofs_view_names *names;

	if (v == NULL)
		return false;
	if (v->files != NULL)
		put_away(views, v);
	names = atomic_load(&v->names);
	if (names != NULL)
		views->nnames -= names->n;
	view_free(v);
	return true;
}

/* The lock is held. */
static struct ofs_view_dir *add_view(struct ofs_snapshot *snap,
    const char *name, const struct ofs_layout *layout,
    struct optimfs_error *err)
{
	struct ofs_views *views = snap->views;
	struct ofs_view_dir *v = ofs_alloc(1, sizeof(*v), err);

	if (v == NULL)
		return NULL;
	v->snap = snap;
	v->views = views;
	strcpy(v->name, name);
	v->generation = ofs_view_generation(snap, layout);
	ofs_layout_assign(&v->layout, layout);
	v->ino = ofs_tree_ino(snap->static_ino[OFS_STATIC_VIEW], name);
	while (!ofs_view_table_add(&views->table, v))
		if (!make_room(views, false)) {
			optimfs_fail(err, ENFILE,
			    "OFS772 view %.80s: %u views are in use", name,
			    OFS_VIEW_SLOTS);
			free(v);
			return NULL;
		}
	return v;
}

/* A view is known by its layout: the same one may have many names. */
static int make_view(struct ofs_snapshot *snap, const char *name,
    const struct ofs_layout *layout, struct ofs_at *at,
    struct optimfs_error *err)
{
	struct ofs_views *views = snap->views;
	struct ofs_view_dir *v = ofs_view_table_find(&views->table, layout,
	    ofs_view_generation(snap, layout));

	if (v == NULL) {
		pthread_mutex_lock(&views->lock);
		v = ofs_view_table_find(&views->table, layout,
		    ofs_view_generation(snap, layout));
		if (v == NULL)
			v = add_view(snap, name, layout, err);
		pthread_mutex_unlock(&views->lock);
	}
	if (v == NULL)
		return -1;
	*at = (struct ofs_at){ OFS_SPACE_VIEW + v->number, 0 };
	ofs_view_put(v);
	return 0;
}

static int parse(const char *name, struct ofs_layout *layout,
    struct optimfs_error *err)
{
	if (strlen(name) >= OFS_VIEW_NAME)
		return optimfs_fail(err, EINVAL,
		    "OFS771 view %.80s: the name is too long", name);
	return ofs_layout_parse(name, layout, err);
}

int ofs_view_make(struct ofs_snapshot *snap, const char *name,
    struct ofs_at *at, struct optimfs_error *err)
{
	struct ofs_layout layout;

	if (parse(name, &layout, err) == -1)
		return -1;
	return make_view(snap, name, &layout, at, err);
}

int ofs_view_make_summed(struct ofs_snapshot *snap, const char *name,
    struct ofs_at *at, struct optimfs_error *err)
{
	char summed[OFS_VIEW_NAME];
	struct ofs_layout layout;

	if (strchr(name, '/') != NULL || strlen(name) + 5 > sizeof(summed))
		return optimfs_fail(err, EINVAL,
		    "OFS771 view %.80s: no such layout", name);
	if (ofs_layout_parse(name, &layout, err) == -1)
		return -1;
	snprintf(summed, sizeof(summed), "%s,crc", name);
	if (layout.crc || ofs_layout_parse(summed, &layout, NULL) == -1)
		return ofs_view_make(snap, name, at, err);
	return ofs_view_make(snap, summed, at, err);
}

int ofs_view_find(struct ofs_snapshot *snap, const char *name,
    struct ofs_at *at, struct optimfs_error *err)
{
	struct ofs_layout layout;

	if (parse(name, &layout, err) == -1)
		return -1;
	if (layout.zstd == 0)
		return make_view(snap, name, &layout, at, err);
	return optimfs_fail(err, EOPNOTSUPP,
	    "OFS773 view %.80s: the sizes of compressed items are known only "
	    "when all of them have been read: optimfs reshard --to %.80s "
	    "writes "
	    "them",
	    name, name);
}

struct ofs_files *ofs_view_files(struct ofs_snapshot *snap, struct ofs_at at,
    struct optimfs_error *err)
{
	struct ofs_view_dir *v = ofs_view_get(snap, at, err);
	struct ofs_files *files = v == NULL ? NULL : ofs_view_hold(v, err);

	ofs_view_put(v);
	return files;
}

void ofs_view_files_done(struct ofs_snapshot *snap, struct ofs_at at)
{
	struct ofs_view_dir *v = ofs_view_get(snap, at, NULL);

	ofs_view_let(v);
	ofs_view_put(v);
}

uint64_t ofs_views_laid_out(struct ofs_snapshot *snap)
{
	uint64_t n;

	pthread_mutex_lock(&snap->views->lock);
	n = snap->views->nlaid_out;
	pthread_mutex_unlock(&snap->views->lock);
	return n;
}

const struct ofs_layout *ofs_view_layout(const struct ofs_snapshot *snap,
    struct ofs_at at)
{
	struct ofs_view_dir *v = ofs_view_get(snap, at, NULL);

	ofs_view_put(v);
	return &v->layout;
}

uint64_t ofs_view_rules(const struct ofs_snapshot *snap, struct ofs_at at)
{
	struct ofs_view_dir *v = ofs_view_get(snap, at, NULL);
	uint64_t hash = v == NULL || v->renamed == NULL ? 0 : v->renamed->hash;

	ofs_view_put(v);
	return hash;
}

uint32_t ofs_view_file_of(const struct ofs_snapshot *snap, struct ofs_at at)
{
	struct ofs_view_dir *v = ofs_view_get(snap, at, NULL);
	uint32_t file = v == NULL ? OFS_NONE : node_of(v, at)->file;

	ofs_view_put(v);
	return file;
}

bool ofs_view_has(const struct ofs_snapshot *snap, struct ofs_at at)
{
	struct ofs_view_dir *v = ofs_view_get(snap, at, NULL);
	struct ofs_view_names *names =
	    v == NULL ? NULL : atomic_load(&v->names);
	bool has = v != NULL &&
	    (at.index == 0 || (names != NULL && at.index < names->n));

	ofs_view_put(v);
	return has;
}

bool ofs_view_is_dir(const struct ofs_snapshot *snap, struct ofs_at at)
{
	return at.index == 0 || ofs_view_file_of(snap, at) == OFS_NONE;
}

void ofs_views_override(struct ofs_snapshot *snap, struct ofs_merged *merged)
{
	struct ofs_views *views = snap->views;

	pthread_mutex_lock(&views->lock);
	views->merged = merged;
	ofs_view_table_retire(&views->table);
	pthread_mutex_unlock(&views->lock);
}

/* Makes the names of a view that is laid out for the first time. The lock is
 * held. */
static int make_names(struct ofs_views *views, struct ofs_view_dir *v,
    const struct ofs_files *files, struct optimfs_error *err)
{
	struct ofs_view_names *names = ofs_view_names_new(files, err);

	if (names == NULL)
		return -1;
	while (names->n > NAMES_MAX - views->nnames && make_room(views, true))
		continue;
	if (names->n > NAMES_MAX - views->nnames) {
		ofs_view_names_free(names);
		return optimfs_fail(err, ENFILE,
		    "OFS772 view %.80s: more than %u files in the views that are "
		    "in use",
		    v->name, NAMES_MAX);
	}
	views->nnames += names->n;
	atomic_store_explicit(&v->names, names, memory_order_release);
	return 0;
}

/* The lock is held. */
static int lay_out(struct ofs_view_dir *v, struct optimfs_error *err)
{
	struct ofs_files *files = ofs_view_render(v, err);

	if (files == NULL)
		return -1;
	if (atomic_load(&v->names) == NULL &&
	    make_names(v->views, v, files, err) == -1) {
		ofs_files_free(files);
		return -1;
	}
	v->files = files;
	v->views->nlaid_out++;
	ofs_give_back();
	return 0;
}

struct ofs_files *ofs_view_hold(struct ofs_view_dir *v,
    struct optimfs_error *err)
{
	struct ofs_views *views = v->views;
	int ret = 0;

	pthread_mutex_lock(&views->lock);
	if (v->files == NULL) {
		ret = lay_out(v, err);
	} else if (ofs_view_check_unstaged(v, err) == -1) {
		ret = -1;
	} else if (v->users == 0) {
		TAILQ_REMOVE(&views->unused, v, unused);
		views->nunused--;
	}
	if (ret == 0)
		v->users++;
	pthread_mutex_unlock(&views->lock);
	return ret == 0 ? v->files : NULL;
}

void ofs_view_let(struct ofs_view_dir *v)
{
	struct ofs_views *views = v->views;

	pthread_mutex_lock(&views->lock);
	if (--v->users == 0) {
		TAILQ_INSERT_TAIL(&views->unused, v, unused);
		views->nunused++;
		if (views->nunused > UNUSED_MAX)
			put_away(views, TAILQ_FIRST(&views->unused));
	}
	pthread_mutex_unlock(&views->lock);
}

/* The names of the view; lays it out if necessary. Failures are recorded; the
 * next call tries again. */
static struct ofs_view_names *names_of(struct ofs_view_dir *v, struct ofs_at at,
    struct optimfs_error *err)
{
	struct ofs_view_names *names =
	    atomic_load_explicit(&v->names, memory_order_acquire);

	if (names != NULL)
		return names;
	err = OFS_SOME_ERROR(err);
	if (ofs_view_hold(v, err) != NULL) {
		ofs_view_let(v);
		return atomic_load(&v->names);
	}
	ofs_file_failed(v->snap, (struct ofs_at){ at.space, 0 }, 0, 0, err);
	return NULL;
}

int ofs_view_count(struct ofs_snapshot *snap, struct ofs_at dir, uint32_t *n,
    struct optimfs_error *err)
{
	struct ofs_view_dir *v = ofs_view_get(snap, dir, err);
	struct ofs_view_names *names = v == NULL ? NULL : names_of(v, dir, err);

	if (names != NULL)
		*n = names->n;
	ofs_view_put(v);
	return names == NULL ? -1 : 0;
}

int ofs_view_children(struct ofs_snapshot *snap, struct ofs_at dir,
    struct ofs_at *at, uint32_t *n, struct optimfs_error *err)
{
	struct ofs_view_dir *v = ofs_view_get(snap, dir, err);
	struct ofs_view_names *names = v == NULL ? NULL : names_of(v, dir, err);

	if (names != NULL) {
		*at = (struct ofs_at){ dir.space, names->v[dir.index].child };
		*n = names->v[dir.index].nchild;
	}
	ofs_view_put(v);
	return names == NULL ? -1 : 0;
}

int ofs_view_child(struct ofs_snapshot *snap, struct ofs_at dir,
    const char *name, struct ofs_at *at, struct optimfs_error *err)
{
	struct ofs_view_dir *v = ofs_view_get(snap, dir, err);
	struct ofs_view_names *names = v == NULL ? NULL : names_of(v, dir, err);
	uint32_t found = names == NULL
	    ? OFS_NONE
	    : ofs_view_names_find(names, dir.index, name);

	ofs_view_put(v);
	if (names == NULL)
		return -1;
	if (found == OFS_NONE)
		return 0;
	*at = (struct ofs_at){ dir.space, found };
	return 1;
}

void ofs_view_name(const struct ofs_snapshot *snap, struct ofs_at at,
    char name[OFS_FILE_NAME])
{
	struct ofs_view_dir *v = ofs_view_get(snap, at, NULL);

	snprintf(name, OFS_FILE_NAME, "%s",
	    v == NULL           ? ""
		: at.index == 0 ? v->name
				: node_of(v, at)->name);
	ofs_view_put(v);
}

void ofs_view_path(const struct ofs_snapshot *snap, struct ofs_at at,
    char path[OFS_FILE_NAME])
{
	struct ofs_view_dir *v = ofs_view_get(snap, at, NULL);

	path[0] = '\0';
	if (v != NULL && at.index != 0)
		ofs_view_names_path(atomic_load(&v->names), at.index, path);
	ofs_view_put(v);
}

uint64_t ofs_view_ino(const struct ofs_snapshot *snap, struct ofs_at at)
{
	struct ofs_view_dir *v = ofs_view_get(snap, at, NULL);
	uint64_t ino = v == NULL ? 0 : v->ino;
	char path[OFS_FILE_NAME];

	if (v != NULL && at.index != 0) {
		ofs_view_names_path(atomic_load(&v->names), at.index, path);
		ino = ofs_tree_ino(ino, path);
	}
	ofs_view_put(v);
	return ino;
}

/* Asks the format for the size of a file. */
static int measure(struct ofs_view_dir *v, uint32_t file, uint64_t *size,
    struct optimfs_error *err)
{
	struct ofs_files *files = ofs_view_hold(v, err);
	struct ofs_spans spans = { 0 };
	bool many;
	int ret;

	if (files == NULL)
		return -1;
	ret = files->ops->spans(files, file, &spans, err);
	ofs_view_let(v);
	*size = spans.n == 0 ? 0 : spans.v[spans.n - 1].end;
	many = spans.n >= MANY_SPANS;
	ofs_spans_fini(&spans);
	if (many)
		ofs_give_back();
	return ret;
}

int ofs_view_size(struct ofs_snapshot *snap, struct ofs_at at, uint64_t *size,
    struct optimfs_error *err)
{
	struct ofs_view_dir *v = ofs_view_get(snap, at, err);
	struct ofs_view_node *f = v == NULL ? NULL : node_of(v, at);
	uint64_t known = f == NULL ? 0 : atomic_load(&f->size);
	int ret = f == NULL ? -1 : 0;

	if (f != NULL && known == 0) {
		ret = measure(v, f->file, size, err);
		if (ret == 0)
			atomic_store(&f->size, *size + 1);
		else
			ofs_file_failed(snap, at, 0, 0, err);
	} else if (f != NULL) {
		*size = known - 1;
	}
	ofs_view_put(v);
	return ret;
}
