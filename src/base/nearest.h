/* nearest.h - the nearest of many names, for suggestions */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_NEAREST_H
#define OFS_NEAREST_H

/* A search for the name with the smallest edit distance from an unknown word.
 * An edit inserts, deletes or replaces a byte, or swaps two neighbours. Case
 * does not matter. */
struct ofs_nearest {
	const char *word;  /* borrowed */
	unsigned distance; /* only a smaller distance counts */
	char best[256];    /* "": no name is near enough */
};

void ofs_nearest_init(struct ofs_nearest *n, const char *word);
/* Of several names at the same distance the first is kept. */
void ofs_nearest_try(struct ofs_nearest *n, const char *name);
/* "; did you mean 'NAME'?", or "" when no name is near. Arguments for one
 * printf call. */
#define OFS_NEAREST_FMT "%s%s%s"
#define OFS_NEAREST(n)                                      \
 (n)->best[0] == '\0' ? "" : "; did you mean '", (n)->best, \
     (n)->best[0] == '\0' ? "" : "'?"

#endif
