/* handles.h - OLMo's flat parameters, which include their units */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FORMAT_FSDP_HANDLES_H
#define OFS_FORMAT_FSDP_HANDLES_H

#include "optimfs/error.h"

#include "format/fsdp/fsdp.h"

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
