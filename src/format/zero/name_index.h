/* name_index.h - a pickled dict of names, for many look-ups */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FORMAT_ZERO_NAME_INDEX_H
#define OFS_FORMAT_ZERO_NAME_INDEX_H

#include <stdint.h>

#include "optimfs/error.h"

#include "pickle/pickle.h"

struct ofs_zero_index {
	const struct ofs_pickle *doc;
	uint32_t dict;
	uint32_t *order; /* of its pairs with a string for a key */
	uint32_t n;
};

/* Anything but a dict is an empty one. ENOMEM. */
int ofs_zero_index_init(struct ofs_zero_index *x, const struct ofs_pickle *doc,
    uint32_t dict, struct optimfs_error *err);
void ofs_zero_index_fini(struct ofs_zero_index *x);
/* The value of name, of several the last; OFS_NONE. */
uint32_t ofs_zero_index_find(const struct ofs_zero_index *x,
    struct ofs_str name);

#endif
