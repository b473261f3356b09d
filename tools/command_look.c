/* command_look.c - which checkpoint a word means: a path, a mount, a name in a
 * run, or something in one of them */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/command.h"

/* For a checkpoint named by a path in its mount: the path in the mount becomes
 * the missing operand, or the prefix of the given ones. */
static int join_paths(struct ofs_command *c, const char *inner,
    uint64_t allowed, int min)
{
	int n = c->noperands - ((allowed & OFS_DEST) != 0);

	if (n < 1 || c->noperands < min) {
		memmove(c->operand + 1, c->operand,
		    (size_t)c->noperands * sizeof(*c->operand));
		c->operand[0] = (char *)inner;
		c->noperands++;
		return 0;
	}
	c->joined = calloc((size_t)n + 1, sizeof(*c->joined));
	for (int i = 0; c->joined != NULL && i < n; i++) {
		if (asprintf(&c->joined[i], "%s/%s", inner, c->operand[i]) ==
		    -1) {
			c->joined[i] = NULL;
			return -1;
		}
		c->operand[i] = c->joined[i];
	}
	return c->joined == NULL ? -1 : 0;
}

static void say_staged(const char *mount, const struct ofs_tool_source *s)
{
	if (s->staged[0] != '\0')
		ofs_tool_say("%s: changes that are not committed (%s) are not "
			     "included",
		    mount, s->staged);
}

/* Of a verb without paths, a path in a mount names only the checkpoint. */
static void say_all(const char *path, const char *inner)
{
	if (inner[0] != '\0' && strncmp(inner, ".optimfs", 8) != 0)
		ofs_tool_say("%s: the whole checkpoint is read; --subtree=%s "
			     "reads only that part",
		    path, inner);
}

/* What a checkpoint was found to be: a path in it, or "". */
struct looked {
	const char **checkpoint, *inner;
	int i;      /* of the source */
	bool paths; /* may it be one that is not in a mount? */
	bool mounted;
};

/* Replaces RUN:1000 or RUN/steps/1000 by the path of that checkpoint. */
static int look_in_run(struct ofs_command *c, struct looked *l)
{
	struct optimfs_error err;
	const char *path = *l->checkpoint, *rest;
	size_t n;
	int found = optimfs_connect(path, &c->open, &err);

	if (found == 0)
		found = optimfs_run_find(path, &c->named[l->i], &rest, &err);
	if (found == -1)
		return ofs_tool_fail(&err);
	if (found == 0)
		return OFS_EXIT_OK;
	for (n = (size_t)(rest - path); n > 0 && path[n - 1] == '/';)
		n--;
	if (c->named[l->i] == NULL) /* it has no path of its own */
		c->named[l->i] = strndup(path, n);
	if (c->named[l->i] == NULL)
		return ofs_command_no_memory();
	*l->checkpoint = c->named[l->i];
	l->inner = rest;
	return OFS_EXIT_OK;
}

/* Replaces a mount, or a path in it, by the checkpoint that it shows. */
static int look_at_mount(struct ofs_command *c, struct looked *l)
{
	struct ofs_tool_source *s = &c->source[l->i];
	int found = ofs_source_find(*l->checkpoint, s);

	say_staged(*l->checkpoint, s);
	if (found != 1)
		return found == 0 ? OFS_EXIT_OK : ofs_command_no_memory();
	l->mounted = true;
	l->inner = s->inner;
	*l->checkpoint = s->path;
	if (s->open.run == OPTIMFS_RUN_NO || s->inner[0] == '\0')
		return OFS_EXIT_OK;
	/* the mount of a run: with its path, it may be a checkpoint */
	if (asprintf(&c->within[l->i], "%s/%s", s->path, s->inner) == -1) {
		c->within[l->i] = NULL;
		return ofs_command_no_memory();
	}
	*l->checkpoint = c->within[l->i];
	return OFS_EXIT_OK;
}

/* Splits "CHECKPOINT/model/w", which is no file: what is in a checkpoint has one
 * of these names. */
static int look_inside(struct ofs_command *c, struct looked *l)
{
	static const char *const roots[] = { "model", "optim", "extra",
		".optimfs" };
	const char *path = *l->checkpoint, *inner;
	size_t n = strlen(path), k;
	char *above = strdup(path);

	if (above == NULL)
		return ofs_command_no_memory();
	while (access(above, F_OK) == -1 && strrchr(above, '/') > above)
		*strrchr(above, '/') = '\0';
	inner = path + strlen(above) + (strlen(above) < n);
	k = strcspn(inner, "/");
	for (size_t i = 0; i < sizeof(roots) / sizeof(roots[0]); i++)
		if (k == strlen(roots[i]) && strncmp(inner, roots[i], k) == 0 &&
		    access(above, F_OK) == 0) {
			c->within[l->i] = above;
			*l->checkpoint = above;
			l->inner = inner;
			return OFS_EXIT_OK;
		}
	free(above);
	return OFS_EXIT_OK;
}

static int look_at(struct ofs_command *c, struct looked *l)
{
	struct ofs_tool_source *s = &c->source[l->i];
	int status = look_at_mount(c, l);

	if (status == OFS_EXIT_OK)
		status = look_in_run(c, l);
	if (c->named[l->i] != NULL)
		s->open.run = OPTIMFS_RUN_NO;
	else if (c->within[l->i] != NULL)
		*l->checkpoint = s->path; /* a path in the run */
	else if (status == OFS_EXIT_OK && l->paths && !l->mounted)
		status = look_inside(c, l);
	return status;
}

int ofs_command_look(struct ofs_command *c, uint64_t allowed, int min)
{
	struct looked first = { &c->checkpoint, "", 0,
		(allowed & OFS_PATHS) != 0, false };
	struct looked second = { (const char **)&c->operand[0], "", 1, false,
		false };
	const char *given = c->checkpoint;
	int status = look_at(c, &first);

	if (status != OFS_EXIT_OK)
		return status;
	if (first.mounted)
		ofs_source_apply(&c->source[0], &c->open);
	if ((allowed & OFS_PATHS) == 0 && c->open.subtree == NULL)
		say_all(given, first.inner);
	if ((allowed & OFS_PATHS) != 0 && first.inner[0] != '\0' &&
	    join_paths(c, first.inner, allowed, min) == -1)
		return ofs_command_no_memory();
	if ((allowed & OFS_SECOND) == 0 || c->noperands == 0)
		return OFS_EXIT_OK;
	given = c->operand[0];
	status = look_at(c, &second);
	if (status == OFS_EXIT_OK && c->open.subtree == NULL &&
	    strcmp(first.inner, second.inner) != 0)
		say_all(given, second.inner);
	return status;
}
