/* template.c - mkfs: write the files of a layout, except for tensor data */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "push/template.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/step.h"
#include "catalog/budget.h"
#include "journal/publish.h"
#include "journal/stage.h"
#include "push/rest.h"
#include "reshard/dirs.h"

void ofs_template_fini(struct ofs_template *s)
{
	for (uint32_t i = 0; i < s->nown; i++)
		free(s->own[i].path);
	free(s->own);
	*s = (struct ofs_template){ 0 };
}

/* Fails early if the layout has no places for elements, or if the index would be
 * too large for our own reader. */
static int check_files(const struct ofs_rest *r, struct optimfs_error *err)
{
	uint64_t max = ofs_metadata_max(r->snap->cat);
	char name[OFS_FILE_NAME];

	if (r->files->ops->make == NULL)
		return optimfs_fail(err, EINVAL,
		    "OFS771 a checkpoint cannot be made in the layout of its "
		    "own files: name a format");
	for (uint32_t i = 0; i < r->engine.n; i++) {
		ofs_rest_name(r, i, name);
		if (strcmp(name, ".metadata") == 0 &&
		    r->engine.file[i].size > max)
			return optimfs_fail(err, E2BIG,
			    "OFS440 .metadata: %" PRIu64 " bytes in this "
			    "layout, limit %" PRIu64 " (-o max_metadata)",
			    r->engine.file[i].size, max);
	}
	return 0;
}

static int tell(void *ctx, uint64_t done, uint64_t total, const char *name,
    struct optimfs_error *err)
{
	const struct optimfs *fs = ctx;

	return ofs_step(&fs->watch, name, done, total, err);
}

/* Writes the files of a view to dir, which is empty, and syncs them. */
static int write_files(struct ofs_snapshot *snap, struct ofs_at view, int dir,
    struct optimfs_error *err)
{
	struct ofs_rest r = { .snap = snap,
		.view = view,
		.dir = dir,
		.tick = tell,
		.ctx = snap->fs };
	int ret = ofs_rest_open(&r, err);

	if (ret == 0)
		ret = check_files(&r, err);
	if (ret == 0)
		ret = ofs_view_dirs_make(snap, view, dir, err);
	if (ret == 0)
		ret = ofs_rest_write(&r, err);
	if (ret == 0)
		ofs_render_report_say(r.files->report, &snap->fs->watch);
	ofs_rest_close(&r);
	return ret;
}

static bool is_one(const char *s, const char *const *options)
{
	for (; *options != NULL; options++)
		if (strncmp(s, *options, strlen(*options)) == 0)
			return true;
	return false;
}

/* Removes options from the name of a layout. */
static void without(const char *layout, const char *const *options, char *plain)
{
	while (*layout != '\0') {
		size_t k = strcspn(layout + 1, ",") + 1;

		if (!is_one(layout, options))
			plain = mempcpy(plain, layout, k);
		layout += k;
	}
	*plain = '\0';
}

int ofs_template_view(struct ofs_snapshot *snap, const char *layout,
    struct ofs_at *view, bool *compressed, struct optimfs_error *err)
{
	static const char *const packed[] = { ",zstd", NULL };
	char plain[OFS_VIEW_NAME];

	if (strlen(layout) >= sizeof(plain))
		return optimfs_fail(err, EINVAL,
		    "OFS771 view %.80s: the name is too long", layout);
	if (ofs_view_make_summed(snap, layout, view, err) == -1)
		return -1;
	*compressed = ofs_view_layout(snap, *view)->zstd != 0;
	without(layout, packed, plain);
	return ofs_view_make_summed(snap, plain, view, err);
}

/* Fails unless the directory is absent or empty. */
int ofs_template_room(const char *dir, struct optimfs_error *err)
{
	int empty = ofs_dir_empty(dir);

	if (empty == 1 || (empty == -1 && errno == ENOENT))
		return 0;
	if (empty == -1)
		return optimfs_fail(err, errno == ENOTDIR ? EEXIST : errno,
		    "OFS830 %s: %m", dir);
	return optimfs_fail(err, EEXIST,
	    "OFS830 %s is not empty: a new checkpoint needs a directory of its "
	    "own",
	    dir);
}

static bool has_info(int stage)
{
	return faccessat(stage, OFS_TEMPLATE_INFO, F_OK, AT_SYMLINK_NOFOLLOW) ==
	    0;
}

/* Makes the directory; the remains of a killed mkfs are removed first. */
static int make_dir(const struct ofs_snapshot *snap, struct ofs_stage *st,
    struct optimfs_error *err)
{
	int stage = ofs_stage_beside(st), fd;

