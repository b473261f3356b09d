/* fs.c - opening a checkpoint and letting it go */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "fs/fs.h"

#include <errno.h>
#include <inttypes.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/checked.h"
#include "cluster/commit/coordinator.h"
#include "cluster/manifest.h"
#include "cluster/renew.h"
#include "cluster/transport.h"
#include "format/format.h"
#include "fs/view.h"
#include "overlay/overlay.h"
#include "push/template.h"

#define CACHE_MAX ((uint64_t)4 << 30)

static uint64_t default_cache(void)
{
	long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
	uint64_t ram;

	if (pages <= 0 || page <= 0)
		return (uint64_t)256 << 20;
	ram = (uint64_t)pages * (uint64_t)page;
	return ram / 8 < CACHE_MAX ? ram / 8 : CACHE_MAX;
}

/* Options with copies of their strings, so that info.json can tell them. */
static int copy_options(struct optimfs *fs, const struct optimfs_options *given,
    struct optimfs_error *err)
{
	struct optimfs_options *o = &fs->options;
	const char **strings[] = { &o->type, &o->optim_key, &o->model_key,
		&o->ids, &o->units, &o->subtree, &o->fill, &o->upper };

	*o = *given;
	if (o->cache == 0)
		o->cache = default_cache();
	for (size_t i = 0; i < sizeof(strings) / sizeof(*strings); i++) {
		if (*strings[i] == NULL)
			continue;
		fs->names[i] = strdup(*strings[i]);
		if (fs->names[i] == NULL)
			return optimfs_fail(err, ENOMEM, "options");
		*strings[i] = fs->names[i];
	}
	return 0;
}

/* Times and modes that files have which no object stands behind. */
static void source_defaults(struct optimfs *fs)
{
	const struct ofs_catalog *cat = fs->cat;
	uint32_t mode = cat->nobjects == 0 ? 0444 : cat->mode & 0444;
	struct stat st;

	fs->mode_file = S_IFREG | mode;
	fs->mode_dir = S_IFDIR | mode | mode >> 2;
	fs->mtime_ns = INT64_MIN;
	for (uint32_t i = 0; i < cat->nobjects; i++)
		if (!cat->objects[i].missing &&
		    cat->objects[i].mtime_ns > fs->mtime_ns)
			fs->mtime_ns = cat->objects[i].mtime_ns;
	if (fs->mtime_ns != INT64_MIN)
		return;
	fs->mtime_ns = 0;
	if (cat->dir.fd != -1 && fstat(cat->dir.fd, &st) == 0)
		fs->mtime_ns = ofs_time_ns(&st.st_mtim);
}

bool ofs_note_is_loss(const struct ofs_note *n)
{
	return n->kind == OFS_NOTE_MISSING && n->code != 0 &&
	    n->code != ENODATA;
}

/* With strict, the first thing wrong is the end: an entry that cannot be read,
 * state that is lost, a warning that has an errno. */
static int refuse_damage(const struct ofs_catalog *cat,
    struct optimfs_error *err)
{
	for (uint32_t i = 0; i < cat->nnotes; i++) {
		const struct ofs_note *n = &cat->notes[i];

		if (n->kind == OFS_NOTE_ERROR || ofs_note_is_loss(n) ||
		    (n->kind == OFS_NOTE_WARNING && n->code != 0))
			return optimfs_fail_as(err,
			    n->code == 0 ? EUCLEAN : n->code, "%s", n->text);
	}
	return 0;
}

static int build(struct optimfs *fs, struct optimfs_error *err)
{
	if (fs->options.strict && refuse_damage(fs->cat, err) == -1)
		return -1;
	if (ofs_tree_build(&fs->tree, fs->cat, err) == -1)
		return -1;
	fs->transport = fs->cat->dir.elsewhere == NULL
	    ? ofs_transport_local(fs->cat, fs->options.cache, err)
	    : ofs_transport_world(fs->cat,
		  ofs_manifest_of(fs->cat->dir.elsewhere), fs->options.cache,
		  err);
	if (fs->transport == NULL)
		return -1;
	fs->locator = ofs_locator_new(fs->cat, fs->transport, err);
	if (fs->locator == NULL)
		return -1;
	source_defaults(fs);
	if (ofs_indexes_init(fs, err) == -1 || ofs_texts_init(fs, err) == -1)
		return -1;
	if (ofs_views_init(fs, err) == -1 || ofs_spaces_init(fs, err) == -1)
		return -1;
	return 0;
}

struct optimfs *ofs_fs_new(struct ofs_catalog *cat, const char *source,
    const struct optimfs_options *options, struct optimfs_error *err)
{
	struct ofs_stage *stage = NULL;
	char *skeleton = NULL;

	if (options->rw) {
		stage = ofs_overlay_stage_open(source, options, NULL, &skeleton,
		    NULL, err);
		free(skeleton);
		if (stage == NULL) {
			ofs_catalog_free(cat);
			return NULL;
		}
	}
	return ofs_fs_new_staged(cat, source, options, stage, err);
}

