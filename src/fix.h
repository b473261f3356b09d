/* fix.h - mending bytes after they were fetched */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FIX_H
#define OFS_FIX_H

#include "plan.h"

/* Apply seg's fix to the elements it brought to buf. Its runs begin and end at
 * element bounds. */
void ofs_fix_segment(const struct ofs_segment *seg, void *buf);

#endif
