/* cmd_stat.c - optimfs stat: statistics of tensors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "optimfs/analyze.h"

#include "base/buf.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/natural.h"
#include "cli/colour.h"
#include "stats/stats.h"
#include "tools/command.h"
#include "cli/lost.h"

/* The data kept of a tensor: its statistics, without the histogram in a
 * table. */
struct row {
	char *path, *dtype, *shape;
	uint64_t bytes;
	int rank;
	struct optimfs_statistics s;
	struct optimfs_error *error; /* used instead of s; malloc'ed */
	double key;
};

struct rows {
	struct ofs_command *c;
	struct row *row;
	size_t n, cap;
	struct ofs_lost lost;
	/* --only NAME OP NUMBER */
	char name[32];
	char op; /* '<', '>', 'l' and 'g' with '=', '=', '!' */
	double limit;
	bool histograms, bad;
};

static void row_fini(struct row *r)
{
	free(r->path);
	free(r->dtype);
	free(r->shape);
	free(r->error);
	optimfs_statistics_fini(&r->s);
}

static bool holds(double v, char op, double limit)
{
	switch (op) {
	case '<':
		return v < limit;
	case '>':
		return v > limit;
	case 'l':
		return v <= limit;
	case 'g':
		return v >= limit;
	case '=':
		return v == limit;
	default:
		return v != limit;
	}
}

/* "nan>0", "rms <= 1e-8" */
static int parse_only(struct rows *rows, const char *text)
{
	size_t n = strcspn(text, " <>=!");
	struct optimfs_statistics none = { 0 };
	double v;
	char *end;

	if (n == 0 || n >= sizeof(rows->name))
		return -1;
	memcpy(rows->name, text, n);
	if (!ofs_stats_value(&none, rows->name, &v))
		return -1;
	text += n + strspn(text + n, " ");
	rows->op = *text;
	if (*text == '\0' || strchr("<>=!", *text) == NULL)
		return -1;
	text++;
	if (*text == '=') {
		rows->op = rows->op == '<' ? 'l'
		    : rows->op == '>'      ? 'g'
					   : rows->op;
		text++;
	} else if (rows->op == '!') {
		return -1;
	}
	rows->limit = strtod(text, &end);
	end += strspn(end, " ");
	return end == text || *end != '\0' ? -1 : 0;
}

static bool wanted(const struct rows *rows, const struct row *r)
{
	double v;

	if (rows->op == '\0' || r->error != NULL)
		return true;
	return ofs_stats_value(&r->s, rows->name, &v) &&
	    holds(v, rows->op, rows->limit);
}

/* Copies s. */
static int copy_statistics(struct row *r, const struct optimfs_statistics *s,
    bool histogram)
{
	r->s = *s;
	r->s.exponent = NULL;
	r->s.nexponents = histogram ? s->nexponents : 0;
	if (r->s.nexponents == 0)
		return 0;
	r->s.exponent = malloc(s->nexponents * sizeof(*s->exponent));
	if (r->s.exponent == NULL) {
		r->s.nexponents = 0;
		return -1;
	}
	memcpy(r->s.exponent, s->exponent,
	    s->nexponents * sizeof(*s->exponent));
	return 0;
}

static int add_row(void *ctx, const struct optimfs_tensor *t,
    const struct optimfs_statistics *s, const struct optimfs_error *err)
{
	struct rows *rows = ctx;
	struct row r = { .bytes = t->bytes, .rank = t->rank };

	if (ofs_grow(rows->row, rows->n, rows->cap, NULL) == -1)
		goto fail;
	r.path = strdup(t->path);
	r.dtype = strdup(t->dtype);
	r.shape = strdup(t->shape);
	if (s == NULL)
		r.error = ofs_error_without(err, t->path);
	if (r.path == NULL || r.dtype == NULL || r.shape == NULL ||
	    (s == NULL && r.error == NULL) ||
	    (s != NULL && copy_statistics(&r, s, rows->histograms) == -1))
		goto fail;
	if (!wanted(rows, &r)) {
		row_fini(&r);
		return 0;
	}
	if (rows->c->sort != NULL && s != NULL)
		ofs_stats_value(s, rows->c->sort, &r.key);
	if (isnan(r.key) && s != NULL && s->elements == 0)
		r.key = -INFINITY;
	rows->row[rows->n++] = r;
	return 0;
fail:
	row_fini(&r);
	rows->bad = true;
	return 1;
}

