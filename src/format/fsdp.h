/* fsdp.h - what the parts of the reader of flat parameters share */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FSDP_H
#define OFS_FSDP_H

#include <stdbool.h>
#include <stdint.h>

#include "optimfs/error.h"

#include "format/ranks.h"
#include "format/unit_order.h"
#include "format/units.h"

struct ofs_fsdp {
	struct ofs_ranks *set;
	const struct ofs_units *units; /* NULL: there is no units= */
	/* Every parameter of the units, by name. */
	struct ofs_fsdp_name {
		struct ofs_str fqn;
		struct ofs_order_name at;
	} * name;
	uint32_t nnames;
	uint32_t group_cap, leaf_cap; /* of set, once some were added */
};

static inline const struct ofs_unit_param *ofs_fsdp_param(const struct ofs_fsdp
							      *f,
    struct ofs_order_name at)
{
	return &f->units->unit[at.unit].param[at.param];
}
/* The parameter with this name, which has no wrappers in it; unit OFS_NONE. */
struct ofs_order_name ofs_fsdp_find(const struct ofs_fsdp *f,
    struct ofs_str fqn);
/* s without wrappers, as a string of the catalog; OFS_NONE: failed. */
uint32_t ofs_fsdp_clean(struct ofs_fsdp *f, struct ofs_str s,
    struct optimfs_error *err);
/* What the file of leaf holds of a parameter, counted in its unit. */
struct ofs_flat_slice ofs_fsdp_slice(const struct ofs_fsdp *f,
    const struct ofs_ranks_file *file, struct ofs_order_name at);

/* A tensor that is put together from slices of its one parameter. */
struct ofs_fsdp_tensor {
	struct ofs_fsdp *f;
	struct ofs_tensor t;
	const struct ofs_unit_param *param;
	uint64_t numel;
	bool cut;                 /* boxes are in one dimension */
	struct optimfs_error why; /* what is wrong with it; code 0: nothing */
};
int ofs_fsdp_begin(struct ofs_fsdp_tensor *x, struct ofs_fsdp *f,
    struct ofs_order_name at, struct optimfs_error *err);
/* Elements at of the one-dimensional tensor node of leaf's file are count
 * elements of the parameter from first on. have is how many there must be. */
int ofs_fsdp_piece(struct ofs_fsdp_tensor *x, const struct ofs_ranks_leaf *leaf,
    uint32_t node, uint64_t have, const struct ofs_flat_slice *s,
    struct optimfs_error *err);
/* A tensor of the parameter's own shape. */
int ofs_fsdp_whole(struct ofs_fsdp_tensor *x, const struct ofs_ranks_leaf *leaf,
    struct optimfs_error *err);
/* Add it at path. *ref gets the tensor. */
int ofs_fsdp_end(struct ofs_fsdp_tensor *x, uint32_t path, uint32_t *ref,
    struct optimfs_error *err);

/* fsdp_optim.c: raw optimizer.state_dict() of each rank. */
int ofs_fsdp_optims(struct ofs_fsdp *f, struct optimfs_error *err);
/* fsdp_model.c: LOCAL_STATE_DICT. */
int ofs_fsdp_model(struct ofs_fsdp *f, struct optimfs_error *err);

#endif
