/* bars.h - a bar in one column of the terminal */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_CLI_BARS_H
#define OFS_CLI_BARS_H

#include <stdbool.h>

#define OFS_BAR_MAX 8

/* A bar of 0 to OFS_BAR_MAX eighths of a block; where the locale has no blocks,
 * a digit. */
const char *ofs_bar(bool utf8, unsigned eighths);

#endif
