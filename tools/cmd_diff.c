/* cmd_diff.c - optimfs diff: two checkpoints by value */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/dtype.h"
#include "tools/command.h"
#include "tools/walk.h"

/* A multiple of every element's size. */
#define PIECE (1u << 20)

struct diff {
	struct ofs_command *c;
	struct optimfs *a, *b;
	const char *b_name;
	double rtol;
	uint64_t differences;
	uint8_t *buf_a, *buf_b;
};

static void say(struct diff *d, const char *path, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static void say(struct diff *d, const char *path, const char *fmt, ...)
{
	struct ofs_buf shown = { 0 };
	va_list ap;

	ofs_buf_plain(&shown, path, strlen(path));
	printf("%.*s: ", (int)shown.len, (char *)shown.data);
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	putchar('\n');
	ofs_buf_fini(&shown);
	d->differences++;
}

static char *attribute(struct optimfs *fs, uint64_t node, const char *name)
{
	char *value;
	size_t len;

	if (optimfs_getxattr(fs, node, name, &value, &len, NULL) == -1)
		return strdup("");
	return value;
}

/* The same attribute on both sides? */
static int same_attribute(struct diff *d, const char *path, uint64_t a,
    uint64_t b, const char *name, const char *what, bool *same,
    struct optimfs_error *err)
{
	char *x = attribute(d->a, a, name), *y = attribute(d->b, b, name);
	int ret = 0;

	if (x == NULL || y == NULL)
		ret = optimfs_fail(err, ENOMEM, "out of memory");
	else if (strcmp(x, y) != 0) {
		say(d, path, "%s is %s, and %s in %s", what,
		    *x == '\0' ? "none" : x, *y == '\0' ? "none" : y,
		    d->b_name);
		*same = false;
	}
	free(x);
	free(y);
	return ret;
}

struct count {
	uint64_t differ, first;
	double worst; /* relative */
};

static double size_of(double v)
{
	return v < 0 ? -v : v;
}

/* Within the tolerance, relative to the greater; *off gets by how much. */
static bool within(const struct diff *d, double x, double y, double *off)
{
	double most = size_of(x) > size_of(y) ? size_of(x) : size_of(y);

	*off = most > 0 ? size_of(x - y) / most : 0;
	return x == y || *off <= d->rtol;
}

/* An element as numbers: one, or of "(1+2j)" two. */
static unsigned numbers(enum ofs_dtype t, const uint8_t *p, double v[2])
{
	char text[80], *end;
	bool pair;

	ofs_dtype_print(t, p, text);
	pair = text[0] == '(';
	v[0] = strtod(text + pair, &end);
	if (t == OFS_BOOL)
		v[0] = text[0] == 't';
	else if (pair)
		v[1] = strtod(end, NULL);
	return pair ? 2 : 1;
}

static bool close_enough(const struct diff *d, enum ofs_dtype t,
    const uint8_t *a, const uint8_t *b, double *worst)
{
	double x[2] = { 0 }, y[2] = { 0 }, off;
	unsigned n = numbers(t, a, x);
	bool ok = true;

	if (d->rtol <= 0)
		return false;
	numbers(t, b, y);
	for (unsigned i = 0; i < n; i++) {
		ok &= within(d, x[i], y[i], &off);
		if (off > *worst)
			*worst = off;
	}
	return ok;
}

static void compare(const struct diff *d, enum ofs_dtype t, size_t item,
    size_t n, uint64_t off, struct count *c)
{
	if (memcmp(d->buf_a, d->buf_b, n) == 0)
		return;
	for (size_t i = 0; i < n; i += item) {
		size_t k = n - i < item ? n - i : item;

		if (memcmp(d->buf_a + i, d->buf_b + i, k) == 0 ||
		    (t != OFS_DTYPE_NONE && k == item &&
			close_enough(d, t, d->buf_a + i, d->buf_b + i,
			    &c->worst)))
			continue;
		if (c->differ++ == 0)
			c->first = (off + i) / item;
	}
}

static int compare_bytes(struct diff *d, struct optimfs_file *a,
    struct optimfs_file *b, enum ofs_dtype t, struct count *c,
    struct optimfs_error *err)
{
	size_t item = t == OFS_DTYPE_NONE ? 1 : ofs_dtype_size(t);
	uint64_t off = 0;

	for (;;) {
		ssize_t n = optimfs_file_read(a, d->buf_a, PIECE, off, err);
		ssize_t m = n == -1
		    ? -1
		    : optimfs_file_read(b, d->buf_b, PIECE, off, err);

		if (m == -1)
			return -1;
		if (n > m)
			n = m;
		if (n == 0)
			return 0;
		compare(d, t, item, (size_t)n, off, c);
		off += (uint64_t)n;
	}
}

/* Text that is a number is compared as one. */
static bool close_texts(const struct diff *d, uint64_t n, uint64_t m)
{
	char x[64], y[64], *end_x, *end_y;
	double a, b, off;

	if (d->rtol <= 0 || n >= sizeof(x) || m >= sizeof(y))
		return false;
	memcpy(x, d->buf_a, n);
	memcpy(y, d->buf_b, m);
	x[n] = y[m] = '\0';
	a = strtod(x, &end_x);
	b = strtod(y, &end_y);
	return end_x != x && end_y != y && *end_x == '\n' && *end_y == '\n' &&
	    within(d, a, b, &off);
}

static int compare_open(struct diff *d, const char *path,
    struct optimfs_file *a, struct optimfs_file *b, enum ofs_dtype t,
    struct optimfs_error *err)
{
	uint64_t n = optimfs_file_size(a), m = optimfs_file_size(b);
	struct count c = { 0 };

	if (compare_bytes(d, a, b, t, &c, err) == -1)
		return -1;
	if (t == OFS_DTYPE_NONE) {
		if ((n != m || c.differ > 0) && !close_texts(d, n, m))
			say(d, path, "the value differs");
		return 0;
	}
	if (n != m)
		say(d, path, "%" PRIu64 " bytes, and %" PRIu64 " in %s", n, m,
		    d->b_name);
	else if (c.differ > 0 && d->rtol > 0)
		say(d, path,
		    "%" PRIu64 " of %" PRIu64 " elements differ, the first is "
		    "%" PRIu64 ", relative difference up to %.3g",
		    c.differ, n / ofs_dtype_size(t), c.first, c.worst);
	else if (c.differ > 0)
		say(d, path,
		    "%" PRIu64 " of %" PRIu64 " elements differ, the first is "
		    "%" PRIu64,
		    c.differ, n / ofs_dtype_size(t), c.first);
	return 0;
}

/* The type of the elements of a tensor with dimensions; none for text. */
static enum ofs_dtype element_type(struct optimfs *fs, uint64_t node)
{
	char *shape = attribute(fs, node, "user.optimfs.shape");
	char *name = attribute(fs, node, "user.optimfs.dtype");
	enum ofs_dtype t = OFS_DTYPE_NONE;

	if (shape != NULL && name != NULL && *shape != '\0')
		t = ofs_dtype_of_name(name, strlen(name));
	free(shape);
	free(name);
	return t;
}

static int compare_files(struct diff *d, const char *path, uint64_t a,
    uint64_t b, struct optimfs_error *err)
{
	struct optimfs_file *x = NULL, *y = NULL;
	bool same = true;
	int ret = -1;

	if (same_attribute(d, path, a, b, "user.optimfs.dtype", "type", &same,
		err) == -1 ||
	    same_attribute(d, path, a, b, "user.optimfs.shape", "shape", &same,
		err) == -1)
		return -1;
	if (!same)
		return 0;
	if (optimfs_file_open(d->a, a, &x, err) == 0 &&
	    optimfs_file_open(d->b, b, &y, err) == 0)
		ret = compare_open(d, path, x, y, element_type(d->a, a), err);
	optimfs_file_close(x);
	optimfs_file_close(y);
	return ret;
}

static int visit_a(void *ctx, const struct ofs_walk_entry *e,
    struct optimfs_error *err)
{
	struct diff *d = ctx;
	struct optimfs_attr other;
	struct optimfs_error none = { 0 };

	if (optimfs_resolve(d->b, e->path, &other, &none) == -1) {
		if (none.code != ENOENT && none.code != ENODATA) {
			*err = none;
			return -1;
		}
		if (!S_ISDIR(e->attr.mode))
			say(d, e->path, "only in %s", d->c->checkpoint);
		return 0;
	}
	if (S_ISDIR(e->attr.mode) != S_ISDIR(other.mode)) {
		say(d, e->path, "a file in one, a directory in the other");
		return 0;
	}
	if (S_ISDIR(e->attr.mode))
		return 0;
	if (compare_files(d, e->path, e->attr.node, other.node, err) == -1)
		return optimfs_fail_in(err, "%s", e->path);
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
		say(d, e->path, "only in %s", d->b_name);
	return 0;
}

static int diff(struct diff *d, struct optimfs_error *err)
{
	int ret;

	d->b = optimfs_open(d->b_name, &d->c->open, err);
	if (d->b == NULL)
		return -1;
	d->buf_a = malloc(PIECE);
	d->buf_b = malloc(PIECE);
	if (d->buf_a == NULL || d->buf_b == NULL)
		ret = optimfs_fail(err, ENOMEM, "out of memory");
	else
		ret = ofs_walk(d->a, OPTIMFS_ROOT, 0, visit_a, d, err);
	if (ret == 0)
		ret = ofs_walk(d->b, OPTIMFS_ROOT, 0, visit_b, d, err);
	free(d->buf_a);
	free(d->buf_b);
	optimfs_close(d->b);
	return ret;
}

static int run(const struct ofs_verb *verb, int argc, char **argv)
{
	struct ofs_command c;
	struct optimfs_error err;
	struct diff d = { .c = &c };
	char *end;
	int status;

	if (ofs_command_init(&c, verb, argc, argv, OFS_RTOL | OFS_SECOND, 1, 1,
		&status) == -1)
		return status;
	d.a = c.fs;
	d.b_name = c.operand[0];
	if (c.rtol != NULL) {
		d.rtol = strtod(c.rtol, &end);
		if (end == c.rtol || *end != '\0' || !(d.rtol >= 0)) {
			status = ofs_tool_usage(verb, "--rtol %s: not a number",
			    c.rtol);
			goto out;
		}
	}
	if (diff(&d, &err) == -1)
		status = ofs_tool_fail(&err);
	else
		status = d.differences == 0 ? OFS_EXIT_OK : OFS_EXIT_NO;
	status = ofs_tool_finish(status);
out:
	ofs_command_fini(&c);
	return status;
}

const struct ofs_verb ofs_verb_diff = {
	.name = "diff",
	.synopsis = "[--rtol NUMBER] [-o OPTION] CHECKPOINT CHECKPOINT",
	.summary = "compare two checkpoints by value",
	.options =
	    "  --rtol NUMBER  numbers may differ by so much, relative to "
	    "the greater\n",
	.run = run,
};
