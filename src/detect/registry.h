/* registry.h - all formats */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_DETECT_REGISTRY_H
#define OFS_DETECT_REGISTRY_H

#include <stddef.h>

#include "format/format.h"

/* Format i; NULL behind the last one. */
const struct ofs_format *ofs_format_at(size_t i);
/* The one that reads checkpoints and is called name; NULL: none. */
const struct ofs_format *ofs_format_find(const char *name);
/* Kind i of views, and whose it is; NULL behind the last one. */
const struct ofs_view_kind *ofs_view_kind_at(unsigned i,
    const struct ofs_format **format);

#endif
