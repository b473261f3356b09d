/* encode.h - write compressed items */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_STORE_ENCODE_H
#define OFS_STORE_ENCODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "optimfs/error.h"

/* As ofs_write_all (base/copy.h). */
typedef int ofs_write_fn(int fd, const void *buf, uint64_t n, uint64_t off,
    struct optimfs_error *err);

/* A writer of Zstandard frames as PyTorch's transform makes them
 * (docs/formats/dcp.md): one for each item, without content size or checksum,
 * because it is written as a stream. The caller sets the first three members. */
struct ofs_encoder {
	ofs_write_fn *write;
	int fd;
	uint64_t at; /* where the next bytes go; advances */
	/* private */
	void *ctx, *out;
	size_t room;
};

/* level 0: the library's default. EOPNOTSUPP (OFS711): this build has no zstd;
 * ENOMEM. _fini also after a failure. */
int ofs_encoder_init(struct ofs_encoder *e, int level,
    struct optimfs_error *err);
void ofs_encoder_fini(struct ofs_encoder *e);
/* The next frame will have n bytes, and say so. */
int ofs_encoder_size(struct ofs_encoder *e, uint64_t n,
    struct optimfs_error *err);
/* Encode n more bytes of a frame, which ends with them if last is set. */
int ofs_encode(struct ofs_encoder *e, const void *p, size_t n, bool last,
    struct optimfs_error *err);

#endif
