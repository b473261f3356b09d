/* note.h - the notes of optimfs in a safetensors header */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FORMAT_SAFETENSORS_NOTE_H
#define OFS_FORMAT_SAFETENSORS_NOTE_H

#include "archive/safetensors.h"
#include "base/keys.h"

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

/* Read the note, if st has one, and add its values to cat below prefix. EUCLEAN
 * (OFS663) when it is damaged. */
int ofs_safetensors_note_read(struct ofs_safetensors_note *note,
    struct ofs_catalog *cat, const struct ofs_safetensors *st,
    const uint32_t *prefix, size_t nprefix, struct optimfs_error *err);
void ofs_safetensors_note_fini(struct ofs_safetensors_note *note);
/* The path of a key: that in the note, or prefix and the key. OFS_NONE on
 * failure. */
uint32_t ofs_safetensors_note_path(const struct ofs_safetensors_note *note,
    struct ofs_catalog *cat, struct ofs_str key, const uint32_t *prefix,
    size_t nprefix, struct optimfs_error *err);

#endif
