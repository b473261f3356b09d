/* cmd_diff.c - optimfs diff: compare two checkpoints by value */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/cmd_diff.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "optimfs/analyze.h"

#include "base/buf.h"
#include "base/memory.h"
#include "fs/walk.h"
#include "tools/command.h"
#include "tools/lost.h"

#define PIECE (1u << 20)
/* Longer texts are not printed. */
#define TEXT_MAX 200

/* The kind of a row that is a failure. */
#define UNREADABLE "unreadable"

/* A difference. */
struct row {
	char *path, *text;
	const char *kind;
	bool of_b; /* a failure of b alone */
	bool measured;
	uint64_t elements;
	struct optimfs_comparison m;
};

struct diff {
	struct ofs_command *c;
	uint64_t done; /* bytes of previous files */
	struct optimfs *a, *b;
	const char *b_name;
	double rtol, atol;
	struct optimfs_scan how;
	bool keep; /* keep rows and print them at the end */
	struct row *row;
	size_t n, cap;
	uint64_t differences, files;
	uint8_t *buf_a, *buf_b;
	bool bad;
	bool of_b;               /* for the next row */
	struct ofs_lost lost[2]; /* of a, of b */
	int status;              /* of the worst file that cannot be read */
};

static void put_path(struct ofs_buf *b, const char *path)
{
	ofs_buf_plain(b, path, strlen(path));
}

/* Elements that are NaN or infinite on one side only. */
static uint64_t lost(const struct optimfs_comparison *m)
{
	return m->nan_a + m->nan_b + m->inf_a + m->inf_b;
}

static void put_place(struct optimfs *fs, const char *name, const struct row *r,
    struct ofs_json_writer *w)
{
	struct optimfs_location at;

	if (optimfs_locate(fs, r->path, -1, r->m.at, &at, NULL) == -1)
		return;
	ofs_json_open(w, name, '{');
	ofs_json_put_string(w, "file", at.file);
	ofs_json_put_u64(w, "offset", at.offset);
	if (at.rank >= 0)
		ofs_json_put_i64(w, "rank", at.rank);
	ofs_json_close(w, '}');
	free(at.file);
}

static void put_measure(struct diff *d, const struct row *r,
    struct ofs_json_writer *w)
{
	ofs_json_put_u64(w, "elements", r->elements);
	ofs_json_put_u64(w, "differ", r->m.differ);
	ofs_json_put_u64(w, "first", r->m.first);
	ofs_json_put_u64(w, "nan_a", r->m.nan_a);
	ofs_json_put_u64(w, "nan_b", r->m.nan_b);
	ofs_json_put_u64(w, "inf_a", r->m.inf_a);
	ofs_json_put_u64(w, "inf_b", r->m.inf_b);
	ofs_json_put_real(w, "max_abs", r->m.finite > 0 ? r->m.max_abs : NAN);
	ofs_json_put_real(w, "max_rel", r->m.finite > 0 ? r->m.max_rel : NAN);
	ofs_json_put_real(w, "rms", r->m.rms);
	ofs_json_put_real(w, "cosine", r->m.cosine);
	if (r->m.ulps != UINT64_MAX)
		ofs_json_put_u64(w, "ulps", r->m.ulps);
	ofs_json_put_u64(w, "at", r->m.at);
	put_place(d->a, "a", r, w);
	put_place(d->b, "b", r, w);
}

static void put_row(struct diff *d, const struct row *r, struct ofs_buf *b)
{
	struct ofs_json_writer w;

	ofs_json_begin(&w, b, "optimfs.diff");
	ofs_json_put_string(&w, "path", r->path);
	ofs_json_put_string(&w, "kind", r->kind);
	ofs_json_put_string(&w, "text", r->text);
	if (r->measured)
		put_measure(d, r, &w);
	ofs_json_close(&w, '}');
}

static void print_json(struct diff *d, const struct row *r)
{
	struct ofs_buf b = { 0 };

	put_row(d, r, &b);
	ofs_buf_putc(&b, '\n');
	ofs_print_buf(&b);
}

static void put_side(struct optimfs *fs, const char *side, const struct row *r,
    struct ofs_buf *b)
{
	struct optimfs_location at;

