/* early.h - what is written to its place before the commit */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_PUSH_EARLY_H
#define OFS_PUSH_EARLY_H

#include "engine/engine.h"
#include "fs/fs.h"

/* As struct ofs_filling_ops. Never fails: what is not written early is written by
 * the commit. */
void ofs_push_whole(struct optimfs *fs, uint32_t tensor);
/* Ends it. What was written, for the engine that writes the commit, until
 * ofs_push_early_end; NULL: nothing. */
const struct ofs_engine_early *ofs_push_early(struct optimfs *fs);
void ofs_push_early_end(struct optimfs *fs);

#endif
