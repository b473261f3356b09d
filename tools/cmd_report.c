/* cmd_report.c - optimfs report: show a checkpoint or a run as an HTML page */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "optimfs/analyze.h"

#include "base/buf.h"
#include "base/dtype.h"
#include "base/memory.h"
#include "cli/codes.h"
#include "cli/interrupt.h"
#include "cli/lost.h"
#include "cli/page.h"
#include "cli/terminal.h"
#include "fs/walk.h"
#include "stats/stats.h"
#include "tools/cmd_diff.h"
#include "tools/command.h"
#include "tools/holders.h"
#include "tools/report_run.h"

/* report.html, with marks that are replaced. */
static const char page[] = {
#include "tools/report.inc"
	0
};

struct report {
	struct ofs_command *c;
	struct ofs_holders ranks;
	struct ofs_lost lost;
	size_t told;  /* of lost.file, how many have a finding */
	uint64_t bad; /* findings that are no warnings, of one checkpoint */
	char *first, *todo; /* the text of the first, and what to do; or NULL */
	struct ofs_page page;
	struct ofs_buf verdicts; /* JSON */
	const char *of; /* of two checkpoints, that of the findings */
	struct ofs_buf found;        /* findings */
	struct ofs_json_writer w, f; /* into page.json, into found */
};

/* Starts an array on a new line, to be found easily. */
static void begin_array(struct report *r, const char *name)
{
	r->w.gap = "\n";
	ofs_json_open(&r->w, name, '[');
}

static void end_array(struct report *r)
{
	ofs_json_close(&r->w, ']');
	r->w.gap = " ";
}

static void begin_element(struct ofs_json_writer *w)
{
	w->gap = "\n";
	ofs_json_open(w, NULL, '{');
	w->gap = " ";
}

static void end_element(struct ofs_json_writer *w)
{
	ofs_json_close(w, '}');
	w->gap = "\n";
}

/* s and err are NULL if the tensor was not read. */
static int tensor(void *ctx, const struct optimfs_tensor *t,
    const struct optimfs_statistics *s, const struct optimfs_error *err)
{
	struct report *r = ctx;
	struct ofs_json_writer *w = &r->w;

	begin_element(w);
	ofs_json_put_string(w, "path", t->path);
	ofs_json_put_string(w, "dtype", t->dtype);
	ofs_json_open(w, "shape", '[');
	ofs_buf_puts(w->b, t->shape);
	ofs_json_close(w, ']');
	ofs_json_put_u64(w, "elements", t->elements);
	ofs_json_put_u64(w, "bytes", t->bytes);
	ofs_holders_put(&r->ranks, r->c, t->path, true, w);
	if (s != NULL) {
		ofs_json_open(w, "stat", '{');
		ofs_stats_json(s, w->b);
		ofs_json_close(w, '}');
	} else if (err != NULL) {
		ofs_json_put_string(w, "error", err->text);
	}
	end_element(w);
	return 0;
}

/* Adds a tensor without reading it. */
static int visit(void *ctx, const struct ofs_walk_entry *e,
    struct optimfs_error *err)
{
	struct report *r = ctx;
	char *shape, *dtype;
	size_t size;

	(void)err;
	if (S_ISDIR(e->attr.mode))
		return 0;
	shape = ofs_attribute(r->c->fs, e->attr.node, "shape", NULL);
	dtype = ofs_attribute(r->c->fs, e->attr.node, "dtype", NULL);
	if (shape != NULL && dtype != NULL && *shape != '\0') {
		size = ofs_dtype_size(ofs_dtype_of_name(dtype, strlen(dtype)));
		tensor(r,
		    &(struct optimfs_tensor){
			.path = e->path,
			.dtype = dtype,
			.shape = shape,
			.elements = size == 0 ? 0 : e->attr.size / size,
			.bytes = e->attr.size,
		    },
		    NULL, NULL);
	}
	free(shape);
	free(dtype);
	return 0;
}

