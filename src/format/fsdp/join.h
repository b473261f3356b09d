/* join.h - parameters that FSDP1 flattened, of files of ranks */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FORMAT_FSDP_JOIN_H
#define OFS_FORMAT_FSDP_JOIN_H

#include "optimfs/error.h"
#include "optimfs/optimfs.h"

#include "format/fsdp/fsdp.h"
#include "format/ranks/ranks.h"

/* Take over what FSDP1 flattened: for each group that is a slice of a flat
 * parameter set taken, and add the entries of the parameters in it. Runs before
 * the generic merge, which leaves taken groups alone. What it has no layout for
 * it puts apart (ofs_ranks_apart). */
int ofs_fsdp_claim(struct ofs_ranks *set, const struct optimfs_options *opt,
    struct optimfs_error *err);

/* The parameter with this name, which has no wrappers in it; unit OFS_NONE. */
struct ofs_order_name ofs_fsdp_find(const struct ofs_fsdp *f,
    struct ofs_str fqn);
/* Does the units file list it among the model's parameters? */
bool ofs_fsdp_knows(const struct ofs_fsdp *f, struct ofs_str fqn);
/* s without wrappers, as a string of the catalog; OFS_NONE: failed. */
uint32_t ofs_fsdp_clean(struct ofs_fsdp *f, struct ofs_str s,
    struct optimfs_error *err);
/* What the file of leaf holds of a parameter, counted in its unit. */
struct ofs_flat_slice ofs_fsdp_slice(const struct ofs_fsdp *f,
    const struct ofs_ranks_file *file, struct ofs_order_name at);

/* Begin a tensor of that parameter. */
int ofs_fsdp_begin(struct ofs_pieces *x, struct ofs_fsdp *f,
    struct ofs_order_name at, struct optimfs_error *err);

#endif
