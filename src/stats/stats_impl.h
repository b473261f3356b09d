/* stats_impl.h - declarations shared by the files of statistics */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_STATS_IMPL_H
#define OFS_STATS_IMPL_H

#include "stats/stats.h"

/* Exponents of doubles, with those of denormal numbers. */
#define OFS_EXPONENT_MIN (-1074)
#define OFS_NEXPONENTS   2098

/* Derives the values that follow from the sums. */
void ofs_stats_derive(struct optimfs_statistics *s);
/* Stores the histogram from its first to its last non-empty bucket. */
int ofs_stats_histogram(struct optimfs_statistics *s,
    const uint64_t exponent[OFS_NEXPONENTS], struct optimfs_error *err);

#endif
