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
#include "detect/view_name.h"
#include "format/format.h"
#include "fs/view_impl.h"
#include "fs/write_open.h"
#include "layout/render.h"

/* An unused view costs little, but a loop over all valid names has to end. */
#define VIEWS_MAX 1024u
/* Space numbers of views; the higher bits hold the generation. */
#define SPACES_MAX (1u << (OFS_GENERATION - 32))
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
	struct ofs_edition *edition;       /* of a running commit, or NULL */
	TAILQ_HEAD(, ofs_view_dir) unused; /* oldest first */
	unsigned nunused, nlaid_out;
	uint32_t nnames;
	uint32_t first; /* number of views of earlier snapshots */
	_Atomic uint32_t n;
	struct ofs_view_dir *_Atomic v[VIEWS_MAX];
};

int ofs_views_init(struct ofs_snapshot *snap, struct optimfs_error *err)
{
	snap->views = calloc(1, sizeof(*snap->views));
	if (snap->views == NULL)
		return ofs_no_memory(err);
	pthread_mutex_init(&snap->views->lock, NULL);
	pthread_mutex_init(&snap->views->elements.lock, NULL);
	TAILQ_INIT(&snap->views->unused);
	return 0;
}

bool ofs_views_follow(struct ofs_snapshot *snap, const struct ofs_snapshot *now)
{
	uint32_t first = now->views->first + atomic_load(&now->views->n);

	if (first > SPACES_MAX - VIEWS_MAX)
		return false;
	snap->views->first = first;
	return true;
}

bool ofs_view_is_past(const struct ofs_snapshot *snap, uint32_t space)
{
	return space >= OFS_SPACE_VIEW &&
	    space - OFS_SPACE_VIEW < snap->views->first;
}

static void view_free(struct ofs_view_dir *v)
{
	struct ofs_view_names *names = atomic_load(&v->names);

	ofs_files_free(v->files);
	ofs_view_names_free(names);
	ofs_edition_unref(v->edition);
	free(v);
}

void ofs_views_fini(struct ofs_snapshot *snap)
{
	if (snap->views == NULL)
		return;
	for (uint32_t i = 0; i < snap->views->n; i++)
		view_free(snap->views->v[i]);
	pthread_mutex_destroy(&snap->views->lock);
	pthread_mutex_destroy(&snap->views->elements.lock);
	free(snap->views->elements.slot);
	free(snap->views);
	snap->views = NULL;
}

struct ofs_view_dir *ofs_view_at(const struct ofs_snapshot *snap,
    struct ofs_at at)
{
	uint32_t i = at.space - OFS_SPACE_VIEW - snap->views->first;

	return atomic_load_explicit(&snap->views->v[i], memory_order_acquire);
}

/* The node was found, so the names exist. */
static struct ofs_view_node *node_at(const struct ofs_snapshot *snap,
    struct ofs_at at)
{
	return &atomic_load(&ofs_view_at(snap, at)->names)->v[at.index];
}

/* A view shows names and values as they were when it was looked up. 0 while
 * only bytes of tensors are staged. */
static uint64_t generation(const struct ofs_snapshot *snap)
{
	return snap->overlay == NULL
	    ? 0
	    : ofs_overlay_names_generation(snap->overlay);
}

static uint32_t find(const struct ofs_snapshot *snap, const char *name)
{
	const struct ofs_views *views = snap->views;
	uint64_t now = generation(snap);
	uint32_t n = atomic_load(&views->n);

	for (uint32_t i = n; i-- > 0;) {
		const struct ofs_view_dir *v = atomic_load(&views->v[i]);

		if (v->generation == now && !atomic_load(&v->retired) &&
		    strcmp(v->name, name) == 0)
			return i;
	}
	return OFS_NONE;
}

static int add(struct ofs_snapshot *snap, const char *name,
    const struct ofs_layout *layout, struct optimfs_error *err)
{
	struct ofs_views *views = snap->views;
	struct ofs_view_dir *v;

	if (views->n == VIEWS_MAX)
		return optimfs_fail(err, ENFILE,
		    "OFS772 view %.80s: more than %u views at once", name,
		    VIEWS_MAX);
	v = calloc(1, sizeof(*v));
	if (v == NULL)
		return ofs_no_memory(err);
	v->snap = snap;
	v->views = views;
	strcpy(v->name, name);
	v->generation = generation(snap);
	v->layout = *layout;
	v->ino = ofs_tree_ino(snap->static_ino[OFS_STATIC_VIEW], name);
	atomic_store_explicit(&views->v[views->n], v, memory_order_release);
	atomic_fetch_add(&views->n, 1);
	return 0;
}

int ofs_view_make(struct ofs_snapshot *snap, const char *name,
    struct ofs_at *at, struct optimfs_error *err)
{
	uint32_t i = find(snap, name);
	struct ofs_layout layout;
	int ret = 0;

