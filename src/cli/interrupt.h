/* interrupt.h - Ctrl-C ends long work in order */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_INTERRUPT_H
#define OFS_INTERRUPT_H

#include <stdbool.h>

/* From now on the first SIGINT or SIGTERM is noted; a second one ends the
 * process as it would have. One that is ignored stays so. */
void ofs_interrupt_catch(void);
/* Was there one? It fits where a stop callback is wanted; ctx is not used. */
bool ofs_interrupted(void *ctx);

#endif
