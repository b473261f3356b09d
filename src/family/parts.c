/* parts.c - which rows of a tensor are which part of it */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "family/parts.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/memory.h"

/* More heads than any model has: each is a box. */
#define HEADS_MAX 65536u

static int add_run(struct ofs_family_rows *out, uint64_t row, uint64_t n,
    struct optimfs_error *err)
{
	if (n == 0)
		return 0;
	if (ofs_grow(out->v, out->n, out->cap, err) == -1)
		return -1;
	out->v[out->n++] = (struct ofs_family_run){ row, n, out->total };
	out->total += n;
	return 0;
}

/* The rows of linear_qkv are those of one group after the other: the heads of
 * the query, then one of the key and one of the value. */
struct qkv {
	uint64_t groups, group; /* how many, and the rows of each */
	uint64_t first[4];      /* where q, k and v begin in a group; its end */
};

static int check_heads(const struct ofs_facts *f, struct optimfs_error *err)
{
	if (f->heads == 0)
		return optimfs_fail(err, EINVAL,
		    "OFS893 to take query, key and value apart, the number of "
		    "attention heads and of their groups must be known: from a "
		    "config.json beside the checkpoint, from Megatron's args, "
		    "or from the options heads=N,groups=N");
	if (f->heads > HEADS_MAX || f->groups == 0 || f->groups > f->heads ||
	    f->heads % f->groups != 0)
		return optimfs_fail(err, EINVAL,
		    "OFS893 %" PRIu64 " attention heads in %" PRIu64
		    " groups: not a multiple",
		    f->heads, f->groups);
	return 0;
}

static int divide(const struct ofs_facts *f, uint64_t rows, struct qkv *q,
    struct optimfs_error *err)
{
	uint64_t each, head;

	if (check_heads(f, err) == -1)
		return -1;
	each = f->heads / f->groups; /* heads of the query in a group */
	head = rows / (f->heads + 2 * f->groups);
	if (rows % (f->heads + 2 * f->groups) != 0)
		return optimfs_fail(err, EOPNOTSUPP,
		    "OFS894 %" PRIu64 " rows are not %" PRIu64
		    " heads of query, and %" PRIu64 " each of key and value",
		    rows, f->heads, f->groups);
	*q = (struct qkv){ f->groups, (each + 2) * head,
		{ 0, each * head, (each + 1) * head, (each + 2) * head } };
	return 0;
}

static int add_qkv(const struct qkv *q, unsigned which,
    struct ofs_family_rows *out, struct optimfs_error *err)
{
	for (uint64_t g = 0; g < q->groups; g++)
		if (add_run(out, g * q->group + q->first[which],
			q->first[which + 1] - q->first[which], err) == -1)
			return -1;
	return 0;
}

static int qkv_rows(const struct ofs_family_rule *rule,
    const struct ofs_facts *facts, unsigned part, uint64_t rows,
    struct ofs_family_rows *out, struct optimfs_error *err)
{
	struct qkv q = { 0 };

	if (divide(facts, rows, &q, err) == -1)
		return -1;
	if (rule->nright == 3)
		return add_qkv(&q, part, out, err);
	for (unsigned i = 0; i < 3; i++)
		if (add_qkv(&q, i, out, err) == -1)
			return -1;
	return 0;
}

static int vocab_rows(const struct ofs_facts *f, uint64_t rows,
    struct ofs_family_rows *out, struct optimfs_error *err)
{
	if (f->vocab > rows)
		return optimfs_fail(err, EOPNOTSUPP,
		    "OFS894 %" PRIu64 " rows for a vocabulary of %" PRIu64
		    " words",
		    rows, f->vocab);
	return add_run(out, 0, f->vocab == 0 ? rows : f->vocab, err);
}

static int odd_rows(uint64_t rows, unsigned parts, struct optimfs_error *err)
{
	return optimfs_fail(err, EOPNOTSUPP,
	    "OFS894 %" PRIu64 " rows are not %u equal parts", rows, parts);
}

/* All rows, as two runs: only within a half do those that alternate follow each
 * other. */
static int halves(uint64_t rows, struct ofs_family_rows *out,
    struct optimfs_error *err)
{
	if (rows % 2 != 0)
		return odd_rows(rows, 2, err);
	if (add_run(out, 0, rows / 2, err) == -1)
		return -1;
	return add_run(out, rows / 2, rows / 2, err);
}

int ofs_part_rows(const struct ofs_family_rule *rule,
    const struct ofs_facts *facts, unsigned part, uint64_t rows,
    struct ofs_family_rows *out, struct optimfs_error *err)
{
	uint64_t n = rows / rule->nright;

	if (rule->qkv)
		return qkv_rows(rule, facts, part, rows, out, err);
	if (rule->vocab)
		return vocab_rows(facts, rows, out, err);
	if (rule->alternate)
		return halves(rows, out, err);
	if (rows % rule->nright != 0)
		return odd_rows(rows, rule->nright, err);
	return add_run(out, part * n, n, err);
}

void ofs_rows_fini(struct ofs_family_rows *rows)
{
	free(rows->v);
	*rows = (struct ofs_family_rows){ 0 };
}
