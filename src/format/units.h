/* units.h - the file that says how FSDP1 grouped a model's parameters */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_UNITS_H
#define OFS_UNITS_H

#include <stdbool.h>
#include <stdint.h>

#include "optimfs/error.h"

#include "arena.h"
#include "catalog.h"
#include "format/flat.h"

/* One parameter of a unit, under its first name. */
struct ofs_unit_param {
	struct ofs_str fqn; /* from the model's root, without wrappers */
	uint8_t ndim;
	uint64_t shape[OFS_MAX_DIMS];
};

/* One FSDP unit: what contrib/dump_units.py wrote of one flat parameter. Of
 * the members below "derived", an absent one is NULL or UINT64_MAX. */
struct ofs_unit {
	struct ofs_str prefix; /* of the unit's module, without wrappers */
	uint32_t nparams;
	struct ofs_unit_param *param;
	uint64_t *numel;
	uint32_t world; /* ranks that share it, or that each have it whole: */
	bool no_shard;
	/* derived: only to be compared with what flat.h computes */
	uint64_t *padded; /* numels_with_padding */
	uint32_t npadded;
	uint64_t size;  /* unpadded_unsharded_size */
	uint64_t shard; /* sharded_size */
};

struct ofs_units {
	struct ofs_arena arena;
	struct ofs_unit *unit;
	uint32_t n;
	const char *path; /* for messages; borrowed */
};

/* Parse the file at path (docs/formats/fsdp.md, "Units"). EINVAL names the
 * unit and what is wrong with it; EUCLEAN (OFS160) shows both where a derived
 * number is not what the shapes give, or an FQN is in two units. */
int ofs_units_read(const char *path, struct ofs_units *units,
    struct optimfs_error *err);
/* The same from n bytes. */
int ofs_units_parse(const void *p, uint64_t n, const char *path,
    struct ofs_units *units, struct optimfs_error *err);
void ofs_units_fini(struct ofs_units *units);

/* How a unit is laid out that was flattened with use_orig_params=align: the
 * geometry of its flat parameter, whose world is 1 where each rank has all. */
int ofs_unit_flat(const struct ofs_unit *unit, uint32_t align,
    struct ofs_flat *flat, struct optimfs_error *err);
/* Does the unit's file say nothing of its layout that speaks against align?
 * When false, and err is not NULL, it is EUCLEAN (OFS160) with both numbers. */
bool ofs_unit_agrees(const struct ofs_units *units, uint32_t unit,
    uint32_t align, struct optimfs_error *err);

#endif
