/* cgroup.c - how much memory the process may use */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "base/cgroup.h"

#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mount_line.h"

/* /proc/self/cgroup has the path of the group in each hierarchy, seen from the
 * root of the cgroup name space; /proc/self/mountinfo has what part of a
 * hierarchy is mounted where, seen from there, too. A container may see less
 * than it is limited by: only its own group, or (version 1 without a name space) a
 * mount of its group at the top. Version 1 has the smallest limit above in
 * memory.stat. */

#define GROUP_MAX 4096

/* The paths of this process; "": none. */
struct groups {
	char v1[GROUP_MAX], v2[GROUP_MAX];
};

static bool has_word(const char *list, const char *word)
{
	size_t n = strlen(word);

	for (const char *s = list; s != NULL; s = strchr(s, ',')) {
		s += *s == ',';
		if (strncmp(s, word, n) == 0 && (s[n] == ',' || s[n] == '\0'))
			return true;
	}
	return false;
}

/* "4:memory:/a/b", or "0::/a/b" of version 2. */
static void take_group(char *line, struct groups *g)
{
	char *list = strchr(line, ':'), *path;

	if (list == NULL || (path = strchr(++list, ':')) == NULL)
		return;
	*path++ = '\0';
	path[strcspn(path, "\n")] = '\0';
	/* a group outside of the name space has no path here */
	if (strlen(path) >= GROUP_MAX || strncmp(path, "/..", 3) == 0)
		return;
	if (*list == '\0')
		strcpy(g->v2, path);
	else if (has_word(list, "memory"))
		strcpy(g->v1, path);
}

static FILE *open_in(const char *root, const char *dir, const char *name)
{
	char path[2 * PATH_MAX];
	int n = snprintf(path, sizeof(path), "%s%s%s", root, dir, name);

	return n >= (int)sizeof(path) ? NULL : fopen(path, "re");
}

static void read_groups(const char *root, struct groups *g)
{
	FILE *f = open_in(root, "/proc/self", "/cgroup");
	char *line = NULL;
	size_t cap = 0;

	g->v1[0] = g->v2[0] = '\0';
	if (f == NULL)
		return;
	while (getline(&line, &cap, f) != -1)
		take_group(line, g);
	free(line);
	fclose(f);
}

/* Takes the number behind key in a file; "max", and what is no number, is no
 * limit. */
static void take_limit(const char *root, const char *dir, const char *name,
    const char *key, uint64_t *least)
{
	FILE *f = open_in(root, dir, name);
	char line[128];
	uint64_t limit;
	size_t n = strlen(key);

	if (f == NULL)
		return;
	while (fgets(line, sizeof(line), f) != NULL)
		if (strncmp(line, key, n) == 0 &&
		    sscanf(line + n, "%" SCNu64, &limit) == 1 && limit < *least)
			*least = limit;
	fclose(f);
}

/* The limits of the group at dir and of those above it, up to the mount point, of
 * top bytes. */
static void take_limits(const char *root, char *dir, size_t top,
    uint64_t *least)
{
	take_limit(root, dir, "/memory.stat", "hierarchical_memory_limit ",
	    least);
	for (size_t n = strlen(dir);; n = (size_t)(strrchr(dir, '/') - dir)) {
		dir[n] = '\0';
		take_limit(root, dir, "/memory.max", "", least);
		take_limit(root, dir, "/memory.high", "", least);
		take_limit(root, dir, "/memory.limit_in_bytes", "", least);
		if (n <= top)
			break;
	}
}

/* The part of group below the directory that is mounted; NULL: it is not
 * below. */
static const char *below(const char *group, const char *mounted)
{
	size_t n = strlen(mounted);

	/* mounted outside of the name space: our group is somewhere in it */
	if (strncmp(mounted, "/..", 3) == 0)
		return "";
	if (strcmp(mounted, "/") == 0)
		return strcmp(group, "/") == 0 ? "" : group;
	if (strncmp(group, mounted, n) != 0 ||
	    (group[n] != '/' && group[n] != '\0'))
		return NULL;
	return group + n;
}

static void look_at_mount(const char *root, char *line, const struct groups *g,
    uint64_t *least)
{
	struct ofs_mount_line m;
	const char *group = "", *rest;
	char dir[GROUP_MAX + PATH_MAX];

	if (!ofs_mount_line_parse(line, &m))
		return;
	if (strcmp(m.type, "cgroup2") == 0)
		group = g->v2;
	else if (strcmp(m.type, "cgroup") == 0 && has_word(m.super, "memory"))
		group = g->v1;
	rest = group[0] == '\0' ? NULL : below(group, m.root);
	if (rest != NULL &&
	    snprintf(dir, sizeof(dir), "%s%s", m.point, rest) <
		(int)sizeof(dir))
		take_limits(root, dir, strlen(m.point), least);
}

uint64_t ofs_cgroup_memory(const char *root)
{
	FILE *f = open_in(root, "/proc/self", "/mountinfo");
	uint64_t least = UINT64_MAX;
	struct groups groups;
	char *line = NULL;
	size_t cap = 0;

	if (f == NULL)
		return least;
	read_groups(root, &groups);
	while (getline(&line, &cap, f) != -1)
		look_at_mount(root, line, &groups, &least);
	free(line);
	fclose(f);
	return least;
}
