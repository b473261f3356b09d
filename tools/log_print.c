/* log_print.c - the steps of a run as a table, JSON and CSV */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/log_print.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/dtype.h"
#include "base/human.h"
#include "cli/bars.h"
#include "cli/terminal.h"
#include "cli/wrap.h"
#include "tools/cmd_log.h"

#define NUMBER_SIZE 80

/* A count, or a value with all its digits. */
static const char *put_number(double v, char text[NUMBER_SIZE])
{
	if (v == floor(v) && fabs(v) < 1e15)
		snprintf(text, NUMBER_SIZE, "%.0f", v);
	else
		ofs_print_double(v, text);
	return text;
}

/* The same with as many digits as a table has; NaN: there is none. */
static const char *put_short(double v, char text[NUMBER_SIZE])
{
	if (isnan(v))
		snprintf(text, NUMBER_SIZE, "-");
	else if (v == floor(v) && fabs(v) < 1e9)
		snprintf(text, NUMBER_SIZE, "%.0f", v);
	else
		snprintf(text, NUMBER_SIZE, "%.4g", v);
	return text;
}

/* Tables */

static void put_step(struct ofs_buf *b, const struct ofs_log_row *r)
{
	if (r->step >= 0)
		ofs_buf_printf(b, "%10" PRId64, r->step);
	else
		ofs_buf_printf(b, "%10s", "-");
}

/* One rate, or the least and the greatest. */
static const char *put_rates(const struct ofs_log_row *r, char text[64])
{
	double least = INFINITY, most = -INFINITY;

	for (size_t i = 0; i < r->nlr; i++) {
		least = fmin(least, r->lr[i]);
		most = fmax(most, r->lr[i]);
	}
	if (r->nlr == 0)
		return "-";
	if (r->nlr == 1)
		snprintf(text, 64, "%g", least);
	else
		snprintf(text, 64, "%g..%g", least, most);
	return text;
}

static void print_step(const struct ofs_log_row *r)
{
	time_t when = (time_t)(r->mtime_ns / 1000000000);
	char date[32], size[OFS_HUMAN_SIZE], rates[64];
	struct ofs_buf b = { 0 };
	struct tm tm;

	strftime(date, sizeof(date), "%Y-%m-%d %H:%M", localtime_r(&when, &tm));
	put_step(&b, r);
	ofs_buf_printf(&b, "  %-16s  %9s  %10s  ", date,
	    r->read ? ofs_human_bytes(r->bytes, size) : "-",
	    put_rates(r, rates));
	ofs_buf_plain(&b, r->name, strlen(r->name));
	ofs_buf_printf(&b, "%s%s\n", *r->problems == '\0' ? "" : ": ",
	    r->problems);
	ofs_tool_print_buf(&b, 12);
}

static bool is_text(const struct ofs_log *log, size_t path)
{
	for (size_t i = 0; i < log->n; i++)
		if (log->row[i].cell != NULL &&
		    log->row[i].cell[path].text != NULL)
			return true;
	return false;
}

static void put_cell(const struct ofs_log *log, const struct ofs_log_cell *cell,
    struct ofs_buf *b)
{
	char text[NUMBER_SIZE];

	if (cell->error != NULL)
		ofs_buf_printf(b, "  %s", cell->error->text);
	else if (cell->text != NULL)
		ofs_buf_printf(b, " %10s", cell->text);
	else
		for (size_t i = 0; i < log->nstats; i++)
			ofs_buf_printf(b, " %10s",
			    put_short(ofs_log_value(cell, log->stat[i]), text));
}

static void print_values(const struct ofs_log *log, size_t path)
{
	for (size_t i = 0; i < log->n; i++) {
		const struct ofs_log_row *r = &log->row[i];
		struct ofs_buf b = { 0 };

		put_step(&b, r);
		if (r->cell != NULL)
			put_cell(log, &r->cell[path], &b);
		else {
			ofs_buf_puts(&b, "  ");
			ofs_buf_plain(&b, r->name, strlen(r->name));
			ofs_buf_printf(&b, ": %s", r->problems);
		}
		ofs_buf_putc(&b, '\n');
		ofs_tool_print_buf(&b, 12);
	}
}

/* A line of bars, one for a step, or for as many as the terminal needs. */

struct spark {
	const struct ofs_log *log;
	size_t path, stat, group;
	double least, most;
};

