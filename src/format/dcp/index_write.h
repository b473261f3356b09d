/* index_write.h - code that new and edited entries of .metadata share */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FORMAT_DCP_INDEX_WRITE_H
#define OFS_FORMAT_DCP_INDEX_WRITE_H

#include "base/types.h"
#include "pickle/write.h"

/* render_index.c writes a new index, in the form of one release. update_index.c
 * adds entries to an existing one, in its form: classes and attributes are
 * copied from its objects. */

/* A torch.Size of n numbers. */
void ofs_dcp_put_size(struct ofs_pkw *w, const uint64_t *v, size_t n);
/* A component of a path in planner_data: a key, or a list index. */
void ofs_dcp_put_component(struct ofs_pkw *w, struct ofs_str s, bool index);

#endif
