/* notes.h - the generated files tensors.tsv, missing, warnings and globals */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FS_NOTES_H
#define OFS_FS_NOTES_H

#include "fs/lines.h"

/* tensors.tsv has a line of column names and one line for each tensor, depth
 * first; the others one line for each record. They say what was read from the
 * checkpoint; what a writer has staged is not in them. */
extern const struct ofs_lines_ops ofs_tensors_lines, ofs_missing_lines,
    ofs_warnings_lines, ofs_globals_lines;

#endif
