/* truth.h - the manifests of tests/data */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRUTH_H
#define TRUTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One leaf of a state dict as its framework gathered it. */
struct truth {
	char *path; /* components, joined by TRUTH_SEP */
	char *dtype;
	char *shape; /* "4,2"; NULL: not a tensor */
	char *sha256;
	char *raw;    /* hexadecimal, of tensors without dimensions; or NULL */
	char *value;  /* text of anything else; or NULL */
	bool literal; /* value is JSON, not a string */
	uint64_t bytes;
};
#define TRUTH_SEP "\x1f"

/* The leaves of the manifest of tests/data/NAME, sorted by path, and their
 * number in *n. Bails out if it cannot be read. Freed by truth_free. */
struct truth *truth_read(const char *name, size_t *n);
void truth_free(struct truth *t, size_t n);
/* The leaf with this path; NULL: none. */
const struct truth *truth_find(const struct truth *t, size_t n,
    const char *path);

/* Path of a file of tests/data, in a static buffer. */
const char *data_path(const char *name);

#endif
