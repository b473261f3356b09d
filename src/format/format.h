/* format.h - on-disk formats and how a path is recognised */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FORMAT_H
#define OFS_FORMAT_H

#include <stddef.h>
#include <stdint.h>

#include "optimfs/error.h"
#include "optimfs/optimfs.h"

#include "base/io.h"
#include "catalog/catalog.h"

struct ofs_files;
struct ofs_layout;
struct ofs_part;
struct ofs_render;

/* One const instance per format, all listed in detect/read.c. */
struct ofs_format {
	const char *name;
	/* How sure are we that rel beneath dir holds this format: 0 no .. 100
	 * certain. Looks at names and leading bytes only; never fails. */
	int (*probe)(const struct ofs_dir *dir, const char *rel);
	/* Add every tensor, value and object of part to cat. On failure cat is
	 * only good for freeing. */
	int (*read)(struct ofs_catalog *cat, const struct ofs_part *part,
	    const struct optimfs_options *opt, struct optimfs_error *err);
	/* Once all parts are in cat, and before its entries are named: bring
	 * what they hold together. NULL: it is so already. */
	int (*join)(struct ofs_catalog *cat, struct optimfs_error *err);
	/* Lay a checkpoint out as to says: src/layout/render.h. Values that
	 * are not in memory are read, tensors are not. NULL: read-only. */
	int (*render)(const struct ofs_render *from,
	    const struct ofs_layout *to, struct ofs_files **out,
	    struct optimfs_error *err);
};

extern const struct ofs_format ofs_format_dcp;
extern const struct ofs_format ofs_format_megatron;
extern const struct ofs_format ofs_format_torch;
extern const struct ofs_format ofs_format_pickle;
extern const struct ofs_format ofs_format_safetensors;
extern const struct ofs_format ofs_format_deepspeed;
extern const struct ofs_format ofs_format_universal;
/* Written; deepspeed reads all three. */
extern const struct ofs_format ofs_format_zero1;
extern const struct ofs_format ofs_format_zero2;
extern const struct ofs_format ofs_format_zero3;
extern const struct ofs_format ofs_format_fsdp; /* written; torch reads it */
extern const struct ofs_format ofs_format_raw;  /* any file, as bytes */

#endif
