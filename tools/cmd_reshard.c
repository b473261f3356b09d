/* cmd_reshard.c - optimfs reshard: write a checkpoint in another layout */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tools/command.h"

#define JOBS_MAX 64

static void say(void *ctx, const char *text)
{
	struct ofs_command *c = ctx;

	ofs_progress_break(&c->progress);
	ofs_tool_say("%s", text);
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
	int ret;

	how->to = c->to;
	how->progress = ofs_command_progress;
	how->say = say;
	how->ctx = c;
	ret = optimfs_reshard(c->fs, dir, how, &err);
	ofs_command_end(c, ret != -1);
	if (ret == -1)
		return ofs_command_fail_layout(c, &err);
	ofs_command_tell(c);
	if ((c->flags & OFS_JSON) != 0 && ofs_job_is_first(&c->job))
		ofs_print_made(dir, c->to, ret == 0);
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
		status =
		    ofs_tool_usage(verb, "-j %.40s: 1 to %d", c.jobs, JOBS_MAX);
	else
		status = reshard(&c, &how);
	ofs_command_fini(&c);
	return status;
}

const struct ofs_verb ofs_verb_reshard = {
	.name = "reshard",
	.synopsis =
	    "--to FORMAT[@LAYOUT] [-j NUMBER] [--json] [--progress] [-qv] [-o OPTION] "
	    "CHECKPOINT DIRECTORY",
	.summary = "write a checkpoint in another layout",
	.options =
	    "  --to FORMAT[@LAYOUT]  dcp@16, dcp@2x8, torch, safetensors; "
	    "optimfs(5) has them all\n"
	    "  -j NUMBER             files, and parts of large ones, at once\n"
	    "  --progress            say how far it is, terminal or not\n"
	    "  -q                    do not say how far it is\n"
	    "  -v                    under mpirun: say what each rank did\n"
	    "  --json                say what was written as JSON\n",
	.more = ofs_command_print_layouts,
	.run = run,
};
