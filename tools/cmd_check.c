/* cmd_check.c - optimfs check: check the state of optimizers */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "optimfs/analyze.h"

#include "base/buf.h"
#include "cli/colour.h"
#include "tools/command.h"
#include "cli/lost.h"

struct report {
	struct ofs_progress *progress;
	bool json, header;
	struct ofs_lost lost;
	char *means; /* the explanation that was printed last */
	struct optimfs_checked checked;
};

static void symptom(void *ctx, const struct optimfs_symptom *s)
{
	struct report *r = ctx;
	struct ofs_json_writer w;
	struct ofs_buf b = { 0 };

	ofs_progress_break(r->progress);
	if (r->json) {
		ofs_json_begin(&w, &b, "optimfs.check");
		ofs_json_put_string(&w, "kind", "finding");
		ofs_json_put_code(&w, s->number);
		ofs_json_put_string(&w, "path", s->path);
		ofs_json_put_string(&w, "text", s->text);
		ofs_json_put_string(&w, "means", s->means);
		ofs_json_print(&w);
		return;
	}
	if (ofs_lost_add(&r->lost, s->path, s->text, s->why))
		return;
	ofs_lost_tell(&r->lost, ofs_lost_print, NULL);
	if (s->path[0] != '\0') {
		ofs_tool_put_path(&b, s->path, strlen(": "));
		ofs_buf_puts(&b, ": ");
	}
	ofs_buf_plain(&b, s->text, strlen(s->text));
	ofs_buf_putc(&b, '\n');
	if (r->means == NULL || strcmp(r->means, s->means) != 0) {
		ofs_buf_printf(&b, "    %s\n", s->means);
		free(r->means);
		r->means = strdup(s->means);
	}
	ofs_tool_print_buf(&b, 8);
}

static void print_header(void)
{
	static const char *const names[] = { "step", "dead rows", "update",
		"weight", "ratio" };
	size_t used = 0;

	ofs_colour(OFS_BOLD);
	ofs_tool_print_cell(&used, 10, "elements");
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		ofs_tool_print_cell(&used, i == 0 ? 8 : 9, "%s", names[i]);
	ofs_tool_print_path("parameter", used);
	ofs_colour(OFS_PLAIN);
}

static void parameter(void *ctx, const struct optimfs_parameter *p)
{
	struct report *r = ctx;
	double ratio = p->weight > 0 ? p->update / p->weight : NAN;
	struct ofs_json_writer w;
	struct ofs_buf b = { 0 };
	size_t used = 0;

	ofs_progress_break(r->progress);
	if (r->json) {
		ofs_json_begin(&w, &b, "optimfs.check");
		ofs_json_put_string(&w, "kind", "parameter");
		ofs_json_put_string(&w, "path", p->path);
		ofs_json_put_u64(&w, "elements", p->elements);
		ofs_json_put_u64(&w, "step", p->step);
		ofs_json_put_u64(&w, "rows", p->rows);
		ofs_json_put_u64(&w, "dead_rows", p->dead_rows);
		ofs_json_put_real(&w, "update_rms", p->update);
		ofs_json_put_real(&w, "weight_rms", p->weight);
		ofs_json_put_real(&w, "update_to_weight", ratio);
		ofs_json_print(&w);
		return;
	}
	if (!r->header)
		print_header();
	r->header = true;
	ofs_tool_print_cell(&used, 10, "%" PRIu64, p->elements);
	ofs_tool_print_cell(&used, 8, "%" PRIu64, p->step);
	ofs_tool_print_cell(&used, 9, "%" PRIu64, p->dead_rows);
	ofs_tool_print_cell(&used, 9, "%.3g", p->update);
	ofs_tool_print_cell(&used, 9, "%.3g", p->weight);
	ofs_tool_print_cell(&used, 9, "%.3g", ratio);
	ofs_tool_print_path(p->path, used);
}

static void checked(void *ctx, const struct optimfs_checked *n)
{
	struct report *r = ctx;

	r->checked = *n;
}

static void tell_sound(const char *checkpoint, const struct optimfs_checked *n)
{
	char state[64] = "there is no optimizer state";

	if (n->parameters > 0)
		snprintf(state, sizeof(state),
		    "with the optimizer state of %" PRIu64 " parameter%s",
		    n->parameters, n->parameters == 1 ? "" : "s");
	ofs_tool_done("%s: sound: %" PRIu64 " tensor%s checked, %s", checkpoint,
	    n->tensors, n->tensors == 1 ? "" : "s", state);
}

static void summarize(uint64_t found, const struct optimfs_checked *n)
{
	struct ofs_json_writer w;
	struct ofs_buf b = { 0 };

	ofs_json_begin(&w, &b, "optimfs.check.summary");
	ofs_json_put_u64(&w, "findings", found);
	ofs_json_put_u64(&w, "tensors", n->tensors);
	ofs_json_put_u64(&w, "parameters", n->parameters);
	ofs_json_print(&w);
}

static int run_check(const struct ofs_verb *verb, int argc, char **argv)
{
	struct ofs_command c;
	struct optimfs_scan how;
	struct optimfs_checkup out = { .symptom = symptom, .checked = checked };
	struct optimfs_error err;
	struct report r = { .progress = &c.progress, .lost.list = verb->name };
	uint64_t found;
	int status, ret;

	if (ofs_command_init(&c, verb, argc, argv,
		OFS_JSON | OFS_JOBS | OFS_VERBOSE, 0, 0, &status) == -1)
		return status;
	how = ofs_command_scan(&c);
	if (ofs_command_jobs(&c, verb, OFS_JOBS_MAX, &how.jobs, &status) == -1)
		goto out;
	r.json = (c.flags & OFS_JSON) != 0;
	out.ctx = &r;
	if ((c.flags & OFS_VERBOSE) != 0)
		out.parameter = parameter;
	ret = optimfs_check(c.fs, &how, &out, &found, &err);
	ofs_progress_end(&c.progress, ret == 0);
	ofs_lost_tell(&r.lost, ofs_lost_print, NULL);
	if (ret == -1)
		status = ofs_command_stopped(&c, &err,
		    "nothing was changed or printed");
	else
		status = found > 0 ? OFS_EXIT_NO : OFS_EXIT_OK;
	if (ret == 0 && r.json)
		summarize(found, &r.checked);
	if (status == OFS_EXIT_OK && !r.json)
		tell_sound(c.checkpoint, &r.checked);
out:
	free(r.means);
	ofs_command_fini(&c);
	return ofs_tool_finish(status);
}

const struct ofs_verb ofs_verb_check = {
	.name = "check",
	.from = true,
	.synopsis = "[--json] [-j NUMBER] [-v] [-o OPTION] CHECKPOINT",
	.summary =
	    "check that the optimizer state is one that training can produce",
	.options =
	    "  -v         print the size of the next update of each parameter\n"
	    "  --json     one JSON object per finding\n"
	    "  -j NUMBER  number of threads (default: one per processor)\n",
	.run = run_check,
};
