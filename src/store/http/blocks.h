/* blocks.h - the last blocks of files that were fetched */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_STORE_HTTP_BLOCKS_H
#define OFS_STORE_HTTP_BLOCKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "optimfs/error.h"

/* Indexes, headers and the ends of archives are read in small pieces, side by
 * side. A block is what one request brings for them. Thread-safe. */
#define OFS_HTTP_BLOCK (UINT64_C(128) << 10)

/* What the blocks of a site may take. */
#define OFS_HTTP_BLOCKS_MOST ((size_t)96 << 20)

struct ofs_http_blocks;

/* For most bytes of blocks. */
struct ofs_http_blocks *ofs_http_blocks_new(size_t most,
    struct optimfs_error *err);
void ofs_http_blocks_free(struct ofs_http_blocks *b);
bool ofs_http_blocks_has(struct ofs_http_blocks *b, uint32_t file,
    uint64_t number);
/* Copies block number of a file to out; n: its bytes. false: it is not there. */
bool ofs_http_blocks_get(struct ofs_http_blocks *b, uint32_t file,
    uint64_t number, void *out, size_t n);
/* Keeps a copy, in place of the block that was not used for longest. */
void ofs_http_blocks_put(struct ofs_http_blocks *b, uint32_t file,
    uint64_t number, const void *p, size_t n);

#endif
