/* key.c - keys of Python dictionaries as text */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "text/key.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "base/str.h"

/* More items than a file name could hold. */
#define MAX_ITEMS 64

static void put_double(struct ofs_buf *out, double v)
{
	char text[80];

	ofs_buf_put(out, text, ofs_print_double(v, text));
}

static void put_global(const struct ofs_pickle *doc, uint32_t node,
    struct ofs_buf *out)
{
	struct ofs_str module, name;

	ofs_pk_class(doc, node, &module, &name);
	ofs_buf_put(out, module.p, module.len);
	ofs_buf_putc(out, '.');
	ofs_buf_put(out, name.p, name.len);
}

/* Append an integer wider than 64 bits, in hexadecimal. */
static void put_big(struct ofs_str s, struct ofs_buf *out)
{
	ofs_buf_puts(out, "0x");
	for (uint32_t i = s.len; i-- > 0;)
		ofs_buf_printf(out, "%02x", (uint8_t)s.p[i]);
}

/* Append a key that is not a tuple; false for other kinds. */
static bool put_plain(const struct ofs_pickle *doc, uint32_t node,
    struct ofs_buf *out)
{
	struct ofs_str s = ofs_pk_str(doc, node);
	int64_t v = 0;

	switch (ofs_pk_kind(doc, node)) {
	case OFS_PK_STR:
	case OFS_PK_BYTES:
		ofs_buf_put(out, s.p, s.len);
		return true;
	case OFS_PK_INT:
		ofs_pk_int(doc, node, &v);
		ofs_buf_printf(out, "%" PRId64, v);
		return true;
	case OFS_PK_BIGINT:
		put_big(s, out);
		return true;
	case OFS_PK_FLOAT:
		put_double(out, ofs_pk_float(doc, node));
		return true;
	case OFS_PK_BOOL:
		ofs_buf_puts(out, ofs_pk_bool(doc, node) ? "True" : "False");
		return true;
	case OFS_PK_NONE:
		ofs_buf_puts(out, "None");
		return true;
	case OFS_PK_GLOBAL:
		put_global(doc, node, out);
		return true;
	default:
		return false;
	}
}

static void put_other(const struct ofs_pickle *doc, uint32_t node,
    uint32_t position, struct ofs_buf *out)
{
	ofs_buf_printf(out, "%s %" PRIu32, ofs_pk_kind_name(doc, node),
	    position);
}

static void put_tuple(const struct ofs_pickle *doc, uint32_t node,
    uint32_t position, struct ofs_buf *out)
{
	uint32_t n = ofs_pk_len(doc, node);
	size_t start = out->len;

	ofs_buf_putc(out, '(');
	for (uint32_t i = 0; i < n; i++) {
		uint32_t item = ofs_pk_item(doc, node, i);
		bool quote = ofs_pk_kind(doc, item) == OFS_PK_STR;

		if (i > 0)
			ofs_buf_puts(out, ", ");
		if (quote)
			ofs_buf_putc(out, '\'');
		if (i == MAX_ITEMS || !put_plain(doc, item, out)) {
			out->len = out->bad ? out->len : start;
			put_other(doc, node, position, out);
			return;
		}
		if (quote)
			ofs_buf_putc(out, '\'');
	}
	ofs_buf_puts(out, n == 1 ? ",)" : ")");
}

void ofs_torch_key(const struct ofs_pickle *doc, uint32_t node,
    uint32_t position, struct ofs_buf *out)
{
	if (put_plain(doc, node, out))
		return;
	if (ofs_pk_kind(doc, node) == OFS_PK_TUPLE)
		put_tuple(doc, node, position, out);
	else
		put_other(doc, node, position, out);
}

static bool is_plain_item(const struct ofs_pickle *doc, uint32_t node)
{
	struct ofs_str s;

	switch (ofs_pk_kind(doc, node)) {
	case OFS_PK_INT:
	case OFS_PK_FLOAT:
	case OFS_PK_BOOL:
	case OFS_PK_NONE:
		return true;
	case OFS_PK_STR:
		/* it is quoted as it is */
		s = ofs_pk_str(doc, node);
		return memchr(s.p, '\'', s.len) == NULL;
	default:
		return false;
	}
}

bool ofs_torch_key_is_plain(const struct ofs_pickle *doc, uint32_t node)
{
	uint32_t n;

	if (ofs_pk_kind(doc, node) == OFS_PK_STR)
		return false;
	if (ofs_pk_kind(doc, node) != OFS_PK_TUPLE)
		return is_plain_item(doc, node);
	n = ofs_pk_len(doc, node);
	for (uint32_t i = 0; i < n; i++)
		if (!is_plain_item(doc, ofs_pk_item(doc, node, i)))
			return false;
	return n <= MAX_ITEMS;
}

/* The item at the start of text, which a comma or the bracket ends. */
static struct ofs_str first_item(struct ofs_str text)
{
	const char *end = NULL;

	if (text.len > 0 && *text.p == '\'') {
		end = memchr(text.p + 1, '\'', text.len - 1);
		return (struct ofs_str){ text.p,
			end == NULL ? text.len : (uint32_t)(end + 1 - text.p) };
	}
	for (uint32_t i = 0; i < text.len; i++)
		if (text.p[i] == ',' || text.p[i] == ')')
			return (struct ofs_str){ text.p, i };
	return text;
}

static void put_item(struct ofs_pkw *w, struct ofs_str s)
{
	char text[80];

	snprintf(text, sizeof(text), "%.*s", OFS_STR_ARGS(s, 79));
	if (text[0] == '\'')
		ofs_pkw_str(w, s.p + 1, s.len < 2 ? 0 : s.len - 2);
	else if (ofs_str_is(s, "None"))
		ofs_pkw_op(w, OFS_PKW_NONE);
	else if (ofs_str_is(s, "True") || ofs_str_is(s, "False"))
		ofs_pkw_op(w, text[0] == 'T' ? OFS_PKW_TRUE : OFS_PKW_FALSE);
	else if (strpbrk(text, ".enN") != NULL) /* 1e+20, NaN, Infinity */
		ofs_pkw_float(w, strtod(text, NULL));
	else
		ofs_pkw_int(w, strtoll(text, NULL, 10));
}

void ofs_torch_key_put(struct ofs_pkw *w, struct ofs_str text)
{
	struct ofs_str item[MAX_ITEMS];
	size_t n = 0;

	if (text.len == 0 || *text.p != '(') {
		put_item(w, text);
		return;
	}
	text = (struct ofs_str){ text.p + 1, text.len - 1 };
	while (n < MAX_ITEMS && text.len > 0 && *text.p != ')') {
		uint32_t skip;

		item[n] = first_item(text);
		skip = item[n++].len;
		while (skip < text.len &&
		    (text.p[skip] == ',' || text.p[skip] == ' '))
			skip++;
		text = (struct ofs_str){ text.p + skip, text.len - skip };
	}
	ofs_pkw_tuple_open(w, n);
	for (size_t i = 0; i < n; i++)
		put_item(w, item[i]);
	ofs_pkw_tuple_close(w, n);
}