struct optimfs *ofs_fs_new_staged(struct ofs_catalog *cat, const char *source,
    const struct optimfs_options *options, struct ofs_stage *stage,
    struct optimfs_error *err)
{
	struct optimfs *fs = calloc(1, sizeof(*fs));

	if (fs == NULL) {
		ofs_catalog_free(cat);
		ofs_stage_close(stage, true);
		optimfs_fail(err, ENOMEM, "%s", source);
		return NULL;
	}
	fs->cat = cat;
	ofs_gate_init(&fs->gate);
	pthread_mutex_init(&fs->lock, NULL);
	pthread_mutex_init(&fs->texts.lock, NULL);
	ofs_failures_init(&fs->failures);
	for (size_t i = 0; i < OFS_NSTATIC; i++)
		ofs_lines_init(&fs->lines[i], ofs_static_nodes[i].lines);
	fs->source = strdup(source);
	fs->real = realpath(source, NULL);
	if (fs->source == NULL)
		optimfs_fail(err, ENOMEM, "%s", source);
	if (fs->source == NULL || copy_options(fs, options, err) == -1 ||
	    build(fs, err) == -1) {
		ofs_stage_close(stage, true);
		optimfs_close(fs);
		return NULL;
	}
	if (stage != NULL && ofs_overlay_open(fs, stage, err) == -1) {
		optimfs_close(fs);
		return NULL;
	}
	return fs;
}

/* The lock comes first: what another writer, or one that died, is about to do
 * to the checkpoint must be done before it is read. The path must be good
 * wherever the process goes. */
static struct optimfs *open_rw(const char *path,
    const struct optimfs_options *options, struct optimfs_error *err)
{
	char *real = realpath(path, NULL);
	struct ofs_catalog *cat;
	struct ofs_stage *stage;
	struct optimfs *fs = NULL;
	char *skeleton = NULL;

	if (real == NULL) {
		optimfs_fail(err, errno, "%s: %m", path);
		return NULL;
	}
	stage =
	    ofs_overlay_stage_open(real, options, NULL, &skeleton, NULL, err);
	cat = stage == NULL
	    ? NULL
	    : ofs_read_checkpoint(skeleton == NULL ? real : skeleton, options,
		  err);
	if (cat != NULL) {
		cat->filling = skeleton != NULL;
		fs = ofs_fs_new_staged(cat, real, options, stage, err);
	} else {
		ofs_stage_close(stage, true);
	}
	free(skeleton);
	free(real);
	return fs;
}

/* Of several ranks, rank 0 writes. The lock was taken when path was offered; if
 * all is in one directory that is here, nobody else is needed to read it. */
static struct optimfs *open_rw_shared(const char *path,
    const struct optimfs_options *options, struct optimfs_error *err)
{
	struct ofs_manifest *s = ofs_group_share(options->world, path, err);
	struct ofs_writing *w = s == NULL ? NULL : s->writing;
	struct optimfs_options o = *options;
	struct ofs_catalog *cat;
	struct optimfs *fs = NULL;
	const char *source = path;
	char *here = NULL;

	if (s != NULL && w == NULL)
		optimfs_fail(err, EROFS,
		    "OFS842 %s: of several ranks rank 0 writes, and this is rank %d: "
		    "what it commits is seen here",
		    path, options->world->rank);
	if (w == NULL)
		return NULL;
	if (w->sites == NULL || w->skeleton != NULL) {
		source = here = ofs_manifest_here(s, err);
		o.world = NULL;
	}
	if (w->skeleton != NULL && s->nfiles > 0) {
		optimfs_fail(err, EEXIST,
		    "OFS830 %s waits for a checkpoint, and rank %d has a file "
		    "there already: %.200s",
		    path, s->owner[s->file[0].owner].rank, s->file[0].path);
		source = NULL;
	}
	cat = source == NULL
	    ? NULL
	    : ofs_read_checkpoint(w->skeleton == NULL ? source : w->skeleton,
		  &o, err);
	if (cat != NULL) {
		cat->filling = w->skeleton != NULL;
		fs = ofs_fs_new_staged(cat, source, &o, w->stage, err);
		w->stage = NULL;
	}
	if (fs != NULL) {
		ofs_overlay_set_sites(fs->edit, w->sites);
		w->sites = NULL;
		fs->renewal = ofs_group_renewal(options->world, path);
	}
	ofs_writing_free(w);
	s->writing = NULL;
	free(here);
	return fs;
}

/* Nothing has been committed to what waits for a checkpoint. */
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

