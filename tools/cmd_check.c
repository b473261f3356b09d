/* cmd_check.c - optimfs check: is the state one that training leaves? */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "optimfs/analyze.h"

#include "base/buf.h"
#include "base/dtype.h"
#include "tools/command.h"

struct report {
	bool json, header;
	struct optimfs_checked checked;
};

static void put_string(struct ofs_buf *b, const char *name, const char *s)
{
	ofs_buf_printf(b, ", \"%s\": \"", name);
	ofs_buf_json(b, s, strlen(s));
	ofs_buf_putc(b, '"');
}

static void put_real(struct ofs_buf *b, const char *name, double v)
{
	char text[80];

	ofs_print_double(v, text);
	ofs_buf_printf(b, ", \"%s\": %s", name, isfinite(v) ? text : "null");
}

static void print(struct ofs_buf *b)
{
	fwrite(b->data, 1, b->len, stdout);
	ofs_buf_fini(b);
}

static void symptom(void *ctx, const struct optimfs_symptom *s)
{
	struct report *r = ctx;
	struct ofs_buf b = { 0 };

	if (r->json) {
		ofs_buf_puts(&b,
		    "{\"schema\": \"optimfs.check\", \"v\": 1, "
		    "\"kind\": \"finding\"");
		ofs_buf_printf(&b, ", \"code\": \"OFS%d\"", s->number);
		put_string(&b, "path", s->path);
		put_string(&b, "text", s->text);
		put_string(&b, "means", s->means);
		ofs_buf_puts(&b, "}\n");
	} else {
		ofs_buf_plain(&b, s->path, strlen(s->path));
		ofs_buf_puts(&b, ": ");
		ofs_buf_plain(&b, s->text, strlen(s->text));
		ofs_buf_printf(&b, "\n    %s\n", s->means);
	}
	print(&b);
}

static void parameter(void *ctx, const struct optimfs_parameter *p)
{
	struct report *r = ctx;
	double ratio = p->weight > 0 ? p->update / p->weight : NAN;
	struct ofs_buf b = { 0 };

	if (r->json) {
		ofs_buf_puts(&b,
		    "{\"schema\": \"optimfs.check\", \"v\": 1, "
		    "\"kind\": \"parameter\"");
		put_string(&b, "path", p->path);
		ofs_buf_printf(&b,
		    ", \"elements\": %" PRIu64 ", \"step\": %" PRIu64
		    ", \"rows\": %" PRIu64 ", \"dead_rows\": %" PRIu64,
		    p->elements, p->step, p->rows, p->dead_rows);
		put_real(&b, "update_rms", p->update);
		put_real(&b, "weight_rms", p->weight);
		put_real(&b, "update_to_weight", ratio);
		ofs_buf_puts(&b, "}\n");
		print(&b);
		return;
	}
	if (!r->header)
		printf("%12s %8s %12s %11s %11s %11s  %s\n", "elements", "step",
		    "dead rows", "update", "weight", "ratio", "parameter");
	r->header = true;
	ofs_buf_plain(&b, p->path, strlen(p->path));
	ofs_buf_putc(&b, '\n');
	printf("%12" PRIu64 " %8" PRIu64 " %12" PRIu64
	       " %11.3g %11.3g %11.3g  ",
	    p->elements, p->step, p->dead_rows, p->update, p->weight, ratio);
	print(&b);
}

static void checked(void *ctx, const struct optimfs_checked *n)
{
	struct report *r = ctx;

	r->checked = *n;
}

static int run(const struct ofs_verb *verb, int argc, char **argv)
{
	struct ofs_command c;
	struct optimfs_scan how = { .progress = ofs_command_progress,
		.ctx = &c };
	struct optimfs_checkup out = { .symptom = symptom, .checked = checked };
	struct optimfs_error err;
	struct report r = { 0 };
	uint64_t found;
	int status, ret;

	if (ofs_command_init(&c, verb, argc, argv,
		OFS_JSON | OFS_JOBS | OFS_VERBOSE | OFS_QUIET | OFS_PROGRESS, 0,
		0, &status) == -1)
		return status;
	if (ofs_command_jobs(&c, verb, &how.jobs, &status) == -1)
		goto out;
	r.json = (c.flags & OFS_JSON) != 0;
	out.ctx = &r;
	if ((c.flags & OFS_VERBOSE) != 0)
		out.parameter = parameter;
	ret = optimfs_check(c.fs, &how, &out, &found, &err);
	ofs_command_end(&c, ret == 0);
	if (ret == -1)
		status = ofs_tool_fail(&err);
	else
		status = found > 0 ? OFS_EXIT_NO : OFS_EXIT_OK;
	if (status == OFS_EXIT_OK && !r.json)
		ofs_tool_done("%s: sound: %" PRIu64 " tensors and the state of "
			      "%" PRIu64 " parameters were checked",
		    c.checkpoint, r.checked.tensors, r.checked.parameters);
out:
	ofs_command_fini(&c);
	return ofs_tool_finish(status);
}

const struct ofs_verb ofs_verb_check = {
	.name = "check",
	.synopsis = "[-v] [--json] [-j NUMBER] [-o OPTION] CHECKPOINT",
	.summary = "is the state of the optimizers one that training leaves?",
	.options =
	    "  -v         say of each parameter how large its next update is\n"
	    "  --json     one JSON object a finding\n"
	    "  -j NUMBER  threads; one a processor\n",
	.run = run,
};
