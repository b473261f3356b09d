/* buf.c - growing byte buffer */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "base/buf.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cursor.h"
#include "base/utf8.h"

void ofs_buf_fini(struct ofs_buf *b)
{
	free(b->data);
	*b = (struct ofs_buf){ .limit = b->limit };
}

bool ofs_buf_grow(struct ofs_buf *b, size_t n)
{
	size_t cap = b->cap == 0 ? 256 : b->cap;
	uint8_t *data;

	if (b->bad || n > SIZE_MAX / 4 - b->len ||
	    (b->limit != 0 && b->len + n > b->limit)) {
		b->bad = true;
		return false;
	}
	if (b->len + n <= b->cap)
		return true;
	while (cap < b->len + n)
		cap *= 2;
	data = realloc(b->data, cap);
	if (data == NULL) {
		b->bad = true;
		return false;
	}
	b->data = data;
	b->cap = cap;
	return true;
}

void ofs_buf_puts(struct ofs_buf *b, const char *s)
{
	ofs_buf_put(b, s, strlen(s));
}

void ofs_buf_put_le(struct ofs_buf *b, uint64_t v, unsigned n)
{
	uint8_t bytes[8];

	ofs_put_le(bytes, v, n);
	ofs_buf_put(b, bytes, n);
}

void ofs_buf_printf(struct ofs_buf *b, const char *fmt, ...)
{
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	if (n < 0 || !ofs_buf_reserve(b, (size_t)n + 1)) {
		b->bad = true;
		return;
	}
	va_start(ap, fmt);
	vsnprintf((char *)b->data + b->len, (size_t)n + 1, fmt, ap);
	va_end(ap);
	b->len += (size_t)n;
}

void ofs_buf_numbers(struct ofs_buf *b, const uint64_t *v, size_t n,
    const char *between)
{
	for (size_t i = 0; i < n; i++)
		ofs_buf_printf(b, "%s%" PRIu64, i > 0 ? between : "", v[i]);
}

/* As JSON writes a character that is not shown: in UTF-16. */
static void put_utf16(struct ofs_buf *b, uint32_t c)
{
	if (c > 0xffff) {
		ofs_buf_printf(b, "\\u%04x", 0xd7c0 + (c >> 10));
		c = 0xdc00 | (c & 0x3ff);
	}
	ofs_buf_printf(b, "\\u%04x", c);
}

void ofs_buf_json(struct ofs_buf *b, const void *s, size_t n)
{
	const uint8_t *p = s, *end = p == NULL ? p : p + n;

	while (p < end) {
		size_t k = ofs_utf8_shown(p, (size_t)(end - p));

		if (k == 0) {
			k = ofs_utf8_length(p, (size_t)(end - p));
			put_utf16(b, k == 0 ? *p : ofs_utf8_code(p, k));
		} else if (*p == '"' || *p == '\\') {
			ofs_buf_printf(b, "\\%c", *p);
		} else {
			ofs_buf_put(b, p, k);
		}
		p += k == 0 ? 1 : k;
	}
}

/* Appends it with what is not shown, and the byte also, as \xNN. */
static void put_shown(struct ofs_buf *b, const uint8_t *p, size_t n, int also)
{
	for (size_t i = 0; i < n;) {
		size_t k = ofs_utf8_shown(p + i, n - i);

		if (k == 0 || p[i] == also) {
			ofs_buf_printf(b, "\\x%02x", p[i++]);
		} else {
			ofs_buf_put(b, p + i, k);
			i += k;
		}
	}
}

void ofs_buf_plain(struct ofs_buf *b, const void *s, size_t n)
{
	put_shown(b, s, n, '\\');
}

void ofs_buf_shown(struct ofs_buf *b, const void *s, size_t n)
{
	put_shown(b, s, n, -1);
}