/* The greatest value of a group of rows; NaN: it has none. */
static double highest(const struct spark *s, size_t from)
{
	double most = NAN;

	for (size_t i = from; i < from + s->group && i < s->log->n; i++) {
		const struct ofs_log_row *r = &s->log->row[i];

		if (r->cell != NULL)
			most = fmax(most,
			    ofs_log_value(&r->cell[s->path],
				s->log->stat[s->stat]));
	}
	return isfinite(most) ? most : NAN;
}

/* Finds the range; false: there are no two values. */
static bool measure(struct spark *s)
{
	size_t n = 0;

	s->least = INFINITY;
	s->most = -INFINITY;
	for (size_t i = 0; i < s->log->n; i += s->group) {
		double v = highest(s, i);

		s->least = fmin(s->least, v);
		s->most = fmax(s->most, v);
		n += !isnan(v);
	}
	return n > 1;
}

static void print_spark(struct spark *s, const char *name, bool utf8)
{
	char a[NUMBER_SIZE], b[NUMBER_SIZE];

	if (!measure(s))
		return;
	printf("%10s  ", name);
	for (size_t i = 0; i < s->log->n; i += s->group) {
		double v = highest(s, i), range = s->most - s->least;
		double part = range > 0 ? (v - s->least) / range : 0;

		fputs(isnan(v) ? " "
			       : ofs_bar(utf8,
				     1 + (unsigned)(part * (OFS_BAR_MAX - 1))),
		    stdout);
	}
	printf("  %s to %s\n", put_short(s->least, a), put_short(s->most, b));
}

static void print_sparks(const struct ofs_log *log, size_t path)
{
	size_t width = ofs_terminal_width(STDOUT_FILENO);
	size_t room = width > 80 ? width - 40 : 40;
	bool text = is_text(log, path), utf8 = ofs_locale_is_utf8();
	struct spark s = { .log = log, .path = path };

	s.group = (log->n + room - 1) / room;
	for (s.stat = 0; s.stat < (text ? 1 : log->nstats); s.stat++)
		print_spark(&s, text ? "value" : log->stat[s.stat], utf8);
}

static void print_header(const struct ofs_log *log, size_t path)
{
	printf("%10s", "step");
	if (is_text(log, path))
		printf(" %10s", "value");
	else
		for (size_t i = 0; i < log->nstats; i++)
			printf(" %10s", log->stat[i]);
	putchar('\n');
}

void ofs_log_print_table(const struct ofs_log *log)
{
	size_t npaths = (size_t)log->c->noperands;

	if (npaths == 0) {
		printf("%10s  %-16s  %9s  %10s\n", "step", "time", "size",
		    "lr");
		for (size_t i = 0; i < log->n; i++)
			print_step(&log->row[i]);
	}
	for (size_t i = 0; i < npaths; i++) {
		ofs_tool_print(log->c->operand[i], 4);
		putchar('\n');
		print_header(log, i);
		print_values(log, i);
		if (ofs_is_terminal(STDOUT_FILENO))
			print_sparks(log, i);
	}
}

/* JSON */

static void json_begin(struct ofs_json_writer *w, struct ofs_buf *b,
    const struct ofs_log_row *r)
{
	ofs_json_begin(w, b, "optimfs.log");
	ofs_json_put_rank(w, "step", r->step);
	ofs_json_put_string(w, "name", r->name);
}

static void json_step(const struct ofs_log_row *r)
{
	struct ofs_json_writer w;
	struct ofs_buf b = { 0 };

	json_begin(&w, &b, r);
	ofs_json_put_i64(&w, "mtime_ns", r->mtime_ns);
	if (r->read)
		ofs_json_put_u64(&w, "bytes", r->bytes);
	else
		ofs_json_put_raw(&w, "bytes", "null");
	ofs_json_open(&w, "lr", '[');
	for (size_t i = 0; i < r->nlr; i++)
		ofs_json_put_real(&w, NULL, r->lr[i]);
	ofs_json_close(&w, ']');
	ofs_json_put_string(&w, "problems",
	    *r->problems == '\0' ? NULL : r->problems);
	ofs_json_print(&w);
}

static void json_value(struct ofs_json_writer *w, const char *name, double v)
{
	char text[NUMBER_SIZE];

	ofs_json_put_raw(w, name, isfinite(v) ? put_number(v, text) : "null");
}

