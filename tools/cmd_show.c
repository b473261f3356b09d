/* cmd_show.c - optimfs show: the numbers of tensors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "cli/interrupt.h"
#include "cli/numbers.h"
#include "cli/terminal.h"
#include "tools/command.h"
#include "tools/operand.h"

/* As NumPy: an array of more elements is summarized, and lines are as wide. */
#define SUMMARIZE 1000
#define EDGE      3
#define LINE      75
/* More are not printed as an array: 12 dimensions of 4 have no edges. */
#define SHOWN_MAX (1u << 20)
/* How many of the n first dimensions, from the last, have index 0 at position
 * i? *k: the index in the dimension before them. */
static unsigned zeros(const struct ofs_slice *s, unsigned n, uint64_t i,
    uint64_t *k)
{
	unsigned count = 0;

	*k = 0;
	while (count < n) {
		uint64_t shown = s->dim[n - 1 - count].shown;

		*k = i % shown;
		if (*k != 0)
			break;
		i /= shown;
		count++;
	}
	return count;
}

/* An array as text, while it is printed. */
struct array {
	const struct ofs_slice *part;
	struct ofs_numbers form;
	const uint8_t *at; /* next element */
	size_t size;       /* of an element */
	struct ofs_buf line;
	bool no_memory;
};

static void repeat(struct array *a, char what, unsigned n)
{
	while (n-- > 0)
		ofs_buf_putc(&a->line, what);
}

static void print_line(struct array *a)
{
	fwrite(a->line.data, 1, a->line.len, stdout);
	a->line.len = 0;
}

/* A line is broken before a word that does not fit. */
static void put_word(struct array *a, const struct ofs_buf *word)
{
	struct ofs_buf *line = &a->line;
	unsigned ndim = a->part->ndim;
	size_t limit = ndim < LINE ? LINE - ndim : 0;

	if (line->len + word->len > limit && line->len > ndim) {
		while (line->len > 0 && line->data[line->len - 1] == ' ')
			line->len--;
		ofs_buf_putc(line, '\n');
		print_line(a);
		repeat(a, ' ', ndim);
	}
	ofs_buf_put(line, word->data, word->len);
}

static void put_row(struct array *a)
{
	const struct ofs_slice_dim *d = &a->part->dim[a->part->ndim - 1];
	struct ofs_buf word = { 0 };

	for (uint64_t k = 0; k < d->shown; k++) {
		if (d->shown < d->count && k == d->shown / 2) {
			word.len = 0;
			ofs_buf_puts(&word, "...");
			put_word(a, &word);
			ofs_buf_putc(&a->line, ' ');
		}
		word.len = 0;
		ofs_numbers_put(&a->form, a->at, &word);
		a->at += a->size;
		put_word(a, &word);
		if (k + 1 < d->shown)
			ofs_buf_putc(&a->line, ' ');
	}
	a->no_memory |= word.bad;
	ofs_buf_fini(&word);
}

/* Closes the brackets of dimensions that end before row r, and begins the next
 * line, with "..." for rows that are left out. */
static void end_row(struct array *a, uint64_t r, bool last)
{
	unsigned outer = a->part->ndim - 1;
	const struct ofs_slice_dim *d;
	uint64_t k;
	unsigned closed = zeros(a->part, outer, r, &k);

	repeat(a, ']', closed + 1);
	repeat(a, '\n', last ? 1 : closed + 1);
	if (last)
		return;
	d = &a->part->dim[outer - 1 - closed];
	if (d->shown < d->count && k == d->shown / 2) {
		repeat(a, ' ', outer - closed);
		ofs_buf_puts(&a->line, "...");
		repeat(a, '\n', closed + 1);
	}
}

/* As NumPy's array2string. */
static int print_array(struct array *a, uint64_t n, struct optimfs_error *err)
{
	unsigned outer = a->part->ndim - 1, open;
	uint64_t rows = n / a->part->dim[outer].shown, k;

	for (uint64_t r = 0; r < rows; r++) {
		open = zeros(a->part, outer, r, &k);
		repeat(a, ' ', outer - open);
		repeat(a, '[', open + 1);
		put_row(a);
		end_row(a, r + 1, r + 1 == rows);
		print_line(a);
	}
	a->no_memory |= a->line.bad;
	ofs_buf_fini(&a->line);
	return a->no_memory ? ofs_no_memory(err) : 0;
}

