/* listing.h - all files of an open checkpoint with their bytes */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LISTING_H
#define LISTING_H

#include <stddef.h>
#include <stdint.h>

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
/* The bytes of a node's file, malloc'ed; NULL: unreadable. */
uint8_t *listing_content(struct optimfs *fs, uint64_t node, size_t *len);

#endif