static void json_cell(const struct ofs_log *log, const struct ofs_log_row *r,
    size_t path)
{
	const struct ofs_log_cell *cell =
	    r->cell == NULL ? NULL : &r->cell[path];
	struct ofs_json_writer w;
	struct ofs_buf b = { 0 };

	json_begin(&w, &b, r);
	ofs_json_put_string(&w, "path", log->c->operand[path]);
	if (cell == NULL)
		ofs_json_put_string(&w, "error", r->problems);
	else if (cell->error != NULL)
		ofs_json_put_string(&w, "error", cell->error->text);
	else if (cell->text != NULL)
		ofs_json_put_string(&w, "value", cell->text);
	else
		for (size_t i = 0; i < log->nstats; i++)
			json_value(&w, log->stat[i],
			    ofs_log_value(cell, log->stat[i]));
	ofs_json_print(&w);
}

void ofs_log_print_json(const struct ofs_log *log)
{
	struct ofs_json_writer w;
	struct ofs_buf b = { 0 };

	for (size_t i = 0; i < log->n; i++) {
		if (log->c->noperands == 0)
			json_step(&log->row[i]);
		for (int k = 0; k < log->c->noperands; k++)
			json_cell(log, &log->row[i], (size_t)k);
	}
	ofs_json_begin(&w, &b, "optimfs.log.summary");
	ofs_json_put_u64(&w, "checkpoints", log->n);
	ofs_json_print(&w);
}

/* CSV (RFC 4180, with lines that end as those of Unix) */

static void csv_text(struct ofs_buf *b, const char *text)
{
	bool quote = strpbrk(text, ",\"\r\n") != NULL;

	ofs_buf_puts(b, quote ? ",\"" : ",");
	for (; *text != '\0'; text++) {
		if (quote && *text == '"')
			ofs_buf_putc(b, '"');
		ofs_buf_putc(b, *text);
	}
	if (quote)
		ofs_buf_putc(b, '"');
}

static void csv_begin(struct ofs_buf *b, const struct ofs_log_row *r)
{
	if (r->step >= 0)
		ofs_buf_printf(b, "%" PRId64, r->step);
	csv_text(b, r->name);
}

static void csv_step(struct ofs_buf *b, const struct ofs_log_row *r)
{
	time_t when = (time_t)(r->mtime_ns / 1000000000);
	char date[32], text[NUMBER_SIZE];
	struct tm tm;

	strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%SZ",
	    gmtime_r(&when, &tm));
	csv_begin(b, r);
	csv_text(b, date);
	ofs_buf_putc(b, ',');
	if (r->read)
		ofs_buf_printf(b, "%" PRIu64, r->bytes);
	ofs_buf_putc(b, ',');
	for (size_t i = 0; i < r->nlr; i++)
		ofs_buf_printf(b, "%s%s", i == 0 ? "" : " ",
		    put_number(r->lr[i], text));
	csv_text(b, r->problems);
	ofs_buf_putc(b, '\n');
}

static void csv_cell(const struct ofs_log *log, const struct ofs_log_row *r,
    size_t path, struct ofs_buf *b)
{
	const struct ofs_log_cell *cell =
	    r->cell == NULL ? NULL : &r->cell[path];
	bool some = cell != NULL && cell->error == NULL;
	char text[NUMBER_SIZE];

	csv_begin(b, r);
	csv_text(b, log->c->operand[path]);
	csv_text(b, some && cell->text != NULL ? cell->text : "");
	for (size_t i = 0; i < log->nstats; i++) {
		double v = some && cell->text == NULL
		    ? ofs_log_value(cell, log->stat[i])
		    : NAN;

		csv_text(b, isnan(v) ? "" : put_number(v, text));
	}
	csv_text(b, some ? "" : cell == NULL ? r->problems : cell->error->text);
	ofs_buf_putc(b, '\n');
}

void ofs_log_print_csv(const struct ofs_log *log)
{
	struct ofs_buf b = { 0 };

	if (log->c->noperands == 0) {
		ofs_buf_puts(&b, "step,name,time,bytes,lr,problems\n");
	} else {
		ofs_buf_puts(&b, "step,name,path,value");
		for (size_t i = 0; i < log->nstats; i++)
			csv_text(&b, log->stat[i]);
		ofs_buf_puts(&b, ",error\n");
	}
	for (size_t i = 0; i < log->n; i++) {
		if (log->c->noperands == 0)
			csv_step(&b, &log->row[i]);
		for (int k = 0; k < log->c->noperands; k++)
			csv_cell(log, &log->row[i], (size_t)k, &b);
	}
	ofs_print_buf(&b);
}
