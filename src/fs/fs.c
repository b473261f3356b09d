/* fs.c - opening a checkpoint and letting it go */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "fs/fs.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/checked.h"
#include "cluster/commit/coordinator.h"
#include "cluster/manifest.h"
#include "cluster/source.h"
#include "cluster/transport.h"
#include "fs/view.h"
#include "overlay/overlay.h"
#include "store/local.h"

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
	struct ofs_transport *t;

	if (fs->options.strict && refuse_damage(fs->cat, err) == -1)
		return -1;
	if (ofs_tree_build(&fs->tree, fs->cat, err) == -1)
		return -1;
	t = fs->cat->dir.elsewhere == NULL
	    ? ofs_transport_local(fs->cat, fs->options.cache, err)
	    : ofs_transport_world(fs->cat,
		  ofs_manifest_of(fs->cat->dir.elsewhere), fs->options.cache,
		  err);
	if (ofs_reader_init(&fs->reader, fs->cat, t, err) == -1)
		return -1;
	source_defaults(fs);
	if (ofs_indexes_init(fs, err) == -1 || ofs_texts_init(fs, err) == -1)
		return -1;
	if (ofs_views_init(fs, err) == -1 || ofs_spaces_init(fs, err) == -1)
		return -1;
	return 0;
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

static struct ofs_blob *base_text(void *ctx, uint32_t node,
    struct optimfs_error *err)
{
	return ofs_entry_text_base(ctx, node, err);
}

static int text_fits(void *ctx, uint32_t node, const char *text, size_t n,
    struct ofs_buf *canon, uint8_t element[16], struct optimfs_error *err)
{
	return ofs_text_fits(ctx, node, text, n, canon, element, err);
}

static void shut(void *ctx)
{
	(void)ofs_gate_close(ctx);
}

static void log_error(void *ctx, const struct optimfs_error *why)
{
	optimfs_log_error(ctx, why);
}

struct ofs_overlay_base ofs_fs_base(struct optimfs *fs)
{
	static const struct ofs_overlay_reader reader = {
		.text = base_text,
		.fits = text_fits,
		.shut = shut,
		.log = log_error,
	};

	return (struct ofs_overlay_base){
		.cat = fs->cat,
		.tree = &fs->tree,
		.first = fs->tree.n + OFS_NSTATIC,
		.reader = &reader,
		.ctx = fs,
	};
}

static int open_overlay(struct optimfs *fs, struct ofs_stage *stage,
    struct optimfs_error *err)
{
	const struct ofs_overlay_base base = ofs_fs_base(fs);
	struct optimfs_error note;

	fs->edit = ofs_overlay_new(&base, stage, fs->options.scratch, err);
	if (fs->edit == NULL)
		return -1;
	atomic_init(&fs->explicit_commit, fs->options.explicit_commit);
	if (ofs_stage_note(stage)[0] != '\0') {
		optimfs_fail_as(&note, EBUSY, "%s", ofs_stage_note(stage));
		optimfs_log_error(fs, &note);
	}
	if (check_source(fs, err) == 0 && fs->write->begin(fs, err) == 0 &&
	    ofs_overlay_replay(fs->edit, err) == 0)
		return 0;
	ofs_overlay_keep(fs->edit);
	return -1;
}

struct optimfs *ofs_fs_new_staged(struct ofs_catalog *cat, const char *source,
    const struct optimfs_options *options, struct ofs_stage *stage,
    const struct ofs_write_ops *write, struct optimfs_error *err)
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
	fs->write = write;
	if (stage != NULL && open_overlay(fs, stage, err) == -1) {
		optimfs_close(fs);
		return NULL;
	}
	return fs;
}

struct optimfs *ofs_fs_new(struct ofs_catalog *cat, const char *source,
    const struct optimfs_options *options, struct optimfs_error *err)
{
	return ofs_fs_new_staged(cat, source, options, NULL, NULL, err);
}

struct optimfs *ofs_fs_open(const char *path,
    const struct optimfs_options *options, struct optimfs_error *err)
{
	struct ofs_catalog *cat = ofs_read_checkpoint(path, options, err);

	return cat == NULL ? NULL : ofs_fs_new(cat, path, options, err);
}

void optimfs_close(struct optimfs *fs)
{
	if (fs == NULL)
		return;
	ofs_overlay_free(fs->edit);
	ofs_coordinator_free(fs->sites);
	ofs_views_fini(fs);
	ofs_spaces_fini(fs);
	ofs_texts_fini(fs);
	ofs_reader_fini(&fs->reader);
	ofs_tree_fini(&fs->tree);
	ofs_catalog_free(fs->cat);
	for (size_t i = 0; i < OFS_NSTATIC; i++)
		ofs_lines_fini(&fs->lines[i]);
	ofs_failures_fini(&fs->failures);
	for (size_t i = 0; i < sizeof(fs->names) / sizeof(*fs->names); i++)
		free(fs->names[i]);
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
