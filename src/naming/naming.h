/* naming.h - keys as frameworks nest them -> paths below the mount point */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_NAMING_H
#define OFS_NAMING_H

#include <stdbool.h>
#include <stddef.h>

#include "optimfs/error.h"
#include "optimfs/optimfs.h"

#include "catalog/catalog.h"

/* Set the tree path of every entry, and add aliases and notes. Decides which
 * keys are an optimizer (optim/state/<fqn>/<name>,
 * optim/param_groups/<i>/<option>), the model (model/<fqn>) or neither
 * (extra/...), whatever their names in the source; docs/naming.md has the
 * rules. Names are listed without prefixes of wrappers, and the raw ones become
 * aliases; so do the state directories of tied parameters. subtree= removes all
 * entries outside it. ids= also fills cat->ids. opt must not be NULL. The
 * catalog must still be in building. ENOENT: optim_key= or model_key= match
 * nothing (the message lists the keys); EINVAL: the ids= file does not fit
 * (with its line); EUCLEAN: keys of mixed types. */
int ofs_name_entries(struct ofs_catalog *cat, const struct optimfs_options *opt,
    struct optimfs_error *err);

/* Copy fqn[0..n) without wrapper prefixes ("_fsdp_wrapped_module." and the
 * like, anywhere in it) to out, which has room for n bytes; returns the
 * length. */
size_t ofs_clean_fqn(const char *fqn, size_t n, char *out);

/* Does key, with before components before it in its path, indicate that the
 * entries below it are a model, an optimizer, or a state of either? */
bool ofs_naming_is_trained(struct ofs_str key, uint32_t before);

/* user.optimfs.raw_fqn: the name of the parameter in the source path of entry,
 * if it differs from the listed one; else false. */
bool ofs_raw_fqn(const struct ofs_catalog *cat, const struct ofs_entry *entry,
    struct ofs_str *raw);

#endif
