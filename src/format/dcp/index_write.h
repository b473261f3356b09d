/* index_write.h - what new and edited entries of .metadata have in common */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FORMAT_DCP_INDEX_WRITE_H
#define OFS_FORMAT_DCP_INDEX_WRITE_H

#include "base/types.h"
#include "pickle/write.h"

/* render_index.c writes an index that was not there, in the form of one
 * release. update_index.c adds entries to one that is, in the form that its
 * others have: whatever class and attributes an object of it has are copied. */

/* torch.Size of n numbers. */
void ofs_dcp_put_size(struct ofs_pkw *w, const uint64_t *v, size_t n);
/* A component of a path in planner_data: a key, or an index of a list. */
void ofs_dcp_put_component(struct ofs_pkw *w, struct ofs_str s, bool index);

#endif
