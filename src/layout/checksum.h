/* checksum.h - checksums of a file, as its bytes pass */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_LAYOUT_CHECKSUM_H
#define OFS_LAYOUT_CHECKSUM_H

#include <stdint.h>

#include "optimfs/error.h"

#include "plan/composition.h"
#include "plan/sums.h"

/* Read bytes of the file that contain no checksum. */
typedef int ofs_checksum_read_fn(void *ctx, void *buf, uint64_t len,
    uint64_t off, struct optimfs_error *err);

/* Bytes [off, off + len) were read to buf: add those that the checksum p, a
 * piece of kind OFS_PIECE_CRC, is of. */
void ofs_checksum_pass(struct ofs_sums *sums, const struct ofs_piece *p,
    const uint8_t *buf, uint64_t off, uint64_t len);
/* Put bytes [lo, hi) of the four bytes of p to out. If it is not known, its bytes
 * are read. */
int ofs_checksum_put(struct ofs_sums *sums, const struct ofs_piece *p,
    unsigned lo, unsigned hi, uint8_t *out, ofs_checksum_read_fn *read,
    void *ctx, struct optimfs_error *err);

#endif
