/* name_index.c - the pairs of a pickled dict by name */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "pickle/name_index.h"

#include <stdlib.h>

#include "base/memory.h"

void ofs_pk_names_fini(struct ofs_pk_names *x)
{
	free(x->pair);
	ofs_keys_fini(&x->names);
	*x = (struct ofs_pk_names){ 0 };
}

int ofs_pk_names_init(struct ofs_pk_names *x, const struct ofs_pickle *doc,
    uint32_t dict, struct optimfs_error *err)
{
	uint32_t n =
	    ofs_pk_kind(doc, dict) == OFS_PK_DICT ? ofs_pk_len(doc, dict) : 0;

	*x = (struct ofs_pk_names){ .doc = doc, .dict = dict };
	x->pair = malloc((n + 1ull) * sizeof(*x->pair));
	if (x->pair == NULL)
		return ofs_no_memory(err);
	for (uint32_t i = 0; i < n; i++) {
		uint32_t key = ofs_pk_key(doc, dict, i), number;

		if (ofs_pk_kind(doc, key) != OFS_PK_STR)
			continue;
		number = ofs_keys_add(&x->names, ofs_pk_str(doc, key), err);
		if (number == OFS_NONE) {
			ofs_pk_names_fini(x);
			return -1;
		}
		x->pair[number] = i;
	}
	return 0;
}

uint32_t ofs_pk_names_pair(const struct ofs_pk_names *x, struct ofs_str name)
{
	uint32_t number = ofs_keys_find(&x->names, name.p, name.len);

	return number == OFS_NONE ? OFS_NONE : x->pair[number];
}

uint32_t ofs_pk_names_val(const struct ofs_pk_names *x, struct ofs_str name)
{
	uint32_t pair = ofs_pk_names_pair(x, name);

	return pair == OFS_NONE ? OFS_NONE : ofs_pk_val(x->doc, x->dict, pair);
}
