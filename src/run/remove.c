/* remove.c - remove checkpoints of a run, to make room */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "run/remove.h"

#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <fts.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/memory.h"
#include "base/sys.h"
#include "detect/detect.h"
#include "journal/publish.h"
#include "journal/stage.h"
#include "run/run.h"

/* In a stage: a checkpoint that is being deleted, or made in place of another; and
 * the stage of the latter. */
#define REMOVED       "removed"
#define CHANGED       "changed"
#define REMOVED_STAGE ".removed.optimfs"

/* below: a file of the checkpoint, or "" */
static int fail_busy(struct optimfs_error *err, const char *path,
    const char *below, const char *why)
{
	return optimfs_fail(err, EBUSY,
	    "OFS871 %.300s%.300s %s: it was not removed", path, below, why);
}

/* Do versions need others? */
static bool has_changes(struct ofs_run_members *members)
{
	struct ofs_run_member m;

	for (uint32_t i = 0; ofs_run_member(members, i, &m); i++)
		if (!m.gone && m.known && m.found.changes)
			return true;
	return false;
}

char *optimfs_run_path(struct optimfs *fs, const char *name,
    struct optimfs_error *err)
{
	if (fs->run != NULL && has_changes(&fs->run->members)) {
		optimfs_fail(err, EOPNOTSUPP,
		    "OFS889 %.200s: later versions are stored as changes of "
		    "earlier ones, so none can be removed alone: write the "
		    "versions to keep with optimfs reshard",
		    fs->source);
		return NULL;
	}
	if (fs->run != NULL && name[0] != '.' && strchr(name, '/') == NULL)
		return ofs_run_member_path(fs->run, name, err);
	optimfs_fail(err, EINVAL, "OFS871 %.200s is no checkpoint of a run",
	    name);
	return NULL;
}

/* What is deleted last says that something is. */
static void clear(const struct ofs_stage *st)
{
	ofs_publish_clear(ofs_stage_beside(st), REMOVED_STAGE);
	ofs_publish_clear(ofs_stage_beside(st), REMOVED);
}

static int weigh_file(const FTSENT *e, const char *path, const char *below,
    struct optimfs_run_weight *w, struct optimfs_error *err)
{
	const struct stat *st = e->fts_statp;

	if (S_ISREG(st->st_mode) &&
	    ofs_publish_opened(AT_FDCWD, e->fts_accpath))
		return fail_busy(err, path, below, "is open in a program");
	w->files++;
	if (st->st_nlink == 1)
		ofs_sum_u64(&w->bytes, (uint64_t)st->st_blocks * 512);
	if (ofs_time_ns(&st->st_mtim) > w->newest_ns)
		w->newest_ns = ofs_time_ns(&st->st_mtim);
	return 0;
}

/* Measures what is at place, a file or a directory. Messages name it by path. */
static int weigh(const char *place, const char *path,
    struct optimfs_run_weight *w, struct optimfs_error *err)
{
	char *const top[] = { (char *)(uintptr_t)place, NULL };
	FTS *fts = fts_open(top, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
	FTSENT *e;
	int ret = 0;

	*w = (struct optimfs_run_weight){ 0 };
	if (fts == NULL)
		return optimfs_fail(err, errno, "OFS871 %.300s: %m", path);
	while (ret == 0 && (errno = 0, e = fts_read(fts)) != NULL) {
		const char *below = e->fts_path + strlen(place);

		switch (e->fts_info) {
		case FTS_D:
		case FTS_DP:
			break;
		case FTS_DNR:
		case FTS_ERR:
		case FTS_NS:
			errno = e->fts_errno;
			ret = optimfs_fail(err, errno,
			    "OFS871 %.300s%.300s: %m", path, below);
			break;
		default:
			ret = weigh_file(e, path, below, w, err);
		}
	}
	if (ret == 0 && errno != 0)
		ret = optimfs_fail(err, errno, "OFS871 %.300s: %m", path);
	fts_close(fts);
	return ret;
}

static int check_stage(const char *path, struct optimfs_error *err)
{
	int fd = ofs_stage_watch(path);

	if (fd == -1)
		return ofs_stage_left(path, err);
	close(fd);
	return fail_busy(err, path, "", "is open for writing");
}

/* Fails for a run on a server. */
static int check_here(const struct optimfs *run, struct optimfs_error *err)
{
	return run->run->members.dir.names == NULL
	    ? 0
	    : optimfs_fail(err, EROFS,
		  "OFS926 %s is on a server: nothing is removed there",
		  run->source);
}

int optimfs_run_weigh(struct optimfs *run, const char *name,
    struct optimfs_run_weight *w, struct optimfs_error *err)
{
	char *path = optimfs_run_path(run, name, err);
	struct stat st;
	int ret = -1;