	if (has_info(stage))
		return optimfs_fail(err, EEXIST,
		    "OFS830 %s: there is a template already: mount it, or "
		    "remove that directory",
		    ofs_stage_path(st));
	ofs_publish_clear(stage, OFS_TEMPLATE);
	if (mkdirat(stage, OFS_TEMPLATE, ofs_snapshot_made_mode(snap, 0777)) ==
	    -1)
		return optimfs_fail(err, errno, "OFS801 %s/%s: %m",
		    ofs_stage_path(st), OFS_TEMPLATE);
	fd = openat(stage, OFS_TEMPLATE,
	    O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return fd == -1 ? optimfs_fail(err, errno, "OFS801 %m") : fd;
}

static char *template_path(const struct ofs_stage *st,
    struct optimfs_error *err)
{
	char *path;

	if (asprintf(&path, "%s/%s", ofs_stage_path(st), OFS_TEMPLATE) != -1)
		return path;
	ofs_no_memory(err);
	return NULL;
}

static int make(struct ofs_snapshot *snap, const char *layout,
    struct ofs_stage *st, struct optimfs_error *err)
{
	/* the template has no packed tensors, and the new names */
	static const char *const done[] = { ",dequantize",
		",names=", ",heads=", ",groups=", ",vocab=", NULL };
	struct ofs_template s = { 0 };
	struct ofs_at view;
	bool compressed;
	int dir, ret;
	char *path;

	if (ofs_template_view(snap, layout, &view, &compressed, err) == -1)
		return -1;
	without(layout, done, s.layout);
	dir = make_dir(snap, st, err);
	if (dir == -1)
		return -1;
	ret = write_files(snap, view, dir, err);
	close(dir);
	path = ret == 0 ? template_path(st, err) : NULL;
	if (path == NULL || ofs_template_match(snap, path, &s, err) == -1)
		ret = -1;
	free(path);
	if (ret == 0)
		ret = ofs_template_save(&s, ofs_stage_beside(st), err);
	if (ret == -1) {
		unlinkat(ofs_stage_beside(st), OFS_TEMPLATE_INFO, 0);
		ofs_publish_clear(ofs_stage_beside(st), OFS_TEMPLATE);
	}
	ofs_template_fini(&s);
	return ret;
}

static int make_of(struct optimfs *like, const char *layout,
    struct ofs_stage *st, struct optimfs_error *err)
{
	struct ofs_snapshot *snap = ofs_enter(like);
	int ret = make(snap, layout, st, err);

	ofs_leave(snap);
	return ret;
}

int ofs_template_dir(const char *dir, bool *made, struct optimfs_error *err)
{
	*made = mkdir(dir, 0777) == 0;
	if (!*made && errno != EEXIST)
		return optimfs_fail(err, errno, "OFS801 %s: %m", dir);
	return ofs_sync_parent(dir) == 0
	    ? 0
	    : optimfs_fail(err, errno, "OFS801 %s: fsync: %m", dir);
}

/* A destination that existed is for nobody who may not read the source. */
static int narrow(struct optimfs *like, const char *dir,
    struct optimfs_error *err)
{
	int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct ofs_snapshot *snap = ofs_enter(like);
	struct stat st;
	mode_t mode;
	int ret = fd == -1 ? -1 : fstat(fd, &st);

	mode = ret == -1 ? 0 : ofs_snapshot_made_mode(snap, st.st_mode & 0777);
	if (ret == 0 && mode != (st.st_mode & 0777))
		ret = fchmod(fd, (st.st_mode & 07000) | mode);
	if (ret == -1)
		optimfs_fail(err, errno, "OFS801 %s: its mode: %m", dir);
	ofs_leave(snap);
	if (fd != -1)
		close(fd);
	return ret;
}

int ofs_template_make(struct optimfs *like, const char *layout, const char *dir,
    struct optimfs_error *err)
{
	struct ofs_stage_config config = { .source = dir };
	struct ofs_stage *st;
	bool made;
	int ret = -1;

	if (ofs_template_room(dir, err) == -1)
		return -1;
	st = ofs_stage_open(&config, err);
	if (st == NULL)
		return -1;
	/* before the template, which is useless without its destination */
	if (ofs_template_dir(dir, &made, err) == 0 &&
	    narrow(like, dir, err) == 0)
		ret = make_of(like, layout, st, err);
	if (ret == -1 && made)
		rmdir(dir);
	ofs_stage_close(st, has_info(ofs_stage_beside(st)));
	return ret;
}
