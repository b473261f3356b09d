/* diff_row.h - one difference that optimfs diff found, as text and JSON */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_TOOLS_DIFF_ROW_H
#define OFS_TOOLS_DIFF_ROW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "optimfs/analyze.h"

#include "base/buf.h"

/* The checkpoints, and what the user calls them. */
struct ofs_diff_sides {
	struct optimfs *a, *b;
	const char *a_name, *b_name;
};

/* The kind of a row that is a failure. */
#define OFS_DIFF_UNREADABLE "unreadable"

struct ofs_diff_row {
	char *path, *text; /* owned */
	const char *kind;
	/* of a failure, or NULL; owned */
	struct optimfs_error *why;
	bool of_b;     /* a failure of b alone */
	bool measured; /* elements and m are valid */
	uint64_t elements;
	struct optimfs_comparison m;
};

void ofs_diff_row_fini(struct ofs_diff_row *r);
/* Appends an object, without a newline. */
void ofs_diff_row_json(const struct ofs_diff_sides *s,
    const struct ofs_diff_row *r, struct ofs_buf *b);
/* Appends a line. */
void ofs_diff_row_text(const struct ofs_diff_sides *s,
    const struct ofs_diff_row *r, struct ofs_buf *b);

/* Prints the heading of a table, and a line of it; the row is measured. nan: how
 * many elements are NaN or infinite on one side only. */
void ofs_diff_row_header(void);
void ofs_diff_row_cells(const struct ofs_diff_row *r);

bool ofs_diff_is_key(const char *name);
/* Sorts by a key, the largest difference first, then by path; by path only if it
 * is NULL. */
void ofs_diff_rows_sort(struct ofs_diff_row *row, size_t n, const char *key);

#endif
