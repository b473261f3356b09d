/* pattern.c - patterns for paths of the tree */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "fs/pattern.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/memory.h"
#include "base/natural.h"

bool ofs_is_pattern(const char *text, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (text[i] != '\0' && strchr("*?[", text[i]) != NULL)
			return true;
	return false;
}

size_t ofs_pattern_fixed(const char *pattern)
{
	const char *first = pattern + strcspn(pattern, "*?[");

	while (first > pattern && first[-1] != '/')
		first--;
	return (size_t)(first - pattern);
}

void ofs_matches_fini(struct ofs_matches *m)
{
	for (size_t i = 0; i < m->n; i++)
		free(m->path[i]);
	free(m->path);
	*m = (struct ofs_matches){ 0 };
}

/* One component is matched at a time, below all paths that the components
 * before it match. */
struct matching {
	struct optimfs *fs;
	const char *above; /* a path that was matched, or "" */
	const char *part;  /* the component */
	bool last;
	struct ofs_matches *out;
	bool no_memory;
};

static int keep(struct matching *g, const char *name,
    const struct optimfs_attr *attr)
{
	struct ofs_matches *m = g->out;
	char *path;

	if (!g->last && !S_ISDIR(attr->mode) && !S_ISLNK(attr->mode))
		return 0;
	if (ofs_grow(m->path, m->n, m->cap, NULL) == 0 &&
	    asprintf(&path, "%s%s%s", g->above, *g->above != '\0' ? "/" : "",
		name) != -1) {
		m->path[m->n++] = path;
		return 0;
	}
	g->no_memory = true;
	return 1;
}

static int try_entry(void *ctx, const struct optimfs_dirent *e)
{
	struct matching *g = ctx;

	return fnmatch(g->part, e->name, FNM_PERIOD) == 0
	    ? keep(g, e->name, e->attr)
	    : 0;
}

static int match_below(struct matching *g, struct optimfs_error *err)
{
	struct optimfs_attr dir, attr;
	int ret = 0;

	if (optimfs_resolve(g->fs, g->above, &dir, err) == -1)
		return -1;
	if (optimfs_lookup(g->fs, dir.node, g->part, &attr, NULL) == 0)
		keep(g, g->part, &attr);
	else if (ofs_is_pattern(g->part, strlen(g->part)))
		ret = optimfs_readdir(g->fs, dir.node, 0, true, try_entry, g,
		    err);
	return g->no_memory ? ofs_no_memory(err) : ret == -1 ? -1 : 0;
}

/* Replaces m by what matches part below its paths. */
static int descend(struct optimfs *fs, const char *part, bool last,
    struct ofs_matches *m, struct optimfs_error *err)
{
	struct ofs_matches below = { 0 };
	struct matching g = {
		.fs = fs, .part = part, .last = last, .out = &below
	};
	int ret = 0;

	for (size_t i = 0; i < m->n && ret == 0; i++) {
		g.above = m->path[i];
		ret = match_below(&g, err);
	}
	ofs_matches_fini(m);
	*m = below;
	return ret;
}

static int by_name(const void *a, const void *b)
{
	return ofs_natural(*(char *const *)a, *(char *const *)b);
}

int ofs_pattern_expand(struct optimfs *fs, const char *pattern,
    struct ofs_matches *m, struct optimfs_error *err)
{
	char *copy = strdup(pattern), *rest = copy, *part, *root = strdup("");
	int ret = 0;

	*m = (struct ofs_matches){ 0 };
	if (copy == NULL || root == NULL ||
	    ofs_grow(m->path, m->n, m->cap, NULL) == -1) {
		free(copy);
		free(root);
		return ofs_no_memory(err);
	}
	m->path[m->n++] = root;
	while (ret == 0 && (part = strsep(&rest, "/")) != NULL)
		if (*part != '\0')
			ret = descend(fs, part, rest == NULL || *rest == '\0',
			    m, err);
	free(copy);
	if (ret == -1)
		ofs_matches_fini(m);
	else if (m->n > 1)
		qsort(m->path, m->n, sizeof(*m->path), by_name);
	return ret;
}
