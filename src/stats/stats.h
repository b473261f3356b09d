/* stats.h - statistics that do not depend on the order of reading */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_STATS_H
#define OFS_STATS_H

#include <stddef.h>
#include <stdint.h>

#include "optimfs/statistics.h"

#include "base/buf.h"
#include "base/cursor.h"
#include "base/dtype.h"

/* Numbers are summed in double, in an order that is a function of their index
 * alone. Numbers form blocks of OFS_STATS_BLOCK. Blocks are the leaves of a
 * binary tree in which neighbours are added: 0 and 1, 2 and 3, then 0-1 and
 * 2-3. A chunk of 2^k blocks that starts at a multiple of 2^k is a subtree. So
 * different threads can sum chunks, and joined in order they give the same sum
 * to the last bit.
 *
 * A dtype of at most 16 bits has few codes: their occurrences are counted, and
 * the statistics are derived from the counts at the end. */

#define OFS_STATS_BLOCK 4096u /* numbers */

struct ofs_stats;

/* Elements in a chunk; the last chunk may have fewer. */
uint64_t ofs_stats_chunk(enum ofs_dtype t);

/* Starts with no elements; NULL: ENOMEM. */
struct ofs_stats *ofs_stats_new(enum ofs_dtype t, struct optimfs_error *err);
void ofs_stats_free(struct ofs_stats *s);
/* Resets it to no elements. */
void ofs_stats_clear(struct ofs_stats *s);
/* The same, for another chunk of one tensor: minimum and maximum stay, and a
 * chunk that does not extend them is faster. */
void ofs_stats_next(struct ofs_stats *s);
/* Adds the next n elements. All calls except the last add whole blocks. */
void ofs_stats_add(struct ofs_stats *s, const void *p, size_t n);
/* Appends the elements of chunk to s, which has whole chunks, times times. A chunk
 * that is appended more than once is a whole one. */
void ofs_stats_join(struct ofs_stats *s, const struct ofs_stats *chunk,
    uint64_t times);

/* Computes the statistics, without the hash. */
int ofs_stats_result(const struct ofs_stats *s, struct optimfs_statistics *out,
    struct optimfs_error *err);

/* The statistics of nothing: those of a directory, to which results are added. */
struct optimfs_statistics ofs_stats_none(void);
int ofs_stats_merge(struct optimfs_statistics *to,
    const struct optimfs_statistics *s, struct optimfs_error *err);

/* As lines of "name value", and as members of a JSON object, with null for
 * values that are not numbers. */
void ofs_stats_text(const struct optimfs_statistics *s, struct ofs_buf *out);
void ofs_stats_json(const struct optimfs_statistics *s, struct ofs_buf *out);
/* More than the text of any tensor. */
#define OFS_STATS_TEXT_MAX 65536u

/* All of it as bytes, to keep it; and back: 1; 0: these are none; -1: ENOMEM. *s
 * is the caller's after 1. */
void ofs_stats_pack(const struct optimfs_statistics *s, struct ofs_buf *out);
int ofs_stats_unpack(struct ofs_cursor *c, struct optimfs_statistics *s,
    struct optimfs_error *err);

/* The name of value i; NULL after the last. */
const char *ofs_stats_name(size_t i);
/* The value of a name such as "rms" or "nan"; false: unknown name. */
bool ofs_stats_value(const struct optimfs_statistics *s, const char *name,
    double *value);

#endif
