/* cursor.h - a bounded window on untrusted bytes */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_BASE_CURSOR_H
#define OFS_BASE_CURSOR_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* A window on borrowed bytes. A read past the end sets bad, returns zero or
 * NULL and moves nothing; bad stays set. A parser may read a whole record and
 * test bad once, but it must test before a value becomes a size or a loop
 * bound. */
struct ofs_cursor {
	const uint8_t *p, *end;
	bool bad;
};

static inline struct ofs_cursor ofs_cursor_of(const void *p, uint64_t n)
{
	const uint8_t *at = p;

	return (struct ofs_cursor){ at, at == NULL ? at : at + n, false };
}

static inline uint64_t ofs_cursor_left(const struct ofs_cursor *c)
{
	return (uint64_t)(c->end - c->p);
}

static inline const uint8_t *ofs_cursor_take(struct ofs_cursor *c, uint64_t n)
{
	const uint8_t *at = c->p;

	if (c->bad || n > ofs_cursor_left(c)) {
		c->bad = true;
		return NULL;
	}
	c->p += n;
	return at;
}

/* Can n records of at least size bytes each still follow? */
static inline bool ofs_cursor_fits(const struct ofs_cursor *c, uint64_t n,
    uint64_t size)
{
	return !c->bad && (size == 0 || n <= ofs_cursor_left(c) / size);
}

static inline uint8_t ofs_cursor_u8(struct ofs_cursor *c)
{
	const uint8_t *at = ofs_cursor_take(c, 1);

	return at == NULL ? 0 : at[0];
}

static inline uint16_t ofs_cursor_le16(struct ofs_cursor *c)
{
	const uint8_t *at = ofs_cursor_take(c, 2);

	return at == NULL ? 0 : (uint16_t)(at[0] | at[1] << 8);
}

static inline uint32_t ofs_le32(const uint8_t *at)
{
	return at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 |
	    (uint32_t)at[3] << 24;
}

static inline uint64_t ofs_le64(const uint8_t *at)
{
	return ofs_le32(at) | (uint64_t)ofs_le32(at + 4) << 32;
}

/* The little-endian number of n bytes, at most 8. */
static inline uint64_t ofs_get_le(const uint8_t *at, size_t n)
{
	uint64_t v = 0;

	for (size_t i = 0; i < n; i++)
		v |= (uint64_t)at[i] << 8 * i;
	return v;
}

/* Write the n low bytes of v, at most 8. */
static inline void ofs_put_le(uint8_t *at, uint64_t v, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		at[i] = (uint8_t)(v >> 8 * i);
}

/* Reverse the bytes of each number in len bytes at p; a number has unit
 * bytes. */
static inline void ofs_swap_bytes(uint8_t *p, uint64_t len, size_t unit)
{
	for (uint64_t at = 0; at + unit <= len; at += unit)
		for (size_t i = 0; i < unit / 2; i++) {
			uint8_t byte = p[at + i];

			p[at + i] = p[at + unit - 1 - i];
			p[at + unit - 1 - i] = byte;
		}
}

static inline uint32_t ofs_cursor_le32(struct ofs_cursor *c)
{
	const uint8_t *at = ofs_cursor_take(c, 4);

	return at == NULL ? 0 : ofs_le32(at);
}

static inline uint64_t ofs_cursor_le64(struct ofs_cursor *c)
{
	const uint8_t *at = ofs_cursor_take(c, 8);

	return at == NULL ? 0 : ofs_le64(at);
}

#endif
