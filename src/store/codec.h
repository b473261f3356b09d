/* codec.h - encoded extents, decoded once and kept */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_STORE_CODEC_H
#define OFS_STORE_CODEC_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "optimfs/error.h"

#include "store/gather.h"
#include "store/transport.h"

/* The most bytes that an extent may decode to. */
#define OFS_DECODED_MAX (UINT64_C(1) << 40)

/* Input and output of a decoder. name and off are for messages. */
struct ofs_codec_io {
	int (*read)(struct ofs_codec_io *io, uint64_t off, void *buf,
	    uint64_t len, struct optimfs_error *err);
	/* A buffer for decoded bytes, of *n bytes, at least one; NULL with
	 * ENOMEM. wrote reports that n bytes are in it. */
	void *(*room)(struct ofs_codec_io *io, size_t *n,
	    struct optimfs_error *err);
	int (*wrote)(struct ofs_codec_io *io, size_t n,
	    struct optimfs_error *err);
	const char *name;  /* of the object */
	uint64_t off, len; /* of the extent */
	/* Held while a decoder uses more than a few MiB of memory, so that only
	 * one does at a time. */
	pthread_mutex_t *large;
};

/* Decode all of io, from the first byte to the last. When this returns 0 the
 * whole extent has been verified. */
typedef int ofs_decode_fn(struct ofs_codec_io *io, struct optimfs_error *err);
ofs_decode_fn ofs_zstd_decode, ofs_deflate_decode;

/* Decoded extents, in memory up to a budget; others are in unlinked temporary
 * files. Thread-safe. */
struct ofs_codec_cache;
struct ofs_decoded;

/* counters must outlive the cache. NULL with ENOMEM. */
struct ofs_codec_cache *ofs_codec_cache_new(uint64_t budget,
    struct ofs_counters *counters, struct optimfs_error *err);
void ofs_codec_cache_free(struct ofs_codec_cache *cache);

/* The decoded bytes of an extent, pinned until ofs_codec_put. read is called
 * when it must be decoded now; its offsets are relative to the extent. E2BIG:
 * more than max bytes. EOPNOTSUPP: this build lacks the codec. ENOSPC: there is
 * no room in memory and in the temporary directory. An extent that was found to
 * be damaged is not decoded again. */
struct ofs_codec_input {
	const char *name;
	uint32_t object;
	uint64_t off, len;
	uint8_t codec;
	int (*read)(void *ctx, uint64_t off, void *buf, uint64_t len,
	    struct optimfs_error *err);
	void *ctx;
};
struct ofs_decoded *ofs_codec_get(struct ofs_codec_cache *cache,
    const struct ofs_codec_input *in, uint64_t max, struct optimfs_error *err);
/* Is it decoded, or being decoded? */
bool ofs_codec_has(struct ofs_codec_cache *cache, uint32_t object, uint64_t off,
    uint64_t len);
void ofs_codec_put(struct ofs_codec_cache *cache, struct ofs_decoded *d);
/* The bytes of a pinned extent. */
struct ofs_source ofs_decoded_source(struct ofs_decoded *d);

#endif
