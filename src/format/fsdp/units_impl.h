/* units_impl.h - shared declarations of units*.c */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FORMAT_FSDP_UNITS_IMPL_H
#define OFS_FORMAT_FSDP_UNITS_IMPL_H

#include "base/json.h"
#include "format/fsdp/units.h"

/* A growing list of strings in the arena. */
struct ofs_units_strings {
	struct ofs_str *v;
	uint32_t n, cap;
};

/* One unit as written, before its names are completed. */
struct ofs_units_draft {
	struct ofs_str prefix, strategy;
	struct ofs_units_strings fqns, shared;
	struct ofs_unit_table shapes, grad;
	struct ofs_unit_record r;
	bool is_unit; /* has fqns */
};

struct ofs_units_reader {
	struct ofs_units *u;
	struct ofs_json j;
	struct ofs_units_strings order, ids;
	uint32_t cap, tie_cap; /* of u's units and ties */
	struct optimfs_error *err;
};

/* Fails: the JSON is valid, but has something else than want here. */
int ofs_units_unexpected(struct ofs_units_reader *r, const char *want);

/* units_json.c: reads the text and adds each unit. */
int ofs_units_document(struct ofs_units_reader *r);

/* units_build.c: adds the unit that d describes. */
int ofs_units_add(struct ofs_units_reader *r, const struct ofs_units_draft *d);
/* Copies names of the whole model, without wrappers, to the arena. */
int ofs_units_keep(struct ofs_units_reader *r,
    const struct ofs_units_strings *s, struct ofs_str **out, uint32_t *n);

#endif
