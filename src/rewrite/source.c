/* source.c - the files of a checkpoint as a commit will leave them */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "rewrite/source.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"
#include "base/memory.h"
#include "base/search.h"
#include "engine/engine.h"
#include "rewrite/rewrite_impl.h"
#include "store/encode.h"
#include "store/local.h"

/* "What does a commit write?" is answered by what a commit does, up to the point
 * where it would write: the same steps lay out the same compositions, and the
 * engine's function reads them. So a copy of this view, and the directory after
 * the commit, have the same bytes. What is compared only then is whether tensors
 * that share bytes agree (shared.c), since all of them would have to be read.
 *
 * Compressed items have no length until they are compressed. Their files are
 * written to unnamed files of the stage when the view is laid out, so that the
 * index can be made, and all sizes are known.
 *
 * All other files of the directory are shown as they are, whoever wrote them: a
 * commit leaves them, too. Unless the directory is not the checkpoint's. */

struct source_file {
	char *name;
	struct ofs_commit_file *new; /* NULL: as it is stored */
	uint32_t object;             /* of the catalog, or of rest */
	bool rest;
	int fd; /* of compressed items; -1: no such file */
	uint64_t size;
};

struct source {
	struct ofs_files base;
	struct ofs_commit_job job;
	struct ofs_changes changes;
	struct ofs_commit c;
	struct ofs_arena arena;
	struct source_file *file;
	size_t cap;
	const char **hidden; /* sorted: names that are replaced or removed */
	size_t nhidden;
	struct ofs_catalog *rest; /* of files that no format reads */
	struct ofs_transport *others;
};

static struct source_file *add_file(struct source *s, const char *name,
    struct optimfs_error *err)
{
	struct source_file *x;

	if (strlen(name) >= OFS_FILE_NAME) {
		optimfs_fail(err, ENAMETOOLONG, "%.100s: a path of %zu bytes",
		    name, strlen(name));
		return NULL;
	}
	if (ofs_grow(s->file, s->base.n, s->cap, err) == -1)
		return NULL;
	x = &s->file[s->base.n];
	*x = (struct source_file){ .fd = -1 };
	x->name = ofs_arena_strndup(&s->arena, name, strlen(name));
	if (x->name == NULL) {
		ofs_no_memory(err);
		return NULL;
	}
	s->base.n++;
	return x;
}

/* New files. */

static int encode_items(struct source_file *x, struct ofs_encoder *to,
    struct optimfs_error *err)
{
	const struct ofs_spans *items = &x->new->items;
	uint8_t *buf = ofs_alloc(OFS_ENGINE_PIECE, 1, err);
	uint64_t off = 0, len;
	int ret = buf == NULL ? -1 : 0;

	for (size_t i = 0; i < items->n && ret == 0; i++) {
		ret = ofs_engine_encode(to, ofs_commit_file_read, x->new, off,
		    items->v[i].end, buf, &len, err);
		if (ret == 0)
			x->new->stored(x->new->ctx, items->v[i].ref, len);
		off = items->v[i].end;
	}
	free(buf);
	x->size = to->at;
	return ret;
}

/* Writes the compressed items of a file. */
static int encode_file(struct source *s, struct source_file *x,
    struct optimfs_error *err)
{
	struct ofs_encoder to = { .write = ofs_stage_write };
	int ret;

	x->fd = to.fd = ofs_stage_temp(ofs_overlay_stage(s->job.overlay), err);
	if (to.fd == -1)
		return -1;
	ret = ofs_encoder_init(&to, 0, err);
	if (ret == 0)
		ret = encode_items(x, &to, err);
	ofs_encoder_fini(&to);
	return ret;
}

static int add_new(struct source *s, struct ofs_commit_file *f,
    struct optimfs_error *err)
{
	struct source_file *x = add_file(s, f->rel, err);

	if (x == NULL)
		return -1;
	x->new = f;
	if (f->make != NULL && f->make(f->ctx, &f->comp, err) == -1)
		return -1;
	if (ofs_commit_file_seal(f, err) == -1)
		return -1;
	x->size = f->comp.size;
	return f->items.n > 0 ? encode_file(s, x, err) : 0;
}

/* Adds the files that a commit would write, in its order. */
static int add_all_new(struct source *s, struct optimfs_error *err)
{
	for (int late = 0; late < 2; late++)
		for (size_t i = 0; i < s->c.nfiles; i++)
			if ((s->c.file[i]->make != NULL) == (late == 1) &&
			    add_new(s, s->c.file[i], err) == -1)
				return -1;
	return 0;
}

/* Other files. */

static int hide(struct source *s, struct optimfs_error *err)
{
	const struct ofs_commit *c = &s->c;

	s->hidden =
	    ofs_alloc(c->nfiles + c->ngone + 1, sizeof(*s->hidden), err);
	if (s->hidden == NULL)
		return -1;
	for (size_t i = 0; i < c->nfiles; i++)
		s->hidden[s->nhidden++] = c->file[i]->rel;
	for (size_t i = 0; i < c->ngone; i++)
		s->hidden[s->nhidden++] = c->gone[i];
	if (s->nhidden > 0)
		qsort(s->hidden, s->nhidden, sizeof(*s->hidden),
		    ofs_compare_text);
	return 0;
}

/* Adds a file that stays as it is. */
static int add_kept(struct source *s, const char *name,
    struct optimfs_error *err)
{
	const struct ofs_catalog *cat = s->c.cat;
	uint32_t object = ofs_catalog_find_object(cat, name);
	bool rest = object == OFS_NONE;
	struct source_file *x;

