/* cmd_fsck.c - optimfs fsck: check a checkpoint */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "tools/command.h"

struct report {
	bool json;
	uint64_t warnings;
	struct ofs_command *c;
};

static void json(const struct optimfs_finding *f)
{
	struct ofs_json_writer w;
	struct ofs_buf b = { 0 };

	ofs_json_begin(&w, &b, NULL);
	ofs_json_put_string(&w, "level", f->error ? "error" : "warning");
	ofs_json_put_i64(&w, "errno", f->code);
	ofs_json_put_code(&w, "code", f->number);
	ofs_json_put_string(&w, "path", f->path);
	ofs_json_put_string(&w, "text", f->text);
	ofs_json_print(&w);
}

static void text(const struct optimfs_finding *f)
{
	struct ofs_buf b = { 0 };

	ofs_buf_plain(&b, f->path, strlen(f->path));
	if (b.len > 0)
		ofs_buf_puts(&b, ": ");
	ofs_buf_plain(&b, f->text, strlen(f->text));
	printf("%s: %.*s\n", f->error ? "error" : "warning", (int)b.len,
	    (const char *)b.data);
	ofs_buf_fini(&b);
}

static void finding(void *ctx, const struct optimfs_finding *f)
{
	struct report *r = ctx;

	r->warnings += !f->error;
	ofs_progress_break(&r->c->progress);
	if (r->json)
		json(f);
	else
		text(f);
}

static int run(const struct ofs_verb *verb, int argc, char **argv)
{
	struct ofs_command c;
	struct optimfs_error err;
	struct report r = { .c = &c };
	struct optimfs_watch watch;
	uint64_t problems;
	int status, ret;

	if (ofs_command_init(&c, verb, argc, argv,
		OFS_JSON | OFS_DATA | OFS_VERBOSE | OFS_TOGETHER | OFS_QUIET |
		    OFS_PROGRESS,
		0, 0, &status) == -1)
		return status;
	r.json = c.flags & OFS_JSON;
	if (c.job.world == NULL) {
		watch = ofs_command_watch(&c);
		optimfs_watch(c.fs, &watch);
	}
	ret = optimfs_fsck(c.fs, c.flags & OFS_DATA, finding, &r, &problems,
	    &err);
	ofs_command_end(&c, ret == 0);
	if (ret == -1) {
		status = ofs_command_fail(&c, &err);
	} else {
		status = problems > 0 ? OFS_EXIT_NO : OFS_EXIT_OK;
		if (!r.json && ofs_job_is_first(&c.job))
			printf("%s: %s, %" PRIu64 " error%s, %" PRIu64
			       " warning%s\n",
			    c.checkpoint, problems > 0 ? "damaged" : "clean",
			    problems, problems == 1 ? "" : "s", r.warnings,
			    r.warnings == 1 ? "" : "s");
		ofs_command_tell(&c);
	}
	ofs_command_fini(&c);
	return ofs_tool_finish(status);
}

const struct ofs_verb ofs_verb_fsck = {
	.name = "fsck",
	.synopsis = "[--data] [--json] [-qv] [--progress] [-o OPTION] "
		    "CHECKPOINT",
	.summary = "check a checkpoint: structure, with --data every byte",
	.options = "  --data  read everything and compare stored checksums\n"
		   "  --json  one JSON object a finding\n"
		   "  -q      do not say how far it is\n"
		   "  --progress  say so from the start, terminal or not\n"
		   "  -v      under mpirun: say what each rank did\n",
	.run = run,
};
