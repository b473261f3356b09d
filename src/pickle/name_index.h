/* name_index.h - the pairs of a pickled dict by name */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_PICKLE_NAME_INDEX_H
#define OFS_PICKLE_NAME_INDEX_H

#include <stdint.h>

#include "optimfs/error.h"

#include "base/keys.h"
#include "pickle/pickle.h"

struct ofs_pk_names {
	const struct ofs_pickle *doc;
	uint32_t dict;
	struct ofs_keys names; /* the keys that are strings */
	uint32_t *pair;        /* of each name: the last pair that has it */
};

/* Indexes dict; any other node is an empty dict. ENOMEM. */
int ofs_pk_names_init(struct ofs_pk_names *x, const struct ofs_pickle *doc,
    uint32_t dict, struct optimfs_error *err);
void ofs_pk_names_fini(struct ofs_pk_names *x);
/* The pair of name, the last one of duplicates; or its value. OFS_NONE: none. */
uint32_t ofs_pk_names_pair(const struct ofs_pk_names *x, struct ofs_str name);
uint32_t ofs_pk_names_val(const struct ofs_pk_names *x, struct ofs_str name);

#endif
