/* fsdp.h - shared declarations of the reader of flat parameters */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FORMAT_FSDP_FSDP_H
#define OFS_FORMAT_FSDP_FSDP_H

#include <stdint.h>

#include "optimfs/error.h"
#include "optimfs/optimfs.h"

#include "format/fsdp/units.h"
#include "format/ranks/pieces.h"
#include "format/ranks/ranks.h"

struct ofs_ids_file;

struct ofs_fsdp {
	struct ofs_ranks *set;
	const struct ofs_units *units; /* NULL: no units are known */
	struct ofs_unit_place *at;     /* of each of the units' names */
	/* All parameters of the model, if the units file lists them. */
	struct ofs_keys order;
	const struct ofs_ids_file *ids; /* the file of ids=; NULL: none */
	uint32_t group_cap;             /* of set->group, once one was added */
};

static inline const struct ofs_unit_param *ofs_fsdp_param(const struct ofs_fsdp
							      *f,
    struct ofs_unit_place at)
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

/* Does the same in a catalog whose tensors have been added: the entries from
 * first on, of a checkpoint whose index is rel. Without units, tensors that may
 * be slices get an error. */
int ofs_fsdp_entries(struct ofs_catalog *cat, uint32_t first, const char *rel,
    const struct optimfs_options *opt, struct optimfs_error *err);

/* Use these units, and record in the catalog what they say. */
int ofs_fsdp_begin_units(struct ofs_fsdp *f, const struct ofs_units *units,
    struct optimfs_error *err);
void ofs_fsdp_end(struct ofs_fsdp *f);

/* Is it the name of a flat parameter? */
bool ofs_fsdp_is_flat_key(struct ofs_str s);
/* The unit whose flat parameter has this name in the file rel; OFS_NONE: there
 * is none (OFS160). */
uint32_t ofs_fsdp_unit(struct ofs_fsdp *f, struct ofs_str key, const char *rel,
    struct optimfs_error *err);
/* Fail with OFS160: a flat parameter has size elements, not want; -1. */
int ofs_fsdp_wrong_size(struct optimfs_error *why, uint64_t size,
    uint64_t want);
/* OFS166: without units, a tensor may be a slice. */
void ofs_fsdp_no_units(struct optimfs_error *why);
/* Warn that slices in the file rel are not shown (OFS167). */
int ofs_fsdp_note_slices(struct ofs_catalog *cat, const char *rel,
    struct optimfs_error *err);

/* The parameter with this name, without wrappers; unit OFS_NONE: none. */
struct ofs_unit_place ofs_fsdp_find(const struct ofs_fsdp *f,
    struct ofs_str fqn);
/* Does the units file list fqn among the model's parameters? */
bool ofs_fsdp_knows(const struct ofs_fsdp *f, struct ofs_str fqn);
/* s without wrappers, as a string of the catalog; OFS_NONE: failed. */
uint32_t ofs_fsdp_clean(struct ofs_fsdp *f, struct ofs_str s,
    struct optimfs_error *err);
/* The slice of a parameter that a file holds, at its offset in the unit. */
struct ofs_flat_slice ofs_fsdp_slice(const struct ofs_fsdp *f,
    const struct ofs_ranks_file *file, struct ofs_unit_place at);

/* Begins the tensor of a parameter. */
int ofs_fsdp_begin(struct ofs_pieces *x, struct ofs_fsdp *f,
    struct ofs_unit_place at, struct optimfs_error *err);

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
