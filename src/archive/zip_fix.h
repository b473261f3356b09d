/* zip_fix.h - checksums of records whose bytes were changed in place */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_ARCHIVE_ZIP_FIX_H
#define OFS_ARCHIVE_ZIP_FIX_H

#include <stdbool.h>
#include <stdint.h>

#include "optimfs/error.h"

#include "base/ranges.h"

/* After bytes of fd at touched (offsets in the file) were changed: write new
 * checksums of the records that contain them, in the archive at bytes [off, off
 * + len): in directory, descriptor and local header. fd is open for reading and
 * writing. An archive without checksums of storages stays so, unless all is
 * set. */
int ofs_zip_fix(int fd, uint64_t off, uint64_t len,
    const struct ofs_ranges *touched, bool all, struct optimfs_error *err);

#endif