static const char *advice_of(int number)
{
	const struct ofs_code *code = ofs_code_find(number);

	return code != NULL && code->hint ? code->advice : "";
}

/* means: NULL: what to do about the code. */
static void put_finding(struct report *r, int number, const char *path,
    const char *text, const char *means)
{
	struct ofs_buf where = { 0 };

	if (r->of != NULL)
		ofs_buf_printf(&where, "%s%s", r->of,
		    *path == '\0' ? "" : ": ");
	ofs_buf_puts(&where, path);
	ofs_buf_putc(&where, '\0');
	r->found.bad |= where.bad;
	if (means == NULL)
		means = advice_of(number);
	begin_element(&r->f);
	if (number > 0)
		ofs_json_put_code(&r->f, number);
	else
		ofs_json_put_string(&r->f, "code", "");
	ofs_json_put_string(&r->f, "path",
	    where.bad ? path : (char *)where.data);
	ofs_json_put_string(&r->f, "text", text);
	ofs_json_put_string(&r->f, "means", means);
	end_element(&r->f);
	ofs_buf_fini(&where);
}

/* Something is wrong: keeps the words of the first for the verdict. */
static void count_bad(struct report *r, const char *path, const char *text,
    const char *todo)
{
	if (r->bad++ > 0)
		return;
	if (asprintf(&r->first, "%s%s%s", path, *path == '\0' ? "" : ": ",
		text) == -1)
		r->first = NULL;
	r->todo = strdup(todo);
	r->found.bad |= r->first == NULL || r->todo == NULL;
}

static void damage(void *ctx, const struct optimfs_finding *f)
{
	struct report *r = ctx;

	if (f->error)
		count_bad(r, f->path, f->text, advice_of(f->number));
	if (!ofs_lost_add(&r->lost, f->path, f->text, f->why))
		put_finding(r, f->number, f->path, f->text, NULL);
}

static void symptom(void *ctx, const struct optimfs_symptom *s)
{
	struct report *r = ctx;

	count_bad(r, s->path, s->text, s->means);
	if (!ofs_lost_add(&r->lost, s->path, s->text, s->why))
		put_finding(r, s->number, s->path, s->text, s->means);
}

/* One finding for each file that is lost; its tensors are marked in the page. */
static void put_lost(struct report *r)
{
	for (; r->told < r->lost.n; r->told++) {
		const struct ofs_lost_file *f = &r->lost.file[r->told];
		bool alone = f->n == 1 && f->path[0] != '\0';
		struct ofs_buf b = { 0 };

		ofs_buf_puts(&b, f->text);
		if (f->n > 0 && !alone)
			ofs_buf_printf(&b, " (%" PRIu64 " %s)", f->n,
			    f->n == 1 ? "tensor or value"
				      : "tensors and values");
		ofs_buf_putc(&b, '\0');
		r->found.bad |= b.bad;
		if (!b.bad)
			put_finding(r, f->number, alone ? f->path : "",
			    (char *)b.data, NULL);
		ofs_buf_fini(&b);
	}
}

static void parameter(void *ctx, const struct optimfs_parameter *p)
{
	struct report *r = ctx;
	struct ofs_json_writer *w = &r->w;

	begin_element(w);
	ofs_json_put_string(w, "path", p->path);
	ofs_json_put_u64(w, "elements", p->elements);
	ofs_json_put_u64(w, "step", p->step);
	ofs_json_put_u64(w, "rows", p->rows);
	ofs_json_put_u64(w, "dead_rows", p->dead_rows);
	ofs_json_put_real(w, "update_rms", p->update);
	ofs_json_put_real(w, "weight_rms", p->weight);
	ofs_json_put_real(w, "update_to_weight",
	    p->weight > 0 ? p->update / p->weight : NAN);
	end_element(w);
}

