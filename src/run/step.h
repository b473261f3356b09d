/* step.h - the step that the name of a checkpoint tells */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_RUN_STEP_H
#define OFS_RUN_STEP_H

#include <stdbool.h>
#include <stdint.h>

/* What a number in a name counts, the best first. A run counts in one of these
 * groups: epoch_3 is not step 3 beside step-1000. */
enum ofs_run_count {
	OFS_RUN_STEPS,    /* step-1000, iter_0000500, checkpoint-1500, 1000 */
	OFS_RUN_VERSIONS, /* v3, version_3 */
	OFS_RUN_EPOCHS,   /* epoch_3 */
	OFS_RUN_DATES,    /* 20260131_235959: of a save, or of a log */
	OFS_RUN_NOTHING,
};

/* Finds the number of a step in the name of a file or directory: of
 * "epoch=3-step=900.ckpt" 900. *step is set unless the result is
 * OFS_RUN_NOTHING. Numbers of ranks, sizes (7b, 10k) and versions of programs
 * (v0.18) are none. docs/formats/trainers.md has the table. */
enum ofs_run_count ofs_run_step(const char *name, uint64_t *step);

/* Parses s, which must be a step as steps/ shows it: decimal, without leading
 * zeros. */
bool ofs_run_parse_step(const char *s, uint64_t *step);

#endif
