/* candidates.c - the checkpoints in the subdirectories of a directory */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "detect/candidates.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/step.h"
#include "detect/detect.h"
#include "detect/inventory.h"
#include "detect/registry.h"
#include "format/probe.h"

/* Limits: directories searched, and files examined in each. */
#define LOOK_MAX  2000
#define FILES_MAX 8

bool ofs_detect_has_extension(const char *name)
{
	const struct ofs_format *f;

	for (size_t i = 0; (f = ofs_format_at(i)) != NULL; i++)
		if (!f->generic &&
		    ofs_probe_extension(name, f->extensions) != NULL)
			return true;
	return false;
}

/* Is one of the first such files in the format of its extension? */
static bool has_files(const struct ofs_dir *dir, const struct ofs_names *names)
{
	unsigned int tried = 0;

	for (size_t i = 0; i < names->n && tried < FILES_MAX; i++) {
		if (!ofs_detect_has_extension(names->name[i]))
			continue;
		tried++;
		if (ofs_detect_file(dir, names->name[i], NULL) != NULL)
			return true;
	}
	return false;
}

/* verl, SkyRL */
static const char *const roles_known[] = { "actor", "critic", "policy" };

bool ofs_detect_is_role(const char *name)
{
	for (size_t i = 0; i < sizeof(roles_known) / sizeof(*roles_known); i++)
		if (strcmp(name, roles_known[i]) == 0)
			return true;
	return false;
}

/* The state of the data loader, or of the trainer. */
static bool is_role_state(const char *name)
{
	return strcmp(name, "data.pt") == 0 ||
	    strcmp(name, "trainer_state.pt") == 0;
}

/* Is it such a directory? One called policy may be anything, unless that state
 * lies beside it. */
static bool is_role_dir(const struct ofs_dir *dir, const char *name)
{
	return ofs_detect_is_role(name) && ofs_probe_is_dir(dir, name) &&
	    (strcmp(name, "policy") != 0 ||
		ofs_probe_is_file(dir, "trainer_state.pt") ||
		ofs_probe_is_file(dir, "data.pt"));
}

bool ofs_detect_is_no_step(const struct ofs_dir *dir, const char *name)
{
	/* the arguments of the Trainer of Transformers, pickled */
	if (strcmp(name, "training_args.bin") == 0)
		return true;
	for (size_t i = 0; i < sizeof(roles_known) / sizeof(*roles_known); i++)
		if (is_role_state(name) &&
		    ofs_probe_is_dir(dir, roles_known[i]))
			return true;
	return false;
}

bool ofs_detect_is_roles(const struct ofs_dir *dir,
    const struct ofs_names *names)
{
	bool roles = false;

	for (size_t i = 0; i < names->n; i++) {
		const char *name = names->name[i];

		if (ofs_detect_is_role(name))
			roles = roles || is_role_dir(dir, name);
		else if (!is_role_state(name) && ofs_probe_is_file(dir, name))
			return false;
	}
	return roles;
}

int ofs_detect_is_checkpoint(const struct ofs_dir *dir,
    const struct ofs_names *names, struct optimfs_error *err)
{
	struct optimfs_error why = { 0 };
	struct ofs_parts parts = { 0 };
	int yes;

	if (ofs_detect_is_roles(dir, names))
		return 0;
	yes = ofs_detect_trainer(dir, names, &parts, &why);
	if (yes != 1)
		yes = has_files(dir, names);
	ofs_parts_free(&parts);
	return ofs_must_stop(&why) ? optimfs_fail_with(err, &why) : yes;
}

static int add_candidate(struct ofs_candidates *c, const char *path,
    const char *unfinished, struct optimfs_error *err)
{
	if (ofs_grow(c->v, c->n, c->cap, err) == -1)
		return -1;
	c->v[c->n].path = strdup(path);
	c->v[c->n].unfinished = unfinished;
	if (c->v[c->n].path == NULL)
		return ofs_no_memory(err);
	c->n++;
	return 0;
}

/* Collects candidates among the entries of dir, which is at prefix below the
 * top, and one level deeper if there are none: OUT/checkpoint/step-1000. */
