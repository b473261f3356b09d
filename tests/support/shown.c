/* shown.c - tree path and text of a manifest's leaf */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "support/shown.h"

#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "naming/file_name.h"

static void put_key(struct ofs_buf *out, const char *key, size_t n)
{
	char name[OFS_NAME_MAX + 1];

	if (out->len > 0)
		ofs_buf_putc(out, '/');
	ofs_name_encode(key, n, name);
	ofs_buf_puts(out, name);
}

/* "state.<fqn>.<name>" as three components, although an FQN contains dots. */
static bool put_flat(struct ofs_buf *out, const char *key)
{
	const char *last = strrchr(key, '.'), *first = strchr(key, '.');

	if (strncmp(key, "state.", 6) != 0 &&
	    strncmp(key, "param_groups.", 13) != 0)
		return false;
	put_key(out, key, (size_t)(first - key));
	put_key(out, first + 1, (size_t)(last - first - 1));
	put_key(out, last + 1, strlen(last + 1));
	return true;
}

static bool first_is(const char *path, const char *key)
{
	size_t n = strcspn(path, TRUTH_SEP);

	return n == strlen(key) && strncmp(path, key, n) == 0;
}

void shown_path(const struct truth *l, struct ofs_buf *out)
{
	const char *rest = strchr(l->path, TRUTH_SEP[0]), *p = l->path;
	bool optim = first_is(p, "optim") || first_is(p, "optimizer");

	if (optim || (first_is(p, "model") && rest != NULL)) {
		put_key(out, optim ? "optim" : "model", 5);
		p = rest == NULL ? "" : rest + 1;
		if (optim && strchr(p, TRUTH_SEP[0]) == NULL &&
		    put_flat(out, p))
			return;
	} else if (rest == NULL && l->shape != NULL) {
		put_key(out, "model", 5);
	} else {
		put_key(out, "extra", 5);
	}
	for (;;) {
		size_t n = strcspn(p, TRUTH_SEP);

		put_key(out, p, n);
		if (p[n] == '\0')
			break;
		p += n + 1;
	}
}

static int hex(char c)
{
	return c <= '9' ? c - '0' : c - 'a' + 10;
}

static void put_scalar(const struct truth *l, struct ofs_buf *out)
{
	uint8_t raw[16] = { 0 };
	char text[80];

	for (size_t i = 0; i < sizeof(raw) && l->raw[2 * i] != '\0'; i++)
		raw[i] =
		    (uint8_t)(hex(l->raw[2 * i]) << 4 | hex(l->raw[2 * i + 1]));
	ofs_dtype_print(ofs_dtype_of_name(l->dtype, strlen(l->dtype)), raw,
	    text);
	ofs_buf_puts(out, text);
	ofs_buf_putc(out, '\n');
}

/* The bytes of Python's b'...'; the only escapes are \xNN. */
static void put_bytes(const char *p, struct ofs_buf *out)
{
	for (; p[0] != '\0' && p[1] != '\0'; p++) {
		if (strncmp(p, "\\x", 2) != 0) {
			ofs_buf_putc(out, *p);
			continue;
		}
		ofs_buf_putc(out, hex(p[2]) << 4 | hex(p[3]));
		p += 3;
	}
}

/* A Python list or tuple of plain values as JSON. */
static void put_json(const char *p, struct ofs_buf *out)
{
	static const char from[] = "()'", to[] = "[]\"";
	bool quoted = false;

	for (; *p != '\0'; p++) {
		const char *at = strchr(from, *p);

		quoted ^= *p == '\'';
		if (at != NULL && (!quoted || *p == '\''))
			ofs_buf_putc(out, to[at - from]);
		else if (*p != ' ' || quoted)
			ofs_buf_putc(out, *p);
	}
	ofs_buf_putc(out, '\n');
}

/* A Python list of names or numbers, one per line. */
static void put_lines(const char *p, struct ofs_buf *out)
{
	for (; *p != '\0'; p++)
		if (*p == ',' || (*p == ']' && p[-1] != '['))
			ofs_buf_putc(out, '\n');
		else if (strchr("[]' ", *p) == NULL)
			ofs_buf_putc(out, *p);
}

static bool is_float(const struct truth *l)
{
	return l->literal && strpbrk(l->value, ".e") != NULL &&
	    strpbrk(l->value, "tfn") == NULL;
}

void shown_text(const struct truth *l, struct ofs_buf *out)
{
	const char *last = strrchr(l->path, TRUTH_SEP[0]);
	char text[80];

	if (l->shape != NULL) {
		put_scalar(l, out);
	} else if (!l->literal && strncmp(l->value, "b'", 2) == 0) {
		put_bytes(l->value + 2, out);
	} else if (!l->literal && strchr("[(", l->value[0]) != NULL) {
		if (last != NULL && strcmp(last + 1, "params") == 0)
			put_lines(l->value, out);
		else
			put_json(l->value, out);
	} else if (is_float(l)) {
		ofs_print_double(strtod(l->value, NULL), text);
		ofs_buf_printf(out, "%s\n", text);
	} else {
		ofs_buf_printf(out, "%s\n", l->value);
	}
}
