/* info.h - .optimfs/info.json */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FS_INFO_H
#define OFS_FS_INFO_H

#include "base/buf.h"

struct ofs_snapshot;

/* What was opened, how, and how much of what is in it. */
void ofs_info_json(struct ofs_snapshot *snap, struct ofs_buf *out);

#endif