	if (optimfs_locate(fs, r->path, -1, r->m.at, &at, NULL) == -1)
		return;
	ofs_buf_puts(b, side);
	put_path(b, at.file);
	if (at.rank >= 0)
		ofs_buf_printf(b, " rank %d", at.rank);
	free(at.file);
}

static void put_lost(struct ofs_buf *b, uint64_t n, const char *what,
    const char *where)
{
	if (n == 0)
		return;
	ofs_buf_printf(b, "; %" PRIu64 " %s %s in ", n, n == 1 ? "is" : "are",
	    what);
	put_path(b, where);
	ofs_buf_puts(b, " only");
}

/* Larger distances in steps are not printed. */
#define MANY_ULPS 1000

static void put_text(struct diff *d, const struct row *r, struct ofs_buf *b)
{
	const struct optimfs_comparison *m = &r->m;

	put_lost(b, m->nan_a, "NaN", d->c->checkpoint);
	put_lost(b, m->nan_b, "NaN", d->b_name);
	put_lost(b, m->inf_a, "infinite", d->c->checkpoint);
	put_lost(b, m->inf_b, "infinite", d->b_name);
	if (m->finite > 0) {
		ofs_buf_printf(b,
		    "; by up to %.3g at element %" PRIu64 " (relative %.3g",
		    m->max_abs, m->at, m->max_rel);
		if (m->ulps < MANY_ULPS)
			ofs_buf_printf(b, ", %" PRIu64 " ulps", m->ulps);
		ofs_buf_putc(b, ')');
		if (isfinite(m->rms))
			ofs_buf_printf(b, "; relative rms %.3g", m->rms);
		if (!isnan(m->cosine))
			ofs_buf_printf(b, ", cosine %.9g", m->cosine);
	}
	put_side(d->a, "; a: ", r, b);
	put_side(d->b, ", b: ", r, b);
}

static void print_row(struct diff *d, const struct row *r)
{
	struct ofs_buf b = { 0 };

	ofs_progress_break(&d->c->progress);
	if ((d->c->flags & OFS_JSON) != 0) {
		print_json(d, r);
		return;
	}
	if (strcmp(r->kind, UNREADABLE) == 0) {
		if (!ofs_lost_add(&d->lost[r->of_b], NULL, r->text))
			ofs_tool_say("%s", r->text);
		return;
	}
	ofs_tool_put_path(&b, r->path, strlen(": "));
	ofs_buf_puts(&b, ": ");
	put_path(&b, r->text);
	if (r->measured)
		put_text(d, r, &b);
	ofs_buf_putc(&b, '\n');
	ofs_tool_print_buf(&b, 4);
}

static void row_fini(struct row *r)
{
	free(r->path);
	free(r->text);
}

static void say(struct diff *d, const char *path, const char *kind,
    const struct optimfs_comparison *m, uint64_t elements, const char *fmt, ...)
    __attribute__((format(printf, 6, 7)));
static void say(struct diff *d, const char *path, const char *kind,
    const struct optimfs_comparison *m, uint64_t elements, const char *fmt, ...)
{
	struct row r = { .kind = kind, .of_b = d->of_b, .elements = elements };
	va_list ap;

	d->differences++;
	r.path = strdup(path);
	va_start(ap, fmt);
	if (vasprintf(&r.text, fmt, ap) == -1)
		r.text = NULL;
	va_end(ap);
	if (m != NULL) {
		r.measured = true;
		r.m = *m;
	}
	if (r.path == NULL || r.text == NULL) {
		d->bad = true;
		row_fini(&r);
		return;
	}
	if (!d->keep) {
		print_row(d, &r);
		row_fini(&r);
		return;
	}
	if (ofs_grow(d->row, d->n, d->cap, NULL) == -1) {
		d->bad = true;
		row_fini(&r);
		return;
	}
	d->row[d->n++] = r;
}

/* The attribute, or "". */
static char *attribute(struct optimfs *fs, uint64_t node, const char *name)
{
	char *value = ofs_attribute(fs, node, name, NULL);

	return value == NULL ? strdup("") : value;
}

