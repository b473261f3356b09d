/* report_run.c - the page of a run: norms by layer over its steps */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/report_run.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/keys.h"
#include "base/memory.h"
#include "base/step.h"
#include "cli/interrupt.h"
#include "tools/cmd_log.h"

/* A series is what the tensors of one state have in one layer, at each step: the
 * weights, a moment, or the update, which is the difference of the weights from
 * the step before. Nothing is kept of a tensor but what it adds to its series. */

struct sum {
	double squares;
	uint64_t finite, elements, nan, inf;
};

struct run {
	struct ofs_command *c;
	const struct optimfs_scan *how;
	struct ofs_log log;
	struct ofs_keys keys; /* of series: the state, a NUL, the layer */
	struct sum **series;  /* by their numbers, a sum for each step */
	uint32_t cap;
	struct sum *whole; /* of each step */
	uint64_t *unread;  /* of each step: tensors */
	char **odd;        /* the first tensor with a NaN or infinity */
	struct optimfs_error *first; /* why the first of them is not read */
	/* While a step is read: */
	size_t step;
	bool update;
	bool bad; /* out of memory */
};

static void run_fini(struct run *r)
{
	for (uint32_t i = 0; i < r->keys.n; i++)
		free(r->series[i]);
	for (size_t i = 0; r->odd != NULL && i < r->log.n; i++)
		free(r->odd[i]);
	free(r->odd);
	free(r->series);
	free(r->whole);
	free(r->unread);
	free(r->first);
	ofs_keys_fini(&r->keys);
	ofs_log_fini(&r->log);
}

/* The name of the layer in that of a parameter: up to the first component that is
 * a number, as "model.layers.3"; else the first component. */
static size_t layer_length(const char *name)
{
	size_t first = strcspn(name, "./"), n = first;

	while (name[n] == '.') {
		size_t len = strcspn(name + n + 1, "./");

		if (len > 0 && strspn(name + n + 1, "0123456789") == len)
			return n + 1 + len;
		n += 1 + len;
	}
	return first;
}

/* Fills the key of the series that a tensor belongs to; false: to none. */
static bool key_of(const char *path, bool update, struct ofs_buf *key)
{
	const char *name = strstr(path, "/state/"), *end = strrchr(path, '/');

	key->len = 0;
	if (strncmp(path, "model/", 6) == 0) {
		ofs_buf_puts(key, update ? "update" : "model");
		name = path + 6;
	} else if (strncmp(path, "optim/", 6) == 0 && name != NULL) {
		ofs_buf_puts(key, end + 1);
		name += 7;
	} else {
		return false;
	}
	ofs_buf_putc(key, '\0');
	ofs_buf_put(key, name, layer_length(name));
	return true;
}

static struct sum *series_of(struct run *r, const struct ofs_buf *key)
{
	uint32_t n = r->keys.n, i;

	if (key->bad ||
	    ofs_reserve(r->series, n + 1ul, r->cap, NULL) == -1)
		return NULL;
	i = ofs_keys_copy(&r->keys, key->data, key->len, NULL);
	if (i == OFS_NONE)
		return NULL;
	if (i == n)
		r->series[i] = calloc(r->log.n, sizeof(**r->series));
	return r->series[i];
}

static void add_statistics(struct sum *sum, const struct optimfs_statistics *s)
{
	sum->squares += s->squares;
	sum->finite += s->finite;
	sum->elements += s->elements;
	sum->nan += s->nan;
	sum->inf += s->inf;
}

/* 1 ends the work: out of memory. */
static int tensor(void *ctx, const struct optimfs_tensor *t,
    const struct optimfs_statistics *s, const struct optimfs_error *err)
{
	struct run *r = ctx;
	struct ofs_buf key = { 0 };
	struct sum *sum;

	if (s == NULL) {
		r->unread[r->step] += !r->update;
		if (r->first == NULL && !r->update)
			r->first = ofs_error_without(err, "");
		return 0;
	}
	if (!r->update) {
		add_statistics(&r->whole[r->step], s);
		if ((s->nan > 0 || s->inf > 0) && r->odd[r->step] == NULL) {
			r->odd[r->step] = strdup(t->path);
			r->bad |= r->odd[r->step] == NULL;
		}
	}
	/* norms of integers, as of codes in few bits, say nothing */
	if ((strstr(t->dtype, "float") != NULL ||
		strstr(t->dtype, "complex") != NULL) &&
	    key_of(t->path, r->update, &key)) {
		sum = series_of(r, &key);
		if (sum != NULL)
			add_statistics(&sum[r->step], s);
		r->bad |= sum == NULL;
	}
	ofs_buf_fini(&key);
	return r->bad;
}

