/* selection.h - which steps of a run a name means */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_RUN_SELECTION_H
#define OFS_RUN_SELECTION_H

#include <stddef.h>
#include <stdint.h>

#include "run/run.h"

/* Steps in ascending order. */
struct ofs_selection {
	uint64_t *step;
	uint32_t *member; /* its number: members.h */
	uint32_t n, step_cap, member_cap;
};

/* The steps of words[0..n): words between commas, each a step, latest, first,
 * last5 (the last five), or 1000-5000 (those in steps/ from 1000 to 5000, at
 * least one). ENOENT (OFS851, OFS853): there is no such step. ENOENT (OFS863):
 * no such word, or it names a step for the second time. E2BIG (OFS863): too
 * many. */
int ofs_selection_parse(struct ofs_run_dir *run, const char *words, size_t n,
    struct ofs_selection *out, struct optimfs_error *err);
void ofs_selection_fini(struct ofs_selection *s);

#endif