struct ofs_catalog *ofs_fs_read_followed(const char *path,
    const struct optimfs_options *options, struct optimfs_error *err)
{
	const struct ofs_manifest *s =
	    ofs_group_share(options->world, path, err);

	if (s == NULL)
		return NULL;
	return s->nfiles == 0 ? read_nothing(s, err)
			      : ofs_read_checkpoint(path, options, err);
}

/* What another rank writes. */
static struct optimfs *open_followed(const char *path,
    const struct optimfs_options *options, struct ofs_renewal *r,
    struct optimfs_error *err)
{
	struct ofs_catalog *cat;
	struct optimfs *fs = NULL;

	ofs_renewal_begin(r);
	cat = ofs_fs_read_followed(path, options, err);
	if (cat != NULL)
		fs = ofs_fs_new(cat, path, options, err);
	ofs_renewal_follow(r, fs);
	return fs;
}

/* An empty directory may be one that waits for a checkpoint. */
static int find_skeleton(const char *path,
    const struct optimfs_options *options, struct optimfs_error *err)
{
	char *skeleton = NULL;
	int found = options->world != NULL
	    ? 0
	    : ofs_template_find(path, &skeleton, err);

	free(skeleton);
	if (found != 1)
		return found;
	return optimfs_fail(err, EROFS,
	    "OFS834 %s: no checkpoint yet; what is to become one is written by "
	    "way of a mount with -o rw",
	    path);
}

struct optimfs *optimfs_open(const char *path,
    const struct optimfs_options *options, struct optimfs_error *err)
{
	static const struct optimfs_options none;
	struct ofs_renewal *renewal = NULL;
	struct ofs_catalog *cat;
	struct optimfs *fs = NULL;

	if (options == NULL)
		options = &none;
	if (options->world != NULL && options->world->rank != 0)
		renewal = ofs_group_renewal(options->world, path);
	if (options->rw && !options->scratch && options->world != NULL) {
		fs = open_rw_shared(path, options, err);
	} else if (options->rw && !options->scratch) {
		fs = open_rw(path, options, err);
	} else if (renewal != NULL && !options->scratch) {
		fs = open_followed(path, options, renewal, err);
	} else if (find_skeleton(path, options, err) == 0) {
		cat = ofs_read_checkpoint(path, options, err);
		fs = cat == NULL ? NULL : ofs_fs_new(cat, path, options, err);
	}
	malloc_trim(0); /* reading took several times what is left */
	return fs;
}

void optimfs_close(struct optimfs *fs)
{
	if (fs == NULL)
		return;
	if (fs->edit == NULL && fs->renewal != NULL)
		ofs_renewal_leave(fs->renewal);
	ofs_overlay_free(fs->edit);
	ofs_views_fini(fs);
	ofs_spaces_fini(fs);
	ofs_texts_fini(fs);
	ofs_locator_free(fs->locator);
	if (fs->transport != NULL)
		ofs_transport_close(fs->transport);
	ofs_tree_fini(&fs->tree);
	ofs_catalog_free(fs->cat);
	for (size_t i = 0; i < OFS_NSTATIC; i++)
		ofs_lines_fini(&fs->lines[i]);
	ofs_failures_fini(&fs->failures);
	for (size_t i = 0; i < sizeof(fs->names) / sizeof(*fs->names); i++)
		free(fs->names[i]);
	free(fs->since);
	free(fs->mount_info);
	free(fs->source);
	free(fs->real);
	pthread_mutex_destroy(&fs->lock);
	ofs_gate_fini(&fs->gate);
	free(fs);
}

static int do_statvfs(struct optimfs *fs, struct statvfs *st,
    struct optimfs_error *err)
{
	*st = (struct statvfs){ .f_bsize = 4096, .f_frsize = 4096 };
	if (fs->cat->dir.fd != -1 && fstatvfs(fs->cat->dir.fd, st) == -1)
		return optimfs_fail(err, errno, "%s: statvfs: %m", fs->source);
	return 0;
}

int optimfs_statvfs(struct optimfs *fs, struct statvfs *st,
    struct optimfs_error *err)
{
	int ret;

	ofs_enter(fs);
	ret = do_statvfs(fs, st, err);
	ofs_leave(fs);
	return ret;
}

int optimfs_set_mount_info(struct optimfs *fs, const char *json)
{
	char *copy = strdup(json);

	if (copy == NULL)
		return -1;
	pthread_mutex_lock(&fs->lock);
	free(fs->mount_info);
	fs->mount_info = copy;
	pthread_mutex_unlock(&fs->lock);
	return 0;
}

void optimfs_set_stats(struct optimfs *fs, char *(*fn)(void *ctx), void *ctx)
{
	pthread_mutex_lock(&fs->lock);
	fs->stats = fn;
	fs->stats_ctx = ctx;
	pthread_mutex_unlock(&fs->lock);
}

void optimfs_log_error(struct optimfs *fs, const struct optimfs_error *err)
{
	ofs_failures_add(&fs->failures, 0, "-", 0, 0, err);
}
