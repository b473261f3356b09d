/* parse_impl.h - shared declarations of the value parsers */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_TEXT_PARSE_IMPL_H
#define OFS_TEXT_PARSE_IMPL_H

#include "pickle/write.h"
#include "text/parse.h"

/* The text of a file without the newline that ends it. */
struct ofs_str ofs_value_line(struct ofs_str s);
/* Fail with "OFS806 'TEXT' is not WHAT"; -1. */
int ofs_value_refuse(int code, struct ofs_str text, const char *what,
    struct optimfs_error *err);
/* Pickle a decimal integer; 0 or an errno value, EINVAL or ERANGE. */
int ofs_value_put_int(struct ofs_pkw *w, struct ofs_str s);
/* Pickle a value that is made by a call (a NumPy scalar): 0 or -1. */
int ofs_value_put_called(struct ofs_pkw *w, const struct ofs_pickle *doc,
    uint32_t node, struct ofs_str s, struct optimfs_error *err);
/* Is s the text of node? 1, 0, or -1 with err. */
int ofs_value_prints(const struct ofs_pickle *doc, uint32_t node,
    struct ofs_str s, struct optimfs_error *err);

/* Pickle JSON. The kinds of its values follow node (OFS_NONE: any). EINVAL: it
 * is not JSON, or a value has a wrong kind. */
int ofs_value_put_json(struct ofs_pkw *w, const struct ofs_pickle *doc,
    uint32_t node, struct ofs_str s, struct optimfs_error *err);

#endif
