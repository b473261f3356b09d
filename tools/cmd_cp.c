/* cmd_cp.c - optimfs cp: copy files of the tree out */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <inttypes.h>

#include "cli/interrupt.h"
#include "tools/command.h"
#include "tools/lost.h"

struct copying {
	struct ofs_command *c;
	struct ofs_lost lost;
	int status; /* of the first unreadable file */
	uint64_t unread;
};

static void unread(void *ctx, const struct optimfs_error *err)
{
	struct copying *copying = ctx;

	if (!ofs_lost_add(&copying->lost, NULL, err->text, err)) {
		ofs_progress_break(&copying->c->progress);
		ofs_tool_say("%s", err->text);
	}
	if (copying->status == OFS_EXIT_OK)
		copying->status = ofs_tool_status(err->code);
	copying->unread++;
}

static void copied(void *ctx, uint64_t bytes, const char *name)
{
	struct copying *copying = ctx;

	if (copying->c->progress.begun)
		ofs_progress_add(&copying->c->progress, bytes, name);
}

/* For a single process: computes the number of bytes to copy. */
static int measure(struct ofs_command *c, struct optimfs_error *err)
{
	struct optimfs_attr attr;

	if (c->job.group != NULL)
		return 0;
	return ofs_command_resolve(c, c->operand[0], &attr, err) == -1
	    ? -1
	    : ofs_command_measure(c, &attr, err);
}

static int run(const struct ofs_verb *verb, int argc, char **argv)
{
	struct ofs_command c;
	struct copying copying = { .c = &c, .lost.list = "fsck" };
	struct optimfs_copy how = { .unread = unread,
		.copied = copied,
		.stop = ofs_interrupted,
		.ctx = &copying };
	struct optimfs_error err;
	int status, ret;

	if (ofs_command_init(&c, verb, argc, argv,
		OFS_RECURSIVE | OFS_VERBOSE | OFS_TOGETHER | OFS_PATHS |
		    OFS_DEST | OFS_RUNS,
		2, 2, &status) == -1)
		return status;
	how.recursive = (c.flags & OFS_RECURSIVE) != 0;
	if (c.job.group == NULL)
		ofs_interrupt_catch();
	else
		ofs_command_watch_ranks(&c);
	ret = measure(&c, &err);
	if (ret == 0) {
		ret =
		    optimfs_copy(c.fs, c.operand[0], c.operand[1], &how, &err);
		if (ret == -1)
			ofs_command_explain_place(c.operand[1], &err);
	}
	ofs_progress_end(&c.progress, ret == 0);
	ofs_lost_tell(&copying.lost, ofs_tool_say_text, NULL);
	if (copying.unread > 0 && how.recursive)
		ofs_tool_say("%s: %" PRIu64 " file%s could not be read; all "
			     "others are there",
		    c.operand[1], copying.unread,
		    copying.unread == 1 ? "" : "s");
	if (ret == -1)
		copying.status = ofs_command_stopped(&c, &err,
		    how.recursive ? "files that are there are complete"
				  : "nothing was written");
	ofs_command_fini(&c);
	return copying.status;
}

const struct ofs_verb ofs_verb_cp = {
	.name = "cp",
	.synopsis = "[-rv] [-o OPTION] CHECKPOINT PATH DESTINATION",
	.summary = "copy a file, or with -r a directory, out of a checkpoint",
	.options = "  -r  copy directories\n"
		   "  -v  under mpirun: report what each rank did\n",
	.run = run,
};
