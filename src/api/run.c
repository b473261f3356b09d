/* run.c - checkpoints named by their place in a run */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "optimfs/run.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/api.h"
#include "base/error.h"
#include "base/memory.h"
#include "run/places.h"
#include "run/run.h"
#include "store/http/open.h"

static bool is_dir(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* Does the word begin a path in the tree of a run? */
static bool is_inside(const char *words)
{
	size_t n = strcspn(words, "/");
	char word[32];

	if (n >= sizeof(word))
		return false;
	memcpy(word, words, n);
	word[n] = '\0';
	return ofs_run_place(word) != NULL || strcmp(word, "latest") == 0 ||
	    strcmp(word, "first") == 0;
}

/* Is there something with this name itself? */
static bool is_there(const char *path)
{
	struct ofs_dir dir;
	char *rel;

	if (!ofs_http_is_address(path))
		return access(path, F_OK) == 0;
	if (ofs_http_open(path, ofs_http_timeout(0), &dir, &rel, NULL) == -1)
		return false;
	ofs_dir_close(&dir);
	free(rel);
	return true;
}

/* Where the name of a checkpoint may begin in an address of a run: behind the last
 * colon of its path, or at a place; NULL: nowhere. The server is not asked. */
static const char *words_of_address(const char *path)
{
	const char *end = strrchr(path, '}'); /* of the names of nodes */
	const char *at =
	    strchr(end != NULL ? end : strstr(path, "://") + 3, '/');
	const char *words = strrchr(path[0] == '{' && end != NULL ? end
		: at != NULL                                      ? at
								  : "",
	    ':');

	if (words != NULL && words[1] != '\0')
		return words + 1;
	for (words = NULL; at != NULL; at = strchr(at + 1, '/'))
		if (is_inside(at + 1))
			words = at + 1;
	return words;
}

static const char *split_address(const char *path, char **run,
    struct optimfs_error *err)
{
	const char *words = words_of_address(path);

	*run = words == NULL ? NULL : strndup(path, (size_t)(words - path) - 1);
	if (words != NULL && *run == NULL)
		ofs_no_memory(err);
	return *run == NULL ? NULL : words;
}

/* Splits RUN:NAME, or RUN/steps/1000, where RUN is a directory: the name, or
 * NULL. *run gets a copy of the first part. */
static const char *split_name(const char *path, char **run,
    struct optimfs_error *err)
{
	char *copy, *at;
	const char *words = NULL;

	if (ofs_http_is_address(path))
		return split_address(path, run, err);
	copy = strdup(path);
	*run = NULL;
	if (copy == NULL) {
		ofs_no_memory(err);
		return NULL;
	}
	at = strrchr(copy, ':');
	if (at != NULL && at[1] != '\0') {
		*at = '\0';
		words = is_dir(copy) ? path + (at - copy) + 1 : NULL;
		*at = words == NULL ? ':' : '\0';
	}
	while (words == NULL && (at = strrchr(copy, '/')) != NULL &&
	    at > copy) {
		*at = '\0';
		if (!is_dir(copy))
			continue;
		words = path + (at - copy) + 1;
		words += strspn(words, "/");
		if (is_inside(words))
			break;
		words = NULL;
		break;
	}
	if (words == NULL)
		free(copy);
	else
		*run = copy;
	return words;
}

char *optimfs_run_of(const char *path)
{
	char *run = NULL;

	if (ofs_http_is_address(path) || !is_there(path))
		(void)split_name(path, &run, NULL);
	if (run != NULL && ofs_http_is_address(path) && is_there(path)) {
		free(run);
		run = NULL;
	}
	return run;
}

static int find_in(struct optimfs *fs, const char *words, char **real,
    const char **rest, struct optimfs_error *err)
{
	struct ofs_run_found found;
	int ret = ofs_run_resolve_name(fs->run, words, rest, &found, err);

	if (ret == 0)
		return ofs_run_no_name(fs->run, words, err);
	return ret == -1 ||
		ofs_run_tree_path(&fs->run->trees, found.tree, real, err) == -1
	    ? -1
	    : 1;
}

int optimfs_run_find(const char *path, char **real, const char **rest,
    struct optimfs_error *err)
{
	const struct optimfs_options options = { .run = OPTIMFS_RUN_AUTO };
	const char *words;
	struct optimfs *fs;
	char *run;
	int ret = -1;

	err = OFS_SOME_ERROR(err);
	if (!ofs_http_is_address(path) && is_there(path))
		return 0;
	err->code = 0;
	words = split_name(path, &run, err);
	if (words == NULL)
		return err->code == 0 ? 0 : -1;
	/* a name with a colon may be that of a directory */
	if (ofs_http_is_address(path) && is_there(path)) {
		free(run);
		return 0;
	}
	fs = ofs_run_open(run, &options, optimfs_open, err);
	if (fs != NULL)
		ret = find_in(fs, words, real, rest, err);
	else if (err->number == 852 && path[strlen(run)] == '/')
		ret = 0;
	optimfs_close(fs);
	free(run);
	return ret;
}

struct optimfs *ofs_open_named(const char *path,
    const struct optimfs_options *options, struct optimfs_error *err)
{
	struct optimfs_options o = *options;
	struct optimfs *fs, *tree = NULL;
	const char *words;
	char *run;

	if (o.rw) {
		optimfs_fail(err, EROFS,
		    "OFS854 %s is computed from checkpoints of a run, and "
		    "read-only: write it out with optimfs reshard",
		    path);
		return NULL;
	}
	words = split_name(path, &run, err);
	if (words == NULL)
		return NULL;
	o.run = OPTIMFS_RUN_AUTO;
	fs = ofs_run_open(run, &o, optimfs_open, err);
	if (fs != NULL)
		tree = optimfs_run_open(fs, words, err);
	optimfs_close(fs);
	free(run);
	return tree;
}
