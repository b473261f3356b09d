/* command_suggest.c - errors that name what was probably meant */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/nearest.h"
#include "fs/walk.h"
#include "tools/command.h"

static void try_names(const char *dir, struct ofs_nearest *near)
{
	DIR *d = opendir(dir);
	struct dirent *e;

	while (d != NULL && (e = readdir(d)) != NULL)
		ofs_nearest_try(near, e->d_name);
	if (d != NULL)
		closedir(d);
}

/* path as "CHECKPOINT PATH"; NULL if it is not a checkpoint and something in it. */
static char *split(struct ofs_command *c, const char *path)
{
	const char *inner = path + strlen(path);
	char *above = strdup(path), *first = NULL, *both = NULL;
	struct optimfs_attr attr;
	struct optimfs *fs;

	if (above == NULL)
		return NULL;
	/* the shortest that exists would be a directory of checkpoints */
	while (access(above, F_OK) == -1 && strrchr(above, '/') > above) {
		*strrchr(above, '/') = '\0';
		inner = path + strlen(above) + 1;
	}
	fs = *inner != '\0' ? optimfs_open(above, &c->open, NULL) : NULL;
	first = strndup(inner, strcspn(inner, "/"));
	if (fs != NULL && first != NULL &&
	    optimfs_resolve(fs, first, &attr, NULL) == 0 &&
	    asprintf(&both, "%s %s", above, inner) == -1)
		both = NULL;
	optimfs_close(fs);
	free(first);
	free(above);
	return both;
}

void ofs_command_suggest_checkpoint(struct ofs_command *c, const char *path,
    struct optimfs_error *err)
{
	const char *slash = strrchr(path, '/');
	struct ofs_nearest near;
	char *above = slash == NULL
	    ? strdup(".")
	    : strndup(path, slash == path ? 1 : (size_t)(slash - path));
	char *both = NULL;

	if (above == NULL)
		return;
	ofs_nearest_init(&near, slash == NULL ? path : slash + 1);
	try_names(above, &near);
	if (near.best[0] != '\0')
		optimfs_fail(err, ENOENT,
		    "OFS018 %s: No such file or directory" OFS_NEAREST_FMT,
		    path, OFS_NEAREST(&near));
	else if (c->fs == NULL && c->noperands > 0 &&
	    access(c->operand[0], F_OK) == 0)
		optimfs_fail(err, ENOENT,
		    "OFS018 %s: No such file or directory; the checkpoint "
		    "comes first: %s %s",
		    path, c->operand[0], path);
	else if ((both = split(c, path)) != NULL)
		optimfs_fail(err, ENOENT,
		    "OFS018 %s: No such file or directory; a path in a "
		    "checkpoint is a separate argument: %s",
		    path, both);
	free(both);
	free(above);
}

static int try_name(void *ctx, const struct optimfs_dirent *e)
{
	ofs_nearest_try(ctx, e->name);
	return 0;
}

/* Finds the first component of path that does not exist, and the name nearest
 * to it. */
static void find_near(struct optimfs *fs, const char *path,
    struct ofs_nearest *near, char part[256])
{
	uint64_t dir = OPTIMFS_ROOT;
	struct optimfs_attr attr;

	part[0] = '\0';
	for (const char *p = path + strspn(path, "/"); *p != '\0';
	     p += strspn(p, "/")) {
		size_t n = strcspn(p, "/");

		if (n > 255)
			return;
		memcpy(part, p, n);
		part[n] = '\0';
		p += n;
		if (optimfs_lookup(fs, dir, part, &attr, NULL) == -1)
			break;
		dir = attr.node;
	}
	ofs_nearest_init(near, part);
	(void)optimfs_readdir(fs, dir, 0, false, try_name, near, NULL);
}

/* Suggests the path below a directory that was left out: "norm.weight". */
static bool suggest_below(struct optimfs *fs, const char *path,
    struct optimfs_error *err)
{
	static const char *const above[] = { "model", "optim", "optim/state",
		"extra" };
	struct optimfs_attr attr;
	bool found = false;
	char *whole;

	for (size_t i = 0; i < sizeof(above) / sizeof(above[0]) && !found;
	     i++) {
		if (asprintf(&whole, "%s/%s", above[i], path) == -1)
			return false;
		found = optimfs_resolve(fs, whole, &attr, NULL) == 0;
		if (found)
			optimfs_fail(err, ENOENT,
			    "OFS018 %s: no such name; did you mean '%s'?", path,
			    whole);
		free(whole);
	}
	return found;
}

/* What has been found to end with a path. */
struct ending {
	const char *path;
	char *first;
	size_t n;
};

static int try_ending(void *ctx, const struct ofs_walk_entry *e,
    struct optimfs_error *err)
{
	struct ending *end = ctx;
	size_t n = strlen(end->path), m = strlen(e->path);

	(void)err;
	if (m <= n || strchr("/.", e->path[m - n - 1]) == NULL ||
	    strcmp(e->path + m - n, end->path) != 0)
		return 0;
	end->n++;
	if (end->first == NULL)
		end->first = strdup(e->path);
	return 0;
}

/* Suggests a path that ends so: "wq.weight", "wq.weight/exp_avg". */
static void suggest_ending(struct optimfs *fs, const char *path,
    struct optimfs_error *err)
{
	struct ending end = { .path = path };
	char others[64] = "";

	if (*path != '\0')
		(void)ofs_walk(fs, OPTIMFS_ROOT, 0, try_ending, &end, NULL);
	if (end.n > 1)
		snprintf(others, sizeof(others), " %zu names end so", end.n);
	if (end.first != NULL)
		optimfs_fail(err, ENOENT,
		    "OFS018 %s: no such name; did you mean '%s'?%s", path,
		    end.first, others);
	free(end.first);
}

void ofs_command_suggest(const struct ofs_command *c, const char *path,
    struct optimfs_error *err)
{
	struct ofs_nearest near = { .word = "" };
	char part[256];

	find_near(c->fs, path, &near, part);
	if (near.best[0] != '\0')
		optimfs_fail(err, ENOENT,
		    "OFS018 %s: no such name" OFS_NEAREST_FMT, path,
		    OFS_NEAREST(&near));
	else if (!suggest_below(c->fs, path, err))
		suggest_ending(c->fs, path, err);
}

void ofs_command_explain_place(const char *dest, struct optimfs_error *err)
{
	size_t n = strlen(dest);
	char *above;

	/* "new/" is a directory, in which the file is to be */
	while (n > 0 && dest[n - 1] != '/')
		n--;
	while (n > 1 && dest[n - 1] == '/')
		n--;
	if (err->code != ENOENT || n == 0)
		return;
	above = strndup(dest, n);
	if (above != NULL && access(above, F_OK) == -1)
		optimfs_fail(err, ENOENT,
		    "OFS018 %s: No such directory: make it first (mkdir -p %s)",
		    dest, above);
	free(above);
}
