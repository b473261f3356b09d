/* info.h - .optimfs/info.json */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FS_INFO_H
#define OFS_FS_INFO_H

#include "base/buf.h"

struct ofs_snapshot;

/* A summary of the checkpoint and of the options it was opened with. */
void ofs_info_json(struct ofs_snapshot *snap, struct ofs_buf *out);

#endif
