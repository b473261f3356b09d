/* cmd_plan.h - what a view will be */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_TOOLS_CMD_PLAN_H
#define OFS_TOOLS_CMD_PLAN_H

#include "tools/command.h"

/* Prints what optimfs plan prints, as text or JSON. */
int ofs_plan_print(struct ofs_command *c, const char *view,
    struct optimfs_error *err);

#endif
