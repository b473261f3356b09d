/* leaf_time.h - dates, times and ranges as text */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_TEXT_LEAF_TIME_H
#define OFS_TEXT_LEAF_TIME_H

#include <stdbool.h>

#include "base/buf.h"
#include "pickle/pickle.h"

/* Is node an object of the module datetime? Its text, as Python prints it, is
 * appended to out, if that is not NULL. */
bool ofs_leaf_time(const struct ofs_pickle *doc, uint32_t node,
    struct ofs_buf *out);
/* The same for range(1, 9, 2) and slice(1, None, 2). */
bool ofs_leaf_range(const struct ofs_pickle *doc, uint32_t node,
    struct ofs_buf *out);

#endif