/* Compares an attribute. */
static int same_attribute(struct diff *d, const char *path, uint64_t a,
    uint64_t b, const char *name, const char *what, const char *kind,
    bool *same, struct optimfs_error *err)
{
	char *x = attribute(d->a, a, name), *y = attribute(d->b, b, name);
	int ret = 0;

	if (x == NULL || y == NULL)
		ret = ofs_no_memory(err);
	else if (strcmp(x, y) != 0) {
		say(d, path, kind, NULL, 0, "%s is %s, and %s in %s", what,
		    *x == '\0' ? "none" : x, *y == '\0' ? "none" : y,
		    d->b_name);
		*same = false;
	}
	free(x);
	free(y);
	return ret;
}

/* Is the difference within the tolerance, relative to the greater number? */
static bool within(const struct diff *d, long double x, long double y)
{
	long double most = fmaxl(fabsl(x), fabsl(y));

	return x == y ||
	    (isfinite(most) && fabsl(x - y) <= d->atol + d->rtol * most);
}

/* Shows the progress in the current file. */
static void show(struct diff *d, uint64_t off)
{
	struct ofs_progress *p = &d->c->progress;

	ofs_progress_show(p, d->done + off, p->total, d->c->reading);
}

/* Are all bytes equal? Most tensors are, and need no more work. */
static int same_bytes(struct diff *d, struct optimfs_file *a,
    struct optimfs_file *b, bool *same, struct optimfs_error *err)
{
	uint64_t off = 0;

	for (*same = true; *same;) {
		ssize_t n = optimfs_file_read(a, d->buf_a, PIECE, off, err);
		ssize_t k = n == -1
		    ? -1
		    : optimfs_file_read(b, d->buf_b, PIECE, off, err);

		if (k == -1)
			return -1;
		if (n == 0 && k == 0)
			return 0;
		*same = n == k && memcmp(d->buf_a, d->buf_b, (size_t)n) == 0;
		off += (uint64_t)n;
		show(d, off);
	}
	return 0;
}

/* Compares texts that are numbers by value. A long double has every integer of
 * 64 bits. */
static bool close_texts(const struct diff *d, uint64_t n, uint64_t m)
{
	char x[64], y[64], *end_x, *end_y;
	long double a, b;

	if ((d->rtol <= 0 && d->atol <= 0) || n >= sizeof(x) || m >= sizeof(y))
		return false;
	memcpy(x, d->buf_a, n);
	memcpy(y, d->buf_b, m);
	x[n] = y[m] = '\0';
	a = strtold(x, &end_x);
	b = strtold(y, &end_y);
	return end_x != x && end_y != y && *end_x == '\n' && *end_y == '\n' &&
	    within(d, a, b);
}

/* The length of a printable line; 0: not one. Of a long text, p has only the
 * beginning. */
static int one_line(const uint8_t *p, uint64_t n)
{
	if (n == 0 || n > TEXT_MAX || memchr(p, '\n', n) != p + n - 1)
		return 0;
	return (int)n - 1;
}

static void say_texts(struct diff *d, const char *path, uint64_t n, uint64_t m)
{
	int x = one_line(d->buf_a, n), y = one_line(d->buf_b, m);

	if (x > 0 && y > 0)
		say(d, path, "value", NULL, 0, "%.*s -> %.*s", x,
		    (char *)d->buf_a, y, (char *)d->buf_b);
	else
		say(d, path, "value", NULL, 0, "the value differs");
}

/* Reads both texts, if they are short. */
static int read_texts(struct diff *d, struct optimfs_file *a,
    struct optimfs_file *b, struct optimfs_error *err)
{
	return optimfs_file_read(a, d->buf_a, PIECE, 0, err) == -1 ||
		optimfs_file_read(b, d->buf_b, PIECE, 0, err) == -1
	    ? -1
	    : 0;
}

/* Of two equal texts, is only one a string? */
static int compare_kinds(struct diff *d, const char *path, uint64_t a,
    uint64_t b, int len, struct optimfs_error *err)
{
	char *x = attribute(d->a, a, "value_kind");
	char *y = attribute(d->b, b, "value_kind");
	int ret = 0;

	if (x == NULL || y == NULL)
		ret = ofs_no_memory(err);
	else if ((strcmp(x, "string") == 0) != (strcmp(y, "string") == 0))
		say(d, path, "value", NULL, 0, "%.*s is a %s, and a %s in %s",
		    len, (char *)d->buf_a, x, y, d->b_name);
	free(x);
	free(y);
	return ret;
}

