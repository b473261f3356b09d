/* run.c - opening a run, and what is named in it */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "run/run.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/step.h"
#include "format/probe.h"
#include "run/places.h"
#include "store/http/open.h"

#define OPEN_DEFAULT 8
/* A directory without checkpoints may have them one level deeper, as
 * outputs/checkpoint/step-1000. */
#define DEEPER_MAX 100

static bool has_some(struct ofs_run_members *m)
{
	struct ofs_run_member v;

	for (uint32_t i = 0; ofs_run_member(m, i, &v); i++)
		if (ofs_run_is_shown(&v) ||
		    (v.found.kind == OFS_RUN_UNFINISHED &&
			v.count == OFS_RUN_STEPS))
			return true;
	return false;
}

/* Opens path if it has checkpoints: 1; 0: it has none; -1: ENOMEM. */
static int try_members(struct ofs_run_members *m, const char *path, bool follow,
    struct optimfs_error *err)
{
	struct optimfs_error why = { 0 };

	if (ofs_run_members_open(m, path, follow, &why) == -1)
		return why.code == ENOMEM ? optimfs_fail_with(err, &why) : 0;
	if (has_some(m))
		return 1;
	ofs_run_members_close(m);
	return 0;
}

/* The path of the only directory in path that has checkpoints, malloc'ed. 1; 0:
 * none has, or several; -1. */
static int find_below(const char *path, bool follow, char **only,
    struct optimfs_error *err)
{
	struct ofs_run_members m;
	struct ofs_names names = { 0 };
	struct ofs_dir dir;
	unsigned n = 0;
	int ret = 0;

	*only = NULL;
	if (ofs_run_members_dir(path, &dir, err) == -1)
		return -1;
	if (ofs_dir_list(&dir, &names, err) == -1)
		ret = -1;
	for (size_t i = 0; ret != -1 && i < names.n && i < DEEPER_MAX; i++) {
		char *deeper = ofs_run_members_path(path, names.name[i]);

		ret = deeper == NULL ? ofs_no_memory(err)
		    : ofs_probe_is_dir(&dir, names.name[i])
		    ? try_members(&m, deeper, follow, err)
		    : 0;
		if (ret == 1) {
			ofs_run_members_close(&m);
			n++;
			free(*only);
			*only = deeper;
		} else {
			free(deeper);
		}
	}
	if (ret != -1 && n != 1) {
		free(*only);
		*only = NULL;
	}
	ofs_names_free(&names);
	ofs_dir_close(&dir);
	return ret == -1 ? -1 : n == 1;
}

/* Opens the directory of the checkpoints: path or the only one below it. A run
 * that the user asked for may have none yet. */
static int open_members(struct ofs_run_dir *run, bool asked,
    struct optimfs_error *err)
{
	bool follow = run->options.follow;
	char *below;
	int ret = try_members(&run->members, run->path, follow, err);

	if (ret != 0)
		return ret == 1 ? 0 : -1;
	ret = find_below(run->path, follow, &below, err);
	if (ret == -1)
		return -1;
	if (ret == 1) {
		free(run->path);
		run->path = below;
	} else if (!asked) {
		return optimfs_fail(err, ENOENT,
		    "OFS852 %s holds no checkpoints: give the directory that "
		    "has those of the run",
		    run->path);
	}
	return ofs_run_members_open(&run->members, run->path, follow, err);
}

/* A short file is one that is still being written. */
static bool has_short_file(const struct optimfs *fs, char *why, size_t size)
{
	const struct ofs_catalog *cat = fs->now->cat;

	for (uint32_t i = 0; i < cat->nobjects; i++) {
		if (!cat->objects[i].examined)
			continue;
		snprintf(why, size, "%.100s is too short",
		    cat->objects[i].path);
		return true;
	}
	return false;
}

static int is_whole(void *ctx, const char *name, char *why, size_t size,
    struct optimfs_error *err)
{
	struct ofs_run_dir *run = ctx;
	char *path = ofs_run_member_path(run, name, err);
	struct optimfs_error failed = { 0 };
	struct optimfs *fs;
	int ret = 0;

