/* le.h - numbers as zip and pickle write them */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LE_H
#define LE_H

#include "base/buf.h"

static inline void put_le(struct ofs_buf *b, uint64_t v, int n)
{
	for (int i = 0; i < n; i++)
		ofs_buf_putc(b, i < 8 ? (int)(v >> 8 * i & 0xff) : 0);
}

/* A pickled integer: the shortest form, as Python chooses it. */
static inline void put_int(struct ofs_buf *b, uint64_t v)
{
	int n = 5;

	if (v < 1 << 8) {
		ofs_buf_putc(b, 'K');
		put_le(b, v, 1);
	} else if (v < 1 << 16) {
		ofs_buf_putc(b, 'M');
		put_le(b, v, 2);
	} else if (v < UINT64_C(1) << 31) {
		ofs_buf_putc(b, 'J');
		put_le(b, v, 4);
	} else {
		while (n < 8 && v >> (8 * n - 1) != 0)
			n++;
		ofs_buf_putc(b, '\x8a');
		ofs_buf_putc(b, v >> 63 != 0 ? 9 : n);
		put_le(b, v, n);
		if (v >> 63 != 0)
			ofs_buf_putc(b, 0);
	}
}

#endif
