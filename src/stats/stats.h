/* stats.h - statistics of elements that do not depend on how they are read */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_STATS_H
#define OFS_STATS_H

#include <stddef.h>
#include <stdint.h>

#include "optimfs/statistics.h"

#include "base/buf.h"
#include "base/dtype.h"

/* Numbers are added up in double, and the order of the additions is a function
 * of a number's index alone. Numbers make blocks of OFS_STATS_BLOCK. Blocks are
 * the leaves of a binary tree, in which neighbours are added: 0 and 1, 2 and 3,
 * then 0-1 and 2-3. A chunk of 2^k blocks that begins at a multiple of 2^k is a
 * subtree. So chunks can be added up by different threads and joined in their
 * order, and the sum is the same to the last bit.
 *
 * A type of at most 16 bits has few codes. How often each occurs is counted;
 * all else is worked out from that at the end. */

#define OFS_STATS_BLOCK 4096u /* numbers */

struct ofs_stats;

/* Numbers in an element: 2 for complex types, 0 for those that are bits. */
unsigned ofs_stats_numbers(enum ofs_dtype t);
/* Elements of a chunk, of which each but the last has so many. */
uint64_t ofs_stats_chunk(enum ofs_dtype t);

/* Of no elements yet; NULL: ENOMEM. */
struct ofs_stats *ofs_stats_new(enum ofs_dtype t, struct optimfs_error *err);
void ofs_stats_free(struct ofs_stats *s);
/* Make it one of no elements again. */
void ofs_stats_clear(struct ofs_stats *s);
/* The next n elements. All calls but the last add whole blocks. */
void ofs_stats_add(struct ofs_stats *s, const void *p, size_t n);
/* The elements of chunk follow those of s, which are whole chunks. */
void ofs_stats_join(struct ofs_stats *s, const struct ofs_stats *chunk);

/* What they are like; without the hash. */
int ofs_stats_result(const struct ofs_stats *s, struct optimfs_statistics *out,
    struct optimfs_error *err);

/* Add a result to that of a directory, which begins as zeros. */
int ofs_stats_merge(struct optimfs_statistics *to,
    const struct optimfs_statistics *s, struct optimfs_error *err);

/* "name value" a line, and as members of a JSON object, which has null where a
 * value is no number. */
void ofs_stats_text(const struct optimfs_statistics *s, struct ofs_buf *out);
void ofs_stats_json(const struct optimfs_statistics *s, struct ofs_buf *out);
/* Longer than the text of any one tensor is. */
#define OFS_STATS_TEXT_MAX 65536u

/* The names, with commas between them. */
void ofs_stats_names(struct ofs_buf *out);
/* The value that a name of the text stands for: "rms", "nan". False: it is
 * none. */
bool ofs_stats_value(const struct optimfs_statistics *s, const char *name,
    double *value);

#endif
