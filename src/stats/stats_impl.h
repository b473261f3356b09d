/* stats_impl.h - what the two files of statistics share */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_STATS_IMPL_H
#define OFS_STATS_IMPL_H

#include "stats/stats.h"

/* Exponents of doubles, those of denormal ones included. */
#define OFS_EXPONENT_MIN (-1074)
#define OFS_NEXPONENTS   2098

/* What follows from the sums. */
void ofs_stats_derive(struct optimfs_statistics *s);
/* Keep the histogram, from its first bucket that is not empty to its last. */
int ofs_stats_histogram(struct optimfs_statistics *s,
    const uint64_t exponent[OFS_NEXPONENTS], struct optimfs_error *err);

#endif