static int print_numbers(struct ofs_operand *s, const uint8_t *data,
    struct optimfs_error *err)
{
	struct array a = {
		.part = &s->of, .at = data, .size = ofs_dtype_size(s->t)
	};

	if (s->of.ndim > 0) {
		ofs_numbers_init(&a.form, s->t, data, s->n);
		return print_array(&a, s->n, err);
	}
	ofs_number_put(s->t, data, &a.line);
	ofs_buf_putc(&a.line, '\n');
	if (a.line.bad)
		return ofs_no_memory(err);
	ofs_print_buf(&a.line);
	return 0;
}

/* Prints the selected part as text. */
static int show_array(struct ofs_operand *s, struct optimfs_error *err)
{
	uint8_t *data;
	int ret;

	ofs_slice_summarize(&s->of, SUMMARIZE, EDGE);
	if (!ofs_slice_shown(&s->of, &s->n) || s->n > SHOWN_MAX)
		return optimfs_fail(err, EINVAL,
		    "%s: too many dimensions to be shown at once: select some, "
		    "as in %s[0, ...], or take --csv",
		    s->path, s->path);
	if (s->n == 0) {
		puts("[]");
		return 0;
	}
	data = ofs_alloc((size_t)s->n, ofs_dtype_size(s->t), err);
	if (data == NULL)
		return -1;
	ret = ofs_operand_read(s, 0, (size_t)s->n, data, err);
	if (ret == 0)
		ret = print_numbers(s, data, err);
	free(data);
	return ret;
}

/* Puts each selected element into a buffer, in order, and prints that now and
 * then. *done: how many. */
typedef void put_fn(const struct ofs_operand *s, uint64_t i, const uint8_t *p,
    void *ctx);
struct printing {
	struct ofs_operand *s;
	put_fn *put;
	void *ctx;
	struct ofs_buf *b;
};

static int print_elements(void *ctx, const uint8_t *data, uint64_t first,
    size_t n, struct optimfs_error *err)
{
	const struct printing *to = ctx;
	size_t size = ofs_dtype_size(to->s->t);

	for (size_t i = 0; i < n; i++)
		to->put(to->s, first + i, data + i * size, to->ctx);
	if (to->b->bad)
		return ofs_no_memory(err);
	fwrite(to->b->data, 1, to->b->len, stdout);
	to->b->len = 0;
	return 0;
}

static int each_element(struct ofs_operand *s, put_fn *put, void *ctx,
    struct ofs_buf *b, uint64_t *done, struct optimfs_error *err)
{
	struct printing to = { s, put, ctx, b };

	return ofs_operand_each(s, print_elements, &to, done, err);
}

/* A line is a row of the last dimension, or an element of the only one. */
static void put_csv(const struct ofs_operand *s, uint64_t i, const uint8_t *p,
    void *ctx)
{
	unsigned ndim = s->of.ndim;
	char text[80];

	ofs_dtype_print(s->t, p, text);
	ofs_buf_puts(ctx, text);
	ofs_buf_putc(ctx,
	    ndim < 2 || (i + 1) % s->of.dim[ndim - 1].shown == 0 ? '\n' : ',');
}

static int show_csv(struct ofs_operand *s, struct optimfs_error *err)
{
	struct ofs_buf b = { 0 };
	uint64_t done;
	int ret = each_element(s, put_csv, &b, &b, &done, err);

	ofs_buf_fini(&b);
	return ret;
}

/* JSON has no NaN, no infinity and no hexadecimal numbers. */
static void put_json_number(struct ofs_json_writer *w, const char *key,
    const char *text)
{
	if (strpbrk(text, "NIx") != NULL)
		ofs_json_put_string(w, key, text);
	else
		ofs_json_put_raw(w, key, text);
}

