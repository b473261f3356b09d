/* diff_row.c - one difference that optimfs diff found, as text and JSON */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/diff_row.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/natural.h"
#include "cli/colour.h"
#include "tools/command.h"

void ofs_diff_row_fini(struct ofs_diff_row *r)
{
	free(r->path);
	free(r->text);
	free(r->why);
}

static void put_path(struct ofs_buf *b, const char *path)
{
	ofs_buf_plain(b, path, strlen(path));
}

/* Elements that are NaN or infinite on one side only. */
static uint64_t lost(const struct optimfs_comparison *m)
{
	return m->nan_a + m->nan_b + m->inf_a + m->inf_b;
}

static void put_place(struct optimfs *fs, const char *name,
    const struct ofs_diff_row *r, struct ofs_json_writer *w)
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

static void put_measure(const struct ofs_diff_sides *s,
    const struct ofs_diff_row *r, struct ofs_json_writer *w)
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
	put_place(s->a, "a", r, w);
	put_place(s->b, "b", r, w);
}

void ofs_diff_row_json(const struct ofs_diff_sides *s,
    const struct ofs_diff_row *r, struct ofs_buf *b)
{
	struct ofs_json_writer w;

	ofs_json_begin(&w, b, "optimfs.diff");
	ofs_json_put_string(&w, "path", r->path);
	ofs_json_put_string(&w, "kind", r->kind);
	ofs_json_put_string(&w, "text", r->text);
	if (r->measured)
		put_measure(s, r, &w);
	ofs_json_close(&w, '}');
}

static void put_side(struct optimfs *fs, const char *side,
    const struct ofs_diff_row *r, struct ofs_buf *b)
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

static void put_measured(const struct ofs_diff_sides *s,
    const struct ofs_diff_row *r, struct ofs_buf *b)
{
	const struct optimfs_comparison *m = &r->m;

	put_lost(b, m->nan_a, "NaN", s->a_name);
	put_lost(b, m->nan_b, "NaN", s->b_name);
	put_lost(b, m->inf_a, "infinite", s->a_name);
	put_lost(b, m->inf_b, "infinite", s->b_name);
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
	put_side(s->a, "; a: ", r, b);
	put_side(s->b, ", b: ", r, b);
}

void ofs_diff_row_text(const struct ofs_diff_sides *s,
    const struct ofs_diff_row *r, struct ofs_buf *b)
{
	ofs_tool_put_path(b, r->path, strlen(": "));
	ofs_buf_puts(b, ": ");
	put_path(b, r->text);
	if (r->measured)
		put_measured(s, r, b);
	ofs_buf_putc(b, '\n');
}

void ofs_diff_row_header(void)
{
	static const char *const names[] = { "max abs", "max rel", "rms",
		"cosine" };
	size_t used = 0;

	ofs_colour(OFS_BOLD);
	ofs_tool_print_cell(&used, 10, "differ");
	ofs_tool_print_cell(&used, 5, "nan");
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		ofs_tool_print_cell(&used, 10, "%s", names[i]);
	ofs_tool_print_path("path", used);
	ofs_colour(OFS_PLAIN);
}

static void print_number(size_t *used, double v)
{
	if (isnan(v))
		ofs_tool_print_cell(used, 10, "-");
	else
		ofs_tool_print_cell(used, 10, "%.3g", v);
}

/* It is near 1, or something is wrong. */
static void print_cosine(size_t *used, double v)
{
	if (isnan(v))
		ofs_tool_print_cell(used, 10, "-");
	else
		ofs_tool_print_cell(used, 10, "%.6f", v);
}

void ofs_diff_row_cells(const struct ofs_diff_row *r)
{
	const struct optimfs_comparison *m = &r->m;
	size_t used = 0;

	ofs_tool_print_cell(&used, 10, "%" PRIu64, m->differ);
	if (lost(m) > 0)
		ofs_colour(OFS_RED);
	ofs_tool_print_cell(&used, 5, "%" PRIu64, lost(m));
	if (lost(m) > 0)
		ofs_colour(OFS_PLAIN);
	print_number(&used, m->finite > 0 ? m->max_abs : NAN);
	print_number(&used, m->finite > 0 ? m->max_rel : NAN);
	print_number(&used, m->finite > 0 ? m->rms : NAN);
	print_cosine(&used, m->finite > 0 ? m->cosine : NAN);
	ofs_tool_print_path(r->path, used);
}

static const char *const keys[] = { "abs", "rel", "rms", "cosine", "differ",
	NULL };

/* What has no size, such as a value or a file that one side lacks, comes after
 * all tensors: of a step of training, there is one such line per parameter. */
static double key_of(const struct ofs_diff_row *r, const char *name)
{
	if (!r->measured)
		return -INFINITY;
	if (lost(&r->m) > 0 && strcmp(name, "differ") != 0)
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

static int by_key(const void *a, const void *b, void *key)
{
	const struct ofs_diff_row *p = a, *q = b;
	double x = key == NULL ? 0 : key_of(p, key);
	double y = key == NULL ? 0 : key_of(q, key);

	if (x != y)
		return x > y ? -1 : 1;
	return ofs_natural(p->path, q->path);
}

bool ofs_diff_is_key(const char *name)
{
	for (size_t i = 0; keys[i] != NULL; i++)
		if (strcmp(keys[i], name) == 0)
			return true;
	return false;
}

void ofs_diff_rows_sort(struct ofs_diff_row *row, size_t n, const char *key)
{
	if (n > 1)
		qsort_r(row, n, sizeof(*row), by_key, (void *)(uintptr_t)key);
}