	if (i == OFS_NONE) {
		if (strlen(name) >= OFS_VIEW_NAME)
			return optimfs_fail(err, EINVAL,
			    "OFS771 view %.80s: the name is too long", name);
		if (ofs_layout_parse(name, &layout, err) == -1)
			return -1;
		pthread_mutex_lock(&snap->views->lock);
		i = find(snap, name);
		if (i == OFS_NONE) {
			i = snap->views->n;
			ret = add(snap, name, &layout, err);
		}
		pthread_mutex_unlock(&snap->views->lock);
	}
	*at = (struct ofs_at){ OFS_SPACE_VIEW + snap->views->first + i, 0 };
	return ret;
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
	if (ofs_view_make(snap, name, at, err) == -1)
		return -1;
	if (ofs_view_at(snap, *at)->layout.zstd == 0)
		return 0;
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
	return ofs_view_hold(ofs_view_at(snap, at), err);
}

void ofs_view_files_done(struct ofs_snapshot *snap, struct ofs_at at)
{
	ofs_view_let(ofs_view_at(snap, at));
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
	return &ofs_view_at(snap, at)->layout;
}

uint32_t ofs_view_file_of(const struct ofs_snapshot *snap, struct ofs_at at)
{
	return node_at(snap, at)->file;
}

bool ofs_view_has(const struct ofs_snapshot *snap, struct ofs_at at)
{
	struct ofs_view_names *names;

	if (at.space - OFS_SPACE_VIEW - snap->views->first >=
	    atomic_load(&snap->views->n))
		return false;
	names = atomic_load(&ofs_view_at(snap, at)->names);
	return at.index == 0 || (names != NULL && at.index < names->n);
}

bool ofs_view_is_dir(const struct ofs_snapshot *snap, struct ofs_at at)
{
	return at.index == 0 || node_at(snap, at)->file == OFS_NONE;
}

static struct ofs_edition *edition_ref(struct ofs_edition *e)
{
	atomic_fetch_add(&e->refs, 1);
	return e;
}

void ofs_edition_unref(struct ofs_edition *e)
{
	if (e != NULL && atomic_fetch_sub(&e->refs, 1) == 1)
		e->ops->free(e);
}

void ofs_views_override(struct ofs_snapshot *snap, struct ofs_edition *edition)
{
	struct ofs_views *views = snap->views;

	pthread_mutex_lock(&views->lock);
	views->edition = edition;
	for (uint32_t i = 0; i < views->n; i++)
		atomic_store(&atomic_load(&views->v[i])->retired, true);
	pthread_mutex_unlock(&views->lock);
}

static struct ofs_pickle *read_item(void *ctx, const struct ofs_item *item,
    struct optimfs_error *err)
{
	const struct ofs_view_dir *v = ctx;

	if (v->edition != NULL && v->edition->ops->item != NULL)
		return v->edition->ops->item(v->edition, item, err);
	return ofs_locate_item(&v->snap->reader, item, err);
}

static int read_bytes(void *ctx, const struct ofs_item *item, uint64_t max,
    struct ofs_buf *out, struct optimfs_error *err)
{
	const struct ofs_view_dir *v = ctx;
	const struct ofs_edition *e = v->edition;

	if (e != NULL && e->ops->edited != NULL && e->ops->edited(e, item))
		return optimfs_fail(err, EOPNOTSUPP,
		    "OFS448 an edited value that holds a tensor or an object "
		    "cannot be written");
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
	const struct ofs_catalog *cat =
	    v->edition == NULL ? snap->cat : v->edition->cat;
	const struct ofs_tensor *t = &cat->tensors[tensor];
	struct optimfs_file reader = { .snap = snap };
	struct ofs_overlay_file *f;

	/* an added tensor has no stored elements */
	if (tensor >= snap->cat->ntensors)
		f = v->edition->ops->staged(v->edition, tensor);
	else if (stored_elements(snap, tensor, count, out, err) == 0)
		f = ofs_file_staged(&reader, tensor);
	else
		return -1;
	return f == NULL ? 0
			 : ofs_overlay_apply(snap->overlay, f, cat, t, NULL, 0,
			       count, false, out, err);
}

/* The catalog with staged changes. The lock is held. */
static const struct ofs_catalog *catalog_now(struct ofs_snapshot *snap,
    struct ofs_view_dir *v, struct optimfs_error *err)
{
	if (snap->views->edition != NULL && v->edition == NULL)
		v->edition = edition_ref(snap->views->edition);
	if (v->edition != NULL)
		return v->edition->cat;
	if (v->generation == 0)
		return snap->cat;
	/* the changes of that time are no longer known */
	if (atomic_load(&v->names) != NULL) {
		optimfs_fail(err, ESTALE,
		    "OFS776 view %.80s is from before a change: look it up "
		    "again",
		    v->name);
		return NULL;
	}
	v->edition = snap->write->edition(snap, err);
	return v->edition == NULL ? NULL : v->edition->cat;
}

/* Makes the names of a view that is laid out for the first time. The lock is
 * held. */
