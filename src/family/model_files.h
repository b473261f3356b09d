/* model_files.h - files that describe a model, in a checkpoint or beside it */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FAMILY_MODEL_FILES_H
#define OFS_FAMILY_MODEL_FILES_H

#include <stdint.h>

#include "optimfs/error.h"

#include "base/buf.h"
#include "base/io.h"
#include "read/reader.h"

/* Where config.json and the files of a tokenizer are looked for. */
struct ofs_model_files {
	struct ofs_reader *reader;   /* of the checkpoint */
	const struct ofs_dir *given; /* the directory that the user named, which
				      * may be above that; NULL: none */
};

/* Append the contents of the first file called name: one that the tree has below
 * extra/, then one beside the checkpoint's files, in huggingface/ beside them,
 * and the same in the given directory. 1; 0: there is none; -1: it cannot be
 * read, or has more than max bytes. */
int ofs_model_files_read(const struct ofs_model_files *b, const char *name,
    uint64_t max, struct ofs_buf *out, struct optimfs_error *err);

#endif