/* Reads the tensors at path of a name in the run. 0: it cannot be read, and why
 * says so. */
static int read_tensors(struct run *r, const char *name, const char *path,
    struct optimfs_error *why, struct optimfs_error *err)
{
	struct optimfs_attr attr;
	struct optimfs *fs = optimfs_run_open(r->c->fs, name, why);
	int ret = fs == NULL ? -1 : 0;

	if (ret == 0 && optimfs_resolve(fs, path, &attr, NULL) == 0)
		ret = optimfs_statistics_tree(fs, path, false, r->how, tensor,
		    r, why);
	optimfs_close(fs);
	if (r->bad)
		return ofs_no_memory(err);
	if (ret == 0)
		return 1;
	return ofs_must_stop(why) || ofs_interrupted(NULL)
	    ? optimfs_fail_with(err, why)
	    : 0;
}

/* *before is the last step that could be read; afterwards it is this one, if it
 * can. A step has no update where their difference cannot be read. */
static int read_step(struct run *r, const struct ofs_log_row **before,
    struct optimfs_error *err)
{
	struct ofs_log_row *row = &r->log.row[r->step];
	const struct ofs_log_row *from = *before;
	struct optimfs_error why = { 0 };
	char *name;
	int ret;

	r->update = false;
	ret = read_tensors(r, row->path, "/", &why, err);
	if (ret == 0 && *row->problems == '\0')
		return ofs_log_add_problem(row, why.text, err);
	if (ret <= 0)
		return ret;
	*before = row;
	if (from == NULL)
		return 0;
	if (asprintf(&name, "delta/%" PRId64 "..%" PRId64, from->step,
		row->step) == -1)
		return ofs_no_memory(err);
	r->update = true;
	ret = read_tensors(r, name, "model", &why, err);
	free(name);
	return ret == -1 ? -1 : 0;
}

static int read_run(struct run *r, struct optimfs_error *err)
{
	bool data = (r->c->flags & OFS_NO_DATA) == 0;
	const struct ofs_log_row *before = NULL;
	int ret = ofs_log_list(&r->log, err);

	if (ret == -1)
		return -1;
	r->whole = ofs_alloc(r->log.n, sizeof(*r->whole), err);
	r->unread = ofs_alloc(r->log.n, sizeof(*r->unread), err);
	r->odd = ofs_alloc(r->log.n, sizeof(*r->odd), err);
	if (r->whole == NULL || r->unread == NULL || r->odd == NULL)
		return -1;
	for (r->step = 0; ret == 0 && r->step < r->log.n; r->step++) {
		struct ofs_log_row *row = &r->log.row[r->step];

		ofs_progress_step(&r->c->progress, r->step, r->log.n,
		    row->name);
		if (ofs_interrupted(NULL))
			return optimfs_fail(err, ECANCELED, "interrupted");
		ret = ofs_log_read_index(&r->log, row, err);
		if (ret == 0 && data && row->in_steps)
			ret = read_step(r, &before, err);
	}
	ofs_progress_clear(&r->c->progress);
	return ret;
}

/* What stands out. */

static const char *state_of(const struct run *r, uint32_t series)
{
	const char *key = r->keys.v[series].p;

	return strcmp(key, "model") == 0 ? "the weights"
	    : strcmp(key, "update") == 0 ? "the update"
					 : key;
}

static const char *layer_of(const struct run *r, uint32_t series)
{
	const char *key = r->keys.v[series].p;

	return key + strlen(key) + 1;
}

/* NaN: it was not read. */
static double rms_of(const struct sum *s)
{
	return s->finite == 0 ? NAN : sqrt(s->squares / (double)s->finite);
}

/* The greatest growth of a series from one step to the next. */
struct growth {
	double factor;
	uint32_t series;
	size_t step;
};

static struct growth greatest(const struct run *r)
{
	struct growth g = { .factor = 1 };

	for (uint32_t i = 0; i < r->keys.n; i++) {
		double before = NAN, v;

		for (size_t k = 0; k < r->log.n; k++) {
			v = rms_of(&r->series[i][k]);
			if (v / before > g.factor && isfinite(v / before))
				g = (struct growth){ v / before, i, k };
			before = isnan(v) ? before : v;
		}
	}
	return g;
}

