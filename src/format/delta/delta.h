/* delta.h - changes of a checkpoint, as reinforcement learning stores them */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FORMAT_DELTA_H
#define OFS_FORMAT_DELTA_H

#include "optimfs/error.h"
#include "optimfs/optimfs.h"

#include "catalog/catalog.h"
#include "catalog/delta.h"
#include "format/format.h"

/* docs/formats/delta.md. A version that is opened by itself shows its changes as
 * they are stored, below extra/changes, and a warning; a run of them shows the
 * states. */

extern const struct ofs_format ofs_format_delta;

/* The changes of a version, while they are read. */
struct ofs_delta_build {
	struct ofs_catalog *cat;
	struct ofs_delta *changes;
	struct ofs_delta_part *v;
	uint32_t n, cap;
};

/* The path extra/changes/NAME for what is stored of a change. */
uint32_t ofs_delta_path(struct ofs_catalog *cat, struct ofs_str name,
    struct optimfs_error *err);
/* Adds a change of the tensor called name; the name is copied. */
int ofs_delta_add(struct ofs_delta_build *d, struct ofs_str name,
    const struct ofs_delta_part *change, struct optimfs_error *err);
/* A decimal number of at most 18 digits, all of s. */
bool ofs_delta_number(struct ofs_str s, uint64_t *v);

/* slime.c: is this the name of the index of a version? */
#define OFS_SLIME_INDEX "model.safetensors.index.json"
/* Reads a version of slime, which is the directory of the catalog. */
int ofs_slime_read(struct ofs_delta_build *d, const char *dir,
    struct optimfs_error *err);
/* trl.c: reads a patch of TRL. */
int ofs_trl_read(struct ofs_delta_build *d, const char *rel,
    struct optimfs_error *err);

#endif
