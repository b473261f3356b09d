/* fsdp.h - shared declarations of the reader of flat parameters */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FORMAT_FSDP_H
#define OFS_FORMAT_FSDP_H

#include <stdint.h>

#include "optimfs/error.h"

#include "format/fsdp/unit_order.h"
#include "format/fsdp/units.h"
#include "format/ranks/pieces.h"
#include "format/ranks/ranks.h"

struct ofs_ids_file;

struct ofs_fsdp {
	struct ofs_ranks *set;
	const struct ofs_units *units; /* NULL: no units are known */
	/* Every parameter of the units, sorted by name. */
	struct ofs_fsdp_name {
		struct ofs_str fqn;
		struct ofs_order_name at;
	} * name;
	uint32_t nnames;
	/* All parameters of the model, if the units file lists them. */
	struct ofs_str *order;          /* sorted */
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

#endif
