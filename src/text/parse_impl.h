/* parse_impl.h - numbers and containers */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_TEXT_PARSE_IMPL_H
#define OFS_TEXT_PARSE_IMPL_H

#include "pickle/write.h"
#include "text/parse.h"

/* "OFS806 'TEXT' is not WHAT"; -1. */
int ofs_value_refuse(int code, struct ofs_str text, const char *what,
    struct optimfs_error *err);
/* Pickle a number written in decimal; 0, or an errno value: EINVAL, ERANGE. */
int ofs_value_put_int(struct ofs_pkw *w, struct ofs_str s);
int ofs_value_put_float(struct ofs_pkw *w, struct ofs_str s);
/* Pickle a leaf that is made by a call (NumPy's numbers): 0 or -1. */
int ofs_value_put_called(struct ofs_pkw *w, const struct ofs_pickle *doc,
    uint32_t node, struct ofs_str s, struct optimfs_error *err);
/* Does node print as s? 1 or 0; -1: failed. */
int ofs_value_prints(const struct ofs_pickle *doc, uint32_t node,
    struct ofs_str s, struct optimfs_error *err);

/* Pickle JSON; node (OFS_NONE: nothing) says of what kinds. EINVAL: it is no
 * JSON, or has in it what node's kinds do not allow. */
int ofs_value_put_json(struct ofs_pkw *w, const struct ofs_pickle *doc,
    uint32_t node, struct ofs_str s, struct optimfs_error *err);

#endif
