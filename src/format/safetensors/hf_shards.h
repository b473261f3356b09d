/* hf_shards.h - safetensors files that hold shards of tensors */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FORMAT_SAFETENSORS_HF_SHARDS_H
#define OFS_FORMAT_SAFETENSORS_HF_SHARDS_H

#include <stdbool.h>

#include "optimfs/error.h"

#include "archive/safetensors.h"
#include "base/io.h"
#include "catalog/catalog.h"
#include "format/format.h"

/* "shard-00002-model-00001-of-00003.safetensors": rank 1, part 1 of 3. */
bool ofs_hf_shard_name(const char *name, int *rank, int *part, int *parts);

/* Add the tensors with shards in such files of the directory part->rel. */
int ofs_hf_shards_read(struct ofs_catalog *cat, const struct ofs_part *part,
    struct optimfs_error *err);

/* The offsets of the shards in a header: element i points to ndim offsets of
 * tensor i, in arena; it is NULL when the header does not have them, and
 * ofs_hf_wrong_offsets when their number differs from ndim. malloc'ed and the
 * caller's; NULL with err (EUCLEAN, OFS628). */
const uint64_t **ofs_hf_offsets(const struct ofs_safetensors *st,
    struct ofs_arena *arena, struct optimfs_error *err);
extern const uint64_t ofs_hf_wrong_offsets[1];

#endif
