/* hf_index.h - the index of a model in several files */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FORMAT_SAFETENSORS_HF_INDEX_H
#define OFS_FORMAT_SAFETENSORS_HF_INDEX_H

#include <stdbool.h>

#include "format/format.h"

/* "model.safetensors.index.json", "pytorch_model.bin.index.json". */
bool ofs_hf_index_name(const char *name);

/* The part for such a file, read after the files that it names. Their tensors
 * get its prefix. A tensor that it names and they lack becomes an entry that
 * cannot be read (OFS661). EPERM (OFS620) when it names a file outside the
 * checkpoint. */
extern const struct ofs_format ofs_format_hf_index;

#endif