	if (path == NULL)
		return -1;
	if (check_here(run, err) == -1)
		ret = -1;
	else if (lstat(path, &st) == -1)
		optimfs_fail(err, errno, "OFS871 %.300s: %m", path);
	else if (!S_ISDIR(st.st_mode) && !S_ISREG(st.st_mode))
		optimfs_fail(err, EINVAL, "OFS871 %.300s is a link", path);
	else if (check_stage(path, err) == 0)
		ret = weigh(path, path, w, err);
	free(path);
	return ret;
}

/* The checkpoint has no name any more: is it what was measured? */
static int check_removed(const struct ofs_stage *st, const char *path,
    const struct optimfs_run_weight *was, struct optimfs_error *err)
{
	struct optimfs_run_weight now;
	char *out;
	int ret;

	if (asprintf(&out, "/proc/self/fd/%d/" REMOVED, ofs_stage_beside(st)) ==
	    -1)
		return ofs_no_memory(err);
	ret = weigh(out, path, &now, err);
	free(out);
	if (ret == 0 &&
	    (now.files != was->files || now.newest_ns != was->newest_ns))
		ret = fail_busy(err, path, "", "has changed");
	return ret;
}

/* The checkpoint has changed, and cannot get its name back: nothing deletes it
 * here. */
static int keep_changed(const char *path, const struct ofs_stage *st,
    struct optimfs_error *err)
{
	int why = errno, stage = ofs_stage_beside(st);
	bool kept = ofs_sys_rename(stage, REMOVED, stage, CHANGED,
			RENAME_NOREPLACE) == 0;

