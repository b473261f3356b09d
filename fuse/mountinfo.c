/* mountinfo.c - find mounts */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "fuse/mountinfo.h"

#include <errno.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mount_line.h"

static bool parse(char *line, const char *point, struct ofs_mountinfo *m)
{
	struct ofs_mount_line found;

	if (!ofs_mount_line_parse(line, &found) ||
	    strcmp(found.point, point) != 0)
		return false;
	ofs_mountinfo_fini(m);
	m->major = found.major;
	m->minor = found.minor;
	m->rw = strncmp(found.options, "rw", 2) == 0;
	m->point = strdup(point);
	m->type = strdup(found.type);
	m->source = strdup(found.source);
	return true;
}

bool ofs_mountinfo_find(const char *point, struct ofs_mountinfo *m)
{
	FILE *f = fopen("/proc/self/mountinfo", "re");
	char *line = NULL;
	bool found = false;
	size_t cap = 0;

	*m = (struct ofs_mountinfo){ 0 };
	if (f == NULL)
		return false;
	while (getline(&line, &cap, f) != -1)
		found |=
		    parse(line, point, m); /* the last one is the topmost */
	free(line);
	fclose(f);
	if (found &&
	    (m->point == NULL || m->type == NULL || m->source == NULL)) {
		ofs_mountinfo_fini(m);
		return false;
	}
	return found;
}

bool ofs_mountinfo_still(const struct ofs_mountinfo *m)
{
	struct ofs_mountinfo now;
	bool there;

	there = ofs_mountinfo_find(m->point, &now) && now.minor == m->minor &&
	    strcmp(now.type, m->type) == 0 &&
	    strcmp(now.source, m->source) == 0;
	ofs_mountinfo_fini(&now);
	return there;
}

void ofs_mountinfo_fini(struct ofs_mountinfo *m)
{
	free(m->point);
	free(m->type);
	free(m->source);
	*m = (struct ofs_mountinfo){ 0 };
}

static bool is_in(const char *path, const char *dir)
{
	size_t n = strlen(dir);

	return strncmp(path, dir, n) == 0 &&
	    (path[n] == '\0' || path[n] == '/');
}

char *ofs_mountinfo_shows(const char *source)
{
	FILE *f = fopen("/proc/self/mountinfo", "re");
	struct ofs_mount_line m;
	char *line = NULL, *point = NULL;
	size_t cap = 0;

	if (f == NULL)
		return NULL;
	while (point == NULL && getline(&line, &cap, f) != -1)
		if (ofs_mount_line_parse(line, &m) &&
		    strcmp(m.type, "fuse.optimfs") == 0 &&
		    is_in(m.source, source))
			point = strdup(m.point);
	free(line);
	fclose(f);
	return point;
}

/* The parent's real path with the last component appended. */
static char *beside_parent(const char *path)
{
	char *a = strdup(path), *b = strdup(path), *real = NULL, *out = NULL;
	const char *base;

	if (a == NULL || b == NULL)
		goto out;
	base = basename(b);
	if (strcmp(base, "..") == 0 || strcmp(base, ".") == 0)
		goto out;
	real = realpath(dirname(a), NULL);
	if (real == NULL)
		goto out;
	if (asprintf(&out, "%s/%s", strcmp(real, "/") == 0 ? "" : real, base) ==
	    -1)
		out = NULL;
out:
	free(real);
	free(a);
	free(b);
	return out;
}

char *ofs_mount_point_path(const char *path, struct optimfs_error *err)
{
	char *real = realpath(path, NULL);
	int saved = errno;

	if (real == NULL && saved != ENOENT && saved != ENOTDIR)
		real = beside_parent(path);
	if (real == NULL) {
		errno = saved;
		optimfs_fail(err, saved, "%s: %m", path);
	}
	return real;
}
