/* naming.h - keys as frameworks nest them -> paths below the mount point */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_NAMING_H
#define OFS_NAMING_H

#include <stdbool.h>
#include <stddef.h>

#include "optimfs/error.h"
#include "optimfs/optimfs.h"

#include "catalog/catalog.h"

/* Set the tree path of every entry, and add aliases and notes: which keys are
 * an optimizer (optim/state/<fqn>/<name>, optim/param_groups/<i>/<option>),
 * the model (model/<fqn>) or anything else (extra/...), whatever the source
 * calls them. The rules are in docs/naming.md. ENOENT when optim_key= or
 * model_key= match nothing (lists what there is), EINVAL for an ids= file that
 * does not fit (with its line), EUCLEAN for keys of mixed types. Names without
 * their wrappers' prefixes are listed, the raw ones become aliases; tied
 * parameters' state directories too. subtree= leaves out what is not below
 * it. ids= also fills cat->ids. opt may not be NULL. Runs while the catalog is
 * still being built. */
int ofs_name_entries(struct ofs_catalog *cat, const struct optimfs_options *opt,
    struct optimfs_error *err);

/* fqn[0..n) without wrapper prefixes ("_fsdp_wrapped_module." and the like,
 * anywhere in it); out has room for n bytes; returns the new length. */
size_t ofs_clean_fqn(const char *fqn, size_t n, char *out);

/* Does key, with so many others before it in its path, say that what stands
 * below it is a model or an optimizer, or state of either? */
bool ofs_naming_is_trained(struct ofs_str key, uint32_t before);

/* user.optimfs.raw_fqn: the parameter's name in entry's source path where it
 * is not the one that is listed; false where it is. */
bool ofs_raw_fqn(const struct ofs_catalog *cat, const struct ofs_entry *entry,
    struct ofs_str *raw);

#endif