	errno = why;
	return optimfs_fail(err, why,
	    "OFS871 %.300s has changed, and is now %.300s/%s: %m", path,
	    ofs_stage_path(st), kept ? CHANGED : REMOVED);
}

/* Takes the name from the checkpoint: for the new one, which is REMOVED, if flag
 * is RENAME_EXCHANGE, else for nothing (RENAME_NOREPLACE). Then the rest is to
 * delete the old one. */
static int take_name(const struct ofs_run_dir *run, const char *name,
    const char *path, const struct ofs_stage *st, unsigned flag,
    const struct optimfs_run_weight *w, struct optimfs_error *err)
{
	int dir = run->members.dir.fd, stage = ofs_stage_beside(st);

	if (ofs_sys_rename(dir, name, stage, REMOVED, flag) == -1) {
		optimfs_fail(err, errno, "OFS871 %.300s: %m", path);
		clear(st);
		return -1;
	}
	if (check_removed(st, path, w, err) == -1) {
		if (ofs_sys_rename(stage, REMOVED, dir, name, flag) == -1)
			return keep_changed(path, st, err);
		clear(st);
		return -1;
	}
	/* the next sweep deletes it */
	if (ofs_sys_fsync(dir) == -1 || ofs_sys_fsync(stage) == -1)
		return optimfs_fail(err, errno, "OFS871 %.300s: %m", path);
	clear(st);
	return 0;
}

/* Makes the new checkpoint in the stage. */
static int make_new(const char *path, const struct ofs_stage *st,
    int (*make)(void *ctx, const char *old, const char *new,
	struct optimfs_error *err),
    void *ctx, struct optimfs_error *err)
{
	char *new;
	int ret;

	if (asprintf(&new, "%s/" REMOVED, ofs_stage_path(st)) == -1)
		return ofs_no_memory(err);
	ret = make(ctx, path, new, err);
	free(new);
	if (ret == 0 && ofs_sys_fsync(ofs_stage_beside(st)) == -1)
		ret = optimfs_fail(err, errno, "OFS871 %.300s: %m", path);
	if (ret == -1)
		clear(st);
	return ret;
}

int ofs_run_replace(struct optimfs *run, const char *name,
    const struct optimfs_run_weight *w,
    int (*make)(void *ctx, const char *old, const char *new,
	struct optimfs_error *err),
    void *ctx, struct optimfs_error *err)
{
	char *path = optimfs_run_path(run, name, err);
	const struct ofs_stage_config config = { .source = path };
	struct ofs_stage *st = NULL;
	int ret = -1;

	if (path != NULL && check_here(run, err) == 0)
		st = ofs_stage_open(&config, err);
	if (st != NULL) {
		clear(st);
		if (make == NULL || make_new(path, st, make, ctx, err) == 0)
			ret = take_name(run->run, name, path, st,
			    make == NULL ? RENAME_NOREPLACE : RENAME_EXCHANGE,
			    w, err);
		ofs_stage_close(st, false);
	}
	free(path);
	return ret;
}

int optimfs_run_remove(struct optimfs *run, const char *name,
    const struct optimfs_run_weight *w, struct optimfs_error *err)
{
	return ofs_run_replace(run, name, w, NULL, NULL, err);
}

/* Is .NAME.optimfs a stage with a checkpoint to be deleted? */
static bool has_removed(int dir, const char *stage)
{
	char path[300];
	struct stat st;

	return fnmatch(".?*.optimfs", stage, 0) == 0 &&
	    (size_t)snprintf(path, sizeof(path), "%s/" REMOVED, stage) <
	    sizeof(path) &&
	    fstatat(dir, path, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

static int finish(const struct ofs_run_dir *run, const char *stage,
    struct optimfs_error *err)
{
	char *name = strndup(stage + 1,
	    strlen(stage) - strlen(".") - strlen(".optimfs"));
	char *path = name == NULL ? NULL : ofs_run_member_path(run, name, err);
	const struct ofs_stage_config config = { .source = path };
	struct ofs_stage *st = NULL;

	if (name == NULL)
		ofs_no_memory(err);
	if (path != NULL)
		st = ofs_stage_open(&config, err);
	if (st != NULL) {
		clear(st);
		ofs_stage_close(st, false);
	}
	free(name);
	free(path);
	return st == NULL ? -1 : 0;
}

int optimfs_run_sweep(struct optimfs *fs, bool count, unsigned *n,
    struct optimfs_error *err)
{
	const struct ofs_run_dir *run = fs->run;
	struct ofs_names names = { 0 };
	const struct ofs_dir *dir;
	int ret;

	*n = 0;
	if (run == NULL)
		return optimfs_fail(err, EINVAL, "%s is not a run", fs->source);
	dir = &run->members.dir;
	ret = ofs_dir_list_all(dir, &names, err);
	for (size_t i = 0; ret == 0 && i < names.n; i++) {
		if (!has_removed(dir->fd, names.name[i]))
			continue;
		++*n;
		if (!count)
			ret = finish(run, names.name[i], err);
	}
	ofs_names_free(&names);
	return ret;
}

/* Does the link lead to real, or to what is below? */
static bool leads_to(const struct ofs_dir *dir, const char *link,
    const char *real)
{
	size_t n = strlen(real);
	struct stat st;
	char *path, *end;
	bool leads;

	if (fstatat(dir->fd, link, &st, AT_SYMLINK_NOFOLLOW) == -1 ||
	    !S_ISLNK(st.st_mode))
		return false;
	path = ofs_path_join(dir->path, link);
	end = path == NULL ? NULL : realpath(path, NULL);
	leads = end != NULL && strncmp(end, real, n) == 0 &&
	    (end[n] == '\0' || end[n] == '/');
	free(end);
	free(path);
	return leads;
}

/* 2: a link in the directory of the run leads to it; 0, also where that is not
 * known; -1. */
static int is_linked(struct optimfs *run, const char *name,
    struct optimfs_error *err)
{
	const struct ofs_dir *dir = &run->run->members.dir;
	char *path = optimfs_run_path(run, name, NULL);
	char *real = path == NULL ? NULL : realpath(path, NULL);
	struct ofs_names names = { 0 };
	int ret = 0;

	if (real != NULL)
		ret = ofs_dir_list_all(dir, &names, err);
	for (size_t i = 0; ret == 0 && i < names.n; i++)
		if (leads_to(dir, names.name[i], real))
			ret = 2;
	ofs_names_free(&names);
	free(real);
	free(path);
	return ret;
}

int optimfs_run_tracked(struct optimfs *run, const char *name,
    struct optimfs_error *err)
{
	static const char *const trackers[] = {
		"latest_checkpointed_iteration.txt", "latest"
	};
	const struct ofs_dir *dir;
	struct stat st;
	int found = 0;

	if (run->run == NULL)
		return optimfs_fail(err, EINVAL, "%s is not a run",
		    run->source);
	dir = &run->run->members.dir;
	for (size_t i = 0; i < 2 && found == 0; i++) {
		char *named = NULL;

		if (fstatat(dir->fd, trackers[i], &st, AT_SYMLINK_NOFOLLOW) ==
		    -1)
			continue;
		if (ofs_detect_named(dir, trackers[i], &named, err) == -1)
			return -1;
		found = named != NULL && strcmp(named, name) == 0;
		free(named);
	}
	return found != 0 || dir->names != NULL ? found
						: is_linked(run, name, err);
}
