/* part.h - the list of what a checkpoint is made of */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FORMAT_PART_H
#define OFS_FORMAT_PART_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "optimfs/error.h"

#include "catalog/catalog.h"
#include "format/format.h"

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
	char *prefix
	    [OFS_PART_PREFIX]; /* path components put before; NULL-terminated */
	int rank;              /* that wrote it, -1 when unknown */
	bool optional;         /* unreadable: a warning, not a failure */
};

struct ofs_parts {
	struct ofs_part *part;
	size_t n, cap;
	const char
	    *trainer; /* "torchtitan", ...; NULL for none in particular */
};

/* Files of one directory that one mount may combine. */
#define OFS_PARTS_MAX 4096

/* A part to be added; strings are copied. Zero is: no prefix, of rank 0. */
struct ofs_part_spec {
	const struct ofs_format *format;
	const char *rel;
	/* a file of each rank, the first being rel; NULL: rel alone */
	const struct ofs_part_file *file;
	size_t nfiles;
	const char *prefix[4]; /* NULL-terminated */
	int rank;
	bool optional;
};
/* ENOMEM, E2BIG. */
int ofs_parts_add(struct ofs_parts *parts, const struct ofs_part_spec *spec,
    struct optimfs_error *err);
/* Put a directory before what every part is called. */
int ofs_parts_move(struct ofs_parts *parts, const char *dir,
    struct optimfs_error *err);
void ofs_parts_free(struct ofs_parts *parts);

/* The prefix of part as components of a path; *n gets how many. */
int ofs_part_prefix(struct ofs_catalog *cat, const struct ofs_part *part,
    uint32_t prefix[OFS_PART_PREFIX], size_t *n, struct optimfs_error *err);

#endif
