/* units_impl.h - what units*.c share */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FORMAT_FSDP_UNITS_IMPL_H
#define OFS_FORMAT_FSDP_UNITS_IMPL_H

#include "base/json.h"
#include "format/fsdp/units.h"

/* A list of strings that grows; they lie in the arena. */
struct ofs_units_strings {
	struct ofs_str *v;
	uint32_t n, cap;
};

/* One unit as it is written, before its names are whole. */
struct ofs_units_draft {
	struct ofs_str prefix, strategy;
	struct ofs_units_strings fqns, shared;
	struct ofs_unit_table shapes, grad;
	struct ofs_unit_record r;
	bool is_unit; /* it has fqns */
};

struct ofs_units_reader {
	struct ofs_units *u;
	struct ofs_json j;
	struct ofs_units_strings order, ids;
	uint32_t cap, tie_cap; /* of u's units and ties */
	struct optimfs_error *err;
};

/* The JSON is in order, but this is not what stands here. */
int ofs_units_unexpected(struct ofs_units_reader *r, const char *want);

/* units_json.c: read all of the text, adding each unit as it ends. */
int ofs_units_document(struct ofs_units_reader *r);

/* units_build.c. Add the unit that d describes. */
int ofs_units_add(struct ofs_units_reader *r, const struct ofs_units_draft *d);
/* Keep names of the whole model, clean, in the arena. */
int ofs_units_keep(struct ofs_units_reader *r,
    const struct ofs_units_strings *s, struct ofs_str **out, uint32_t *n);

#endif
