/* source.h - the files of a checkpoint as a commit will leave them */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_REWRITE_SOURCE_H
#define OFS_REWRITE_SOURCE_H

#include "layout/render.h"

/* The view of the checkpoint's own files: those that a commit would write, and
 * those that it would leave. Errors are those of a commit. */
extern const struct ofs_files_ops ofs_source_files;

#endif
