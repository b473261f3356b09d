/* notes.h - generated files of many lines: tensors.tsv and the records */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FS_NOTES_H
#define OFS_FS_NOTES_H

#include "fs/lines.h"

/* One line a tensor, depth first, after a line of column names; one line a
 * record. None of them changes while the file system is open. */
extern const struct ofs_lines_ops ofs_tensors_lines, ofs_missing_lines,
    ofs_warnings_lines, ofs_globals_lines;

#endif
