/* parts.h - which rows of a tensor are which part of it */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FAMILY_PARTS_H
#define OFS_FAMILY_PARTS_H

#include <stddef.h>
#include <stdint.h>

#include "optimfs/error.h"

#include "family/facts.h"
#include "family/rules.h"

/* Rows [row, row + n) of the tensor on the left are rows [to, to + n) of its
 * part. */
struct ofs_family_run {
	uint64_t row, n, to;
};
struct ofs_family_rows {
	struct ofs_family_run *v;
	size_t n, cap;
	uint64_t total; /* of the part */
};

/* The rows of a part of a tensor with rows rows; *out starts as zeros.
 * EOPNOTSUPP (OFS894): they do not fit the rule; EINVAL (OFS893): nothing says
 * how many heads there are. */
int ofs_part_rows(const struct ofs_family_rule *rule,
    const struct ofs_facts *facts, unsigned part, uint64_t rows,
    struct ofs_family_rows *out, struct optimfs_error *err);
void ofs_rows_fini(struct ofs_family_rows *rows);

#endif
