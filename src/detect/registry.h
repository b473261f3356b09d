/* registry.h - the table of formats */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_DETECT_REGISTRY_H
#define OFS_DETECT_REGISTRY_H

#include <stdbool.h>
#include <stddef.h>

#include "format/format.h"

/* Format i; NULL after the last one. */
const struct ofs_format *ofs_format_at(size_t i);
/* The format called name, if it can read; NULL: none. */
const struct ofs_format *ofs_format_find(const char *name);
/* Is a file of this name the index of a checkpoint in some format, or one that is
 * useless without the others of its directory? */
bool ofs_format_is_index(const char *name);
bool ofs_format_is_shard(const char *name);
/* View kind i and its format; NULL after the last one. */
const struct ofs_view_kind *ofs_view_kind_at(unsigned i,
    const struct ofs_format **format);

#endif