static int search(const struct ofs_dir *dir, const struct ofs_names *names,
    const char *prefix, int depth, struct ofs_candidates *c,
    struct optimfs_error *err);

/* Why path, which has these names, is of a save that has not finished: a
 * directory above it may have the temporary name. */
static const char *unfinished(const char *path, const struct ofs_names *names)
{
	static const struct ofs_names none;
	char part[NAME_MAX + 1];
	const char *why = NULL;
	size_t n;

	for (; why == NULL && strchr(path, '/') != NULL; path += n + 1) {
		n = strcspn(path, "/");
		snprintf(part, sizeof(part), "%.*s", (int)n, path);
		why = ofs_unfinished(part, &none);
	}
	return why != NULL ? why : ofs_unfinished(path, names);
}

/* Examines path below the top; sub is the open directory. */
static int look(const struct ofs_dir *sub, const char *path, int depth,
    struct ofs_candidates *c, struct optimfs_error *err)
{
	struct optimfs_error why = { 0 };
	struct ofs_names below;
	int ret;

	if (ofs_dir_list(sub, &below, &why) == -1)
		return ofs_probe_failed(&why) ? optimfs_fail_with(err, &why)
					      : 0;
	ret = ofs_detect_is_checkpoint(sub, &below, err);
	if (ret == 1)
		ret = add_candidate(c, path, unfinished(path, &below), err);
	else if (ret == 0 && depth > 0)
		ret = search(sub, &below, path, depth - 1, c, err);
	ofs_names_free(&below);
	return ret;
}

static int search(const struct ofs_dir *dir, const struct ofs_names *names,
    const char *prefix, int depth, struct ofs_candidates *c,
    struct optimfs_error *err)
{
	for (size_t i = 0; i < names->n && c->looked < LOOK_MAX; i++) {
		struct optimfs_error why = { 0 };
		struct ofs_dir sub;
		char path[PATH_MAX];
		size_t n;
		int ret;

		if (ofs_dir_open_sub(dir, names->name[i], &sub, &why) == -1) {
			if (ofs_probe_failed(&why))
				return optimfs_fail_with(err, &why);
			continue;
		}
		c->looked++;
		snprintf(path, sizeof(path), "%s%s%s", prefix,
		    prefix[0] == '\0' ? "" : "/", names->name[i]);
		n = c->n;
		ret = look(&sub, path, depth, c, err);
		if (n < c->n && ofs_is_marked(dir, names->name[i]))
			for (; n < c->n; n++)
				if (c->v[n].unfinished == NULL)
					c->v[n].unfinished = OFS_MARKED;
		ofs_dir_close(&sub);
		if (ret == -1)
			return -1;
	}
	return 0;
}

/* The number at the start of s; -1: none. */
static long long number_at(const char *s)
{
	return isdigit((unsigned char)s[0]) ? strtoll(s, NULL, 10) : -1;
}

/* Newest first, by the first number in which the names differ. */
static int newest_first(const void *a, const void *b)
{
	const char *x = ((const struct ofs_candidate *)a)->path;
	const char *y = ((const struct ofs_candidate *)b)->path;
	long long p, q;
	size_t i = 0;

	while (x[i] != '\0' && x[i] == y[i])
		i++;
	while (i > 0 && isdigit((unsigned char)x[i - 1]))
		i--;
	p = number_at(x + i);
	q = number_at(y + i);
	if (p != q)
		return p > q ? -1 : 1;
	return strcmp(x, y);
}

int ofs_candidates_find(const struct ofs_dir *dir,
    const struct ofs_names *names, int depth, struct ofs_candidates *out,
    struct optimfs_error *err)
{
	*out = (struct ofs_candidates){ 0 };
	if (search(dir, names, "", depth, out, err) == -1) {
		ofs_candidates_free(out);
		return -1;
	}
	if (out->n > 0)
		qsort(out->v, out->n, sizeof(*out->v), newest_first);
	return 0;
}

void ofs_candidates_free(struct ofs_candidates *c)
{
	for (size_t i = 0; i < c->n; i++)
		free(c->v[i].path);
	free(c->v);
	*c = (struct ofs_candidates){ 0 };
}
