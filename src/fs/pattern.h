/* pattern.h - patterns for paths of the tree */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FS_PATTERN_H
#define OFS_FS_PATTERN_H

#include <stdbool.h>

#include "optimfs/optimfs.h"

/* Has text the characters of a pattern: '*', '?' or '['? */
bool ofs_is_pattern(const char *text, size_t n);
/* The bytes of a pattern before its first component that is one. */
size_t ofs_pattern_fixed(const char *pattern);

/* Paths, in natural order (base/natural.h). Starts as zeros. */
struct ofs_matches {
	char **path; /* malloc'ed */
	size_t n, cap;
};
void ofs_matches_fini(struct ofs_matches *m);

/* Finds the paths that match, as in a shell: '*' and '?' match no '/', and
 * .optimfs, which is not listed, must be named. A component that exists as it is
 * written is that one. No match is no error. */
int ofs_pattern_expand(struct optimfs *fs, const char *pattern,
    struct ofs_matches *m, struct optimfs_error *err);

#endif
