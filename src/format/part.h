/* part.h - what readers of a part have in common */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FORMAT_PART_H
#define OFS_FORMAT_PART_H

#include <stddef.h>
#include <stdint.h>

#include "optimfs/error.h"

#include "catalog/catalog.h"
#include "format/format.h"

/* The prefix of part as components of a path; *n gets how many. */
int ofs_part_prefix(struct ofs_catalog *cat, const struct ofs_part *part,
    uint32_t prefix[OFS_PART_PREFIX], size_t *n, struct optimfs_error *err);

#endif
