/* interrupt.h - ending long work cleanly on Ctrl-C */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_INTERRUPT_H
#define OFS_INTERRUPT_H

#include <stdbool.h>

/* From now on the first SIGINT or SIGTERM ends the process at once, with
 * "optimfs: OFS014 interrupted: WHAT" and status 130: for work that leaves
 * nothing to clean up. Ignored signals stay ignored. */
void ofs_interrupt_end(const char *what);
/* From now on the first SIGINT or SIGTERM is recorded; a second one ends the
 * process. Ignored signals stay ignored. */
void ofs_interrupt_catch(void);
/* Was a signal received? Usable as a stop callback; ctx is unused. */
bool ofs_interrupted(void *ctx);

#endif
