/* digest.h - a hash that distinguishes objects with the same text */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_TEXT_DIGEST_H
#define OFS_TEXT_DIGEST_H

#include <stdbool.h>
#include <stdint.h>

#include "optimfs/error.h"

#include "pickle/pickle.h"

/* Access to the bytes of storages, which are not in the pickle. */
struct ofs_text_storages {
	/* *hash = a hash of the elements of the storage that a persistent id is
	 * for. 0: they cannot be read by this version; -1: they are damaged. */
	int (*hash)(void *ctx, const struct ofs_pickle *doc, uint32_t node,
	    uint64_t *hash, struct optimfs_error *err);
	/* The same for n bytes at off, an element; NULL: none can be read. */
	int (*read)(void *ctx, const struct ofs_pickle *doc, uint32_t node,
	    uint64_t off, uint64_t n, void *buf, struct optimfs_error *err);
	void *ctx;
};

/* The rest of the work allowed for the hashes of one text. */
struct ofs_text_budget {
	uint64_t visits;
	const struct ofs_text_storages *storages; /* NULL: not available */
	bool failed;                              /* a storage is damaged */
	struct optimfs_error *err;
};

/* *digest = a hash of everything in a node: names, arguments, items, states,
 * elements. It does not depend on which objects the pickle shares, nor on the
 * order of a set. False: the work exceeds the limit, or the elements of a
 * storage are not available. */
bool ofs_text_digest(const struct ofs_pickle *doc, uint32_t node,
    struct ofs_text_budget *budget, uint64_t *digest);

#endif
