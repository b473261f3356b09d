/* name_index.h - an index of a pickled dict of names */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FORMAT_ZERO_NAME_INDEX_H
#define OFS_FORMAT_ZERO_NAME_INDEX_H

#include <stdint.h>

#include "optimfs/error.h"

#include "pickle/pickle.h"

struct ofs_zero_index {
	const struct ofs_pickle *doc;
	uint32_t dict;
	uint32_t *order; /* pairs with a string key, sorted */
	uint32_t n;
};

/* Indexes dict; any other node is an empty dict. ENOMEM. */
int ofs_zero_index_init(struct ofs_zero_index *x, const struct ofs_pickle *doc,
    uint32_t dict, struct optimfs_error *err);
void ofs_zero_index_fini(struct ofs_zero_index *x);
/* The value of name, the last one of duplicates; OFS_NONE: none. */
uint32_t ofs_zero_index_find(const struct ofs_zero_index *x,
    struct ofs_str name);

#endif