static void put_json_element(struct ofs_json_writer *w, const char *key,
    enum ofs_dtype t, const uint8_t *p)
{
	char text[80];

	if (!ofs_dtype_is_complex(t)) {
		ofs_dtype_print(t, p, text);
		put_json_number(w, key, text);
		return;
	}
	ofs_json_open(w, key, '[');
	for (size_t i = 0; i < 2; i++) {
		ofs_print_double(ofs_dtype_number(t,
				     p + i * (ofs_dtype_size(t) / 2)),
		    text);
		put_json_number(w, NULL, text);
	}
	ofs_json_close(w, ']');
}

static void put_json(const struct ofs_operand *s, uint64_t i, const uint8_t *p,
    void *ctx)
{
	const char *key = i == 0 ? "values" : NULL;
	struct ofs_json_writer *w = ctx;
	unsigned ndim = s->of.ndim;
	uint64_t k;

	for (unsigned open = zeros(&s->of, ndim, i, &k); open > 0; open--) {
		ofs_json_open(w, key, '[');
		key = NULL;
	}
	put_json_element(w, key, s->t, p);
	for (unsigned done = zeros(&s->of, ndim, i + 1, &k); done > 0; done--)
		ofs_json_close(w, ']');
}

static void begin_json(const struct ofs_operand *s, struct ofs_json_writer *w,
    struct ofs_buf *b)
{
	ofs_json_begin(w, b, "optimfs.show");
	ofs_json_put_string(w, "path", s->path);
	ofs_json_put_string(w, "slice", s->slice);
	ofs_json_put_string(w, "dtype", s->dtype);
}

static void put_shape(const struct ofs_operand *s, struct ofs_json_writer *w)
{
	uint64_t shape[OFS_MAX_DIMS];

	for (unsigned i = 0; i < s->of.ndim; i++)
		shape[i] = s->of.dim[i].count;
	ofs_json_put_numbers(w, "shape", shape, s->of.ndim);
}

/* What cannot be read to its end is closed, and says why. */
static int show_json(struct ofs_operand *s, struct optimfs_error *err)
{
	struct ofs_json_writer w;
	struct ofs_buf b = { 0 };
	uint64_t done, k;
	int ret;

	begin_json(s, &w, &b);
	put_shape(s, &w);
	ret = each_element(s, put_json, &w, &b, &done, err);
	if (s->n == 0) {
		ofs_json_open(&w, "values", '[');
		ofs_json_close(&w, ']');
	}
	if (ret == -1) {
		unsigned open = done == 0
		    ? 0
		    : s->of.ndim - zeros(&s->of, s->of.ndim, done, &k);

		for (; open > 0; open--)
			ofs_json_close(&w, ']');
		ofs_json_put_string(&w, "error", err->text);
	}
	ofs_json_print(&w);
	return ret;
}

static int keep_text(void *ctx, const void *p, size_t n,
    struct optimfs_error *err)
{
	struct ofs_buf *b = ctx;

	ofs_buf_put(b, p, n);
	return b->bad ? ofs_no_memory(err) : 0;
}

/* A tensor without dimensions has its number, other texts are strings. */
static int show_json_text(struct ofs_operand *s, struct optimfs_error *err)
{
	struct ofs_buf text = { 0 }, b = { 0 };
	struct ofs_json_writer w;
	uint8_t element[16];
	int ret = ofs_command_read(s->c, s->attr.node, keep_text, &text, err);

	if (ret == 0) {
		begin_json(s, &w, &b);
		if (s->dtype != NULL &&
		    ofs_dtype_parse(s->t, (char *)text.data, text.len,
			element) == 0) {
			put_shape(s, &w);
			put_json_element(&w, "values", s->t, element);
		} else {
			ofs_json_put_str(&w, "text",
			    (struct ofs_str){ (char *)text.data, text.len });
		}
		ofs_json_print(&w);
	}
	ofs_buf_fini(&text);
	return ret;
}

