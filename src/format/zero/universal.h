/* universal.h - DeepSpeed Universal Checkpoints */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FORMAT_ZERO_UNIVERSAL_H
#define OFS_FORMAT_ZERO_UNIVERSAL_H

#include "base/io.h"

/* Is rel beneath dir one: zero/, with a directory for each parameter? 1, 0; -1:
 * ENOMEM. */
int ofs_is_universal(const struct ofs_dir *dir, const char *rel,
    struct optimfs_error *err);

#endif
