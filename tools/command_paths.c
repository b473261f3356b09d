/* command_paths.c - patterns among the paths of a command line */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "fs/pattern.h"
#include "tools/command.h"

/* Operands that are being replaced. */
struct expansion {
	struct ofs_command *c;
	const char *below;
	bool slices;
	char **path; /* what replaces them; malloc'ed */
	size_t n, cap;
};

/* Adds a path, followed by a slice. */
static int add_path(struct expansion *x, const char *path, const char *slice,
    struct optimfs_error *err)
{
	char *whole;

	if (ofs_grow(x->path, x->n, x->cap, err) == -1 ||
	    asprintf(&whole, "%s%s", path, slice) == -1)
		return ofs_no_memory(err);
	x->path[x->n++] = whole;
	return 0;
}

/* The path of the first n bytes of an operand; malloc'ed. */
static char *full(const struct expansion *x, const char *operand, size_t n)
{
	char *path;

	return asprintf(&path, "%s%s%.*s", x->below,
		   *x->below == '\0' ? "" : "/", (int)n, operand) == -1
	    ? NULL
	    : path;
}

/* Adds what the first n bytes match. 1: something; 0: nothing. */
static int match(struct expansion *x, const char *operand, size_t n,
    struct optimfs_error *err)
{
	size_t skip = *x->below == '\0' ? 0 : strlen(x->below) + 1;
	struct ofs_matches m = { 0 };
	char *path = full(x, operand, n);
	int ret;

	if (path == NULL)
		return ofs_no_memory(err);
	ret = ofs_pattern_expand(x->c->fs, path, &m, err);
	for (size_t i = 0; ret == 0 && i < m.n; i++)
		ret = add_path(x, m.path[i] + skip, operand + n, err);
	ret = ret == 0 && m.n > 0 ? 1 : ret;
	ofs_matches_fini(&m);
	free(path);
	return ret;
}

/* Is that a path? 1; 0: no; -1: out of memory. */
static int is_path(const struct expansion *x, const char *operand, size_t n,
    struct optimfs_error *err)
{
	struct optimfs_attr attr;
	char *path = full(x, operand, n);
	int ret;

	if (path == NULL)
		return ofs_no_memory(err);
	ret = optimfs_resolve(x->c->fs, path, &attr, NULL) == 0;
	free(path);
	return ret;
}

/* The length of an operand without its slice, if it can have one. */
static size_t without_slice(const struct expansion *x, const char *operand)
{
	size_t n = strlen(operand);
	const char *bracket = strrchr(operand, '[');

	return x->slices && bracket > operand && bracket[-1] != '/' &&
		operand[n - 1] == ']'
	    ? (size_t)(bracket - operand)
	    : n;
}

/* A name may have the characters of a pattern, and the brackets of a slice are
 * those of a pattern: what exists as it is written is taken, then what matches
 * before a slice, then what matches as a whole. 1: added; 0: it is kept. */
static int expand_one(struct expansion *x, const char *operand,
    struct optimfs_error *err)
{
	size_t n = strlen(operand), k = without_slice(x, operand);
	int ret;

	if (!ofs_is_pattern(operand, n))
		return 0;
	ret = is_path(x, operand, n, err);
	if (ret == 0 && k < n)
		ret = is_path(x, operand, k, err);
	if (ret != 0)
		return ret == 1 ? 0 : -1;
	if (k < n && ofs_is_pattern(operand, k))
		ret = match(x, operand, k, err);
	if (ret == 0)
		ret = match(x, operand, n, err);
	if (ret == 0 && ofs_is_pattern(operand, k))
		return optimfs_fail(err, ENOENT,
		    "OFS018 %s: %s: no name matches this pattern",
		    x->c->checkpoint, operand);
	if (ret == 1) {
		x->c->pattern = true;
		x->c->fixed = ofs_pattern_fixed(operand);
	}
	return ret;
}

/* Makes the paths, and the operands behind them, the operands of c. */
static int take(struct expansion *x, int given, struct optimfs_error *err)
{
	struct ofs_command *c = x->c;
	size_t rest = (size_t)(c->noperands - given);
	char **all = calloc(x->n + rest + 1, sizeof(*all));

	if (all == NULL || ofs_grow(x->path, x->n, x->cap, err) == -1) {
		free(all);
		return ofs_no_memory(err);
	}
	x->path[x->n] = NULL;
	memcpy(all, x->path, x->n * sizeof(*all));
	memcpy(all + x->n, c->operand + given, rest * sizeof(*all));
	free(c->operand);
	c->operand = all;
	c->noperands = (int)(x->n + rest);
	c->expanded = x->path;
	return 0;
}

int ofs_command_expand(struct ofs_command *c, const char *below,
    uint64_t allowed, struct optimfs_error *err)
{
	struct expansion x = {
		.c = c, .below = below, .slices = (allowed & OFS_SLICES) != 0
	};
	int given = c->noperands - ((allowed & OFS_DEST) != 0), ret = 0;

	for (int i = 0; ret >= 0 && i < given; i++) {
		ret = expand_one(&x, c->operand[i], err);
		if (ret == 0)
			ret = add_path(&x, c->operand[i], "", err);
	}
	if (ret >= 0 && take(&x, given, err) == 0)
		return 0;
	for (size_t i = 0; i < x.n; i++)
		free(x.path[i]);
	free(x.path);
	return -1;
}
