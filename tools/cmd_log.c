/* cmd_log.c - optimfs log: a run step by step, and statistics over its steps */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/cmd_log.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/step.h"
#include "cli/interrupt.h"
#include "fs/walk.h"
#include "stats/stats.h"
#include "tools/log_print.h"

static void row_fini(struct ofs_log_row *r, size_t npaths)
{
	for (size_t i = 0; r->cell != NULL && i < npaths; i++) {
		free(r->cell[i].text);
		free(r->cell[i].error);
	}
	free(r->cell);
	free(r->name);
	free(r->path);
	free(r->problems);
	free(r->lr);
}

void ofs_log_fini(struct ofs_log *log)
{
	for (size_t i = 0; i < log->n; i++)
		row_fini(&log->row[i], (size_t)log->c->noperands);
	free(log->row);
	for (size_t i = 0; i < log->nstats; i++)
		free(log->stat[i]);
}

double ofs_log_value(const struct ofs_log_cell *cell, const char *stat)
{
	double v = NAN;
	char *end;

	if (cell->text != NULL) {
		v = strtod(cell->text, &end);
		return end == cell->text || *end != '\0' ? NAN : v;
	}
	if (cell->error == NULL)
		(void)ofs_stats_value(&cell->s, stat, &v);
	return v;
}

/* The first line of a small file, malloc'ed. */
static char *read_line(struct optimfs *fs, uint64_t node,
    struct optimfs_error *err)
{
	struct optimfs_file *file;
	char text[256], *line;
	ssize_t n;

	if (optimfs_file_open(fs, node, &file, err) == -1)
		return NULL;
	n = optimfs_file_read(file, text, sizeof(text) - 1, 0, err);
	optimfs_file_close(file);
	if (n < 0)
		return NULL;
	text[n] = '\0';
	text[strcspn(text, "\n")] = '\0';
	line = strdup(text);
	if (line == NULL)
		ofs_no_memory(err);
	return line;
}

/* 0 or -1. */
static int read_path(struct optimfs *fs, const char *path,
    const struct optimfs_scan *how, struct ofs_log_cell *cell,
    struct optimfs_error *err)
{
	struct optimfs_attr attr;
	bool no_memory = false;
	char *shape = NULL;

	if (optimfs_resolve(fs, path, &attr, err) == -1)
		return -1;
	if (!S_ISDIR(attr.mode))
		shape = ofs_attribute(fs, attr.node, "shape", &no_memory);
	if (no_memory)
		return ofs_no_memory(err);
	if (!S_ISDIR(attr.mode) && shape == NULL) {
		cell->text = read_line(fs, attr.node, err);
		return cell->text == NULL ? -1 : 0;
	}
	free(shape);
	if (optimfs_statistics(fs, path, how, &cell->s, err) == -1)
		return -1;
	free(cell->s.exponent);
	cell->s.exponent = NULL;
	cell->s.nexponents = 0;
	return 0;
}

/* A cell that cannot be read has the reason. -1: the whole work must stop. */
static int read_cell(struct optimfs *fs, const char *path,
    const struct optimfs_scan *how, struct ofs_log_cell *cell,
    struct optimfs_error *err)
{
	struct optimfs_error why = { 0 };

	if (read_path(fs, path, how, cell, &why) == 0)
		return 0;
	if (ofs_must_stop(&why))
		return optimfs_fail_with(err, &why);
	cell->error = ofs_error_without(&why, path);
	return cell->error == NULL ? ofs_no_memory(err) : 0;
}

int ofs_log_add_problem(struct ofs_log_row *r, const char *text,
    struct optimfs_error *err)
{
	char *both;

	if (*text == '\0')
		return 0;
	if (asprintf(&both, "%s%s%s", r->problems,
		*r->problems == '\0' ? "" : "; ", text) == -1)
		return ofs_no_memory(err);
	free(r->problems);
	r->problems = both;
	return 0;
}

/* Damage is the row's; what is not stops. */
static int add_failure(struct ofs_log_row *r, const struct optimfs_error *why,
    struct optimfs_error *err)
{
	return ofs_must_stop(why) ? optimfs_fail_with(err, why)
				  : ofs_log_add_problem(r, why->text, err);
}

static int read_paths(struct ofs_log *log, struct ofs_log_row *r,
    const struct optimfs_scan *how, struct optimfs_error *err)
{
	struct ofs_command *c = log->c;
	struct optimfs_error why;
	struct optimfs *fs;
	int ret = 0;

	if (!r->in_steps)
		return 0;
	fs = optimfs_run_open(c->fs, r->path, &why);
	if (fs == NULL)
		return add_failure(r, &why, err);
	r->cell = ofs_alloc((size_t)c->noperands, sizeof(*r->cell), err);
	if (r->cell == NULL)
		ret = -1;
	for (int i = 0; ret == 0 && i < c->noperands; i++)
		ret = read_cell(fs, c->operand[i], how, &r->cell[i], err);
	optimfs_close(fs);
	return ret;
}

