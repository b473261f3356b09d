/* combine.h - a checkpoint that is computed from others */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_RUN_COMBINE_H
#define OFS_RUN_COMBINE_H

#include <stdbool.h>
#include <stdint.h>

#include "fs/fs.h"

/* A checkpoint of a run, as one of those that are combined. */
struct ofs_combined {
	struct optimfs *fs;
	uint64_t step;
	double weight;
};

/* What is computed: the weighted sum of tensors, divided by divisor; or, with
 * delta, the difference of the second of two from the first. */
struct ofs_combine {
	bool delta;
	double divisor;
	uint32_t n, shown; /* shown: which of v has what is not combined */
	const struct ofs_combined *v;
	const char *what; /* for people: "average of steps 1 and 2" */
};

/* The checkpoint, which has references to those of v. Its tensors, values and
 * layout are those of v[shown], except that
 *
 * - tensors of floating types are summed: with delta all, else those with
 *   dimensions and those of model/. Of delta they are float32, or float64 if one
 *   of the two is float64; integers and booleans int64.
 * - of tensors in few bits what they stand for is summed (OFS864): their parts
 *   are those of v[shown].
 * - values of delta that differ are the text "old -> new". Otherwise a warning
 *   says which values differ (OFS864).
 *
 * A tensor that another one of v does not have, or in another shape, cannot be
 * read (OFS861). What only others have is in the notes (OFS862). */
struct optimfs *ofs_combine(const struct ofs_combine *how, const char *source,
    const struct optimfs_options *options, struct optimfs_error *err);

#endif