static int by_path(const void *a, const void *b)
{
	const struct row *x = a, *y = b;
	int c = ofs_natural(x->path, y->path);

	return c != 0 ? c : x->rank - y->rank;
}

/* Descending; NaN and unreadable ones first, empty tensors last. */
static int by_key(const void *a, const void *b)
{
	const struct row *x = a, *y = b;
	bool p = isnan(x->key) || x->error != NULL;
	bool q = isnan(y->key) || y->error != NULL;

	if (p != q)
		return p ? -1 : 1;
	if (!p && x->key != y->key)
		return x->key > y->key ? -1 : 1;
	return by_path(a, b);
}

/* The location of the first NaN or infinity of a row. */
static bool first_odd(struct rows *rows, const struct row *r,
    struct optimfs_location *where)
{
	uint64_t first = r->s.first_nan;

	if (first == OPTIMFS_NO_INDEX)
		first = r->s.first_inf;
	return r->error == NULL && first != OPTIMFS_NO_INDEX &&
	    optimfs_locate(rows->c->fs, r->path, r->rank, first, where, NULL) ==
	    0;
}

static void put_first(struct rows *rows, const struct row *r,
    struct ofs_json_writer *w)
{
	struct optimfs_location where;

	if (!first_odd(rows, r, &where))
		return;
	ofs_json_open(w, "first", '{');
	ofs_json_put_u64(w, "element", where.element);
	ofs_json_put_rank(w, "rank", where.rank);
	ofs_json_put_string(w, "file", where.file);
	ofs_json_put_u64(w, "offset", where.offset);
	ofs_json_put_bool(w, "encoded", where.encoded);
	ofs_json_close(w, '}');
	free(where.file);
}

static void json(struct rows *rows, const struct row *r)
{
	struct ofs_json_writer w;
	struct ofs_buf b = { 0 };

	ofs_json_begin(&w, &b, "optimfs.stat");
	ofs_json_put_string(&w, "path", r->path);
	if (r->dtype != NULL)
		ofs_json_put_string(&w, "dtype", r->dtype);
	if (r->shape != NULL) {
		ofs_json_open(&w, "shape", '[');
		ofs_buf_puts(&b, r->shape);
		ofs_json_close(&w, ']');
	}
	if (r->rank >= 0)
		ofs_json_put_i64(&w, "rank", r->rank);
	if (r->error != NULL) {
		ofs_json_put_string(&w, "error", r->error->text);
	} else {
		ofs_buf_puts(&b, ", ");
		ofs_stats_json(&r->s, &b);
		put_first(rows, r, &w);
	}
	ofs_json_print(&w);
}

/* NaN: there is none, because no element is finite. */
static void print_number(size_t *used, double v)
{
	if (isnan(v))
		ofs_tool_print_cell(used, 10, "-");
	else
		ofs_tool_print_cell(used, 10, "%.4g", v);
}

/* Red unless it is 0. */
static void print_odd(size_t *used, uint64_t n)
{
	if (n > 0)
		ofs_colour(OFS_RED);
	ofs_tool_print_cell(used, 5, "%" PRIu64, n);
	if (n > 0)
		ofs_colour(OFS_PLAIN);
}

static void print_unread(const struct row *r)
{
	struct ofs_buf b = { 0 };

	if (r->rank >= 0)
		ofs_buf_printf(&b, "%4d ", r->rank);
	ofs_tool_put_path(&b, r->path, b.len + strlen(": "));
	ofs_buf_printf(&b, ": %s\n", r->error->text);
	ofs_tool_print_buf(&b, 4);
}

static void print_first(struct rows *rows, const struct row *r)
{
	struct optimfs_location where;
	struct ofs_buf b = { 0 };

	if (!first_odd(rows, r, &where))
		return;
	ofs_buf_printf(&b,
	    "      the first %s is element %" PRIu64 ", in %s at %s%" PRIu64,
	    r->s.nan > 0 ? "NaN" : "infinity", where.element, where.file,
	    where.encoded ? "decoded byte " : "byte ", where.offset);
	if (where.rank >= 0)
		ofs_buf_printf(&b, " (rank %d)", where.rank);
	ofs_buf_putc(&b, '\n');
	ofs_tool_print_buf(&b, 8);
	free(where.file);
}

