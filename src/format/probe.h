/* probe.h - file names and first bytes, for detection */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FORMAT_PROBE_H
#define OFS_FORMAT_PROBE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "optimfs/error.h"

#include "base/io.h"

/* What the formats bid on. */
struct ofs_file_head {
	const char *name;
	uint64_t size;
	uint8_t p[512]; /* the first n bytes */
	size_t n;
	bool zip_end; /* has the end record of a zip archive */
	int failed;   /* why it cannot be read now (ofs_probe_failed), or 0 */
};
/* Reads the head of the file rel below dir; false: it cannot be opened, and is
 * not ->failed. */
bool ofs_probe_head(const struct ofs_dir *dir, const char *rel,
    struct ofs_file_head *head);

/* Does it begin with a record of a zip archive whose name ends so? */
bool ofs_probe_first(const struct ofs_file_head *head, const char *end);

/* The extension of name, if it is one of these, a NULL-terminated list or NULL;
 * NULL: it is not. */
const char *ofs_probe_extension(const char *name,
    const char *const *extensions);
bool ofs_probe_has(const struct ofs_names *names, const char *name);

/* Does name match pattern, in which each "#" stands for a decimal number of at
 * most 2^20? They go to number, which has room for max. Returns how many there
 * are; -1: no match. */
int ofs_probe_numbers(const char *name, const char *pattern, int *number,
    int max);
/* The same for a pattern with at most one "#"; without one *number is -1. */
bool ofs_probe_match(const char *name, const char *pattern, int *number);

/* The name that is the text of a file, malloc'ed. EPERM (OFS620): the name
 * leads out of dir. */
int ofs_probe_tracker(const struct ofs_dir *dir, const char *file, char **name,
    struct optimfs_error *err);

/* Is rel a directory (a regular file, one without a byte) below dir? */
bool ofs_probe_is_dir(const struct ofs_dir *dir, const char *rel);
bool ofs_probe_is_file(const struct ofs_dir *dir, const char *rel);
bool ofs_probe_is_empty(const struct ofs_dir *dir, const char *rel);

/* Does why, of opening or listing a directory, mean that nothing is known of what
 * is in it, because the disk failed, or descriptors or memory were missing?
 * Otherwise there is none, or none that we may read. */
bool ofs_probe_failed(const struct optimfs_error *why);

/* The first bytes of a file, at most size of them: 1, with their number in *n; 0
 * and -1 as below. */
int ofs_probe_start(const struct ofs_dir *dir, const char *rel, uint8_t *p,
    size_t size, size_t *n, struct optimfs_error *err);
/* All of a small file which says how others are read, as ofs_dir_read_file: 1; 0:
 * there is none of at most max bytes that we may read; -1: it cannot be read
 * now, which is no reason to read the others in another way. */
int ofs_probe_text(const struct ofs_dir *dir, const char *rel, uint64_t max,
    uint8_t **bytes, uint64_t *n, struct optimfs_error *err);
/* The names in the directory rel below dir: 1; 0: no directory, or none that we
 * may read; -1: it cannot be read, which is no reason to take the checkpoint for
 * another one. */
int ofs_probe_names(const struct ofs_dir *dir, const char *rel,
    struct ofs_names *names, struct optimfs_error *err);
/* The same, and opens the directory as sub. After 1 the caller closes sub and
 * frees names. */
int ofs_probe_open(const struct ofs_dir *dir, const char *rel,
    struct ofs_dir *sub, struct ofs_names *names, struct optimfs_error *err);

#endif
