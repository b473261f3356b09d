/* cmd_reshard.c - optimfs reshard: write a checkpoint in another layout */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "tools/command.h"

#define JOBS_MAX 64

/* How far it is: a line that a terminal rewrites, or one every ten seconds. */
struct progress {
	bool terminal, forced;
	bool begun, said, complete;
	double start, last;
	uint64_t first; /* that an earlier run had done */
};

static double now(void)
{
	return (double)ofs_clock_ns() / 1e9;
}

static void print_line(const struct progress *p, uint64_t done, uint64_t total,
    double took)
{
	double rate = took > 0 ? (double)(done - p->first) / took : 0;

	fprintf(stderr, "%s%" PRIu64 " of %" PRIu64 " MiB, %.0f MiB/s, ",
	    p->terminal ? "\r" : "", done >> 20, total >> 20, rate / (1 << 20));
	if (rate > 0)
		fprintf(stderr, "%.0f s left", (double)(total - done) / rate);
	else
		fputs("? s left", stderr);
	fputs(p->terminal ? "   " : "\n", stderr);
}

static void show(void *ctx, uint64_t done, uint64_t total)
{
	struct progress *p = ctx;
	double t = now();

	if (!p->begun) {
		p->begun = true;
		p->start = p->last = t;
		p->first = done;
	}
	if (!p->terminal && !p->forced)
		return;
	if (!p->forced && t - p->start < 2)
		return;
	if (!p->terminal && p->said &&
	    (p->complete || (t - p->last < 10 && done < total)))
		return;
	p->complete = done >= total;
	p->last = t;
	p->said = true;
	print_line(p, done < total ? done : total, total, t - p->start);
}

static void end_line(struct progress *p)
{
	if (p->terminal && p->said)
		fputc('\n', stderr);
	p->said = false;
}

static void say(void *ctx, const char *text)
{
	end_line(ctx);
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
	struct progress p = {
		.terminal = isatty(STDERR_FILENO) == 1,
		.forced = (c->flags & OFS_PROGRESS) != 0,
	};
	const char *dir = c->operand[0];
	struct optimfs_error err;
	int ret;

	how->to = c->to;
	how->progress = show;
	how->say = say;
	how->ctx = &p;
	ret = optimfs_reshard(c->fs, dir, how, &err);
	end_line(&p);
	if (ret == -1)
		return ofs_command_fail(c, &err);
	ofs_command_tell(c);
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
		OFS_TO | OFS_JOBS | OFS_PROGRESS | OFS_VERBOSE | OFS_TOGETHER,
		1, 1, &status) == -1)
		return status;
	if (c.to == NULL)
		status = ofs_tool_usage(verb, "which layout? --to dcp@16");
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
	    "--to FORMAT[@LAYOUT] [-j NUMBER] [--progress] [-v] [-o OPTION] "
	    "CHECKPOINT DIRECTORY",
	.summary = "write a checkpoint in another layout",
	.options =
	    "  --to FORMAT[@LAYOUT]  dcp@16, dcp@2x8, torch, safetensors; "
	    "optimfs(5) has them all\n"
	    "  -j NUMBER             files, and parts of large ones, at once\n"
	    "  --progress            say how far it is, terminal or not\n"
	    "  -v                    under mpirun: say what each rank did\n",
	.run = run,
};
