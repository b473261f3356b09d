/* buf.h - a byte buffer that grows while text or a record is written */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_BASE_BUF_H
#define OFS_BASE_BUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Zero-initialise. A failed append sets bad and changes nothing else; bad stays
 * set, so that a writer tests it once, at the end. It means out of memory, or
 * more than limit bytes where limit is not 0. data belongs to the owner of the
 * buffer, who frees it with ofs_buf_fini or free. */
struct ofs_buf {
	uint8_t *data;
	size_t len, cap, limit;
	bool bad;
};

void ofs_buf_fini(struct ofs_buf *b);
/* Make room for n more bytes; false: it is bad now. */
bool ofs_buf_grow(struct ofs_buf *b, size_t n);
static inline bool ofs_buf_reserve(struct ofs_buf *b, size_t n)
{
	/* cap may be more than limit, so a limit takes the slow path */
	if (!b->bad && n <= b->cap - b->len && b->limit == 0)
		return true;
	return ofs_buf_grow(b, n);
}
static inline void ofs_buf_put(struct ofs_buf *b, const void *p, size_t n)
{
	if (n == 0 || !ofs_buf_reserve(b, n))
		return;
	memcpy(b->data + b->len, p, n);
	b->len += n;
}
static inline void ofs_buf_putc(struct ofs_buf *b, int c)
{
	if (ofs_buf_reserve(b, 1))
		b->data[b->len++] = (uint8_t)c;
}
void ofs_buf_puts(struct ofs_buf *b, const char *s);
/* The n low bytes of v, at most 8, least significant first. */
void ofs_buf_put_le(struct ofs_buf *b, uint64_t v, unsigned n);
void ofs_buf_printf(struct ofs_buf *b, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* Append n numbers, with the text between between them. */
void ofs_buf_numbers(struct ofs_buf *b, const uint64_t *v, size_t n,
    const char *between);
/* Append n bytes of s as the inside of a JSON string, without quotes. What must
 * not be shown (utf8.h), quotes and backslashes are escaped; invalid UTF-8
 * becomes \u00XX, byte by byte. */
void ofs_buf_json(struct ofs_buf *b, const void *s, size_t n);
/* Append n bytes of s as a field of a line: the bytes of what must not be shown
 * (utf8.h) and backslashes as \xNN. */
void ofs_buf_plain(struct ofs_buf *b, const void *s, size_t n);
/* The same, but backslashes stay. */
void ofs_buf_shown(struct ofs_buf *b, const void *s, size_t n);

#endif