/* The learning rates. */

struct groups {
	struct optimfs *fs;
	struct ofs_log_row *row;
	const char *dir;
};

static int add_rate(struct ofs_log_row *r, double lr, struct optimfs_error *err)
{
	for (size_t i = 0; i < r->nlr; i++)
		if (r->lr[i] == lr)
			return 0;
	if (ofs_grow(r->lr, r->nlr, r->caplr, err) == -1)
		return -1;
	r->lr[r->nlr++] = lr;
	return 0;
}

/* That of one group; it may have none, or one that is no number. */
static int add_group(void *ctx, const struct ofs_walk_entry *e,
    struct optimfs_error *err)
{
	struct groups *g = ctx;
	struct ofs_log_cell cell = { .text = NULL };
	struct optimfs_error why;
	char *path;
	double lr = NAN;

	if (*e->path == '\0' || !S_ISDIR(e->attr.mode))
		return 0;
	if (asprintf(&path, "%s/%s/lr", g->dir, e->path) == -1)
		return ofs_no_memory(err);
	if (read_path(g->fs, path, NULL, &cell, &why) == 0)
		lr = ofs_log_value(&cell, "max");
	free(path);
	free(cell.text);
	return isnan(lr) ? 0 : add_rate(g->row, lr, err);
}

static int add_groups(struct optimfs *fs, struct ofs_log_row *r,
    const char *dir, struct optimfs_error *err)
{
	struct groups g = { fs, r, dir };
	struct optimfs_attr attr;

	return optimfs_resolve(fs, dir, &attr, NULL) == -1
	    ? 0
	    : ofs_walk(fs, attr.node, 1, add_group, &g, err);
}

/* One of several optimizers. */
static int add_optimizer(void *ctx, const struct ofs_walk_entry *e,
    struct optimfs_error *err)
{
	struct groups *g = ctx;
	char *dir;
	int ret;

	if (*e->path == '\0' || !S_ISDIR(e->attr.mode))
		return 0;
	if (asprintf(&dir, "%s/%s/param_groups", g->dir, e->path) == -1)
		return ofs_no_memory(err);
	ret = add_groups(g->fs, g->row, dir, err);
	free(dir);
	return ret;
}

static int read_rates(struct optimfs *fs, struct ofs_log_row *r,
    struct optimfs_error *err)
{
	struct groups g = { fs, r, "optim" };
	struct optimfs_attr attr;

	if (optimfs_resolve(fs, "optim/param_groups", &attr, NULL) == 0)
		return add_groups(fs, r, "optim/param_groups", err);
	return optimfs_resolve(fs, g.dir, &attr, NULL) == -1
	    ? 0
	    : ofs_walk(fs, attr.node, 1, add_optimizer, &g, err);
}

int ofs_log_read_index(struct ofs_log *log, struct ofs_log_row *r,
    struct optimfs_error *err)
{
	struct optimfs_run_facts facts;
	struct optimfs_error why;
	struct optimfs *fs;
	int ret;

	if (r->path == NULL)
		return 0;
	if (optimfs_run_facts(log->c->fs, r->path, &facts, &why) == -1)
		return add_failure(r, &why, err);
	r->read = true;
	r->bytes = facts.bytes;
	ret = ofs_log_add_problem(r, facts.problems, err);
	free(facts.problems);
	fs = ret == -1 ? NULL : optimfs_run_open(log->c->fs, r->path, err);
	if (fs == NULL)
		return -1;
	ret = read_rates(fs, r, err);
	optimfs_close(fs);
	return ret;
}

/* Appends a row; 1: out of memory. */
static int add_row(void *ctx, const struct optimfs_run_entry *e)
{
	struct ofs_log *log = ctx;
	struct ofs_log_row r = { .step = e->step,
		.mtime_ns = e->mtime_ns,
		.in_steps = e->complete && e->why[0] == '\0' };

	if (ofs_grow(log->row, log->n, log->cap, NULL) == -1)
		return 1;
	r.name = strdup(e->name);
	r.path = e->path == NULL ? NULL : strdup(e->path);
	if (asprintf(&r.problems, "%s%s",
		e->complete ? "" : "unfinished: ", e->why) == -1)
		r.problems = NULL;
	log->row[log->n++] = r;
	return r.name == NULL || r.problems == NULL ||
	    (r.path == NULL && e->path != NULL);
}

int ofs_log_list(struct ofs_log *log, struct optimfs_error *err)
{
	return ofs_command_list_run(log->c, add_row, log, &log->n, err);
}

/* Fails for a path that no step has; its error suggests another one. */
static int check_path(struct ofs_log *log, int i, struct optimfs_error *err)
{
	const struct ofs_log_row *last = NULL;
	struct optimfs_attr attr;
	char *path;
	int ret;

	for (size_t k = 0; k < log->n; k++) {
		const struct ofs_log_row *r = &log->row[k];

		if (r->cell != NULL && r->cell[i].error == NULL)
			return 0;
		last = r->cell != NULL ? r : last;
	}
	if (last == NULL)
		return 0;
	if (asprintf(&path, "%s/%s", last->path, log->c->operand[i]) == -1)
		return ofs_no_memory(err);
	ret = ofs_command_resolve(log->c, path, &attr, err);
	free(path);
	return ret == -1 ? -1 : optimfs_fail_with(err, last->cell[i].error);
}