static int compare_open(struct diff *d, const char *path,
    const uint64_t node[2], struct optimfs_file *a, struct optimfs_file *b,
    struct optimfs_error *err)
{
	uint64_t n = optimfs_file_size(a), k = optimfs_file_size(b);
	bool same;
	int len;

	if (same_bytes(d, a, b, &same, err) == -1)
		return -1;
	len = same ? one_line(d->buf_a, n) : 0;
	if (same)
		return len == 0
		    ? 0
		    : compare_kinds(d, path, node[0], node[1], len, err);
	if (read_texts(d, a, b, err) == -1)
		return -1;
	if (!close_texts(d, n, k))
		say_texts(d, path, n, k);
	return 0;
}

static void progress(void *ctx, uint64_t bytes, uint64_t total)
{
	(void)total;
	show(ctx, bytes / 2);
}

static int compare_tensors(struct diff *d, const char *path, uint64_t a,
    uint64_t b, struct optimfs_error *err)
{
	struct optimfs_tolerance within = { d->rtol, d->atol };
	struct optimfs_comparison m;

	if (optimfs_compare(d->a, a, d->b, b, &within, &d->how, &m, err) == -1)
		return -1;
	if (m.differ > 0)
		say(d, path, "elements", &m, m.elements,
		    "%" PRIu64 " of %" PRIu64
		    " elements differ, from element %" PRIu64 " on",
		    m.differ, m.elements, m.first);
	return 0;
}

static int compare_files(struct diff *d, const char *path, uint64_t a,
    uint64_t b, struct optimfs_error *err)
{
	struct optimfs_file *x = NULL, *y = NULL;
	const uint64_t node[2] = { a, b };
	bool same = true;
	int ret = -1;

	d->files++;
	if (same_attribute(d, path, a, b, "dtype", "type", "recast", &same,
		err) == -1 ||
	    same_attribute(d, path, a, b, "shape", "shape", "reshaped", &same,
		err) == -1)
		return -1;
	if (!same)
		return 0;
	if (ofs_has_xattr(d->a, a, "shape"))
		return compare_tensors(d, path, a, b, err);
	if (optimfs_file_open(d->a, a, &x, err) == 0 &&
	    optimfs_file_open(d->b, b, &y, err) == 0)
		ret = compare_open(d, path, node, x, y, err);
	optimfs_file_close(x);
	optimfs_file_close(y);
	return ret;
}

/* One file that cannot be read does not hide the differences of others. */
static int unreadable(struct diff *d, const char *path, uint64_t a, uint64_t b,
    struct optimfs_error *why)
{
	bool in_a, in_b;
	int status;

	if (why->code == ENOMEM || why->code == ENOSPC ||
	    why->code == ECANCELED)
		return -1;
	/* is it known that some of its bytes cannot be had? */
	in_a = ofs_has_xattr(d->a, a, "error");
	in_b = ofs_has_xattr(d->b, b, "error");
	optimfs_fail_in(why, "%s",
	    in_a == in_b ? path
		: in_a   ? d->c->checkpoint
			 : d->b_name);
	d->of_b = in_b && !in_a;
	say(d, path, UNREADABLE, NULL, 0, "%s", why->text);
	d->of_b = false;
	status = ofs_tool_status(why->code);
	if (status > d->status)
		d->status = status;
	return 0;
}

static int visit_a(void *ctx, const struct ofs_walk_entry *e,
    struct optimfs_error *err)
{
	struct diff *d = ctx;
	struct optimfs_attr other;
	struct optimfs_error none = { 0 };

	if (optimfs_resolve(d->b, e->path, &other, &none) == -1) {
		if (none.code != ENOENT && none.code != ENOTDIR &&
		    none.code != ENODATA) {
			*err = none;
			return -1;
		}
		if (!S_ISDIR(e->attr.mode))
			say(d, e->path, "removed", NULL, 0, "only in %s",
			    d->c->checkpoint);
		return 0;
	}
	if (S_ISDIR(e->attr.mode) != S_ISDIR(other.mode)) {
		say(d, e->path, "kind", NULL, 0,
		    "a file in one, a directory in the other");
		return 0;
	}
	if (S_ISDIR(e->attr.mode))
		return 0;
	d->c->reading = e->name;
	if (compare_files(d, e->path, e->attr.node, other.node, &none) == -1 &&
	    unreadable(d, e->path, e->attr.node, other.node, &none) == -1) {
		*err = none;
		return optimfs_fail_in(err, "%s", e->path);
	}
	d->done += e->attr.size;
	show(d, 0);
	return 0;
}

