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
struct ofs_render;

/* One piece of a checkpoint: a directory or a file in one format, whose leaves
 * get a path prefix. Most checkpoints are one part; a trainer's directory may
 * have several (weights in one place, optimizer in another, rng per rank). */
struct ofs_part {
	const struct ofs_format *format;
	char *rel; /* beneath the checkpoint's directory; "" is itself */
	/* When it is a file of each rank: all of them, in the order of ranks,
	 * the first one (which is rel) included. NULL: rel is all. */
	struct ofs_part_file {
		char *rel;
		int rank;
	} * file;
	size_t nfiles;
	char *prefix[OFS_PART_PREFIX]; /* path components put before; NULL-terminated */
	int rank;        /* that wrote it, -1 when unknown */
	bool optional;   /* unreadable: a warning, not a failure */
};

struct ofs_parts {
	struct ofs_part *part;
	size_t n;
	const char
	    *trainer; /* "torchtitan", ...; NULL for none in particular */
};

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

/* Which parts make up what the user pointed at: dir, or the file rel in it
 * (rel "" for the directory itself). opt->type overrides. Failure is for
 * people: a parent of several checkpoints names the candidates (ENOENT). */
int ofs_detect(const struct ofs_dir *dir, const char *rel,
    const struct optimfs_options *opt, struct ofs_parts *parts,
    struct optimfs_error *err);
void ofs_parts_free(struct ofs_parts *parts);

/* Open path (a directory or a file), detect, read, name the leaves
 * (src/naming/naming.h) and finish. The catalog is the caller's. */
struct ofs_catalog *ofs_read_checkpoint(const char *path,
    const struct optimfs_options *opt, struct optimfs_error *err);

/* The same, as it would be with the files of the directory upper, which is
 * open, in their places, and without the n files gone; -1: none. */
struct ofs_catalog *ofs_read_over(const char *path, int upper,
    const char *const *gone, size_t n, const struct optimfs_options *opt,
    struct optimfs_error *err);
/* The parts of the checkpoint at path. */
int ofs_find_parts(const char *path, const struct optimfs_options *opt,
    struct ofs_parts *parts, struct optimfs_error *err);

#endif