	if (path == NULL)
		return -1;
	fs = run->open(path, &run->options, &failed);
	free(path);
	if (fs == NULL && ofs_must_stop(&failed))
		return optimfs_fail_with(err, &failed);
	if (fs == NULL)
		snprintf(why, size, "%s", optimfs_error_words(&failed));
	else
		ret = !has_short_file(fs, why, size);
	optimfs_close(fs);
	return ret;
}

/* The snapshot of the run itself: nothing, with the owner and permissions of
 * its directory. */
static struct optimfs *new_empty(const struct ofs_run_dir *run,
    const char *source, const struct optimfs_options *options,
    struct optimfs_error *err)
{
	struct ofs_catalog *cat;
	struct ofs_dir dir;

	if (ofs_dir_copy(&run->members.dir, &dir, err) == -1)
		return NULL;
	cat = ofs_catalog_new(&dir, err);
	ofs_dir_close(&dir);
	if (cat == NULL)
		return NULL;
	cat->format = "run";
	if (ofs_catalog_finish(cat, err) == 0)
		return ofs_fs_new(cat, source, options, err);
	ofs_catalog_free(cat);
	return NULL;
}

/* Each open checkpoint has its part of the cache. */
static void set_options(struct ofs_run_dir *run, const struct optimfs *fs)
{
	run->options = fs->options; /* with strings that last */
	run->options.run = OPTIMFS_RUN_NO;
	run->options.cache /= run->trees.limit;
	run->options.watch = NULL;
}

struct optimfs *ofs_run_open(const char *path,
    const struct optimfs_options *options, ofs_run_opener *open,
    struct optimfs_error *err)
{
	struct ofs_run_dir *run = ofs_alloc(1, sizeof(*run), err);
	struct optimfs *fs = NULL;

	if (run == NULL)
		return NULL;
	run->open = open;
	run->options = *options;
	run->path = ofs_http_is_address(path) ? strdup(path)
					      : realpath(path, NULL);
	if (run->path == NULL)
		optimfs_fail(err, errno, "%s: %m", path);
	else if (open_members(run, options->run == OPTIMFS_RUN_YES, err) == 0) {
		fs = new_empty(run, path, options, err);
		if (fs == NULL)
			ofs_run_members_close(&run->members);
	}
	if (fs == NULL) {
		free(run->path);
		free(run);
		return NULL;
	}
	ofs_run_trees_init(&run->trees, run,
	    options->runs_open == 0 ? OPEN_DEFAULT : options->runs_open);
	set_options(run, fs);
	run->fs = fs;
	run->members.whole = is_whole;
	run->members.ctx = run;
	fs->nodes = &ofs_nodes_of_run;
	fs->run = run;
	if (ofs_run_check_newest(&run->members, err) == 0)
		return fs;
	optimfs_close(fs);
	return NULL;
}

char *ofs_run_member_path(const struct ofs_run_dir *run, const char *name,
    struct optimfs_error *err)
{
	char *path = ofs_run_members_path(run->path, name);

	if (path == NULL)
		ofs_no_memory(err);
	return path;
}

bool optimfs_is_run(const struct optimfs *fs)
{
	return fs->run != NULL;
}

struct optimfs *optimfs_run_open(struct optimfs *fs, const char *name,
    struct optimfs_error *err)
{
	struct ofs_run_found found;
	const char *rest;
	int ret;

	err = OFS_SOME_ERROR(err);
	if (fs->run == NULL) {
		optimfs_fail(err, EINVAL, "%s is not a run", fs->source);
		return NULL;
	}
	ret = ofs_run_resolve_name(fs->run, name, &rest, &found, err);
	if (ret == 0 || (ret == 1 && *rest != '\0'))
		ret = ofs_run_no_name(fs->run, name, err);
	return ret == -1 ? NULL
			 : ofs_run_tree_open(&fs->run->trees, found.tree, err);
}