static void put_growth(const struct run *r, struct ofs_buf *b)
{
	struct growth g = greatest(r);

	if (g.factor < 2)
		return;
	ofs_buf_printf(b,
	    "The greatest growth from one step to the next: %s of %s, %.3g times at step %" PRId64
	    ".",
	    state_of(r, g.series), layer_of(r, g.series), g.factor,
	    r->log.row[g.step].step);
}

/* The first row with something; r->log.n: none. */
static size_t first_bad(const struct run *r)
{
	size_t i = 0;

	while (i < r->log.n &&
	    (r->log.row[i].problems[0] == '\0' || !r->log.row[i].in_steps))
		i++;
	return i;
}

static size_t first_odd(const struct run *r)
{
	size_t i = 0;

	while (i < r->log.n && r->odd[i] == NULL)
		i++;
	return i;
}

static size_t count_steps(const struct run *r, size_t *first, size_t *last)
{
	size_t n = 0;

	for (size_t i = 0; i < r->log.n; i++) {
		if (!r->log.row[i].in_steps)
			continue;
		if (n++ == 0)
			*first = i;
		*last = i;
	}
	return n;
}

static void put_count(const struct run *r, struct ofs_buf *b)
{
	size_t first = 0, last = 0, n = count_steps(r, &first, &last);

	if (n == 0)
		ofs_buf_puts(b, "No complete step");
	else if (n == 1)
		ofs_buf_printf(b, "1 step, %" PRId64, r->log.row[first].step);
	else
		ofs_buf_printf(b, "%zu steps from %" PRId64 " to %" PRId64, n,
		    r->log.row[first].step, r->log.row[last].step);
	if (n < r->log.n)
		ofs_buf_printf(b, ", and %zu that %s not shown", r->log.n - n,
		    r->log.n - n == 1 ? "is" : "are");
}

/* The answer in one line; true: nothing is wrong. */
static bool put_verdict(const struct run *r, struct ofs_buf *b)
{
	size_t odd = first_odd(r), bad = first_bad(r);

	if (odd < r->log.n)
		ofs_buf_printf(b,
		    "Not sound: NaN or infinite from step %" PRId64
		    " on, first %s. ",
		    r->log.row[odd].step, r->odd[odd]);
	else if (bad < r->log.n)
		ofs_buf_printf(b, "Damaged: step %" PRId64 ": %s. ",
		    r->log.row[bad].step, r->log.row[bad].problems);
	else if ((r->c->flags & OFS_NO_DATA) != 0)
		ofs_buf_puts(b, "No damage in the indexes; tensors were not "
				"read. ");
	else
		ofs_buf_puts(b, "No damage, no NaN. ");
	put_count(r, b);
	ofs_buf_putc(b, '.');
	return odd == r->log.n && bad == r->log.n;
}

/* The head of the page, which needs no script. */
static void put_head(const struct run *r, bool good, const char *verdict,
    const char *growth, struct ofs_page *page)
{
	size_t odd = first_odd(r);
	struct ofs_buf *b = &page->head;

	ofs_page_html(&page->title, r->c->checkpoint);
	ofs_buf_puts(&page->title, ": ");
	ofs_page_html(&page->title, verdict);
	ofs_buf_printf(b, "<h1 class=\"%s\">", good ? "good" : "bad");
	ofs_page_html(b, verdict);
	ofs_buf_puts(b, "</h1>\n<p class=\"dim\">");
	ofs_page_html(b, r->c->checkpoint);
	ofs_buf_puts(b, "</p>\n");
	if (odd < r->log.n) {
		ofs_buf_puts(b, "<p class=\"todo\">To do: ");
		ofs_page_html(b,
		    "optimfs check tells what is wrong with a step; go back to the last one before, and find what changed: optimfs diff");
		ofs_buf_puts(b, "</p>\n");
	}
	if (*growth != '\0') {
		ofs_buf_puts(b, "<p>");
		ofs_page_html(b, growth);
		ofs_buf_puts(b, "</p>\n");
	}
}

/* The data. */

