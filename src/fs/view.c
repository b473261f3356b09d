/* view.c - views by name */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "fs/view.h"

#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "derive/low_bit.h"
#include "detect/view_name.h"
#include "format/format.h"
#include "fs/commit.h"
#include "fs/view_impl.h"
#include "fs/write_open.h"
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

/* Elements that views read while they are laid out. Those of an optimizer's
 * 0-dim tensors (step) are compared with each other, in each layout that wants
 * them equal. A slot is chosen by the number of the tensor. */
#define ELEMENTS_MAX 65536u
struct elements {
	pthread_mutex_t lock;
	struct {
		uint32_t tensor; /* plus one; 0: none */
		uint8_t bytes[16];
	} * slot;        /* NULL: none was read */
	uint32_t nslots; /* a power of 2 */
};

struct ofs_views {
	struct elements elements;
	pthread_mutex_t
	    lock; /* protects making views and their files, and the members below */
	struct ofs_merged *merged;         /* of a running commit, or NULL */
	TAILQ_HEAD(, ofs_view_dir) unused; /* oldest first */
	unsigned nunused, nlaid_out;
	uint32_t nnames;
	struct ofs_view_table table; /* has a lock of its own */
};

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

/* A view shows names and values as they were when it was looked up. 0 while
 * nothing is staged that changes its files. */