static int put_head(struct report *r, bool data, struct optimfs_error *err)
{
	char *summary =
	    optimfs_summary(r->c->fs, "", OPTIMFS_SUMMARY_BOTH, err);
	char *info;

	if (summary == NULL)
		return -1;
	info = strchr(summary, '\n');
	*info++ = '\0';
	ofs_json_begin(&r->w, &r->page.json, "optimfs.report");
	ofs_json_put_string(&r->w, "version", optimfs_version());
	ofs_json_put_string(&r->w, "checkpoint", r->c->checkpoint);
	ofs_json_put_bool(&r->w, "data", data);
	r->w.gap = "\n";
	ofs_json_put_raw(&r->w, "summary", summary);
	ofs_json_put_string(&r->w, "info", info);
	free(summary);
	/* A checkpoint of one file has no known ranks. */
	if (ofs_holders_find(&r->ranks, r->c, NULL) == -1)
		r->ranks.n = 0;
	begin_array(r, "ranks");
	r->w.gap = " ";
	for (size_t i = 0; i < r->ranks.n; i++)
		ofs_json_put_i64(&r->w, NULL, r->ranks.rank[i]);
	end_array(r);
	return 0;
}

static int put_tensors(struct report *r, const struct optimfs_scan *how,
    bool data, struct optimfs_error *err)
{
	int ret;

	begin_array(r, "tensors");
	ret = data
	    ? optimfs_statistics_tree(r->c->fs, "/", false, how, tensor, r, err)
	    : ofs_walk(r->c->fs, OPTIMFS_ROOT, 0, visit, r, err);
	end_array(r);
	return ret;
}

static void put_health(struct report *r, const struct optimfs_scan *how)
{
	struct optimfs_checkup out = {
		.symptom = symptom, .parameter = parameter, .ctx = r
	};
	struct optimfs_error err = { 0 };
	uint64_t n;

	begin_array(r, "parameters");
	if ((r->c->flags & OFS_NO_DATA) == 0 &&
	    optimfs_check(r->c->fs, how, &out, &n, &err) == -1)
		put_finding(r, err.number, "", err.text,
		    "The optimizers could not be checked.");
	put_lost(r);
	end_array(r);
}

/* Appends the sentences of a summary up to the first "; ", which names commands
 * or says that there is no problem. */
static void put_sentence(struct ofs_buf *b, const char *summary)
{
	const char *end = strstr(summary, "; ");

	ofs_buf_put(b, summary,
	    end != NULL ? (size_t)(end - summary) : strlen(summary));
}

/* The answer in one line: "Sound. dcp, 64 ranks, ...". */
static void put_verdict(const struct report *r, const char *line,
    const char *problems, struct ofs_buf *b)
{
	static const char damaged[] = "the checkpoint is damaged: ";
	size_t n = strlen(damaged);

	if (strncmp(problems, damaged, n) == 0) {
		ofs_buf_puts(b, "Damaged: ");
		put_sentence(b, problems + n);
		return;
	}
	if (r->bad > 0) {
		ofs_buf_printf(b, "Not sound: %" PRIu64 " finding%s. %s%s",
		    r->bad, r->bad == 1 ? "" : "s",
		    r->bad == 1 ? "" : "The first: ",
		    r->first == NULL ? "" : r->first);
		return;
	}
	ofs_buf_puts(b,
	    (r->c->flags & OFS_NO_DATA) != 0
		? "No damage in the index; tensors were not read. "
		: "Sound. ");
	put_sentence(b, line);
}

