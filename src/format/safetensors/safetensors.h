/* safetensors.h - safetensors files */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FORMAT_SAFETENSORS_SAFETENSORS_H
#define OFS_FORMAT_SAFETENSORS_SAFETENSORS_H

#include <stdbool.h>

#include "optimfs/error.h"
#include "optimfs/optimfs.h"

#include "archive/safetensors.h"
#include "base/io.h"
#include "base/keys.h"
#include "catalog/catalog.h"
#include "format/format.h"
#include "layout/render.h"

extern const struct ofs_format ofs_format_safetensors;

/* struct ofs_format's read. */
int ofs_safetensors_read(struct ofs_catalog *cat, const struct ofs_part *part,
    const struct optimfs_options *opt, struct optimfs_error *err);
/* Read the header of the file rel, of at most max bytes. */
int ofs_safetensors_open_file(const struct ofs_dir *dir, const char *rel,
    uint64_t max, struct ofs_safetensors *st, struct optimfs_error *err);
/* Add a tensor of a header, of one shard in object, as the entry path. */
int ofs_safetensors_add(struct ofs_catalog *cat, uint32_t object,
    const struct ofs_safetensors_tensor *from, uint32_t path,
    struct optimfs_error *err);

/* "model.safetensors.index.json", "pytorch_model.bin.index.json". */
bool ofs_hf_index_name(const char *name);

/* The part for such a file, read after the files that it names. Their tensors
 * get its prefix. A tensor that it names and they lack becomes an entry that
 * cannot be read (OFS661). EPERM (OFS620) when it names a file outside the
 * checkpoint. */
extern const struct ofs_format ofs_format_hf_index;

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

/* A member of __metadata__ for data that the format has no place for, JSON:
 * {"paths": {key: [component, ...]}, "values": {key: value}}. Paths are those
 * of keys whose components were joined by dots. */
#define OFS_SAFETENSORS_NOTE "optimfs"

/* The paths of keys in the note of a header (docs/formats/safetensors.md).
 * Zero-initialise. */
struct ofs_safetensors_note {
	struct ofs_keys keys;
	uint32_t *path, cap; /* of each key: its path, with prefix */
};

/* Read the paths of the note, if st has one; then add its values to cat below
 * prefix. EUCLEAN (OFS663) when it is damaged. */
int ofs_safetensors_note_read(struct ofs_safetensors_note *note,
    struct ofs_catalog *cat, const struct ofs_safetensors *st,
    const uint32_t *prefix, size_t nprefix, struct optimfs_error *err);
int ofs_safetensors_note_values(struct ofs_safetensors_note *note,
    struct ofs_catalog *cat, const struct ofs_safetensors *st,
    const uint32_t *prefix, size_t nprefix, struct optimfs_error *err);
void ofs_safetensors_note_fini(struct ofs_safetensors_note *note);
/* The path of a key: that in the note, or prefix and the key. OFS_NONE on
 * failure. */
uint32_t ofs_safetensors_note_path(const struct ofs_safetensors_note *note,
    struct ofs_catalog *cat, struct ofs_str key, const uint32_t *prefix,
    size_t nprefix, struct optimfs_error *err);

/* The render of ofs_format_safetensors. */
extern const struct ofs_files_ops ofs_safetensors_render;

#endif