	if (ofs_search(&name, s->hidden, s->nhidden, sizeof(name),
		ofs_compare_text) != NULL)
		return 0;
	if (rest) {
		cat = s->rest;
		object = ofs_catalog_object(s->rest, name, -1, err);
		if (object == OFS_NONE)
			return -1;
	}
	if (cat->objects[object].missing)
		return 0;
	x = add_file(s, name, err);
	if (x == NULL)
		return -1;
	x->object = object;
	x->rest = rest;
	x->size = cat->objects[object].size;
	return 0;
}

static int add_name(struct source *s, const char *path, struct ofs_names *dirs,
    struct optimfs_error *err)
{
	struct stat st;

	if (!ofs_dir_stat(&s->c.cat->dir, path, &st))
		return 0;
	if (S_ISDIR(st.st_mode))
		return ofs_names_add(dirs, path, strlen(path), err);
	return S_ISREG(st.st_mode) ? add_kept(s, path, err) : 0;
}

/* Adds the files in a directory, and to dirs the directories in it. */
static int add_names(struct source *s, const char *rel, struct ofs_names *dirs,
    struct optimfs_error *err)
{
	struct ofs_names names = { 0 };
	int ret = ofs_dir_list_sub(&s->c.cat->dir, rel, &names, err);

	for (size_t i = 0; i < names.n && ret == 0; i++) {
		char *path = ofs_path_join(rel, names.name[i]);

		ret = path == NULL ? ofs_no_memory(err)
				   : add_name(s, path, dirs, err);
		free(path);
	}
	ofs_names_free(&names);
	return ret;
}

static int add_directory(struct source *s, struct optimfs_error *err)
{
	struct ofs_names dirs = { 0 };
	int ret = add_names(s, "", &dirs, err);

	while (dirs.n > 0 && ret == 0) {
		char *rel = dirs.name[--dirs.n];

		ret = add_names(s, rel, &dirs, err);
		free(rel);
	}
	ofs_names_free(&dirs);
	return ret;
}

/* The checkpoint is a file of its directory, with those that it names, or two
 * below a directory that has others as well. */
static int add_objects(struct source *s, struct optimfs_error *err)
{
	const struct ofs_catalog *cat = s->c.cat;

	for (uint32_t i = 0; i < cat->nobjects; i++)
		if (add_kept(s, cat->objects[i].path, err) == -1)
			return -1;
	return 0;
}

static int add_all_kept(struct source *s, struct optimfs_error *err)
{
	struct ofs_dir dir;
	int ret;

	if (hide(s, err) == -1 || ofs_dir_copy(&s->c.cat->dir, &dir, err) == -1)
		return -1;
	s->rest = ofs_catalog_new(&dir, err);
	if (s->rest == NULL) {
		ofs_dir_close(&dir);
		return -1;
	}
	ret = s->c.cat->lone || s->c.cat->joined[0] != NULL
	    ? add_objects(s, err)
	    : add_directory(s, err);
	if (ret == 0)
		s->others = ofs_transport_of(s->rest, 0, err);
	return s->others == NULL ? -1 : 0;
}

/* The layout. */

static int lay_commit(void *ctx, const struct ofs_commit_job *job,
    struct ofs_changes *changes, struct optimfs_error *err)
{
	struct source *s = ctx;
	int ret;

	s->job = *job;
	s->changes = *changes;
	*changes = (struct ofs_changes){ 0 };
	s->job.changes = &s->changes;
	ofs_commit_init(&s->c, &s->job);
	ret = ofs_commit_lay_out(&s->c, err);
	s->job.part = NULL; /* the caller's */
	if (ret == 0)
		ret = add_all_new(s, err);
	return ret == 0 ? add_all_kept(s, err) : -1;
}

static int lay(struct ofs_files *f, const struct ofs_render *from,
    const struct ofs_layout *to, struct optimfs_error *err)
{
	if (to->drop)
		return optimfs_fail(err, EINVAL,
		    "OFS771 the view source has no options");
	return from->commit(from->ctx, lay_commit, f, err);
}

static void file_name(const struct ofs_files *f, uint32_t file,
    char name[OFS_FILE_NAME])
{
	strcpy(name, ((const struct source *)f)->file[file].name);
}

static int file_spans(const struct ofs_files *f, uint32_t file,
    struct ofs_spans *out, struct optimfs_error *err)
{
	return ofs_spans_add(out, ((const struct source *)f)->file[file].size,
	    0, 0, err);
}

static int file_read(const struct ofs_files *f, uint32_t file, void *buf,
    uint64_t len, uint64_t off, struct optimfs_error *err)
{
	const struct source *s = (const struct source *)f;
	const struct source_file *x = &s->file[file];
	const struct ofs_extent all = { .object = x->object, .len = x->size };

	if (x->fd != -1)
		return ofs_pread_all(x->fd, buf, len, off, err);
	if (x->new != NULL)
		return ofs_commit_file_read(x->new, buf, len, off, err);
	return ofs_transport_read(x->rest ? s->others : s->c.reader->transport,
	    &all, off, len, buf, err);
}

static void source_free(struct ofs_files *f)
{
	struct source *s = (struct source *)f;

	for (uint32_t i = 0; i < s->base.n; i++)
		if (s->file[i].fd != -1)
			close(s->file[i].fd);
	free(s->file);
	free(s->hidden);
	ofs_commit_fini(&s->c);
	ofs_changes_free(&s->changes);
	ofs_transport_close(s->others);
	ofs_catalog_free(s->rest);
	ofs_arena_fini(&s->arena);
	free(s);
}

const struct ofs_files_ops ofs_source_files = {
	.size = sizeof(struct source),
	.staged = true,
	.lay = lay,
	.name = file_name,
	.spans = file_spans,
	.read = file_read,
	.free = source_free,
};