static void line(struct rows *rows, const struct row *r)
{
	const struct optimfs_statistics *s = &r->s;
	size_t used = 0;

	if (r->error != NULL) {
		if (!ofs_lost_add(&rows->lost, r->path, r->error->text,
			r->error))
			print_unread(r);
		return;
	}
	if (r->rank >= 0)
		ofs_tool_print_cell(&used, 4, "%d", r->rank);
	ofs_tool_print_cell(&used, 10, "%" PRIu64, s->elements);
	print_odd(&used, s->nan);
	print_odd(&used, s->inf);
	ofs_tool_print_cell(&used, 8, "%" PRIu64, s->zeros);
	print_number(&used, s->min);
	print_number(&used, s->max);
	print_number(&used, s->mean);
	print_number(&used, s->rms);
	ofs_tool_print_path(r->path, used);
	print_first(rows, r);
}

static void print_header(bool by_rank)
{
	static const struct {
		const char *name;
		size_t width;
	} cells[] = { { "elements", 10 }, { "nan", 5 }, { "inf", 5 },
		{ "zeros", 8 }, { "min", 10 }, { "max", 10 }, { "mean", 10 },
		{ "rms", 10 } };
	size_t used = 0;

	ofs_colour(OFS_BOLD);
	if (by_rank)
		ofs_tool_print_cell(&used, 4, "rank");
	for (size_t i = 0; i < sizeof(cells) / sizeof(*cells); i++)
		ofs_tool_print_cell(&used, cells[i].width, "%s", cells[i].name);
	ofs_tool_print_path("path", used);
	ofs_colour(OFS_PLAIN);
}

static void print_json(struct rows *rows)
{
	struct ofs_json_writer w;
	struct ofs_buf b = { 0 };
	uint64_t unread = 0;

	for (size_t i = 0; i < rows->n; i++) {
		json(rows, &rows->row[i]);
		unread += rows->row[i].error != NULL;
	}
	ofs_json_begin(&w, &b, "optimfs.stat.summary");
	ofs_json_put_u64(&w, "rows", rows->n);
	ofs_json_put_u64(&w, "unread", unread);
	ofs_json_print(&w);
}

static void print_rows(struct rows *rows)
{
	if (rows->c->flags & OFS_JSON) {
		print_json(rows);
		return;
	}
	if (rows->n == 0)
		return;
	print_header(rows->c->by != NULL);
	for (size_t i = 0; i < rows->n; i++)
		line(rows, &rows->row[i]);
	ofs_lost_tell(&rows->lost, ofs_lost_print, NULL);
}

/* Fails for a path that is no directory and no tensor. */
static int refuse_text(struct ofs_command *c, struct optimfs_error *err)
{
	const char *path = c->operand[0];
	struct optimfs_attr attr;

	if (ofs_command_resolve(c, path, &attr, err) == -1)
		return -1;
	return S_ISDIR(attr.mode)
	    ? 0
	    : optimfs_fail(err, EINVAL, "%s: is text, which has no statistics",
		  path);
}

/* Prints one tensor, or the sums of a directory, in full. */
static int print_one(struct rows *rows, struct optimfs_error *err)
{
	struct optimfs_statistics sum = ofs_stats_none();
	const struct row *row = NULL;
	struct ofs_buf b = { 0 };
	size_t read = 0;
	int ret = 0;

	if (rows->n == 0 && refuse_text(rows->c, err) == -1)
		return -1;
	for (size_t i = 0; i < rows->n && ret == 0; i++) {
		const struct row *r = &rows->row[i];

		if (r->error != NULL) {
			if (!ofs_lost_add(&rows->lost, r->path, r->error->text,
				r->error))
				ofs_tool_say("%s: %s", r->path, r->error->text);
			continue;
		}
		row = r;
		read++;
		ret = ofs_stats_merge(&sum, &row->s, err);
	}
	ofs_lost_tell(&rows->lost, ofs_tool_say_text, NULL);
	if (read > 0 && read < rows->n)
		ofs_tool_say("%s: %zu of %zu tensors could not be read, and "
			     "are not counted",
		    rows->c->operand[0], rows->n - read, rows->n);
	if (ret == 0 && (read > 0 || rows->n == 0)) {
		ofs_stats_text(read == 1 ? &row->s : &sum, &b);
		ofs_print_buf(&b);
	}
	optimfs_statistics_fini(&sum);
	return ret;
}

