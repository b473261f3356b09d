/* cmd_reshard.c - optimfs reshard: write a checkpoint in another layout */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/human.h"
#include "tools/command.h"

#define JOBS_MAX 64

struct task {
	struct ofs_command *c;
	char *kept; /* where the finished part is, or NULL */
	uint64_t total;
};

static void say(void *ctx, const char *text)
{
	struct task *t = ctx;

	ofs_progress_break(&t->c->progress);
	ofs_tool_say("%s", text);
}

static void progress(void *ctx, uint64_t done, uint64_t total, const char *file)
{
	struct task *t = ctx;

	t->total = total;
	ofs_progress_show(&t->c->progress, done, total, file);
}

static void did(void *ctx, int rank, uint64_t files, uint64_t bytes)
{
	struct task *t = ctx;

	ofs_command_tell_work(t->c, rank, files, bytes);
}

static void kept(void *ctx, const char *stage)
{
	struct task *t = ctx;

	free(t->kept);
	t->kept = strdup(stage);
}

/* Prints the cause first. A defect of the source would stop the next attempt
 * too. */
static int fail(struct task *t, const struct optimfs_error *err)
{
	bool source = err->code == EIO || err->code == EUCLEAN;
	int status = ofs_command_fail_layout(t->c, err);

	if (t->kept != NULL)
		ofs_tool_say("what is done is in %s: %sthe same command "
			     "continues from there; remove it to give up",
		    t->kept, source ? "when that is mended, " : "");
	free(t->kept);
	return status;
}

static void tell(const struct task *t, const char *dir)
{
	char size[OFS_HUMAN_SIZE];

	if (ofs_job_is_first(&t->c->job))
		ofs_tool_done("wrote %s: %s, %s", dir, t->c->to,
		    ofs_human_bytes(t->total, size));
}

static bool parse_jobs(const char *s, unsigned *jobs)
{
	unsigned long v;
	char *end;

	if (s[0] < '0' || s[0] > '9')
		return false;
	v = strtoul(s, &end, 10);
	*jobs = (unsigned)v;
	return *end == '\0' && v >= 1 && v <= JOBS_MAX;
}

static int reshard(struct ofs_command *c, struct optimfs_reshard *how)
{
	const char *dir = c->operand[0];
	struct optimfs_error err;
	struct task t = { .c = c };
	int ret;

	how->to = c->to;
	how->watch = ofs_command_watch(c);
	how->watch.progress = progress;
	how->watch.ctx = &t;
	how->watch.say = say;
	how->watch.did = did;
	how->kept = kept;
	how->ctx = &t;
	ret = optimfs_reshard(c->fs, dir, how, &err);
	ofs_command_end(c, ret != -1);
	if (ret == -1)
		return fail(&t, &err);
	free(t.kept);
	if ((c->flags & OFS_JSON) != 0 && ofs_job_is_first(&c->job))
		ofs_print_made(dir, c->to, ret == 0);
	else if (ret == 0)
		tell(&t, dir);
	if (ret == 0)
		return OFS_EXIT_OK;
	ofs_tool_say("%s", err.text);
	return OFS_EXIT_UNSYNCED;
}

static int run(const struct ofs_verb *verb, int argc, char **argv)
{
	struct optimfs_reshard how = { 0 };
	struct ofs_command c;
	int status;

	if (ofs_command_init(&c, verb, argc, argv,
		OFS_TO | OFS_JOBS | OFS_PROGRESS | OFS_QUIET | OFS_JSON |
		    OFS_VERBOSE | OFS_TOGETHER,
		1, 1, &status) == -1)
		return status;
	if (c.to == NULL)
		status = ofs_command_which_layout(verb, "--to");
	else if (c.jobs != NULL && !parse_jobs(c.jobs, &how.jobs))
		status = ofs_tool_usage(verb,
		    "-j %.40s: not a number from 1 to %d", c.jobs, JOBS_MAX);
	else
		status = reshard(&c, &how);
	ofs_command_fini(&c);
	return status;
}

const struct ofs_verb ofs_verb_reshard = {
	.name = "reshard",
	.synopsis = "--to FORMAT[@LAYOUT] [-j NUMBER] [--json]\n"
		    "           [--progress] [-qv] [-o OPTION] "
		    "CHECKPOINT DIRECTORY",
	.summary = "write a checkpoint in another layout",
	.options =
	    "  --to FORMAT[@LAYOUT]  dcp@16, dcp@2x8, torch, safetensors; optimfs(5) lists all\n"
	    "  -j NUMBER             how many files, or parts of large files, to write at once\n"
	    "  --progress            show progress even without a terminal\n"
	    "  -q                    show no progress\n"
	    "  -v                    under mpirun: report what each rank did\n"
	    "  --json                print the result as JSON\n",
	.more = ofs_command_print_layouts,
	.run = run,
};
