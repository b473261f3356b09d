/* universal.h - DeepSpeed Universal Checkpoints */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_UNIVERSAL_H
#define OFS_UNIVERSAL_H

#include <stdbool.h>

#include "format/detect.h"

/* Is rel beneath dir one: zero/, with a directory for each parameter? */
bool ofs_is_universal(const struct ofs_dir *dir, const char *rel);

#endif
