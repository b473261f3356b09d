/* view_render.c - what the files of a view are made of */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "derive/low_bit.h"
#include "format/format.h"
#include "fs/commit.h"
#include "fs/view_impl.h"
#include "fs/write_open.h"
#include "rewrite/merge.h"

/* A renderer asks for values, and for the elements of small tensors. Both are as
 * they are at the time when the view is laid out, with what is staged; for the
 * bytes of the files see view_read.c. */

#define ELEMENTS_MAX 65536u

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

static bool known_element(struct ofs_view_elements *e, uint32_t tensor,
    void *out, size_t n)
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
static void keep_element(struct ofs_view_elements *e, uint32_t ntensors,
    uint32_t tensor, const void *bytes, size_t n)
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
	struct ofs_view_elements *e = &snap->views->elements;
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

	if (v->renamed != NULL) /* nothing is staged */
		return ofs_fetch_elements(&v->renamed->reader, t, 0, count, out,
		    err);
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
		v->merged = ofs_merged_ref(snap->views->merged);
	if (v->merged != NULL)
		return v->merged->cat;
	if (v->generation == 0)
		return snap->cat;
	/* the changes of that time are no longer known */
	if (atomic_load(&v->names) != NULL &&
	    v->generation != ofs_view_generation(snap, &v->layout)) {
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
	if (v->renamed != NULL)
		return v->renamed->cat;
	if (v->unpacked != NULL)
		return v->unpacked;
	return v->merged == NULL ? v->snap->cat : v->merged->cat;
}

struct ofs_reader *ofs_view_reader_of(const struct ofs_view_dir *v)
{
	return v->renamed != NULL ? &v->renamed->reader : &v->snap->reader;
}

/* As catalog_now, with the option dequantize without packed tensors. */
static const struct ofs_catalog *catalog_unpacked(struct ofs_snapshot *snap,
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

/* Staged elements do not lie over boxes of a tensor with another name. */
int ofs_view_check_unstaged(const struct ofs_view_dir *v,
    struct optimfs_error *err)
{
	if (v->layout.names.name[0] == '\0' || v->snap->overlay == NULL ||
	    ofs_overlay_generation(v->snap->overlay) == 0)
		return 0;
	return optimfs_fail(err, EOPNOTSUPP,
	    "OFS898 view %.80s: something has changed: commit first", v->name);
}

/* With the option names=, under other names. */
static const struct ofs_catalog *catalog_shown(struct ofs_snapshot *snap,
    struct ofs_view_dir *v, const struct ofs_dir *given,
    struct optimfs_error *err)
{
	const struct ofs_catalog *cat = catalog_unpacked(snap, v, err);
	struct ofs_reader *r = &snap->reader;

	if (cat == NULL || v->layout.names.name[0] == '\0')
		return cat;
	if (ofs_view_check_unstaged(v, err) == -1)
		return NULL;
	if (v->unpacked != NULL && v->unpacked_reader.cat == NULL &&
	    ofs_reader_share(&v->unpacked_reader, r, v->unpacked, err) == -1)
		return NULL;
	if (v->unpacked != NULL)
		r = &v->unpacked_reader;
	if (v->renamed == NULL)
		v->renamed = ofs_rename(&(struct ofs_model_files){ r, given },
		    &v->layout.names, &snap->fs->families, err);
	return v->renamed == NULL ? NULL : v->renamed->cat;
}

/* Lays the files out; beside has files that describe the model. */
static struct ofs_files *render(struct ofs_view_dir *v,
    const struct ofs_model_files *beside, struct optimfs_error *err)
{
	struct ofs_render from = {
		.item = read_item,
		.bytes = read_bytes,
		.elements = read_elements,
		.scale = read_scale,
		.commit = lay_commit,
		.beside = beside,
		.ctx = v,
	};
	struct ofs_snapshot *snap = v->snap;
	struct ofs_files *files;

	if (ofs_indexes_same(snap, err) == -1)
		return NULL;
	from.cat = catalog_shown(snap, v, beside->given, err);
	if (from.cat == NULL ||
	    ofs_render_only(from.cat, &v->layout, err) == -1)
		return NULL;
	from.report = ofs_render_report_new(from.cat, err);
	if (from.report == NULL)
		return NULL;
	if (v->renamed != NULL &&
	    ofs_render_report_renamed(from.report, v->renamed, err) == -1) {
		ofs_render_report_free(from.report);
		return NULL;
	}
	files = ofs_files_new(v->layout.format->render, &from, &v->layout, err);
	if (files == NULL) {
		ofs_render_report_free(from.report);
		return NULL;
	}
	files->report = from.report;
	ofs_render_report_end(files->report);
	if (files->n > 0 || files->report->dropped.n == 0)
		return files;
	ofs_files_free(files);
	optimfs_fail(err, EOPNOTSUPP,
	    "OFS777 drop=opaque leaves nothing: no value can be converted");
	return NULL;
}

/* Opens the directory that the user named. Not if something is mounted there by
 * now: that may be this process, which would wait for itself. */
static bool open_given(const struct ofs_snapshot *snap, struct ofs_dir *dir)
{
	struct stat own, st;

	if (snap->fs->real == NULL || snap->cat->dir.fd == -1 ||
	    ofs_dir_open_top(snap->fs->real, dir, NULL) == -1)
		return false;
	if (fstat(snap->cat->dir.fd, &own) == 0 && fstat(dir->fd, &st) == 0 &&
	    own.st_dev == st.st_dev)
		return true;
	ofs_dir_close(dir);
	return false;
}

struct ofs_files *ofs_view_render(struct ofs_view_dir *v,
    struct optimfs_error *err)
{
	struct ofs_model_files beside = { .reader = &v->snap->reader };
	struct ofs_files *files;
	struct ofs_dir given;

	if (v->layout.names.name[0] != '\0' && open_given(v->snap, &given))
		beside.given = &given;
	files = render(v, &beside, err);
	if (beside.given != NULL)
		ofs_dir_close(&given);
	return files;
}
