/* chain.h - versions that are stored as changes of the one before */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_RUN_CHAIN_H
#define OFS_RUN_CHAIN_H

#include "run/trees.h"

/* The tree of a member that is changes (docs/formats/delta.md): the nearest state
 * before it with the changes of all versions from there. OFS887 (ENOENT): one of
 * them is not in the run. */
extern const struct ofs_run_source ofs_run_chained;

#endif
