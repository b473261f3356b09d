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
#include "base/error.h"
#include "base/memory.h"
#include "fs/walk.h"
#include "tools/command.h"
#include "tools/diff_row.h"
#include "cli/lost.h"

#define PIECE (1u << 20)
/* Longer texts are not printed. */
#define TEXT_MAX 200

static const char *const kinds[] = { "added", "removed", "recast", "reshaped",
	"kind", "size", "value", "elements", OFS_DIFF_UNREADABLE };
#define NKINDS (sizeof(kinds) / sizeof(kinds[0]))

struct diff {
	struct ofs_command *c;
	uint64_t done; /* bytes of previous files */
	struct ofs_diff_sides s;
	double rtol, atol;
	struct optimfs_scan how;
	bool keep;  /* keep rows and print them at the end, */
	bool table; /* the tensors in a table */
	bool first; /* the first difference is enough */
	struct ofs_diff_row *row;
	size_t n, cap;
	uint64_t differences, files, count[NKINDS];
	uint8_t *buf_a, *buf_b;
	bool bad;
	/* of the next row */
	bool of_b;
	const struct optimfs_error *why;
	struct ofs_lost lost[2]; /* of a, of b */
	int status;              /* of the worst file that cannot be read */
};

static void print_json(struct diff *d, const struct ofs_diff_row *r)
{
	struct ofs_buf b = { 0 };

	ofs_diff_row_json(&d->s, r, &b);
	ofs_buf_putc(&b, '\n');
	ofs_print_buf(&b);
}

static void print_row(struct diff *d, const struct ofs_diff_row *r)
{
	struct ofs_buf b = { 0 };

	if ((d->c->flags & OFS_SUMMARY) != 0)
		return;
	ofs_progress_break(&d->c->progress);
	if ((d->c->flags & OFS_JSON) != 0) {
		print_json(d, r);
		return;
	}
	if (strcmp(r->kind, OFS_DIFF_UNREADABLE) == 0) {
		if (!ofs_lost_add(&d->lost[r->of_b], NULL, r->text, r->why))
			ofs_tool_say("%s", r->text);
		return;
	}
	ofs_diff_row_text(&d->s, r, &b);
	ofs_tool_print_buf(&b, 4);
}

static void say(struct diff *d, const char *path, const char *kind,
    const struct optimfs_comparison *m, uint64_t elements, const char *fmt, ...)
    __attribute__((format(printf, 6, 7)));
