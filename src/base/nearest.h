/* nearest.h - which of many names was meant */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_NEAREST_H
#define OFS_NEAREST_H

/* A word that there is not, and the name that is fewest edits away from it:
 * one inserts, drops or replaces a byte, or swaps two neighbours. */
struct ofs_nearest {
	const char *word;  /* borrowed */
	unsigned distance; /* only names nearer than this come into question */
	char best[256];    /* "": none is near */
};

void ofs_nearest_init(struct ofs_nearest *n, const char *word);
/* The first of several that are as near stays. */
void ofs_nearest_try(struct ofs_nearest *n, const char *name);
/* "; did you mean 'NAME'?", or "" when no name is near. Valid for the call. */
#define OFS_NEAREST_FMT "%s%s%s"
#define OFS_NEAREST(n)                                      \
 (n)->best[0] == '\0' ? "" : "; did you mean '", (n)->best, \
     (n)->best[0] == '\0' ? "" : "'?"

#endif
