/* pickle_writer.c - pickles written opcode by opcode */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "support/pickle_writer.h"

#include <stdlib.h>
#include <string.h>

#include "tap.h"

static void le(struct ofs_buf *b, uint64_t v, int n)
{
	for (int i = 0; i < n; i++)
		ofs_buf_putc(b, (int)(v >> (8 * i) & 0xff));
}

void pw_op(struct ofs_buf *b, int op)
{
	ofs_buf_putc(b, op);
}

void pw_begin(struct ofs_buf *b)
{
	ofs_buf_put(b, "\x80\x04", 2);
}

void pw_end(struct ofs_buf *b)
{
	ofs_buf_putc(b, '.');
}

void pw_none(struct ofs_buf *b)
{
	ofs_buf_putc(b, 'N');
}

void pw_bool(struct ofs_buf *b, int v)
{
	ofs_buf_putc(b, v ? 0x88 : 0x89);
}

void pw_int(struct ofs_buf *b, int64_t v)
{
	if (v >= 0 && v < 256) {
		ofs_buf_putc(b, 'K');
		le(b, (uint64_t)v, 1);
	} else if (v >= INT32_MIN && v <= INT32_MAX) {
		ofs_buf_putc(b, 'J');
		le(b, (uint64_t)v, 4);
	} else {
		ofs_buf_put(b, "\x8a\x08", 2);
		le(b, (uint64_t)v, 8);
	}
}

void pw_long(struct ofs_buf *b, const void *bytes, size_t n)
{
	ofs_buf_putc(b, 0x8a);
	ofs_buf_putc(b, (int)n);
	ofs_buf_put(b, bytes, n);
}

void pw_float(struct ofs_buf *b, double v)
{
	uint64_t bits;

	memcpy(&bits, &v, sizeof(bits));
	ofs_buf_putc(b, 'G');
	for (int i = 7; i >= 0; i--)
		ofs_buf_putc(b, (int)(bits >> (8 * i) & 0xff));
}

void pw_strn(struct ofs_buf *b, const void *s, size_t n)
{
	if (n < 256) {
		ofs_buf_putc(b, 0x8c);
		le(b, n, 1);
	} else {
		ofs_buf_putc(b, 'X');
		le(b, n, 4);
	}
	ofs_buf_put(b, s, n);
}

void pw_str(struct ofs_buf *b, const char *s)
{
	pw_strn(b, s, strlen(s));
}

void pw_global(struct ofs_buf *b, const char *module, const char *name)
{
	pw_str(b, module);
	pw_str(b, name);
	ofs_buf_putc(b, 0x93);
}

void pw_tuple_open(struct ofs_buf *b)
{
	ofs_buf_putc(b, '(');
}

void pw_tuple_close(struct ofs_buf *b)
{
	ofs_buf_putc(b, 't');
}

void pw_list_open(struct ofs_buf *b)
{
	ofs_buf_put(b, "](", 2);
}

void pw_list_close(struct ofs_buf *b)
{
	ofs_buf_putc(b, 'e');
}

void pw_dict_open(struct ofs_buf *b)
{
	ofs_buf_put(b, "}(", 2);
}

void pw_dict_close(struct ofs_buf *b)
{
	ofs_buf_putc(b, 'u');
}

void pw_object_open(struct ofs_buf *b, const char *module, const char *name)
{
	pw_global(b, module, name);
	ofs_buf_put(b, ")\x81", 2);
	pw_dict_open(b);
}

void pw_object_close(struct ofs_buf *b)
{
	ofs_buf_put(b, "ub", 2);
}

void pw_size(struct ofs_buf *b, const int64_t *v, size_t n)
{
	pw_global(b, "torch", "Size");
	pw_tuple_open(b);
	for (size_t i = 0; i < n; i++)
		pw_int(b, v[i]);
	pw_tuple_close(b);
	ofs_buf_put(b, "\x85R", 2);
}

struct ofs_pickle *pw_parse(const char *body, size_t n)
{
	struct optimfs_error err = { 0 };
	uint8_t *bytes = malloc(n + 3);
	struct ofs_pickle *doc;

	if (bytes == NULL)
		bail_out("out of memory");
	memcpy(bytes, "\x80\x04", 2);
	memcpy(bytes + 2, body, n);
	bytes[n + 2] = '.';
	doc = ofs_pickle_parse(bytes, n + 3, true, NULL, NULL, &err);
	if (doc == NULL)
		bail_out("%s", err.text);
	return doc;
}