static int show_text(struct ofs_operand *s, struct optimfs_error *err)
{
	if (ofs_command_is_binary(s->c, s->attr.node))
		return optimfs_fail(err, EINVAL,
		    "%s: is a file of bytes: optimfs cp or cat copies it",
		    s->path);
	if (s->c->flags & OFS_JSON)
		return show_json_text(s, err);
	fflush(stdout);
	return ofs_command_read(s->c, s->attr.node,
	    ofs_is_terminal(STDOUT_FILENO) ? ofs_sink_terminal : ofs_sink_stdout,
	    NULL, err);
}

static int show_selected(struct ofs_operand *s, struct optimfs_error *err)
{
	if (s->c->flags & OFS_JSON)
		return show_json(s, err);
	if (s->c->flags & OFS_CSV)
		return show_csv(s, err);
	return show_array(s, err);
}

/* Of several operands, each has a heading. */
static void print_heading(const struct ofs_operand *s, int i)
{
	struct ofs_buf b = { 0 };

	if (s->c->noperands < 2 || (s->c->flags & (OFS_JSON | OFS_CSV)) != 0)
		return;
	if (i > 0)
		ofs_buf_putc(&b, '\n');
	ofs_buf_shown(&b, s->path, strlen(s->path));
	ofs_buf_printf(&b, "%s:", s->slice != NULL ? s->slice : "");
	if (ofs_operand_is_array(s))
		ofs_buf_printf(&b, " %s %s", s->dtype, s->shape);
	ofs_buf_putc(&b, '\n');
	ofs_print_buf(&b);
}

static int show_file(struct ofs_operand *s, int i, struct optimfs_error *err)
{
	const char *operand = s->c->operand[i];

	if (S_ISDIR(s->attr.mode))
		return optimfs_fail(err, EISDIR,
		    "%s: is a directory: optimfs ls lists it, optimfs stat "
		    "describes the tensors in it",
		    s->path);
	if (!ofs_operand_is_array(s) && s->slice != NULL)
		return optimfs_fail(err, EINVAL,
		    "%s: is text, which has no elements", s->path);
	if (ofs_operand_is_array(s) && ofs_operand_open(s, operand, err) == -1)
		return -1;
	print_heading(s, i);
	return ofs_operand_is_array(s) ? show_selected(s, err)
				       : show_text(s, err);
}

static int show_operand(struct ofs_command *c, int i)
{
	struct optimfs_error err;
	struct ofs_operand s;
	int status = OFS_EXIT_OK;

	if (ofs_operand_find(&s, c, c->operand[i], &err) == -1 ||
	    show_file(&s, i, &err) == -1)
		status =
		    ofs_command_stopped(c, &err, "the output is incomplete");
	ofs_operand_fini(&s);
	return status;
}

static int run_show(const struct ofs_verb *verb, int argc, char **argv)
{
	struct ofs_command c;
	int status, worst = OFS_EXIT_OK;

	if (ofs_command_init(&c, verb, argc, argv,
		OFS_PATHS | OFS_SLICES | OFS_RUNS | OFS_JSON | OFS_CSV, 1,
		INT_MAX - 1, &status) == -1)
		return status;
	ofs_interrupt_catch();
	if ((c.flags & OFS_JSON) != 0 && (c.flags & OFS_CSV) != 0) {
		ofs_command_fini(&c);
		return ofs_tool_usage(verb, "--csv or --json, not both");
	}
	for (int i = 0; i < c.noperands && worst != OFS_EXIT_INTERRUPTED; i++) {
		status = show_operand(&c, i);
		if (status > worst)
			worst = status;
	}
	ofs_command_fini(&c);
	return ofs_tool_finish(worst);
}

const struct ofs_verb ofs_verb_show = {
	.name = "show",
	.from = true,
	.synopsis = "[--json | --csv] [-o OPTION] CHECKPOINT PATH[SLICE]...",
	.summary = "print the numbers of tensors, as NumPy does",
	.options =
	    "  --json  one JSON object per path, with all selected elements\n"
	    "  --csv   all selected elements, one line per row\n"
	    "\n"
	    "A slice is that of NumPy: PATH[0], PATH[-3:], PATH[0:4, ::2],\n"
	    "PATH[..., 0]. Quote it for the shell.\n",
	.run = run_show,
};
