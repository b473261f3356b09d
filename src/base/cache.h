/* cache.h - the directories of the cache of Hugging Face */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_BASE_CACHE_H
#define OFS_BASE_CACHE_H

#include <stddef.h>

/* A snapshot of the cache of Hugging Face, ROOT/snapshots/REVISION, has links to
 * files of ROOT/blobs. The length of ROOT in the real path of a directory in
 * it, or of ROOT itself; 0: it is not in such a cache. */
size_t ofs_cache_root(const char *real);

#endif