/* The head of the page, which needs no script. */
static void put_answer(struct report *r, const char *name, const char *verdict,
    const char *remark)
{
	struct ofs_buf *b = &r->page.head;
	bool bad = r->bad > 0 || strncmp(verdict, "Damaged", 7) == 0;

	ofs_buf_printf(b, "<h1 class=\"%s\">", bad ? "bad" : "good");
	ofs_page_html(b, verdict);
	ofs_buf_puts(b, "</h1>\n<p class=\"dim\">");
	ofs_page_html(b, name);
	ofs_buf_puts(b, "</p>\n");
	if (bad && r->todo != NULL && *r->todo != '\0') {
		ofs_buf_puts(b, "<p class=\"todo\">To do: ");
		ofs_page_html(b, r->todo);
		ofs_buf_puts(b, "</p>\n");
	} else if (!bad && *remark != '\0') {
		ofs_buf_puts(b, "<p>");
		ofs_page_html(b, remark);
		ofs_buf_puts(b, "</p>\n");
	}
	ofs_buf_puts(&r->page.title, r->page.title.len == 0 ? "" : " / ");
	ofs_page_html(&r->page.title, name);
	ofs_buf_puts(&r->page.title, ": ");
	ofs_page_html(&r->page.title, verdict);
}

/* All findings of a checkpoint are known. */
static int judge(struct report *r, struct optimfs *fs, const char *name,
    struct optimfs_error *err)
{
	char *line = optimfs_summary(fs, "", OPTIMFS_SUMMARY_LINE, err);
	char *problems = line == NULL
	    ? NULL
	    : optimfs_summary(fs, "", OPTIMFS_SUMMARY_PROBLEMS, err);
	struct ofs_json_writer w = { &r->verdicts, " ", r->verdicts.len > 0 };
	struct ofs_buf verdict = { 0 };
	int ret = -1;

	if (problems != NULL) {
		put_verdict(r, line, problems, &verdict);
		ofs_buf_putc(&verdict, '\0');
		ret = verdict.bad ? ofs_no_memory(err) : 0;
	}
	if (ret == 0) {
		put_answer(r, name, (char *)verdict.data, problems);
		ofs_json_put_string(&w, NULL, (char *)verdict.data);
	}
	free(r->first);
	free(r->todo);
	r->first = r->todo = NULL;
	r->bad = 0;
	ofs_buf_fini(&verdict);
	free(problems);
	free(line);
	return ret;
}

/* The findings of the checkpoint that is compared. */
static int put_other(struct report *r, const char *other,
    const struct optimfs_scan *how, struct optimfs_error *err)
{
	struct optimfs_checkup out = { .symptom = symptom, .ctx = r };
	struct optimfs *fs = ofs_command_open(r->c, other, err);
	struct optimfs_error why = { 0 };
	uint64_t n;
	int ret;

	if (fs == NULL)
		return -1;
	put_lost(r);
	ofs_lost_fini(&r->lost);
	r->lost = (struct ofs_lost){ 0 };
	r->told = 0;
	r->of = other;
	ret = optimfs_fsck(fs, false, damage, r, &n, err);
	put_lost(r);
	if (ret == 0 && optimfs_check(fs, how, &out, &n, &why) == -1)
		put_finding(r, why.number, "", why.text,
		    "The optimizers could not be checked.");
	put_lost(r);
	if (ret == 0)
		ret = judge(r, fs, other, err);
	optimfs_close(fs);
	return ret;
}

static int put_drift(struct report *r, const char *other,
    struct optimfs_error *err)
{
	int ret;

	r->w.gap = "\n";
	ofs_json_put_string(&r->w, "other", other);
	begin_array(r, "drift");
	ret = ofs_diff_put(r->c, other, &r->page.json, err);
	end_array(r);
	return ret;
}

static void put_findings(struct report *r)
{
	begin_array(r, "findings");
	ofs_buf_put(&r->page.json, r->found.data, r->found.len);
	end_array(r);
	begin_array(r, "verdicts");
	ofs_buf_put(&r->page.json, r->verdicts.data, r->verdicts.len);
	end_array(r);
	ofs_json_close(&r->w, '}');
	ofs_buf_putc(&r->page.json, '\n');
}

static int put_data(struct report *r, const struct optimfs_scan *how,
    struct optimfs_error *err)
{
	bool data = (r->c->flags & OFS_NO_DATA) == 0;
	const char *other = r->c->noperands > 0 ? r->c->operand[0] : NULL;
	uint64_t n;

