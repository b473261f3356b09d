/* note.h - what optimfs notes in a safetensors header */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FORMAT_SAFETENSORS_NOTE_H
#define OFS_FORMAT_SAFETENSORS_NOTE_H

#include "archive/safetensors.h"
#include "base/map.h"

/* The member of __metadata__ that holds what the format has no place for: JSON
 * of {"paths": {key: [component, ...]}, "values": {key: value}}. Paths are
 * those of keys that were joined with dots. */
#define OFS_SAFETENSORS_NOTE "optimfs"

/* Paths of keys, read from the note of a header (docs/formats/safetensors.md).
 * Zero-initialise. */
struct ofs_safetensors_note {
	struct ofs_safetensors_path {
		uint32_t key, path; /* string; path of cat, prefix included */
	} * v;
	uint32_t n, cap;
	struct ofs_map map;
	const struct ofs_catalog *cat;
};

/* Read the note, if st has one, and add its values to cat below prefix. A note
 * that is damaged is EUCLEAN (OFS663). */
int ofs_safetensors_note_read(struct ofs_safetensors_note *note,
    struct ofs_catalog *cat, const struct ofs_safetensors *st,
    const uint32_t *prefix, size_t nprefix, struct optimfs_error *err);
void ofs_safetensors_note_fini(struct ofs_safetensors_note *note);
/* The path of a key: the noted one, or prefix and the key. OFS_NONE: failed. */
uint32_t ofs_safetensors_note_path(const struct ofs_safetensors_note *note,
    struct ofs_catalog *cat, struct ofs_str key, const uint32_t *prefix,
    size_t nprefix, struct optimfs_error *err);

#endif
