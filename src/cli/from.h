/* from.h - the option --from of all commands */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_CLI_FROM_H
#define OFS_CLI_FROM_H

#include "optimfs/error.h"

/* Replaces --from ADDRESS,... or --from FILE, whose words are addresses, by the
 * first operand: one address that stands for all of them. argv[0] is the verb. The
 * new argv is malloc'ed, with what it refers to in *made; without the option both
 * are NULL. EINVAL (OFS929): there is no address. What the file says: errno. */
int ofs_from_take(int *argc, char **argv, char ***taken, char **made,
    struct optimfs_error *err);

#endif