static void put_row(const struct run *r, size_t i, struct ofs_json_writer *w)
{
	const struct ofs_log_row *row = &r->log.row[i];

	w->gap = "\n";
	ofs_json_open(w, NULL, '{');
	w->gap = " ";
	ofs_json_put_rank(w, "step", row->step);
	ofs_json_put_string(w, "name", row->name);
	ofs_json_put_i64(w, "mtime_ns", row->mtime_ns);
	if (row->read)
		ofs_json_put_u64(w, "bytes", row->bytes);
	else
		ofs_json_put_raw(w, "bytes", "null");
	ofs_json_open(w, "lr", '[');
	for (size_t k = 0; k < row->nlr; k++)
		ofs_json_put_real(w, NULL, row->lr[k]);
	ofs_json_close(w, ']');
	ofs_json_put_string(w, "problems",
	    *row->problems == '\0' ? NULL : row->problems);
	ofs_json_put_bool(w, "complete", row->in_steps);
	ofs_json_put_u64(w, "elements", r->whole[i].elements);
	ofs_json_put_u64(w, "nan", r->whole[i].nan);
	ofs_json_put_u64(w, "inf", r->whole[i].inf);
	ofs_json_put_u64(w, "unread", r->unread[i]);
	ofs_json_put_string(w, "odd", r->odd[i]);
	ofs_json_close(w, '}');
}

static void put_series(const struct run *r, uint32_t i,
    struct ofs_json_writer *w)
{
	const char *state = r->keys.v[i].p;
	const struct sum *s = r->series[i];
	uint64_t odd = 0;

	w->gap = "\n";
	ofs_json_open(w, NULL, '{');
	w->gap = " ";
	ofs_json_put_string(w, "state", state);
	ofs_json_put_string(w, "layer", layer_of(r, i));
	ofs_json_open(w, "norm", '[');
	for (size_t k = 0; k < r->log.n; k++) {
		ofs_json_put_real(w, NULL,
		    s[k].elements == 0 ? NAN : sqrt(s[k].squares));
		odd += s[k].nan + s[k].inf;
	}
	ofs_json_close(w, ']');
	ofs_json_open(w, "rms", '[');
	for (size_t k = 0; k < r->log.n; k++)
		ofs_json_put_real(w, NULL, rms_of(&s[k]));
	ofs_json_close(w, ']');
	if (odd > 0) {
		ofs_json_open(w, "odd", '[');
		for (size_t k = 0; k < r->log.n; k++)
			ofs_json_put_u64(w, NULL, s[k].nan + s[k].inf);
		ofs_json_close(w, ']');
	}
	ofs_json_close(w, '}');
}

static void put_data(const struct run *r, const char *verdict, bool good,
    struct ofs_buf *json)
{
	struct ofs_json_writer w;

	ofs_json_begin(&w, json, "optimfs.report.run");
	ofs_json_put_string(&w, "version", optimfs_version());
	ofs_json_put_string(&w, "run", r->c->checkpoint);
	ofs_json_put_bool(&w, "data", (r->c->flags & OFS_NO_DATA) == 0);
	ofs_json_put_string(&w, "verdict", verdict);
	ofs_json_put_bool(&w, "good", good);
	ofs_json_put_string(&w, "unread",
	    r->first == NULL ? NULL : r->first->text);
	w.gap = "\n";
	ofs_json_open(&w, "steps", '[');
	for (size_t i = 0; i < r->log.n; i++)
		put_row(r, i, &w);
	w.gap = "\n";
	ofs_json_close(&w, ']');
	ofs_json_open(&w, "series", '[');
	for (uint32_t i = 0; i < r->keys.n; i++)
		put_series(r, i, &w);
	ofs_json_close(&w, ']');
	ofs_json_close(&w, '}');
	ofs_buf_putc(json, '\n');
}

int ofs_report_run(struct ofs_command *c, const struct optimfs_scan *how,
    struct ofs_page *page, struct optimfs_error *err)
{
	struct optimfs_scan quiet = *how;
	struct run r = { .c = c, .how = &quiet, .log.c = c };
	struct ofs_buf verdict = { 0 }, growth = { 0 };
	bool good;
	int ret;

	quiet.progress = NULL; /* that of the steps is shown */
	ret = read_run(&r, err);
	if (ret == 0) {
		good = put_verdict(&r, &verdict);
		put_growth(&r, &growth);
		ofs_buf_putc(&verdict, '\0');
		ofs_buf_putc(&growth, '\0');
		if (!verdict.bad && !growth.bad) {
			put_head(&r, good, (char *)verdict.data,
			    (char *)growth.data, page);
			put_data(&r, (char *)verdict.data, good, &page->json);
		}
		if (verdict.bad || growth.bad || page->json.bad ||
		    page->head.bad || page->title.bad)
			ret = ofs_no_memory(err);
	}
	ofs_buf_fini(&verdict);
	ofs_buf_fini(&growth);
	run_fini(&r);
	return ret;
}
