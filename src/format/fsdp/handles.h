/* handles.h - flat parameters that bring their units along */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FORMAT_FSDP_HANDLES_H
#define OFS_FORMAT_FSDP_HANDLES_H

#include "optimfs/error.h"

#include "format/fsdp/fsdp.h"

/* OLMo's LocalShardedCheckpointer saves FSDP's handles as they are: the flat
 * parameter, and what a units file would say of it. docs/formats/fsdp.md,
 * "OLMo". */

/* Read the units from the model's files, which are the set's own or lie beside
 * them: 0, u is to be freed; 1: there are none. */
int ofs_handles_units(struct ofs_units *u, struct ofs_ranks *set,
    struct optimfs_error *err);
/* Put the parameters together where the set has the handles. f->units is what
 * they say. */
int ofs_handles_model(struct ofs_fsdp *f, struct optimfs_error *err);

#endif
