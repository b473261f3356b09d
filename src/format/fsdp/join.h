/* join.h - FSDP1's flat parameters in rank files, as entries */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FORMAT_FSDP_JOIN_H
#define OFS_FORMAT_FSDP_JOIN_H

#include "optimfs/error.h"
#include "optimfs/optimfs.h"

#include "format/fsdp/fsdp.h"
#include "format/ranks/ranks.h"

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

#endif
