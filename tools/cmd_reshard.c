/* cmd_reshard.c - optimfs reshard, average: write a checkpoint in a layout */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "optimfs/run.h"

#include "base/human.h"
#include "base/team.h"
#include "tools/cmd_diff.h"
#include "tools/cmd_plan.h"
#include "tools/delta.h"

/* Where the finished part is, malloc'ed. */
static void kept(void *ctx, const char *stage)
{
	char **at = ctx;

	free(*at);
	*at = strdup(stage);
}

/* Prints the cause first. A defect of the source would stop the next attempt
 * too. */
static int fail(const struct ofs_command *c, const char *stage,
    const struct optimfs_error *err)
{
	bool source = err->code == EIO || err->code == EUCLEAN;
	int status = ofs_command_fail_layout(c, err);

	if (stage != NULL)
		ofs_tool_say("the finished parts are in %s: %sthe same command "
			     "continues from there; remove it to give up",
		    stage, source ? "when that is fixed, " : "");
	return status;
}

static void tell(const struct ofs_command *c, const char *dir)
{
	char size[OFS_HUMAN_SIZE];

	if (ofs_job_is_first(&c->job))
		ofs_tool_done("wrote %s: %s, %s", dir, c->to,
		    ofs_human_bytes(c->progress.total, size));
}

/* Files of another save that were left out are a warning, which few look up; in
 * what is written nothing tells that they were. */
static void say_choices(struct ofs_command *c)
{
	ofs_command_say_warning(c, c->fs, "OFS181 ");
}

static int write_view(struct ofs_command *c, unsigned jobs)
{
	const char *dir = c->operand[0];
	char *stage = NULL;
	struct optimfs_reshard how = { .to = c->to,
		.jobs = jobs,
		.watch = ofs_command_watch(c),
		.kept = kept,
		.ctx = &stage };
	struct optimfs_error err;
	int ret, status = OFS_EXIT_OK;

	ret = optimfs_reshard(c->fs, dir, &how, &err);
	ofs_progress_end(&c->progress, ret != -1);
	if (ret == -1)
		status = fail(c, stage, &err);
	else if ((c->flags & OFS_JSON) != 0 && ofs_job_is_first(&c->job))
		ofs_print_made(dir, c->to, ret == 0);
	else if (ret == 0)
		tell(c, dir);
	if (ret != -1)
		say_choices(c);
	if (ret == 1) {
		ofs_tool_say("%s", err.text);
		status = OFS_EXIT_UNSYNCED;
	}
	free(stage);
	return status;
}

/* --verify: is it what another program made of the same checkpoint? */
static int verify(struct ofs_command *c)
{
	struct optimfs_error err;
	int ret;

	if (!ofs_job_is_first(&c->job))
		return OFS_EXIT_OK;
	ret = ofs_diff_first(c, c->operand[0], c->verify, &err);
	if (ret == -1)
		return ofs_job_fail(&c->job, &err);
	if (ret == 0)
		ofs_tool_done("%s equals %s", c->operand[0], c->verify);
	return ret == 0 ? OFS_EXIT_OK : OFS_EXIT_NO;
}

/* Fails before anything is written if there is nothing to compare with. */
static int check_reference(const struct ofs_command *c)
{
	struct optimfs_error err;
	struct optimfs *fs;

	if (c->verify == NULL)
		return OFS_EXIT_OK;
	fs = optimfs_open(c->verify, &(struct optimfs_options){ 0 }, &err);
	if (fs == NULL)
		return ofs_job_fail(&c->job, &err);
	optimfs_close(fs);
	return OFS_EXIT_OK;
}

static int reshard(struct ofs_command *c, const struct ofs_verb *verb)
{
	unsigned jobs;
	int status;

	if (ofs_to_is_delta(c->to))
		return ofs_reshard_delta(c, verb);
	if (ofs_command_jobs(c, verb, OFS_TEAM_MAX, &jobs, &status) == 0 &&
	    (status = check_reference(c)) == OFS_EXIT_OK)
		status = write_view(c, jobs);
	return status;
}

