/* series_name.h - the number of a rank in the name of a file */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_DETECT_SERIES_NAME_H
#define OFS_DETECT_SERIES_NAME_H

#include <stdbool.h>
#include <stddef.h>

#include "base/io.h"

/* Files whose names differ only in the number of a rank are a series. Names only:
 * no function here looks at files. docs/formats/ranks.md, "Names" */

enum {
	/* No greater number is a rank, or a number of ranks. */
	OFS_SERIES_MAX_RANK = 1 << 20,
};

/* A name in parts: "optim_rank3.pt" is "optim_rank", 3, ".pt". */
struct ofs_series_name {
	size_t head; /* length of the part before the number */
	const char
	    *tail; /* the part after the number, borrowed from the name */
	int number;
	int world;  /* the number of ranks, if the name says it; 0 */
	bool rank;  /* the name says "rank" */
	bool asked; /* a rank only if the tensors in the files say so */
};

/* Takes name apart. false: it has no number that may be a rank, or is of DeepSpeed
 * or Megatron, whose formats read the numbers themselves. */
bool ofs_series_parse(const char *name, struct ofs_series_name *out);
/* The same for the name of a directory that ends with its rank: "rank_3". world is
 * not set. */
bool ofs_series_directory(const char *name, struct ofs_series_name *out);
/* Is b, whose parts y gets, the name of another rank's file, of the job of a or of
 * one with another number of ranks? x: the parts of a. */
bool ofs_series_same(const char *a, const struct ofs_series_name *x,
    const char *b, struct ofs_series_name *y);
/* Has no other name the series of the one at index i, whose parts are me? */
bool ofs_series_alone(const struct ofs_names *names, size_t i,
    const struct ofs_series_name *me);
/* Is the name at index i that of rank 0, with no other ranks? Then stem gets
 * the common name. */
bool ofs_series_only_rank(const struct ofs_names *names, size_t i, char *stem,
    size_t size);
/* Puts the common name of a series, "optim" for "optim_rank3.pt", into stem (size
 * bytes), and cuts it if it is longer. x: the parts of name. */
void ofs_series_stem(const char *name, const struct ofs_series_name *x,
    char *stem, size_t size);

/* Are a and b names of one program for its state at different times:
 * "epoch=0-step=4.ckpt" and "epoch=1-step=8.ckpt", or "last.ckpt"? */
bool ofs_series_other_step(const char *a, const char *b);

#endif
