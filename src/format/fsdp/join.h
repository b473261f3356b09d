/* join.h - parameters that FSDP1 flattened, of files of ranks */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FORMAT_FSDP_JOIN_H
#define OFS_FORMAT_FSDP_JOIN_H

#include "optimfs/error.h"
#include "optimfs/optimfs.h"

#include "format/ranks/ranks.h"

/* Take over what FSDP1 flattened: for each group that is a slice of a flat
 * parameter set taken, and add the entries of the parameters in it. Runs before
 * the generic merge, which leaves taken groups alone. What it has no layout for
 * it puts apart (ofs_ranks_apart). */
int ofs_fsdp_claim(struct ofs_ranks *set, const struct optimfs_options *opt,
    struct optimfs_error *err);

#endif
