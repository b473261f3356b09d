/* inflate.h - a decoder of untrusted deflate streams (RFC 1951) */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_ARCHIVE_INFLATE_H
#define OFS_ARCHIVE_INFLATE_H

#include <stdbool.h>
#include <stdint.h>
#include <zlib.h>

#include "archive/zip.h"

/* The caller sets read, ctx, and what is read from: [off, end); and a buffer
 * for input. */
struct ofs_inflate {
	ofs_zip_read_fn *read;
	void *ctx;
	uint64_t off, end;
	uint8_t *in;
	uint32_t room; /* bytes of in */
	bool ended;
	z_stream z;
};

int ofs_inflate_init(struct ofs_inflate *s, struct optimfs_error *err);
void ofs_inflate_fini(struct ofs_inflate *s);
/* Decode up to n bytes into buf; *got is less than n only at the end of the
 * stream. EIO (OFS702): the input ends within the stream; EBADMSG (OFS704): it
 * is malformed. */
int ofs_inflate_next(struct ofs_inflate *s, void *buf, uint32_t n,
    uint32_t *got, struct optimfs_error *err);
/* The number of bytes before end that were not needed. */
uint64_t ofs_inflate_left(const struct ofs_inflate *s);

#endif
