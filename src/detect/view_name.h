/* view_name.h - names of views: FORMAT[@LAYOUT][,option]... */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_DETECT_VIEW_NAME_H
#define OFS_DETECT_VIEW_NAME_H

#include "optimfs/error.h"

#include "layout/render.h"

/* Parse name; EINVAL, ENOENT for no format at all (OFS771) say what is wrong
 * with it. */
int ofs_layout_parse(const char *name, struct ofs_layout *layout,
    struct optimfs_error *err);
/* Names that are worth listing, one after another: NULL at the end. */
const char *ofs_layout_common(unsigned i);

#endif
