/* torch_checkpointing.h - the index of PyTorch's torch_checkpointing */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FORMAT_TORCH_CHECKPOINTING_H
#define OFS_FORMAT_TORCH_CHECKPOINTING_H

#include <stdint.h>

#include "optimfs/error.h"

#include "catalog/catalog.h"
#include "format/format.h"
#include "pickle/pickle.h"

extern const struct ofs_format ofs_format_torch_checkpointing;

#define OFS_TC_INDEX "metadata.pkl"

/* The files that the index in dir names, after the index itself: malloc'ed with
 * their names. 0: there are none, or the index is damaged, which its reader
 * says; -1: ENOMEM. */
struct ofs_part_file;
int ofs_tc_files(const struct ofs_dir *dir, struct ofs_part_file **file,
    size_t *n, struct optimfs_error *err);

/* An item of the index, one of the names under which a program saves: "model",
 * "optimizer". */
struct ofs_tc_item {
	struct ofs_catalog *cat;
	const struct ofs_pickle *doc;
	const char *dir; /* of the index, with "/" at its end; or "" */
	struct ofs_str name;
	uint32_t layouts; /* dict: for each rank its file, or None */
	uint32_t tensors; /* dict: for each path how it is divided */
	const struct optimfs_options *opt;
};

/* safetensors.c: adds the tensors of an item whose files are safetensors. */
int ofs_tc_safetensors(const struct ofs_tc_item *item,
    struct optimfs_error *err);
/* read.c: the path of a file that the index names; malloc'ed. NULL with
 * ENOMEM. */
char *ofs_tc_path(const struct ofs_tc_item *item, struct ofs_str path,
    struct optimfs_error *err);
/* read.c: notes that a file of an item is missing or damaged. */
int ofs_tc_lost(const struct ofs_tc_item *item, const char *rel, int rank,
    const struct optimfs_error *why, struct optimfs_error *err);

#endif
