/* files.h - the checkpoint's open files, checked to be the mounted ones */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_STORE_FILES_H
#define OFS_STORE_FILES_H

#include "store/pins.h"

/* Descriptors of the objects of a catalog, opened on first use. The least recently
 * used one is closed when half of the limit of fds.h is in use or the system
 * has no more. */
extern const struct ofs_pins_ops ofs_open_files_pins;

#endif