/* -n: what plan says. */
static int dry_run(struct ofs_command *c)
{
	struct optimfs_error err;

	if (!ofs_job_is_first(&c->job) || ofs_plan_print(c, c->to, &err) == 0)
		return OFS_EXIT_OK;
	return ofs_command_fail_layout(c, &err);
}

static int run_reshard(const struct ofs_verb *verb, int argc, char **argv)
{
	struct ofs_command c;
	int status;

	if (ofs_command_init(&c, verb, argc, argv,
		OFS_TO | OFS_JOBS | OFS_JSON | OFS_DRY | OFS_VERBOSE |
		    OFS_VERIFY | OFS_TOGETHER,
		1, 1, &status) == -1)
		return status;
	if (c.to == NULL)
		status = ofs_command_which_layout(verb, "--to");
	else if ((c.flags & OFS_DRY) != 0 && !ofs_to_is_delta(c.to))
		status = dry_run(&c);
	else
		status = reshard(&c, verb);
	if (status == OFS_EXIT_OK && c.verify != NULL &&
	    (c.flags & OFS_DRY) == 0)
		status = verify(&c);
	ofs_command_fini(&c);
	return ofs_tool_finish(status);
}

const struct ofs_verb ofs_verb_reshard = {
	.name = "reshard",
	.from = true,
	.synopsis =
	    "--to FORMAT[@LAYOUT] [-n] [-j NUMBER] [--json]\n"
	    "           [--verify CHECKPOINT] [-v] [-o OPTION] CHECKPOINT\n"
	    "           DIRECTORY",
	.summary = "write a checkpoint in another layout",
	.options =
	    "  --to FORMAT[@LAYOUT]  dcp@16, dcp@2x8, torch, safetensors; all: optimfs(5);\n"
	    "                        delta,base=CHECKPOINT: what differs from that\n"
	    "  -n                    write nothing: print what optimfs plan prints\n"
	    "  -j NUMBER             how many files, or parts of large ones, to write at once\n"
	    "  --verify CHECKPOINT   compare the result with this one: exit code 1, and the\n"
	    "                        first difference, if they differ\n"
	    "  -v                    under mpirun: report what each rank did\n"
	    "  --json                print the result as JSON\n",
	.more = ofs_command_print_layouts,
	.run = run_reshard,
};

/* The mean is a checkpoint of the run, avg/STEPS, which is resharded: this verb
 * is a short way to say so. */
static int open_average(struct ofs_command *c, struct optimfs_error *err)
{
	struct optimfs *mean;
	char *name;

	if (asprintf(&name, "avg/%s", c->operand[0]) == -1)
		return optimfs_fail(err, ENOMEM, "%s", c->checkpoint);
	mean = optimfs_run_open(c->fs, name, err);
	free(name);
	if (mean == NULL)
		return -1;
	optimfs_close(c->fs);
	c->fs = mean;
	c->operand[0] = c->operand[1];
	c->noperands = 1;
	return 0;
}

static int run_average(const struct ofs_verb *verb, int argc, char **argv)
{
	struct ofs_command c;
	struct optimfs_error err;
	int status;

	if (ofs_command_init(&c, verb, argc, argv,
		OFS_RUNS | OFS_TO | OFS_JOBS | OFS_JSON | OFS_DEST, 2, 2,
		&status) == -1)
		return status;
	if (c.to == NULL)
		status = ofs_command_which_layout(verb, "--to");
	else if (open_average(&c, &err) == -1)
		status = ofs_job_fail(&c.job, &err);
	else
		status = reshard(&c, verb);
	ofs_command_fini(&c);
	return ofs_tool_finish(status);
}

const struct ofs_verb ofs_verb_average = {
	.name = "average",
	.from = true,
	.synopsis = "--to FORMAT[@LAYOUT] [-j NUMBER] [--json] [-o OPTION]\n"
		    "           RUN STEPS DIRECTORY",
	.summary = "write the mean of checkpoints of a run",
	.options =
	    "  STEPS                 last5, 1000-5000, or 1000,2000,latest\n"
	    "  --to FORMAT[@LAYOUT]  dcp@16, dcp@2x8, torch, safetensors; all: optimfs(5)\n"
	    "  -j NUMBER             how many files, or parts of large ones, to write at once\n"
	    "  --json                print the result as JSON\n",
	.run = run_average,
};
