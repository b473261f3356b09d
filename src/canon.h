/* canon.h - keys as frameworks nest them -> paths below the mount point */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_CANON_H
#define OFS_CANON_H

#include "optimfs/error.h"
#include "optimfs/optimfs.h"

#include "catalog.h"

/* Set the tree path of every entry, and add aliases and notes: which keys are
 * an optimizer (optim/state/<fqn>/<name>, optim/param_groups/<i>/<option>),
 * the model (model/<fqn>) or anything else (extra/...), whatever the source
 * calls them. The rules are in docs/naming.md. ENOENT when optim_key= or
 * model_key= match nothing (lists what there is), EINVAL for an ids= file that
 * does not fit (with its line), EUCLEAN for keys of mixed types (row 6 of
 * docs/semantics.md). Runs while the catalog is still being built. */
int ofs_canon(struct ofs_catalog *cat, const struct optimfs_options *opt,
    struct optimfs_error *err);

/* fqn[0..n) without wrapper prefixes ("_fsdp_wrapped_module." and the like,
 * anywhere in it); out has room for n bytes; returns the new length. */
size_t ofs_clean_fqn(const char *fqn, size_t n, char *out);

#endif
