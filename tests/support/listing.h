/* listing.h - files of an open checkpoint: all of them, or one by its path */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LISTING_H
#define LISTING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "optimfs/optimfs.h"

struct listing {
	/* sorted by path */
	struct listing_file {
		char *path;
		uint64_t node;
		uint8_t *bytes; /* NULL: unreadable */
		size_t len;
	} * v;
	size_t n, cap;
};

/* All files below path, "" for the root; .optimfs is not listed there. A
 * directory that cannot be read ends the test. */
void listing_read(struct listing *l, struct optimfs *fs, const char *path);
void listing_fini(struct listing *l);
/* The number of files that only one of both has, or that have different bytes.
 * Prints the first ones with diag. */
unsigned listing_differs(const struct listing *was, const struct listing *is);
/* The node at path; the test ends if there is none. */
uint64_t listing_node(struct optimfs *fs, const char *path);
bool listing_has(struct optimfs *fs, const char *path);
/* Reads at most n bytes at off of the file at path; -1 with err. */
ssize_t listing_read_at(struct optimfs *fs, const char *path, void *buf,
    size_t n, uint64_t off, struct optimfs_error *err);
/* The bytes of a node's file and a zero, malloc'ed; NULL: unreadable. */
uint8_t *listing_content(struct optimfs *fs, uint64_t node, size_t *len);

#endif