/* A pattern stands for what it matches in the last step that can be read. */
static int expand(struct ofs_log *log, struct optimfs_error *err)
{
	struct optimfs_attr attr;
	size_t k = log->n;

	while (k > 0 &&
	    (log->row[k - 1].path == NULL ||
		optimfs_resolve(log->c->fs, log->row[k - 1].path, &attr,
		    NULL) == -1))
		k--;
	return k == 0
	    ? 0
	    : ofs_command_expand(log->c, log->row[k - 1].path, 0, err);
}

static int read_run(struct ofs_log *log, const struct optimfs_scan *how,
    struct optimfs_error *err)
{
	struct ofs_command *c = log->c;
	int ret = ofs_log_list(log, err) == -1 || expand(log, err) == -1 ? -1 : 0;

	for (size_t i = 0; ret == 0 && i < log->n; i++) {
		ofs_progress_step(&c->progress, i, log->n, log->row[i].name);
		ret = ofs_interrupted(NULL)
		    ? optimfs_fail(err, ECANCELED, "interrupted")
		    : c->noperands == 0
		    ? ofs_log_read_index(log, &log->row[i], err)
		    : read_paths(log, &log->row[i], how, err);
	}
	ofs_progress_clear(&c->progress);
	for (int i = 0; ret == 0 && i < c->noperands; i++)
		ret = check_path(log, i, err);
	return ret;
}

/* The names of --stat; an exit status. */
static int parse_stats(struct ofs_log *log, const struct ofs_verb *verb)
{
	const char *list = log->c->stat == NULL ? "rms,max,nan" : log->c->stat;
	struct optimfs_statistics none = { 0 };
	double v;

	for (;; list++) {
		size_t n = strcspn(list, ",");
		char *name;

		if (log->nstats == OFS_LOG_STATS_MAX)
			return ofs_tool_usage(verb, "--stat has more than %d",
			    OFS_LOG_STATS_MAX);
		name = strndup(list, n);
		if (name == NULL)
			return OFS_EXIT_IO;
		log->stat[log->nstats++] = name;
		if (!ofs_stats_value(&none, name, &v))
			return ofs_command_which_value(verb, "--stat", name,
			    "no such value");
		list += n;
		if (*list == '\0')
			return OFS_EXIT_OK;
	}
}

static int usage(struct ofs_log *log, const struct ofs_verb *verb)
{
	struct ofs_command *c = log->c;

	if (c->stat != NULL && c->noperands == 0)
		return ofs_tool_usage(verb, "--stat: of which path?");
	if ((c->flags & OFS_CSV) != 0 && (c->flags & OFS_JSON) != 0)
		return ofs_tool_usage(verb, "--csv or --json, not both");
	return parse_stats(log, verb);
}

static int run_log(const struct ofs_verb *verb, int argc, char **argv)
{
	struct ofs_command c;
	struct ofs_log log = { .c = &c };
	struct optimfs_scan how;
	struct optimfs_error err;
	int status;

	if (ofs_command_init(&c, verb, argc, argv,
		OFS_RUNS | OFS_PATHS | OFS_EACH_STEP | OFS_JSON | OFS_CSV |
		    OFS_STAT | OFS_JOBS,
		0, 1 << 20, &status) == -1)
		return status;
	how = ofs_command_scan(&c);
	how.progress = NULL; /* that of the steps is shown */
	status = usage(&log, verb);
	if (status != OFS_EXIT_OK ||
	    ofs_command_jobs(&c, verb, OFS_JOBS_MAX, &how.jobs, &status) == -1)
		goto out;
	if (read_run(&log, &how, &err) == -1)
		status = ofs_command_stopped(&c, &err, "nothing was printed");
	else if ((c.flags & OFS_JSON) != 0)
		ofs_log_print_json(&log);
	else if ((c.flags & OFS_CSV) != 0)
		ofs_log_print_csv(&log);
	else
		ofs_log_print_table(&log);
out:
	ofs_log_fini(&log);
	ofs_command_fini(&c);
	return ofs_tool_finish(status);
}

const struct ofs_verb ofs_verb_log = {
	.name = "log",
	.from = true,
	.synopsis = "[--stat VALUE,...] [--csv] [--json] [-j NUMBER]\n"
		    "           [-o OPTION] RUN [PATH...]",
	.summary =
	    "list the steps of a run, or statistics of tensors over them",
	.options =
	    "  --stat VALUE,...  which statistics of PATH (default: rms,max,nan)\n"
	    "  --csv             print comma-separated values\n"
	    "  --json            print one JSON object per step and PATH\n"
	    "  -j NUMBER         number of threads (default: one per processor)\n",
	.run = run_log,
};
