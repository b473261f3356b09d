/* codec.h - extents that are stored encoded, decoded once and kept */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_STORE_CODEC_H
#define OFS_STORE_CODEC_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "optimfs/error.h"

#include "catalog/catalog.h"
#include "store/gather.h"
#include "store/transport.h"

/* No extent decodes to more. */
#define OFS_DECODED_MAX (UINT64_C(1) << 40)

/* What a decoder reads and writes. name and off are for its messages. */
struct ofs_codec_io {
	int (*read)(struct ofs_codec_io *io, uint64_t off, void *buf,
	    uint64_t len, struct optimfs_error *err);
	/* Where decoded bytes go: room for *n of them, at least one. NULL:
	 * ENOMEM. Then: n of them are there. */
	void *(*room)(struct ofs_codec_io *io, size_t *n,
	    struct optimfs_error *err);
	int (*wrote)(struct ofs_codec_io *io, size_t n,
	    struct optimfs_error *err);
	const char *name;  /* of the object */
	uint64_t off, len; /* of the extent */
	/* Held while a decoder uses more memory than a few MiB, so that one at
	 * a time does. */
	pthread_mutex_t *large;
};

/* Decode all of io, from its first byte to its last. The whole extent has been
 * verified when this returns 0. */
typedef int ofs_decode_fn(struct ofs_codec_io *io, struct optimfs_error *err);
ofs_decode_fn ofs_zstd_decode;

/* Decoded extents, in memory within a budget; what does not fit is in unlinked
 * temporary files. Any thread may call. */
struct ofs_codec_cache;
struct ofs_decoded;

/* counters must outlive it. NULL: ENOMEM. */
struct ofs_codec_cache *ofs_codec_cache_new(uint64_t budget,
    struct ofs_counters *counters, struct optimfs_error *err);
void ofs_codec_cache_free(struct ofs_codec_cache *cache);

/* What an extent decodes to, pinned until ofs_codec_put; read gives the
 * object's bytes (offsets count from the extent's start) if it must be decoded
 * now. More than max bytes: E2BIG. An extent that was found damaged is not
 * decoded again. EOPNOTSUPP for a codec that this build lacks, ENOSPC when
 * neither memory nor the temporary directory has room. */
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
/* Is it decoded, or being so? */
bool ofs_codec_has(struct ofs_codec_cache *cache, uint32_t object, uint64_t off,
    uint64_t len);
void ofs_codec_put(struct ofs_codec_cache *cache, struct ofs_decoded *d);
/* Its bytes, while it is pinned. */
struct ofs_source ofs_decoded_source(struct ofs_decoded *d);

#endif
