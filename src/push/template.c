/* template.c - mkfs: what a new checkpoint will be */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "push/template.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/step.h"
#include "catalog/budget.h"
#include "fs/view.h"
#include "journal/publish.h"
#include "journal/stage.h"

/* Fails early if the layout cannot be filled by copying files, or if the index
 * would be too large for our own reader. */
static int check_files(struct ofs_snapshot *snap, struct ofs_at view,
    const struct ofs_files *files, struct optimfs_error *err)
{
	const struct ofs_layout *layout = ofs_view_layout(snap, view);
	uint64_t max = ofs_metadata_max(snap->cat), size;
	struct ofs_at at;

	if (files->ops->make == NULL)
		return optimfs_fail(err, EINVAL,
		    "OFS771 a checkpoint cannot be made in the layout of its "
		    "own files: name a format");
	if (layout->dequantize || layout->names.name[0] != '\0')
		return optimfs_fail(err, EOPNOTSUPP,
		    "OFS833 the layout has other tensors than the source: "
		    "copying its files does not fill it; optimfs reshard "
		    "writes that layout");
	if (ofs_view_child(snap, view, ".metadata", &at, err) != 1)
		return 0;
	if (ofs_view_size(snap, at, &size, err) == -1)
		return -1;
	if (size <= max)
		return 0;
	return optimfs_fail(err, E2BIG,
	    "OFS440 .metadata: %" PRIu64 " bytes in this layout, limit %" PRIu64
	    " (-o max_metadata)",
	    size, max);
}

/* Lays out the files, and says which values they copy. */
static int try_layout(struct ofs_snapshot *snap, const char *layout,
    struct optimfs_error *err)
{
	struct ofs_files *files;
	struct ofs_at view;
	int ret;

	if (ofs_view_make_summed(snap, layout, &view, err) == -1)
		return -1;
	files = ofs_view_files(snap, view, err);
	if (files == NULL)
		return -1;
	ret = check_files(snap, view, files, err);
	if (ret == 0)
		ofs_render_report_say(files->report, &snap->fs->watch);
	ofs_view_files_done(snap, view);
	return ret == -1 ? -1 : ofs_step(&snap->fs->watch, "", 1, 1, err);
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

static int make(struct optimfs *like, const char *layout, struct ofs_stage *st,
    struct optimfs_error *err)
{
	int stage = ofs_stage_beside(st), ret;
	struct ofs_template t = { 0 };
	struct ofs_snapshot *snap;

	if (has_info(stage))
		return optimfs_fail(err, EEXIST,
		    "OFS830 %s: there is a template already: mount it, or "
		    "remove that directory",
		    ofs_stage_path(st));
	snap = ofs_enter(like);
	ret = try_layout(snap, layout, err);
	ofs_leave(snap);
	if (ret == 0)
		ret = ofs_template_of(like, layout, &t, err);
	if (ret == 0)
		ret = ofs_template_save(&t, stage, err);
	if (ret == -1)
		unlinkat(stage, OFS_TEMPLATE_INFO, 0);
	ofs_template_fini(&t);
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
		ret = make(like, layout, st, err);
	if (ret == -1 && made)
		rmdir(dir);
	ofs_stage_close(st, has_info(ofs_stage_beside(st)));
	return ret;
}