static int visit_b(void *ctx, const struct ofs_walk_entry *e,
    struct optimfs_error *err)
{
	struct diff *d = ctx;
	struct optimfs_attr other;

	(void)err;
	if (!S_ISDIR(e->attr.mode) &&
	    optimfs_resolve(d->a, e->path, &other, NULL) == -1)
		say(d, e->path, "added", NULL, 0, "only in %s", d->b_name);
	return 0;
}

static int diff(struct diff *d, struct optimfs_error *err)
{
	struct optimfs_attr root;
	int ret;

	if (optimfs_getattr(d->a, OPTIMFS_ROOT, &root, err) == -1 ||
	    ofs_command_measure(d->c, &root, err) == -1)
		return -1;
	d->b = ofs_command_open(d->c, d->b_name, err);
	if (d->b == NULL)
		return -1;
	d->how = ofs_command_scan(d->c);
	d->how.progress = progress;
	d->how.ctx = d;
	d->buf_a = malloc(PIECE);
	d->buf_b = malloc(PIECE);
	if (d->buf_a == NULL || d->buf_b == NULL)
		ret = ofs_no_memory(err);
	else
		ret = ofs_walk(d->a, OPTIMFS_ROOT, 0, visit_a, d, err);
	if (ret == 0)
		ret = ofs_walk(d->b, OPTIMFS_ROOT, 0, visit_b, d, err);
	if (ret == 0 && d->bad)
		ret = ofs_no_memory(err);
	ofs_progress_end(&d->c->progress, ret == 0);
	free(d->buf_a);
	free(d->buf_b);
	return ret;
}

/* The keys of --sort. */
static const char *const keys[] = { "abs", "rel", "rms", "cosine", "differ",
	NULL };

static double key_of(const struct row *r, const char *name)
{
	if (!r->measured || (lost(&r->m) > 0 && strcmp(name, "differ") != 0))
		return INFINITY;
	if (strcmp(name, "abs") == 0)
		return r->m.max_abs;
	if (strcmp(name, "rel") == 0)
		return r->m.max_rel;
	if (strcmp(name, "rms") == 0)
		return isnan(r->m.rms) ? INFINITY : r->m.rms;
	if (strcmp(name, "cosine") == 0)
		return isnan(r->m.cosine) ? INFINITY : -r->m.cosine;
	return (double)r->m.differ;
}

/* qsort passes no context. */
static const char *sort_key;

static int by_key(const void *a, const void *b)
{
	double x = key_of(a, sort_key), y = key_of(b, sort_key);

	if (x != y)
		return x > y ? -1 : 1;
	return strcmp(((const struct row *)a)->path,
	    ((const struct row *)b)->path);
}

static void summarize(const struct diff *d)
{
	static const char *const kinds[] = { "added", "removed", "recast",
		"reshaped", "kind", "size", "value", "elements", UNREADABLE };
	bool json = (d->c->flags & OFS_JSON) != 0;
	struct ofs_json_writer w;
	struct ofs_buf b = { 0 };

	if (json) {
		ofs_json_begin(&w, &b, "optimfs.diff.summary");
		ofs_json_put_u64(&w, "compared", d->files);
	} else {
		printf("compared %" PRIu64 "\n", d->files);
	}
	for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
		uint64_t n = 0;

		for (size_t i = 0; i < d->n; i++)
			n += strcmp(d->row[i].kind, kinds[k]) == 0;
		if (json)
			ofs_json_put_u64(&w, kinds[k], n);
		else if (n > 0)
			printf("%s %" PRIu64 "\n", kinds[k], n);
	}
	if (json)
		ofs_json_print(&w);
}

static void print_kept(struct diff *d)
{
	if ((d->c->flags & OFS_SUMMARY) != 0) {
		summarize(d);
		return;
	}
	sort_key = d->c->sort;
	if (d->n > 1)
		qsort(d->row, d->n, sizeof(*d->row), by_key);
	for (size_t i = 0; i < d->n; i++)
		print_row(d, &d->row[i]);
}

