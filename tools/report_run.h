/* report_run.h - the page of a run */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_REPORT_RUN_H
#define OFS_REPORT_RUN_H

#include "cli/page.h"
#include "tools/command.h"

/* Fills the page of the run c->fs: its steps, and the norms of weights, moments and
 * updates by layer, with all of its data unless OFS_NO_DATA. */
int ofs_report_run(struct ofs_command *c, const struct optimfs_scan *how,
    struct ofs_page *page, struct optimfs_error *err);

#endif