static int make_names(struct ofs_views *views, struct ofs_view_dir *v,
    const struct ofs_files *files, struct optimfs_error *err)
{
	struct ofs_view_names *names = ofs_view_names_new(files, err);

	if (names == NULL)
		return -1;
	if (names->n > NAMES_MAX - views->nnames) {
		ofs_view_names_free(names);
		return optimfs_fail(err, ENFILE,
		    "OFS772 view %.80s: more than %u files in the views of one "
		    "mount: mount it again",
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
		.ctx = v,
	};
	struct ofs_files *files;

	if (ofs_indexes_same(snap, err) == -1)
		return -1;
	from.cat = catalog_now(snap, v, err);
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

/* Drops all but the names. The changes of an older view are only needed by
 * those who have it open. The lock is held. */
static void put_away(struct ofs_views *views, struct ofs_view_dir *v)
{
	TAILQ_REMOVE(&views->unused, v, unused);
	views->nunused--;
	views->nlaid_out--;
	ofs_files_free(v->files);
	v->files = NULL;
	if (v->generation != generation(v->snap)) {
		ofs_edition_unref(v->edition);
		v->edition = NULL;
	}
	malloc_trim(0);
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
static struct ofs_view_names *names_of(struct ofs_snapshot *snap,
    struct ofs_at at, struct optimfs_error *err)
{
	struct ofs_view_dir *v = ofs_view_at(snap, at);
	struct ofs_view_names *names =
	    atomic_load_explicit(&v->names, memory_order_acquire);

	if (names != NULL)
		return names;
	err = OFS_SOME_ERROR(err);
	if (ofs_view_hold(v, err) != NULL) {
		ofs_view_let(v);
		return atomic_load(&v->names);
	}
	ofs_file_failed(snap, (struct ofs_at){ at.space, 0 }, 0, 0, err);
	return NULL;
}

int ofs_view_count(struct ofs_snapshot *snap, struct ofs_at dir, uint32_t *n,
    struct optimfs_error *err)
{
	struct ofs_view_names *names = names_of(snap, dir, err);

	if (names == NULL)
		return -1;
	*n = names->n;
	return 0;
}

int ofs_view_children(struct ofs_snapshot *snap, struct ofs_at dir,
    struct ofs_at *at, uint32_t *n, struct optimfs_error *err)
{
	struct ofs_view_names *names = names_of(snap, dir, err);

	if (names == NULL)
		return -1;
	*at = (struct ofs_at){ dir.space, names->v[dir.index].child };
	*n = names->v[dir.index].nchild;
	return 0;
}

int ofs_view_child(struct ofs_snapshot *snap, struct ofs_at dir,
    const char *name, struct ofs_at *at, struct optimfs_error *err)
{
	struct ofs_view_names *names = names_of(snap, dir, err);
	uint32_t found;

	if (names == NULL)
		return -1;
	found = ofs_view_names_find(names, dir.index, name);
	if (found == OFS_NONE)
		return 0;
	*at = (struct ofs_at){ dir.space, found };
	return 1;
}

const char *ofs_view_name(const struct ofs_snapshot *snap, struct ofs_at at)
{
	const struct ofs_view_dir *v = ofs_view_at(snap, at);

	return at.index == 0 ? v->name : node_at(snap, at)->name;
}

void ofs_view_path(const struct ofs_snapshot *snap, struct ofs_at at,
    char path[OFS_FILE_NAME])
{
	const struct ofs_view_dir *v = ofs_view_at(snap, at);

	path[0] = '\0';
	if (at.index != 0)
		ofs_view_names_path(atomic_load(&v->names), at.index, path);
}

uint64_t ofs_view_ino(const struct ofs_snapshot *snap, struct ofs_at at)
{
	const struct ofs_view_dir *v = ofs_view_at(snap, at);
	char path[OFS_FILE_NAME];

	if (at.index == 0)
		return v->ino;
	ofs_view_path(snap, at, path);
	return ofs_tree_ino(v->ino, path);
}

int ofs_view_size(struct ofs_snapshot *snap, struct ofs_at at, uint64_t *size,
    struct optimfs_error *err)
{
	struct ofs_view_dir *v = ofs_view_at(snap, at);
	struct ofs_view_node *f = node_at(snap, at);
	uint64_t known = atomic_load(&f->size);
	struct ofs_spans spans = { 0 };
	struct ofs_files *files;
	bool many;
	int ret;

	if (known == 0) {
		files = ofs_view_hold(v, err);
		if (files == NULL)
			return ofs_file_failed(snap, at, 0, 0, err);
		ret = files->ops->spans(files, f->file, &spans, err);
		ofs_view_let(v);
		known = spans.n == 0 ? 1 : spans.v[spans.n - 1].end + 1;
		many = spans.n >= MANY_SPANS;
		ofs_spans_fini(&spans);
		if (many)
			malloc_trim(0);
		if (ret == -1)
			return ofs_file_failed(snap, at, 0, 0, err);
		atomic_store(&f->size, known);
	}
	*size = known - 1;
	return 0;
}