static void say(struct diff *d, const char *path, const char *kind,
    const struct optimfs_comparison *m, uint64_t elements, const char *fmt, ...)
{
	struct ofs_diff_row r = {
		.kind = kind, .of_b = d->of_b, .elements = elements
	};
	va_list ap;

	d->differences++;
	for (size_t k = 0; k < NKINDS; k++)
		d->count[k] += strcmp(kinds[k], kind) == 0;
	r.path = strdup(path);
	va_start(ap, fmt);
	if (vasprintf(&r.text, fmt, ap) == -1)
		r.text = NULL;
	va_end(ap);
	if (m != NULL) {
		r.measured = true;
		r.m = *m;
	}
	if (d->why != NULL)
		r.why = ofs_error_without(d->why, "");
	if (r.path == NULL || r.text == NULL ||
	    (d->why != NULL && r.why == NULL)) {
		d->bad = true;
		ofs_diff_row_fini(&r);
		return;
	}
	if (!d->keep) {
		print_row(d, &r);
		ofs_diff_row_fini(&r);
		return;
	}
	if (ofs_grow(d->row, d->n, d->cap, NULL) == -1) {
		d->bad = true;
		ofs_diff_row_fini(&r);
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
	char *x = attribute(d->s.a, a, name), *y = attribute(d->s.b, b, name);
	int ret = 0;

	if (x == NULL || y == NULL)
		ret = ofs_no_memory(err);
	else if (strcmp(x, y) != 0) {
		say(d, path, kind, NULL, 0, "%s is %s, and %s in %s", what,
		    *x == '\0' ? "none" : x, *y == '\0' ? "none" : y,
		    d->s.b_name);
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
	char *x = attribute(d->s.a, a, "value_kind");
	char *y = attribute(d->s.b, b, "value_kind");
	int ret = 0;

	if (x == NULL || y == NULL)
		ret = ofs_no_memory(err);
	else if ((strcmp(x, "string") == 0) != (strcmp(y, "string") == 0))
		say(d, path, "value", NULL, 0, "%.*s is a %s, and a %s in %s",
		    len, (char *)d->buf_a, x, y, d->s.b_name);
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

	if (optimfs_compare(d->s.a, a, d->s.b, b, &within, &d->how, &m, err) ==
	    -1)
		return -1;
	if (m.differ > 0)
		say(d, path, "elements", &m, m.elements,
		    "%" PRIu64 " of %" PRIu64
		    " elements differ, from element %" PRIu64 " on",
		    m.differ, m.elements, m.first);
	return 0;
}

/* Of a tensor that cannot be read, the type may not be known either: fails with
 * the reason. */
static int known(struct optimfs *fs, uint64_t node, struct optimfs_error *err)
{
	struct optimfs_file *f;

	if (ofs_has_xattr(fs, node, "dtype"))
		return 0;
	if (optimfs_file_open(fs, node, &f, err) == -1)
		return -1;
	optimfs_file_close(f);
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
	if (known(d->s.a, a, err) == -1 || known(d->s.b, b, err) == -1)
		return -1;
	if (same_attribute(d, path, a, b, "dtype", "type", "recast", &same,
		err) == -1 ||
	    same_attribute(d, path, a, b, "shape", "shape", "reshaped", &same,
		err) == -1)
		return -1;
	if (!same)
		return 0;
	if (ofs_has_xattr(d->s.a, a, "shape"))
		return compare_tensors(d, path, a, b, err);
	if (optimfs_file_open(d->s.a, a, &x, err) == 0 &&
	    optimfs_file_open(d->s.b, b, &y, err) == 0)
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
	in_a = ofs_has_xattr(d->s.a, a, "error");
	in_b = ofs_has_xattr(d->s.b, b, "error");
	optimfs_fail_in(why, "%s",
	    in_a == in_b ? path
		: in_a   ? d->s.a_name
			 : d->s.b_name);
	d->of_b = in_b && !in_a;
	d->why = why;
	say(d, path, OFS_DIFF_UNREADABLE, NULL, 0, "%s", why->text);
	d->of_b = false;
	d->why = NULL;
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

	if (d->first && d->differences > 0)
		return optimfs_fail(err, ECANCELED, "the rest is not compared");
	if (optimfs_resolve(d->s.b, e->path, &other, &none) == -1) {
		if (none.code != ENOENT && none.code != ENOTDIR &&
		    none.code != ENODATA) {
			*err = none;
			return -1;
		}
		if (!S_ISDIR(e->attr.mode))
			say(d, e->path, "removed", NULL, 0, "only in %s",
			    d->s.a_name);
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

	if (d->first && d->differences > 0)
		return optimfs_fail(err, ECANCELED, "the rest is not compared");
	if (!S_ISDIR(e->attr.mode) &&
	    optimfs_resolve(d->s.a, e->path, &other, NULL) == -1)
		say(d, e->path, "added", NULL, 0, "only in %s", d->s.b_name);
	return 0;
}

static int diff(struct diff *d, struct optimfs_error *err)
{
	struct optimfs_attr root;
	int ret;

	if (optimfs_getattr(d->s.a, OPTIMFS_ROOT, &root, err) == -1 ||
	    ofs_command_measure(d->c, &root, err) == -1)
		return -1;
	d->s.b = ofs_command_open(d->c, d->s.b_name, err);
	if (d->s.b == NULL)
		return -1;
	d->how = ofs_command_scan(d->c);
	d->how.progress = progress;
	d->how.ctx = d;
	d->buf_a = malloc(PIECE);
	d->buf_b = malloc(PIECE);
	if (d->buf_a == NULL || d->buf_b == NULL)
		ret = ofs_no_memory(err);
	else
		ret = ofs_walk(d->s.a, OPTIMFS_ROOT, 0, visit_a, d, err);
	if (ret == 0)
		ret = ofs_walk(d->s.b, OPTIMFS_ROOT, 0, visit_b, d, err);
	if (ret == 0 && d->bad)
		ret = ofs_no_memory(err);
	ofs_progress_end(&d->c->progress, ret == 0);
	free(d->buf_a);
	free(d->buf_b);
	return ret;
}

static void summarize(const struct diff *d)
{
	bool json = (d->c->flags & OFS_JSON) != 0;
	struct ofs_json_writer w;
	struct ofs_buf b = { 0 };

	if (json) {
		ofs_json_begin(&w, &b, "optimfs.diff.summary");
		ofs_json_put_u64(&w, "compared", d->files);
	} else {
		printf("compared %" PRIu64 "\n", d->files);
	}
	for (size_t k = 0; k < NKINDS; k++) {
		if (json)
			ofs_json_put_u64(&w, kinds[k], d->count[k]);
		else if (d->count[k] > 0)
			printf("%s %" PRIu64 "\n", kinds[k], d->count[k]);
	}
	if (json)
		ofs_json_print(&w);
}

/* Do both say the same of the same name below siblings: state/a/step and
 * state/b/step? */
static bool alike(const struct ofs_diff_row *a, const struct ofs_diff_row *b)
{
	const char *x = strrchr(a->path, '/'), *y = strrchr(b->path, '/');
	const char *up, *other;

	if (x == NULL || y == NULL || strcmp(x, y) != 0 ||
	    strcmp(a->text, b->text) != 0 || a->measured || b->measured)
		return false;
	up = memrchr(a->path, '/', (size_t)(x - a->path));
	other = memrchr(b->path, '/', (size_t)(y - b->path));
	return up != NULL && other != NULL && up - a->path == other - b->path &&
	    strncmp(a->path, b->path, (size_t)(up - a->path)) == 0;
}

/* Prints what is no tensor. Rows that say the same, such as the step of each
 * parameter, are one line. Returns the row behind them. */
static size_t print_alike(struct diff *d, size_t i)
{
	const struct ofs_diff_row *r = &d->row[i];
	const char *name = strrchr(r->path, '/');
	struct ofs_buf b = { 0 };
	size_t n = 0, end = i;

	for (size_t k = i; k < d->n; k++) {
		if (d->row[k].measured)
			continue;
		if (!alike(r, &d->row[k]))
			break;
		n++;
		end = k + 1;
	}
	if (n < 2 || strcmp(r->kind, OFS_DIFF_UNREADABLE) == 0) {
		print_row(d, r);
		return i + 1;
	}
	while (*--name != '/')
		;
	ofs_buf_plain(&b, r->path, (size_t)(name - r->path));
	ofs_buf_puts(&b, "/*");
	name = strrchr(r->path, '/');
	ofs_buf_plain(&b, name, strlen(name));
	ofs_buf_printf(&b, " (%zu): ", n);
	ofs_buf_plain(&b, r->text, strlen(r->text));
	ofs_buf_putc(&b, '\n');
	ofs_tool_print_buf(&b, 4);
	return end;
}

/* Prints the tensors that were compared, or everything else. */
static void print_part(struct diff *d, bool measured)
{
	bool first = true;

	for (size_t i = 0; i < d->n; i++) {
		const struct ofs_diff_row *r = &d->row[i];

		if (r->measured != measured)
			continue;
		if (!measured) {
			i = print_alike(d, i) - 1;
			continue;
		}
		if (first)
			ofs_diff_row_header();
		first = false;
		ofs_diff_row_cells(r);
	}
}

static void print_kept(struct diff *d)
{
	ofs_diff_rows_sort(d->row, d->n, d->c->sort);
	if (d->table) {
		/* what is no tensor is sorted behind all of them */
		print_part(d, d->c->sort != NULL);
		print_part(d, d->c->sort == NULL);
		return;
	}
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

	if (status == OFS_EXIT_OK)
		status = number(verb, "atol", c->atol, &d->atol);
	if (status == OFS_EXIT_OK && c->sort != NULL &&
	    !ofs_diff_is_key(c->sort))
		return ofs_tool_usage(verb,
		    "--sort %s: not one of abs, rel, rms, cosine, differ",
		    c->sort);
	d->table = (c->flags & (OFS_JSON | OFS_VERBOSE | OFS_SUMMARY)) == 0;
	d->keep = d->table || c->sort != NULL;
	return status;
}

static void diff_fini(struct diff *d)
{
	if (d->s.b != NULL)
		optimfs_close(d->s.b);
	for (size_t i = 0; i < d->n; i++)
		ofs_diff_row_fini(&d->row[i]);
	free(d->row);
}

int ofs_diff_put(struct ofs_command *c, const char *other, struct ofs_buf *b,
    struct optimfs_error *err)
{
	struct diff d = {
		.c = c, .s = { c->fs, NULL, c->checkpoint, other }, .keep = true
	};
	int ret = diff(&d, err);

	for (size_t i = 0; ret == 0 && i < d.n; i++) {
		ofs_buf_puts(b, i == 0 ? "" : ",\n");
		ofs_diff_row_json(&d.s, &d.row[i], b);
	}
	diff_fini(&d);
	return ret;
}

int ofs_diff_first(struct ofs_command *c, const char *a, const char *b,
    struct optimfs_error *err)
{
	struct optimfs_options own = c->open;
	struct optimfs *fs = c->fs;
	struct diff d = {
		.c = c, .s = { NULL, NULL, a, b }, .keep = true, .first = true
	};
	int ret = -1;

	c->open = (struct optimfs_options){ .cache = own.cache };
	c->fs = d.s.a = ofs_command_open(c, a, err);
	if (c->fs != NULL)
		ret = diff(&d, err);
	if (d.n > 0) {
		print_row(&d, d.row);
		ret = 1;
	}
	diff_fini(&d);
	if (c->fs != NULL)
		optimfs_close(c->fs);
	c->fs = fs;
	c->open = own;
	return ret;
}

static void tell_lost(struct diff *d)
{
	for (int i = 0; i < 2; i++) {
		d->lost[i].list = "diff";
		d->lost[i].checkpoint = i == 0 ? d->s.a_name : d->s.b_name;
		ofs_lost_tell(&d->lost[i], ofs_tool_say_text, NULL);
	}
}

static int run_diff(const struct ofs_verb *verb, int argc, char **argv)
{
	struct ofs_command c;
	struct optimfs_error err;
	struct diff d = { .c = &c };
	int status;

	if (ofs_command_init(&c, verb, argc, argv,
		OFS_RTOL | OFS_ATOL | OFS_SORT | OFS_SUMMARY | OFS_JSON |
		    OFS_VERBOSE | OFS_SECOND,
		1, 1, &status) == -1)
		return status;
	d.s = (struct ofs_diff_sides){ c.fs, NULL, c.checkpoint, c.operand[0] };
	status = take_flags(&d, verb);
	if (status != OFS_EXIT_OK)
		goto out;
	if (diff(&d, &err) == -1) {
		if (d.keep)
			print_kept(&d);
		status = ofs_command_stopped(&c, &err,
		    "the rest was not compared, and nothing was changed");
	} else {
		if (d.keep)
			print_kept(&d);
		if ((c.flags & (OFS_JSON | OFS_SUMMARY)) != 0)
			summarize(&d);
		tell_lost(&d);
		status = d.differences == 0 ? OFS_EXIT_OK : OFS_EXIT_NO;
		if (d.status > status)
			status = d.status;
		if (d.differences == 0 &&
		    (c.flags & (OFS_JSON | OFS_SUMMARY)) == 0)
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
	.from = true,
	.synopsis =
	    "[--rtol NUMBER] [--atol NUMBER] [--sort KEY] [--summary]\n"
	    "           [--json] [-v] [-o OPTION] CHECKPOINT CHECKPOINT",
	.summary = "compare two checkpoints value by value",
	.options =
	    "  --rtol NUMBER  allowed difference, relative to the larger value\n"
	    "  --atol NUMBER  allowed absolute difference, added to that\n"
	    "  --sort KEY     largest first, by abs, rel, rms, cosine or differ\n"
	    "  --summary      count the differences of each kind\n"
	    "  -v             a sentence for each tensor, with the element, its file and\n"
	    "                 its rank\n"
	    "  --json         one JSON object per difference\n",
	.run = run_diff,
};