	if (optimfs_is_run(r->c->fs))
		return ofs_report_run(r->c, how, &r->page, err);
	r->of = other == NULL ? NULL : r->c->checkpoint;
	if (put_head(r, data, err) == -1 ||
	    (other != NULL && put_drift(r, other, err) == -1) ||
	    optimfs_fsck(r->c->fs, false, damage, r, &n, err) == -1 ||
	    put_tensors(r, how, data, err) == -1)
		return -1;
	put_lost(r);
	put_health(r, how);
	if (judge(r, r->c->fs, r->c->checkpoint, err) == -1)
		return -1;
	if (other != NULL && put_other(r, other, how, err) == -1)
		return -1;
	put_findings(r);
	if (ofs_interrupted(NULL))
		return optimfs_fail(err, ECANCELED, "interrupted");
	return r->page.json.bad || r->found.bad || r->page.title.bad || r->page.head.bad
	    ? ofs_no_memory(err)
	    : 0;
}

static int run_report(const struct ofs_verb *verb, int argc, char **argv)
{
	struct ofs_command c;
	struct optimfs_scan how;
	struct optimfs_error err;
	struct report r = { .c = &c };
	int status, ret;

	r.f = (struct ofs_json_writer){ &r.found, "\n", false };
	if (ofs_command_init(&c, verb, argc, argv,
		OFS_OUTPUT | OFS_NO_DATA | OFS_SECOND | OFS_JOBS | OFS_RUNS,
		0, 1,
		&status) == -1)
		return status;
	how = ofs_command_scan(&c);
	if (ofs_command_jobs(&c, verb, OFS_JOBS_MAX, &how.jobs, &status) == -1)
		goto out;
	if ((c.flags & OFS_NO_DATA) != 0 && c.noperands > 0) {
		status = ofs_tool_usage(verb,
		    "--no-data: two checkpoints are compared by their data");
		goto out;
	}
	if (optimfs_is_run(c.fs) && c.noperands > 0) {
		status = ofs_tool_usage(verb,
		    "%s is a run, which is not compared: give two checkpoints of it",
		    c.checkpoint);
		goto out;
	}
	if (c.output == NULL && ofs_is_terminal(STDOUT_FILENO)) {
		status = ofs_tool_usage(verb,
		    "the page is not for a terminal: give -o FILE, or -o - to print it anyway");
		goto out;
	}
	ret = ofs_page_check(c.output, &err);
	if (ret == 0)
		ret = put_data(&r, &how, &err);
	ofs_progress_end(&c.progress, ret == 0);
	if (ret == 0 && (c.output == NULL || strcmp(c.output, "-") == 0))
		ofs_page_print(page, &r.page, stdout);
	else if (ret == 0 && (ret = ofs_page_save(page, &r.page, c.output, &err)) == -1)
		ofs_command_explain_place(c.output, &err);
	else if (ret == 0)
		ofs_tool_done("wrote %s", c.output);
	status = ret == -1 ? ofs_command_stopped(&c, &err,
				 "nothing was changed, and no page was written")
			   : OFS_EXIT_OK;
out:
	ofs_page_fini(&r.page);
	ofs_buf_fini(&r.found);
	ofs_buf_fini(&r.verdicts);
	free(r.first);
	free(r.todo);
	ofs_lost_fini(&r.lost);
	ofs_holders_fini(&r.ranks);
	ofs_command_fini(&c);
	return ofs_tool_finish(status);
}

const struct ofs_verb ofs_verb_report = {
	.name = "report",
	.from = true,
	.synopsis = "[--no-data] [-j NUMBER] [-o FILE]\n"
		    "           CHECKPOINT|RUN [CHECKPOINT]",
	.summary = "write an HTML page that describes a checkpoint or a run",
	.options =
	    "  -o FILE    write the page to FILE; -: to standard output, as without -o\n"
	    "  --no-data  read only the index, no tensors\n"
	    "  -j NUMBER  number of threads (default: one per processor)\n",
	.run = run_report,
};
