/* delta.c - reshard --to delta,base=CHECKPOINT */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/delta.h"

#include <stdlib.h>
#include <string.h>

#include "optimfs/run.h"

#include "base/human.h"

/* Not a view: two checkpoints are read, and what is written depends on their
 * bytes, so it has no size before. */

static const char word[] = "delta";

bool ofs_to_is_delta(const char *to)
{
	size_t n = sizeof(word) - 1;

	return to != NULL && strncmp(to, word, n) == 0 &&
	    (to[n] == ',' || to[n] == '\0');
}

char *ofs_to_base(const char *to)
{
	const char *at;

	if (!ofs_to_is_delta(to))
		return NULL;
	at = strstr(to, ",base=");
	if (at == NULL)
		return NULL;
	at += strlen(",base=");
	return strndup(at, strcspn(at, ","));
}

static bool take_level(const char *s, size_t n, unsigned *level)
{
	char *end;
	unsigned long v;

	if (n < 6 || strncmp(s, "zstd=", 5) != 0)
		return false;
	v = strtoul(s + 5, &end, 10);
	*level = (unsigned)v;
	return end == s + n && v >= 1 && v <= 19;
}

/* An option of the layout: false: it has no such one. */
static bool take_option(const char *s, size_t n, struct optimfs_delta *how)
{
	if (n == 9 && memcmp(s, "overwrite", n) == 0)
		how->overwrite = true;
	else if (n == 3 && memcmp(s, "xor", n) == 0)
		how->overwrite = false;
	else if (n == 10 && memcmp(s, "only=model", n) == 0)
		how->only_model = true;
	else if (n <= 5 || memcmp(s, "base=", 5) != 0)
		return take_level(s, n, &how->level);
	return true;
}

/* The options after the word; *bad: the first one that is none. */
static bool parse(const char *to, struct optimfs_delta *how, const char **bad)
{
	for (const char *s = to + sizeof(word) - 1; *s == ',';) {
		size_t n = strcspn(++s, ",");

		if (!take_option(s, n, how)) {
			*bad = s;
			return false;
		}
		s += n;
	}
	return true;
}

static void tell(const struct ofs_command *c, const struct optimfs_delta *how,
    int ret, const struct optimfs_error *err)
{
	char of[OFS_HUMAN_SIZE], size[OFS_HUMAN_SIZE];

	if (ret == 1)
		ofs_tool_say("%s", err->text);
	else if ((c->flags & OFS_JSON) != 0)
		ofs_print_made(c->operand[0], c->to, true);
	else
		ofs_tool_done("wrote %s: %s for %llu of %llu tensors, %s",
		    c->operand[0], ofs_human_bytes(how->stored, size),
		    (unsigned long long)how->changed,
		    (unsigned long long)how->tensors,
		    ofs_human_bytes(how->bytes, of));
}

static int write_delta(struct ofs_command *c, struct optimfs *base,
    struct optimfs_delta *how)
{
	struct optimfs_error err;
	int ret;

	how->watch = ofs_command_watch(c);
	ret = optimfs_delta(c->fs, base, c->operand[0], how, &err);
	ofs_progress_end(&c->progress, ret != -1);
	if (ret == -1)
		return ofs_job_fail(&c->job, &err);
	tell(c, how, ret, &err);
	return ret == 1 ? OFS_EXIT_UNSYNCED : OFS_EXIT_OK;
}

int ofs_reshard_delta(struct ofs_command *c, const struct ofs_verb *verb)
{
	struct optimfs_delta how = { .overwrite = false };
	const char *bad;
	struct optimfs_error err;
	struct optimfs *base;
	int status;

	if (c->base == NULL)
		return ofs_tool_usage(verb,
		    "--to delta needs the checkpoint that is changed: "
		    "--to delta,base=CHECKPOINT");
	if (!parse(c->to, &how, &bad)) {
		status = ofs_tool_usage(verb,
		    "--to delta has no option %.40s: give xor or overwrite, "
		    "zstd=LEVEL (1 to 19), only=model",
		    bad);
	} else if (c->job.group != NULL || (c->flags & OFS_DRY) != 0) {
		status = ofs_tool_usage(verb,
		    "--to delta is written by one process, and its size is not "
		    "known before");
	} else {
		base = ofs_command_open(c, c->base, &err);
		status = base == NULL ? ofs_job_fail(&c->job, &err)
				      : write_delta(c, base, &how);
		optimfs_close(base);
	}
	return status;
}
