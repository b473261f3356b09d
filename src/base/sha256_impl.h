/* sha256_impl.h - the ways to compute SHA-256 */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_BASE_SHA256_IMPL_H
#define OFS_BASE_SHA256_IMPL_H

#include <stddef.h>
#include <stdint.h>

extern const uint32_t ofs_sha256_k[64];

/* Adds n blocks of 64 bytes to the state h. */
typedef void ofs_sha256_blocks_fn(uint32_t h[8], const uint8_t *p, size_t n);
void ofs_sha256_blocks(uint32_t h[8], const uint8_t *p, size_t n);
/* By instructions that this processor has for it; NULL: it has none. */
ofs_sha256_blocks_fn *ofs_sha256_fast(void);

#endif