static int usage(struct rows *rows, const struct ofs_verb *verb)
{
	struct ofs_command *c = rows->c;
	struct optimfs_statistics none = { 0 };
	double v;

	if (c->only != NULL && parse_only(rows, c->only) == -1)
		return ofs_command_which_value(verb, "--only", c->only,
		    "not VALUE>NUMBER, as in nan>0");
	if (c->sort != NULL && !ofs_stats_value(&none, c->sort, &v))
		return ofs_command_which_value(verb, "--sort", c->sort,
		    "no such value");
	if (c->by != NULL && strcmp(c->by, "rank") != 0)
		return ofs_tool_usage(verb, "--by %s: there is --by rank",
		    c->by);
	return OFS_EXIT_OK;
}

static int stat_paths(struct rows *rows, const struct optimfs_scan *how,
    struct optimfs_error *err)
{
	static char root[] = "/", *whole[] = { root };
	struct ofs_command *c = rows->c;
	char **path = c->noperands == 0 ? whole : c->operand;
	struct optimfs_attr attr;
	int n = c->noperands == 0 ? 1 : c->noperands, ret = 0;

	for (int i = 0; i < n && ret == 0; i++) {
		if (ofs_command_resolve(c, path[i], &attr, err) == -1)
			return -1;
		ret = optimfs_statistics_tree(c->fs, path[i], c->by != NULL,
		    how, add_row, rows, err);
		if (ret == 0 && rows->bad)
			ret = ofs_no_memory(err);
	}
	ofs_progress_end(&c->progress, ret == 0);
	return ret;
}

/* Exactly one path, and no option that implies a table? */
static bool in_full(const struct ofs_command *c)
{
	return c->noperands == 1 && c->sort == NULL && c->only == NULL &&
	    c->by == NULL && (c->flags & OFS_JSON) == 0;
}

static int run_stat(const struct ofs_verb *verb, int argc, char **argv)
{
	struct ofs_command c;
	struct optimfs_scan how;
	struct optimfs_error err;
	struct rows rows = { .c = &c, .lost.list = verb->name };
	int status, ret;

	if (ofs_command_init(&c, verb, argc, argv,
		OFS_PATHS | OFS_JSON | OFS_JOBS | OFS_SORT | OFS_ONLY | OFS_BY,
		0, 1 << 20, &status) == -1)
		return status;
	how = ofs_command_scan(&c);
	status = usage(&rows, verb);
	if (status != OFS_EXIT_OK ||
	    ofs_command_jobs(&c, verb, OFS_JOBS_MAX, &how.jobs, &status) == -1)
		goto out;
	rows.histograms = in_full(&c) || (c.flags & OFS_JSON) != 0;
	ret = stat_paths(&rows, &how, &err);
	if (rows.n > 1 && (c.sort != NULL || (c.flags & OFS_JSON) == 0))
		qsort(rows.row, rows.n, sizeof(*rows.row),
		    c.sort != NULL ? by_key : by_path);
	if (ret == 0 && in_full(&c))
		ret = print_one(&rows, &err);
	else if (ret == 0)
		print_rows(&rows);
	if (ret == 0 && c.only != NULL && rows.n == 0)
		ofs_tool_done("no tensor has %s", c.only);
	status = ret == -1
	    ? ofs_command_stopped(&c, &err, "nothing was changed or printed")
	    : OFS_EXIT_OK;
	for (size_t i = 0; i < rows.n; i++)
		if (rows.row[i].error != NULL && status == OFS_EXIT_OK)
			status = ofs_tool_status(rows.row[i].error->code);
out:
	for (size_t i = 0; i < rows.n; i++)
		row_fini(&rows.row[i]);
	free(rows.row);
	ofs_command_fini(&c);
	return ofs_tool_finish(status);
}

const struct ofs_verb ofs_verb_stat = {
	.name = "stat",
	.from = true,
	.synopsis = "[--sort VALUE] [--only CONDITION] [--by rank] [--json]\n"
		    "           [-j NUMBER] [-o OPTION] CHECKPOINT [PATH...]",
	.summary = "print statistics of tensors: NaN, range, norms, exponents",
	.options =
	    "  --sort VALUE      largest first, by a value that stat prints: rms, nan, ...\n"
	    "  --only CONDITION  only tensors that satisfy it, as in 'nan>0'\n"
	    "  --by rank         one row for each rank's part of a tensor\n"
	    "  --json            one JSON object per tensor\n"
	    "  -j NUMBER         number of threads (default: one per processor)\n",
	.run = run_stat,
};
