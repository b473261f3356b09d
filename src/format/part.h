/* part.h - the files and directories that make up a checkpoint */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FORMAT_PART_H
#define OFS_FORMAT_PART_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "optimfs/error.h"

#include "catalog/catalog.h"
#include "format/format.h"

/* A file or a directory of a checkpoint, in one format; its leaves get a path
 * prefix. Most checkpoints are one part. A trainer's directory may have
 * several: weights, optimizer, and random number state per rank. */
struct ofs_part {
	const struct ofs_format *format;
	char *rel; /* below the checkpoint's directory, which is "" */
	/* For one file per rank: all files in the order of ranks, including the
	 * first, which is rel. NULL: rel is the only file. */
	struct ofs_part_file {
		char *rel;
		int rank;
	} * file;
	size_t nfiles;
	char *prefix[OFS_PART_PREFIX]; /* path components; NULL-terminated */
	int rank;                      /* the rank that wrote it; -1: unknown */
	int world;     /* the number of ranks of a series; 0: unknown */
	bool optional; /* an unreadable part is a warning, not a failure */
};

struct ofs_parts {
	struct ofs_part *part;
	size_t n, cap;
	/* Files and directories that were chosen to be left out, and why: struct
	 * ofs_left. */
	struct ofs_part_left {
		char *path, *why;
		enum ofs_left_kind kind;
	} * left;
	size_t nleft, left_cap;
	struct ofs_names notes;   /* lines of .optimfs/warnings */
	/* files that should be there, as the names of others tell */
	struct ofs_names missing;
	const char *trainer;      /* "torchtitan", ...; NULL: none known */
	bool chosen; /* among others, by a file that names the latest one */
	/* the optimizer has all parameters of the model, in its order */
	bool ids_of_model;
};

/* Most files of one directory that a mount combines. */
#define OFS_PARTS_MAX 4096

/* A part to add; strings are copied. The zero value means no prefix and rank
 * 0. */
struct ofs_part_spec {
	const struct ofs_format *format;
	const char *rel;
	/* one file per rank, the first being rel; NULL: only rel */
	const struct ofs_part_file *file;
	size_t nfiles;
	const char *prefix[OFS_PART_PREFIX]; /* NULL-terminated */
	int rank, world;
	bool optional;
};
/* ENOMEM, E2BIG. */
int ofs_parts_add(struct ofs_parts *parts, const struct ofs_part_spec *spec,
    struct optimfs_error *err);
/* Leaves path out; strings are copied. ENOMEM. */
int ofs_parts_leave(struct ofs_parts *parts, const char *path,
    enum ofs_left_kind kind, const char *why, struct optimfs_error *err);
/* Adds a warning, which begins with its number. ENOMEM. */
int ofs_parts_note(struct ofs_parts *parts, struct optimfs_error *err,
    const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Removes part i, and leaves its files out. */
int ofs_parts_drop(struct ofs_parts *parts, size_t i, enum ofs_left_kind kind,
    const char *why, struct optimfs_error *err);
/* Appends the parts of other, which is then empty, and what it left out. Its
 * trainer counts if none is known. */
int ofs_parts_join(struct ofs_parts *parts, struct ofs_parts *other,
    struct optimfs_error *err);
/* Is path, or a directory above it, left out? */
bool ofs_parts_left(const struct ofs_parts *parts, const char *path);
/* Does a part, or a file of it, lie at path or below it? */
bool ofs_parts_cover(const struct ofs_parts *parts, const char *path);
/* Prepends a directory to all paths. */
int ofs_parts_move(struct ofs_parts *parts, const char *dir,
    struct optimfs_error *err);
void ofs_parts_free(struct ofs_parts *parts);

/* The prefix of part as the beginning of paths in a commit
 * (rewrite/rewrite_impl.h): key has room for OFS_PART_PREFIX. Returns the number
 * of components; strings are borrowed from part. */
struct ofs_key;
uint32_t ofs_part_keys(const struct ofs_part *part, struct ofs_key *key);

/* The prefix of part as path components; *n gets their number. */
int ofs_part_prefix(struct ofs_catalog *cat, const struct ofs_part *part,
    uint32_t prefix[OFS_PART_PREFIX], size_t *n, struct optimfs_error *err);

#endif
