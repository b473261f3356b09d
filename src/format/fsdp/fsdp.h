/* fsdp.h - shared declarations of the reader of flat parameters */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FORMAT_FSDP_FSDP_H
#define OFS_FORMAT_FSDP_FSDP_H

#include <stdint.h>

#include "optimfs/error.h"
#include "optimfs/optimfs.h"

#include "format/fsdp/unit_order.h"
#include "format/fsdp/units.h"
#include "format/ranks/pieces.h"
#include "format/ranks/ranks.h"

struct ofs_ids_file;

struct ofs_fsdp {
	struct ofs_ranks *set;
	const struct ofs_units *units; /* NULL: no units are known */
	struct ofs_order_name *at;     /* of each of the units' names */
	/* All parameters of the model, if the units file lists them. */
	struct ofs_keys order;
	const struct ofs_ids_file *ids; /* the file of ids=; NULL: none */
	uint32_t group_cap;             /* of set->group, once one was added */
};

static inline const struct ofs_unit_param *ofs_fsdp_param(const struct ofs_fsdp
							      *f,
    struct ofs_order_name at)
{
	return &f->units->unit[at.unit].param[at.param];
}

/* model.c: adds the parameters of a LOCAL_STATE_DICT. */
int ofs_fsdp_model(struct ofs_fsdp *f, struct optimfs_error *err);

/* Takes what FSDP1 flattened: marks each group that is a slice of a flat
 * parameter as taken, and adds the entries of the parameters in it. Runs before
 * the generic merge, which skips taken groups. A group whose layout is unknown
 * is put apart (ofs_ranks_apart). */
int ofs_fsdp_claim(struct ofs_ranks *set, const struct optimfs_options *opt,
    struct optimfs_error *err);

/* The parameter with this name, without wrappers; unit OFS_NONE: none. */
struct ofs_order_name ofs_fsdp_find(const struct ofs_fsdp *f,
    struct ofs_str fqn);
/* Does the units file list fqn among the model's parameters? */
bool ofs_fsdp_knows(const struct ofs_fsdp *f, struct ofs_str fqn);
/* s without wrappers, as a string of the catalog; OFS_NONE: failed. */
uint32_t ofs_fsdp_clean(struct ofs_fsdp *f, struct ofs_str s,
    struct optimfs_error *err);
/* The slice of a parameter that a file holds, at its offset in the unit. */
struct ofs_flat_slice ofs_fsdp_slice(const struct ofs_fsdp *f,
    const struct ofs_ranks_file *file, struct ofs_order_name at);

/* Begins the tensor of a parameter. */
int ofs_fsdp_begin(struct ofs_pieces *x, struct ofs_fsdp *f,
    struct ofs_order_name at, struct optimfs_error *err);

/* OLMo's LocalShardedCheckpointer saves FSDP's handles: the flat parameter, and
 * the facts about it that a units file would hold. docs/formats/fsdp.md,
 * "OLMo". */

/* Reads the units from the model's files, which are in the set or in the
 * directory next to it. 0: the caller frees u; 1: there are none. */
int ofs_handles_units(struct ofs_units *u, struct ofs_ranks *set,
    struct optimfs_error *err);
/* Adds the parameters if the set has handles. f->units is from these
 * handles. */
int ofs_handles_model(struct ofs_fsdp *f, struct optimfs_error *err);

#endif
