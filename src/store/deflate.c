/* deflate.c - a decoder of deflated records of zip archives */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "archive/inflate.h"
#include "base/crc.h"
#include "base/memory.h"
#include "store/codec.h"

#define IN_SIZE ((uint32_t)64 << 10)

static int read_extent(void *ctx, uint64_t off, uint64_t len, void *buf,
    struct optimfs_error *err)
{
	struct ofs_codec_io *io = ctx;

	return io->read(io, off, buf, len, err);
}

/* Decode the stream into io; *size gets its length, *crc its checksum. More than
 * the declared size is an error before it is stored. */
static int decode(struct ofs_codec_io *io, struct ofs_inflate *s,
    const struct ofs_zip_deflated *d, uint64_t *size, uint32_t *crc,
    struct optimfs_error *err)
{
	uint32_t got;
	size_t n;

	*size = *crc = 0;
	while (!s->ended) {
		void *buf = io->room(io, &n, err);

		if (buf == NULL ||
		    ofs_inflate_next(s, buf, (uint32_t)n, &got, err) == -1)
			return -1;
		*crc = ofs_crc32(*crc, buf, got);
		*size += got;
		if (*size > d->size)
			return 0;
		if (io->wrote(io, got, err) == -1)
			return -1;
	}
	return 0;
}

static int decode_verified(struct ofs_codec_io *io, struct ofs_inflate *s,
    const struct ofs_zip_deflated *d, struct optimfs_error *err)
{
	uint64_t size;
	uint32_t crc;

	if (decode(io, s, d, &size, &crc, err) == -1)
		return -1;
	if (size != d->size)
		return optimfs_fail(err, EBADMSG,
		    "OFS703 it declares %" PRIu64 " bytes and has %s%" PRIu64,
		    d->size, size > d->size ? "at least " : "", size);
	if (ofs_inflate_left(s) != 0)
		return optimfs_fail(err, EBADMSG,
		    "OFS703 %" PRIu64 " of its %" PRIu64
		    " bytes are after the end of its stream",
		    ofs_inflate_left(s), d->stored);
	if (crc != d->crc)
		return optimfs_fail(err, EBADMSG,
		    "OFS530 CRC mismatch: 0x%08" PRIx32 ", stored 0x%08" PRIx32,
		    crc, d->crc);
	return 0;
}

static int decode_record(struct ofs_codec_io *io, struct optimfs_error *err)
{
	struct ofs_inflate s = { .read = read_extent, .ctx = io };
	struct ofs_zip_deflated d;
	int ret = -1;

	if (ofs_zip_deflated(io->len, read_extent, io, &d, err) == -1)
		return -1;
	s.off = d.off;
	s.end = d.off + d.stored;
	s.room = IN_SIZE;
	s.in = malloc(IN_SIZE);
	if (s.in == NULL)
		return ofs_no_memory(err);
	if (ofs_inflate_init(&s, err) == 0) {
		ret = decode_verified(io, &s, &d, err);
		ofs_inflate_fini(&s);
	}
	free(s.in);
	return ret;
}

int ofs_deflate_decode(struct ofs_codec_io *io, struct optimfs_error *err)
{
	if (decode_record(io, err) == 0)
		return 0;
	return optimfs_fail_in(err,
	    "%s: deflated record of %" PRIu64 " bytes at %" PRIu64, io->name,
	    io->len, io->off);
}
