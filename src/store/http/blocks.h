/* blocks.h - the last blocks of files that were fetched */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_STORE_HTTP_BLOCKS_H
#define OFS_STORE_HTTP_BLOCKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "optimfs/error.h"

#include "store/http/module.h"

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
/* Copies n bytes of block number of a file to out, from off on in it. false: they
 * are not there. */
bool ofs_http_blocks_get(struct ofs_http_blocks *b, uint32_t file,
    uint64_t number, size_t off, void *out, size_t n);
/* The bytes of a file from off on that are in memory, at most *n: they stay until
 * ofs_http_blocks_let(*held). NULL: the first one is not there. */
const uint8_t *ofs_http_blocks_hold(struct ofs_http_blocks *b, uint32_t file,
    uint64_t off, uint64_t *n, void **held);
void ofs_http_blocks_let(struct ofs_http_blocks *b, void *held);
/* Keeps n bytes, which are block number of a file and those behind it; they take
 * the place of what was not used for longest. The last one may be shorter, if the
 * file ends there. p, malloc'ed, is not the caller's any more. */
void ofs_http_blocks_give(struct ofs_http_blocks *b, uint32_t file,
    uint64_t number, uint8_t *p, size_t n);
/* The same for one block, of which a copy is kept. */
void ofs_http_blocks_put(struct ofs_http_blocks *b, uint32_t file,
    uint64_t number, const void *p, size_t n);

/* Blocks that are on their way to a reader who takes each once, in order. Whoever
 * asks for one of them waits until it has come. Bytes come a bounded way ahead of
 * the reader, to memory that is used again: what lies before a block that is held
 * is forgotten. A reader who has to wait long gets more of them, up to all: slow
 * connections have to be many, fast ones are not worth the memory. */
struct ofs_http_flow;
struct ofs_http_slab;

/* Bytes are kept that far ahead of the reader, at first. room is called when bytes that
 * were refused may be offered again; blocks are locked meanwhile. */
struct ofs_http_flow *ofs_http_flow_new(struct ofs_http_blocks *b,
    uint64_t ahead, void (*room)(void *ctx), void *ctx,
    struct optimfs_error *err);
/* n bytes, which are block number of a file and those behind it, will come, to be
 * read when start others have been. What is expected is freed with the flow. */
struct ofs_http_slab *ofs_http_flow_expect(struct ofs_http_flow *f,
    uint64_t start, uint32_t file, uint64_t number, size_t n,
    struct optimfs_error *err);
/* The next n bytes of it have come. n 0: would there be room for more? */
enum ofs_http_take ofs_http_flow_take(struct ofs_http_slab *s, const void *p,
    size_t n);
/* What has not come does not: who waits for it has to fetch it. */
void ofs_http_flow_end(struct ofs_http_slab *s);
/* Nobody wants more. */
void ofs_http_flow_stop(struct ofs_http_flow *f);
/* Nothing comes any more. */
void ofs_http_flow_free(struct ofs_http_flow *f);

#endif