static uint64_t generation(const struct ofs_snapshot *snap,
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
	if (v->generation != generation(v->snap, &v->layout)) {
		ofs_merged_unref(v->merged);
		v->merged = NULL;
	}
	malloc_trim(0);
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
static struct ofs_view_dir *add(struct ofs_snapshot *snap, const char *name,
    const struct ofs_layout *layout, struct optimfs_error *err)
{
	struct ofs_views *views = snap->views;
	struct ofs_view_dir *v = ofs_alloc(1, sizeof(*v), err);

	if (v == NULL)
		return NULL;
	v->snap = snap;
	v->views = views;
	strcpy(v->name, name);
	v->generation = generation(snap, layout);
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
	    generation(snap, layout));

	if (v == NULL) {
		pthread_mutex_lock(&views->lock);
		v = ofs_view_table_find(&views->table, layout,
		    generation(snap, layout));
		if (v == NULL)
			v = add(snap, name, layout, err);
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

static struct ofs_merged *merged_ref(struct ofs_merged *m)
{
	atomic_fetch_add(&m->refs, 1);
	return m;
}

void ofs_views_override(struct ofs_snapshot *snap, struct ofs_merged *merged)
{
	struct ofs_views *views = snap->views;

	pthread_mutex_lock(&views->lock);
	views->merged = merged;
	ofs_view_table_retire(&views->table);
	pthread_mutex_unlock(&views->lock);
}

static struct ofs_pickle *read_item(void *ctx, const struct ofs_item *item,
    struct optimfs_error *err)
{
	const struct ofs_view_dir *v = ctx;

	return ofs_locate_item(&v->snap->reader, item, err);
}

static int read_bytes(void *ctx, const struct ofs_item *item, uint64_t max,
    struct ofs_buf *out, struct optimfs_error *err)
{
	const struct ofs_view_dir *v = ctx;

	return ofs_locate_item_bytes(&v->snap->reader, item, max, out, err);
}

static int read_scale(void *ctx, uint32_t tensor, struct ofs_scale *scale,
    struct optimfs_error *err)
{
	struct ofs_snapshot *snap = ((const struct ofs_view_dir *)ctx)->snap;

	/* of an added tensor it is not known */
	return tensor < snap->cat->ntensors
	    ? ofs_locate_scale(&snap->reader, tensor, scale, err)
	    : 0;
}

static int lay_commit(void *ctx,
    int (*lay)(void *arg, const struct ofs_commit_job *job,
	struct ofs_changes *changes, struct optimfs_error *err),
    void *arg, struct optimfs_error *err)
{
	return ofs_fs_lay_commit(((const struct ofs_view_dir *)ctx)->snap, lay,
	    arg, err);
}

static bool known_element(struct elements *e, uint32_t tensor, void *out,
    size_t n)
{
	uint32_t i;
	bool known;

	pthread_mutex_lock(&e->lock);
	i = tensor & (e->nslots - 1);
	known = e->slot != NULL && e->slot[i].tensor == tensor + 1;
	if (known)
		memcpy(out, e->slot[i].bytes, n);
	pthread_mutex_unlock(&e->lock);
	return known;
}

/* Without memory it is read again. */
static void keep_element(struct elements *e, uint32_t ntensors, uint32_t tensor,
    const void *bytes, size_t n)
{
	pthread_mutex_lock(&e->lock);
	if (e->slot == NULL) {
		for (e->nslots = 16;
		     e->nslots < ntensors && e->nslots < ELEMENTS_MAX;)
			e->nslots *= 2;
		e->slot = calloc(e->nslots, sizeof(*e->slot));
	}
	if (e->slot != NULL) {
		uint32_t i = tensor & (e->nslots - 1);

		e->slot[i].tensor = tensor + 1;
		memcpy(e->slot[i].bytes, bytes, n);
	}
	pthread_mutex_unlock(&e->lock);
}

/* Stored elements. One element is read once, unless a writer may change it. */
static int stored_elements(struct ofs_snapshot *snap, uint32_t tensor,
    uint64_t count, void *out, struct optimfs_error *err)
{
	const struct ofs_tensor *t = &snap->cat->tensors[tensor];
	struct elements *e = &snap->views->elements;
	bool once = count == 1 && snap->overlay == NULL;
	size_t n = ofs_dtype_size(t->dtype);

	if (once && known_element(e, tensor, out, n))
		return 0;
	if (ofs_fetch_elements(&snap->reader, t, 0, count, out, err) == -1)
		return -1;
	if (once)
		keep_element(e, snap->cat->ntensors, tensor, out, n);
	return 0;
}

static int read_elements(void *ctx, uint32_t tensor, uint64_t count, void *out,
    struct optimfs_error *err)
{
	const struct ofs_view_dir *v = ctx;
	struct ofs_snapshot *snap = v->snap;
	const struct ofs_catalog *cat = ofs_view_catalog(v);
	const struct ofs_tensor *t = &cat->tensors[tensor];
	struct optimfs_file reader = { .snap = snap };
	struct ofs_overlay_file *f;

	/* an added tensor has no stored elements */
	if (tensor >= snap->cat->ntensors)
		f = ofs_merged_staged(v->merged, tensor);
	else if (stored_elements(snap, tensor, count, out, err) == 0)
		f = ofs_file_staged(&reader, tensor);
	else
		return -1;
	return f == NULL ? 0
			 : ofs_overlay_apply(snap->overlay, f, cat, t, NULL, 0,
			       count, false, out, err);
}

/* The changes of this moment; EBUSY during a commit. */
static struct ofs_merged *merge_now(struct ofs_snapshot *snap,
    struct optimfs_error *err)
{
	struct ofs_merged *m;

	if (ofs_hold_writers(snap->fs, false, err) == -1)
		return NULL;
	m = ofs_merge(&snap->reader, snap->overlay, err);
	ofs_let_writers(snap->fs);
	return m;
}

/* The catalog with staged changes. The lock is held. */
static const struct ofs_catalog *catalog_now(struct ofs_snapshot *snap,
    struct ofs_view_dir *v, struct optimfs_error *err)
{
	if (snap->views->merged != NULL && v->merged == NULL)
		v->merged = merged_ref(snap->views->merged);
	if (v->merged != NULL)
		return v->merged->cat;
	if (v->generation == 0)
		return snap->cat;
	/* the changes of that time are no longer known */
	if (atomic_load(&v->names) != NULL &&
	    v->generation != generation(snap, &v->layout)) {
		optimfs_fail(err, ESTALE,
		    "OFS776 view %.80s is from before a change: look it up "
		    "again",
		    v->name);
		return NULL;
	}
	if (v->layout.format->render->staged)
		return snap->cat;
	v->merged = merge_now(snap, err);
	return v->merged == NULL ? NULL : v->merged->cat;
}

const struct ofs_catalog *ofs_view_catalog(const struct ofs_view_dir *v)
{
	if (v->unpacked != NULL)
		return v->unpacked;
	return v->merged == NULL ? v->snap->cat : v->merged->cat;
}

/* As catalog_now, with the option dequantize without packed tensors. */
static const struct ofs_catalog *catalog_shown(struct ofs_snapshot *snap,
    struct ofs_view_dir *v, struct optimfs_error *err)
{
	const struct ofs_catalog *cat = catalog_now(snap, v, err);

	if (cat == NULL || !v->layout.dequantize)
		return cat;
	if (v->merged != NULL) {
		optimfs_fail(err, EOPNOTSUPP,
		    "OFS865 view %.80s: names have changed: commit first",
		    v->name);
		return NULL;
	}
	if (v->unpacked == NULL)
		v->unpacked = ofs_low_bit_unpacked(cat, err);
	return v->unpacked;
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
static int render(struct ofs_snapshot *snap, struct ofs_view_dir *v,
    struct optimfs_error *err)
{
	struct ofs_render from = {
		.item = read_item,
		.bytes = read_bytes,
		.elements = read_elements,
		.scale = read_scale,
		.commit = lay_commit,
		.ctx = v,
	};
	struct ofs_files *files;

	if (ofs_indexes_same(snap, err) == -1)
		return -1;
	from.cat = catalog_shown(snap, v, err);
	if (from.cat == NULL ||
	    ofs_render_only(from.cat, &v->layout, err) == -1)
		return -1;
	from.report = ofs_render_report_new(from.cat, err);
	if (from.report == NULL)
		return -1;
	files = ofs_files_new(v->layout.format->render, &from, &v->layout, err);
	if (files == NULL) {
		ofs_render_report_free(from.report);
		return -1;
	}
	files->report = from.report;
	ofs_render_report_end(files->report);
	if (files->n == 0 && files->report->dropped.n > 0) {
		ofs_files_free(files);
		return optimfs_fail(err, EOPNOTSUPP,
		    "OFS777 drop=opaque leaves nothing: no value can be "
		    "converted");
	}
	if (atomic_load(&v->names) == NULL &&
	    make_names(v->views, v, files, err) == -1) {
		ofs_files_free(files);
		return -1;
	}
	v->files = files;
	v->views->nlaid_out++;
	malloc_trim(
	    0); /* laying out needed twice the memory that is left in use */
	return 0;
}

struct ofs_files *ofs_view_hold(struct ofs_view_dir *v,
    struct optimfs_error *err)
{
	struct ofs_views *views = v->views;
	int ret = 0;

	pthread_mutex_lock(&views->lock);
	if (v->files == NULL) {
		ret = render(v->snap, v, err);
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
		malloc_trim(0);
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
