/* inflate.c - a decoder of untrusted deflate streams (RFC 1951) */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "archive/inflate.h"

#include <errno.h>

#include "base/memory.h"

int ofs_inflate_init(struct ofs_inflate *s, struct optimfs_error *err)
{
	s->z = (z_stream){ 0 };
	s->ended = false;
	/* negative: without the header and trailer of zlib */
	return inflateInit2(&s->z, -MAX_WBITS) == Z_OK ? 0 : ofs_no_memory(err);
}

void ofs_inflate_fini(struct ofs_inflate *s)
{
	inflateEnd(&s->z);
}

uint64_t ofs_inflate_left(const struct ofs_inflate *s)
{
	return s->end - s->off + s->z.avail_in;
}

static int fill(struct ofs_inflate *s, struct optimfs_error *err)
{
	uint64_t n = s->end - s->off;

	if (s->z.avail_in > 0 || n == 0)
		return 0;
	if (n > s->room)
		n = s->room;
	if (s->read(s->ctx, s->off, n, s->in, err) == -1)
		return -1;
	s->off += n;
	s->z.next_in = s->in;
	s->z.avail_in = (uInt)n;
	return 0;
}

static int failed(const struct ofs_inflate *s, int why,
    struct optimfs_error *err)
{
	if (why == Z_MEM_ERROR)
		return ofs_no_memory(err);
	if (why == Z_BUF_ERROR) /* no input is left */
		return optimfs_fail(err, EIO, "OFS702 it ends early");
	return optimfs_fail(err, EBADMSG, "OFS704 %s",
	    s->z.msg == NULL ? "malformed" : s->z.msg);
}

int ofs_inflate_next(struct ofs_inflate *s, void *buf, uint32_t n,
    uint32_t *got, struct optimfs_error *err)
{
	int ret;

	s->z.next_out = buf;
	s->z.avail_out = n;
	while (s->z.avail_out > 0 && !s->ended) {
		if (fill(s, err) == -1)
			return -1;
		ret = inflate(&s->z, Z_NO_FLUSH);
		s->ended = ret == Z_STREAM_END;
		if (ret != Z_OK && !s->ended)
			return failed(s, ret, err);
	}
	*got = n - s->z.avail_out;
	return 0;
}