static int number(const struct ofs_verb *verb, const char *flag,
    const char *text, double *v)
{
	char *end;

	if (text == NULL)
		return OFS_EXIT_OK;
	*v = strtod(text, &end);
	if (end == text || *end != '\0' || !(*v >= 0))
		return ofs_tool_usage(verb,
		    "--%s %s: not a number of at least 0", flag, text);
	return OFS_EXIT_OK;
}

static int take_flags(struct diff *d, const struct ofs_verb *verb)
{
	struct ofs_command *c = d->c;
	int status = number(verb, "rtol", c->rtol, &d->rtol);
	size_t i = 0;

	if (status == OFS_EXIT_OK)
		status = number(verb, "atol", c->atol, &d->atol);
	while (c->sort != NULL && keys[i] != NULL &&
	    strcmp(c->sort, keys[i]) != 0)
		i++;
	if (status == OFS_EXIT_OK && c->sort != NULL && keys[i] == NULL)
		return ofs_tool_usage(verb,
		    "--sort %s: not one of abs, rel, rms, cosine, differ",
		    c->sort);
	d->keep = c->sort != NULL || (c->flags & OFS_SUMMARY) != 0;
	return status;
}

static void diff_fini(struct diff *d)
{
	if (d->b != NULL)
		optimfs_close(d->b);
	for (size_t i = 0; i < d->n; i++)
		row_fini(&d->row[i]);
	free(d->row);
}

int ofs_diff_put(struct ofs_command *c, const char *other, struct ofs_buf *b,
    struct optimfs_error *err)
{
	struct diff d = { .c = c, .a = c->fs, .b_name = other, .keep = true };
	int ret = diff(&d, err);

	for (size_t i = 0; ret == 0 && i < d.n; i++) {
		ofs_buf_puts(b, i == 0 ? "" : ",\n");
		put_row(&d, &d.row[i], b);
	}
	diff_fini(&d);
	return ret;
}

static void tell_lost(struct diff *d)
{
	for (int i = 0; i < 2; i++) {
		d->lost[i].list = "diff";
		d->lost[i].checkpoint = i == 0 ? d->c->checkpoint : d->b_name;
		ofs_lost_tell(&d->lost[i], ofs_tool_say_text, NULL);
	}
}

static int run(const struct ofs_verb *verb, int argc, char **argv)
{
	struct ofs_command c;
	struct optimfs_error err;
	struct diff d = { .c = &c };
	int status;

	if (ofs_command_init(&c, verb, argc, argv,
		OFS_RTOL | OFS_ATOL | OFS_SORT | OFS_SUMMARY | OFS_JSON |
		    OFS_SECOND | OFS_PROGRESS,
		1, 1, &status) == -1)
		return status;
	d.a = c.fs;
	d.b_name = c.operand[0];
	status = take_flags(&d, verb);
	if (status != OFS_EXIT_OK)
		goto out;
	if (diff(&d, &err) == -1) {
		status = ofs_command_stopped(&c, &err,
		    d.keep
			? "nothing was changed or printed"
			: "the rest was not compared, and nothing was changed");
	} else {
		if (d.keep)
			print_kept(&d);
		tell_lost(&d);
		status = d.differences == 0 ? OFS_EXIT_OK : OFS_EXIT_NO;
		if (d.status > status)
			status = d.status;
		if (d.differences == 0 && (c.flags & OFS_JSON) == 0 && !d.keep)
			ofs_tool_done("equal: %" PRIu64 " files compared",
			    d.files);
	}
	status = ofs_tool_finish(status);
out:
	diff_fini(&d);
	ofs_command_fini(&c);
	return status;
}

const struct ofs_verb ofs_verb_diff = {
	.name = "diff",
	.synopsis = "[--rtol NUMBER] [--atol NUMBER] [--sort KEY] [--summary] "
		    "[--json]\n"
		    "           [-q] [--progress] [-o OPTION] CHECKPOINT "
		    "CHECKPOINT",
	.summary = "compare two checkpoints value by value",
	.options =
	    "  --rtol NUMBER  allowed difference, relative to the larger value\n"
	    "  --atol NUMBER  allowed absolute difference, added to that\n"
	    "  --sort KEY     largest first, by abs, rel, rms, cosine or differ\n"
	    "  --summary      count the differences of each kind\n"
	    "  --json         one JSON object per difference\n"
	    "  -q             show no progress\n"
	    "  --progress     show progress even without a terminal\n",
	.run = run,
};
