/* probe.h - what is there, by names: for the detection of checkpoints */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FORMAT_PROBE_H
#define OFS_FORMAT_PROBE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "optimfs/error.h"

#include "base/io.h"

/* What tells the format of a file. */
struct ofs_file_head {
	const char *name;
	uint64_t size;
	uint8_t p[512]; /* the first n bytes */
	size_t n;
	bool zip_end; /* it ends as a zip archive does */
};
/* Read that of the file rel beneath dir; false: it cannot be read. */
bool ofs_probe_head(const struct ofs_dir *dir, const char *rel,
    struct ofs_file_head *head);

/* Does name end in one of these extensions? Up to NULL, which may be all. The
 * extension; NULL: no. */
const char *ofs_probe_extension(const char *name,
    const char *const *extensions);
/* Is name one of the names? */
bool ofs_probe_has(const struct ofs_names *names, const char *name);

/* Does name match pattern, in which one "#" stands for digits? *number gets
 * them, -1 when there is no "#". */
bool ofs_probe_match(const char *name, const char *pattern, int *number);

/* The name that a file's text is, malloc'ed. EPERM (OFS620): it is none that
 * stays in dir. */
int ofs_probe_tracker(const struct ofs_dir *dir, const char *file, char **name,
    struct optimfs_error *err);

/* Is it a directory (or file) beneath dir? */
bool ofs_probe_is_dir(const struct ofs_dir *dir, const char *rel);
bool ofs_probe_is_file(const struct ofs_dir *dir, const char *rel);

/* The names in the directory rel beneath dir: 1; 0: it is none, or cannot be
 * listed; -1: ENOMEM. */
int ofs_probe_names(const struct ofs_dir *dir, const char *rel,
    struct ofs_names *names, struct optimfs_error *err);

#endif
