/* raw.h - a file of any kind as one leaf of bytes */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FORMAT_RAW_H
#define OFS_FORMAT_RAW_H

#include "format/format.h"

extern const struct ofs_format ofs_format_raw;

#endif
