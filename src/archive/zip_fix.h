/* zip_fix.h - checksums of records whose bytes were changed in place */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_ARCHIVE_ZIP_FIX_H
#define OFS_ARCHIVE_ZIP_FIX_H

#include <stdbool.h>
#include <stdint.h>

#include "optimfs/error.h"

#include "base/ranges.h"

/* The archive that is bytes [off, off + len) of fd, which is open for reading
 * and writing, has other bytes at touched (offsets of the file): give each
 * record that holds some of them its checksum, wherever it stands: directory,
 * descriptor, local header. An archive whose storages have none keeps it so,
 * unless all is set. */
int ofs_zip_fix(int fd, uint64_t off, uint64_t len,
    const struct ofs_ranges *touched, bool all, struct optimfs_error *err);

#endif
