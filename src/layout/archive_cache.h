/* archive_cache.h - archives of a view, made at their first use */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_LAYOUT_ARCHIVE_CACHE_H
#define OFS_LAYOUT_ARCHIVE_CACHE_H

#include <pthread.h>

#include "layout/archive.h"

/* Thousands of ranks have an archive each, and few are read at a time: those
 * are cached. Thread-safe. */

#define OFS_TORCH_CACHED 16

/* Build archive number file in *a, without _lay. The caller frees its pickle.
 * *a is initialised from the arguments of ofs_torch_cache_init. */
typedef int ofs_torch_build_fn(void *ctx, uint32_t file,
    struct ofs_torch_new *a, struct ofs_buf *pickle, struct optimfs_error *err);

struct ofs_torch_cache {
	ofs_torch_build_fn *build;
	void *ctx;
	bool crc;
	enum ofs_dtype cast;
	pthread_mutex_t lock;
	struct ofs_torch_cached {
		uint32_t file, refs;
		uint64_t used;
		struct ofs_torch_new a;
	} * slot[OFS_TORCH_CACHED];
	uint64_t clock;
};

void ofs_torch_cache_init(struct ofs_torch_cache *c,
    const struct ofs_layout *to, ofs_torch_build_fn *build, void *ctx);
void ofs_torch_cache_fini(struct ofs_torch_cache *c);

/* As in struct ofs_files_ops, for archive number file. */
int ofs_torch_cache_spans(struct ofs_torch_cache *c, uint32_t file,
    struct ofs_spans *out, struct optimfs_error *err);
int ofs_torch_cache_make(struct ofs_torch_cache *c,
    const struct ofs_catalog *cat, uint32_t file, const struct ofs_span *span,
    uint64_t at, struct ofs_composition *out, struct optimfs_error *err);

#endif
