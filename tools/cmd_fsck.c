/* cmd_fsck.c - optimfs fsck: check a checkpoint */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "tools/command.h"
#include "cli/lost.h"

struct report {
	bool json;
	uint64_t errors, warnings; /* printed */
	uint64_t closed;           /* of the errors: no permission to read */
	bool unread;             /* something is unreadable, but not damaged */
	struct ofs_lost lost[2]; /* found by warnings, by errors */
	struct ofs_command *c;
};

static void json(const struct optimfs_finding *f)
{
	struct ofs_json_writer w;
	struct ofs_buf b = { 0 };

	ofs_json_begin(&w, &b, "optimfs.fsck");
	ofs_json_put_string(&w, "level", f->error ? "error" : "warning");
	ofs_json_put_i64(&w, "errno", f->code);
	ofs_json_put_code(&w, f->number);
	ofs_json_put_string(&w, "path", f->path);
	ofs_json_put_string(&w, "text", f->text);
	ofs_json_print(&w);
}

static void text(struct report *r, bool error, int number, const char *path,
    const char *words, uint64_t n)
{
	struct ofs_buf b = { 0 };

	r->errors += error;
	r->closed += error && number == 756;
	r->warnings += !error;
	ofs_buf_puts(&b, error ? "error: " : "warning: ");
	ofs_buf_plain(&b, path, strlen(path));
	if (*path != '\0')
		ofs_buf_puts(&b, ": ");
	ofs_buf_plain(&b, words, strlen(words));
	if (n > 0)
		ofs_buf_printf(&b, " (%" PRIu64 " %s)", n,
		    n == 1 ? "tensor or value" : "tensors and values");
	ofs_buf_putc(&b, '\n');
	ofs_tool_print_buf(&b, 4);
}

/* What many tensors have in common is printed once, at the end. */
static void tell_lost(struct report *r, bool error)
{
	struct ofs_lost *l = &r->lost[error];

	for (size_t i = 0; i < l->n; i++) {
		const struct ofs_lost_file *f = &l->file[i];
		bool alone = f->n == 1 && f->path[0] != '\0';

		text(r, error, f->number, alone ? f->path : "", f->text,
		    alone ? 0 : f->n);
	}
	ofs_lost_fini(l);
}

static void finding(void *ctx, const struct optimfs_finding *f)
{
	struct report *r = ctx;

	r->unread |= f->code == EOPNOTSUPP;
	if (!r->json &&
	    ofs_lost_add(&r->lost[f->error], f->path, f->text, f->why))
		return;
	ofs_progress_break(&r->c->progress);
	if (r->json) {
		json(f);
		r->errors += f->error;
		r->warnings += !f->error;
	} else
		text(r, f->error, f->number, f->path, f->text, 0);
}

static bool is_clean(const struct report *r)
{
	return r->errors == 0 && !r->unread;
}

static const char *verdict(const struct report *r)
{
	if (r->errors > r->closed)
		return "damaged";
	if (r->errors > 0)
		return "no damage found, but no permission to read all of it";
	return is_clean(r) ? "clean"
			   : "no damage found, but not all of it can be read";
}

static void conclude(const struct report *r, bool data)
{
	const char *name = r->c->checkpoint;
	struct ofs_buf b = { 0 };

	ofs_buf_plain(&b, name, strlen(name));
	ofs_buf_printf(&b,
	    ": %s, %" PRIu64 " error%s, %" PRIu64 " warning%s%s\n", verdict(r),
	    r->errors, r->errors == 1 ? "" : "s", r->warnings,
	    r->warnings == 1 ? "" : "s",
	    is_clean(r) && !data
		? "; only the structure was checked (--data reads everything)"
		: "");
	ofs_tool_print_buf(&b, 4);
}

static void summarize(const struct report *r)
{
	struct ofs_json_writer w;
	struct ofs_buf b = { 0 };

	ofs_json_begin(&w, &b, "optimfs.fsck.summary");
	ofs_json_put_u64(&w, "errors", r->errors);
	ofs_json_put_u64(&w, "warnings", r->warnings);
	ofs_json_print(&w);
}

static int run_fsck(const struct ofs_verb *verb, int argc, char **argv)
{
	struct ofs_command c;
	struct optimfs_error err;
	struct report r = { .c = &c };
	struct optimfs_watch watch;
	uint64_t problems;
	int status, ret;

	if (ofs_command_init(&c, verb, argc, argv,
		OFS_JSON | OFS_DATA | OFS_VERBOSE | OFS_TOGETHER, 0, 0,
		&status) == -1)
		return status;
	r.json = c.flags & OFS_JSON;
	if (c.job.group == NULL) {
		watch = ofs_command_watch(&c);
		optimfs_watch(c.fs, &watch);
	} else {
		ofs_command_watch_ranks(&c);
	}
	ret = optimfs_fsck(c.fs, c.flags & OFS_DATA, finding, &r, &problems,
	    &err);
	ofs_progress_end(&c.progress, ret == 0);
	tell_lost(&r, true);
	tell_lost(&r, false);
	if (ret == -1) {
		status = ofs_command_stopped(&c, &err,
		    "the rest was not checked, and nothing was changed");
	} else {
		status = problems > 0 ? OFS_EXIT_NO : OFS_EXIT_OK;
		if (r.json && ofs_job_is_first(&c.job))
			summarize(&r);
		else if (ofs_job_is_first(&c.job))
			conclude(&r, (c.flags & OFS_DATA) != 0);
	}
	ofs_command_fini(&c);
	return ofs_tool_finish(status);
}

const struct ofs_verb ofs_verb_fsck = {
	.name = "fsck",
	.from = true,
	.synopsis = "[--data] [--json] [-v] [-o OPTION] CHECKPOINT",
	.summary = "check that a checkpoint is complete and undamaged",
	.options = "  --data  read all data and verify the stored checksums\n"
		   "  --json  one JSON object per finding\n"
		   "  -v      under mpirun: report what each rank did\n",
	.run = run_fsck,
};
