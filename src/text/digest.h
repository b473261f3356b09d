/* digest.h - a number that tells objects apart that have the same text */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_TEXT_DIGEST_H
#define OFS_TEXT_DIGEST_H

#include <stdbool.h>
#include <stdint.h>

#include "optimfs/error.h"

#include "pickle/pickle.h"

/* The bytes of storages, which are not in the pickle. */
struct ofs_text_storages {
	/* *hash = a hash of the elements of the storage that a persistent id is
	 * for. 0: they cannot be read by this version; -1: they are damaged. */
	int (*hash)(void *ctx, const struct ofs_pickle *doc, uint32_t node,
	    uint64_t *hash, struct optimfs_error *err);
	void *ctx;
};

/* What is left for hashes of a text. */
struct ofs_text_budget {
	uint64_t visits;
	const struct ofs_text_storages *storages; /* NULL: nobody has them */
	bool failed;                              /* a storage is damaged */
	struct optimfs_error *err;
};

/* *digest = a hash of all that there is to a node: names, arguments, items,
 * states, elements. It does not depend on how the pickle shares them, nor on
 * the order of a set. False: the visits are used up, or the elements of a
 * storage are not at hand. */
bool ofs_text_digest(const struct ofs_pickle *doc, uint32_t node,
    struct ofs_text_budget *budget, uint64_t *digest);

#endif
