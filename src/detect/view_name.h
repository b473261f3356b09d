/* view_name.h - names of views: FORMAT[@LAYOUT][,option]... */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_DETECT_VIEW_NAME_H
#define OFS_DETECT_VIEW_NAME_H

#include "optimfs/error.h"

#include "layout/render.h"

/* Parses name. Errors (OFS771): EINVAL, ENOENT for an unknown format. */
int ofs_layout_parse(const char *name, struct ofs_layout *layout,
    struct optimfs_error *err);
/* The useful view names, by index; NULL at the end. */
const char *ofs_layout_common(unsigned i);

#endif
