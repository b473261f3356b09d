/* safetensors.c - the header of a safetensors file or blob */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "archive/safetensors.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/checked.h"
#include "base/dtype.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/str.h"

/* The checks are those of the reference reader (safetensors/src/tensor.rs), and
 * duplicate keys; see docs/formats/safetensors.md. */

#define LISTED_MAX (1u << 24)

/* The members of a tensor while they are read. */
struct members {
	uint64_t shape[OFS_MAX_DIMS];
	struct ofs_safetensors_tensor t;
	uint64_t begin, end;
	bool dtype, dims, offsets;
};

struct reader {
	struct ofs_safetensors *st;
	struct ofs_json j;
	size_t tensor_cap, metadata_cap;
	struct optimfs_error *err;
};

const struct ofs_safetensors_tensor *ofs_safetensors_find(const struct
    ofs_safetensors *st,
    const char *name, size_t n)
{
	uint32_t i = ofs_keys_find(&st->names, name, n);

	return i == OFS_NONE ? NULL : &st->tensor[i];
}

struct ofs_str ofs_safetensors_metadata(const struct ofs_safetensors *st,
    const char *name)
{
	for (size_t i = 0; i < st->nmetadata; i++)
		if (ofs_str_is(st->metadata[2 * i], name))
			return st->metadata[2 * i + 1];
	return (struct ofs_str){ NULL, 0 };
}

bool ofs_safetensors_has(enum ofs_dtype t)
{
	return ofs_dtype_safetensors(t) != NULL && t != OFS_COMPLEX128 &&
	    t != OFS_FLOAT4_E2M1FN_X2;
}

void ofs_safetensors_fini(struct ofs_safetensors *st)
{
	ofs_arena_fini(&st->arena);
	free(st->tensor);
	free(st->metadata);
	ofs_keys_fini(&st->names);
	*st = (struct ofs_safetensors){ 0 };
}

static int keep(struct ofs_safetensors *st, struct ofs_str s,
    struct ofs_str *out, struct optimfs_error *err)
{
	char *p = ofs_arena_strndup(&st->arena, s.p, s.len);

	if (p == NULL)
		return ofs_no_memory(err);
	*out = (struct ofs_str){ p, s.len };
	return 0;
}

static int duplicate(struct reader *r)
{
	return optimfs_fail(r->err, EUCLEAN,
	    "OFS654 safetensors header at byte %" PRIu64 ": duplicate key "
	    "'%.*s' (readers differ in which one they use)",
	    r->j.at, OFS_STR_ARGS(r->j.str, 200));
}

static int bad_member(struct reader *r, const char *what)
{
	return optimfs_fail(r->err, EUCLEAN,
	    "OFS655 safetensors header at byte %" PRIu64 ": %s", r->j.at, what);
}

static int bad_name(struct reader *r, const struct ofs_str *name,
    const char *what)
{
	return optimfs_fail_as(r->err, EUCLEAN, "%s in tensor '%.*s'", what,
	    OFS_STR_ARGS(*name, 200));
}

/* Read an array of at most max non-negative integers. */
static int numbers(struct reader *r, uint64_t *v, size_t max, size_t *n,
    const char *what)
{
	enum ofs_json_token token = ofs_json_next(&r->j, r->err);

	if (token == OFS_JSON_ERROR)
		return -1;
	if (token != OFS_JSON_ARRAY)
		return bad_member(r, what);
	for (*n = 0;; (*n)++) {
		token = ofs_json_next(&r->j, r->err);
		if (token == OFS_JSON_ERROR)
			return -1;
		if (token == OFS_JSON_ARRAY_END)
			return 0;
		if (token != OFS_JSON_NUMBER || !r->j.is_int ||
		    r->j.integer < 0 || *n == max)
			return bad_member(r, what);
		v[*n] = (uint64_t)r->j.integer;
	}
}

static int member_dtype(struct reader *r, struct members *m)
{
	enum ofs_json_token token;

	if (m->dtype)
		return duplicate(r);
	token = ofs_json_next(&r->j, r->err);
	if (token == OFS_JSON_ERROR)
		return -1;
	if (token != OFS_JSON_STRING)
		return bad_member(r, "dtype is not a string");
	m->t.dtype =
	    (uint8_t)ofs_dtype_of_safetensors(r->j.str.p, r->j.str.len);
	m->dtype = true;
	return 0;
}

static int member_shape(struct reader *r, struct members *m)
{
	size_t n;

	if (m->dims)
		return duplicate(r);
	if (numbers(r, m->shape, OFS_MAX_DIMS, &n,
		"shape is not a list of at most 64 sizes") == -1)
		return -1;
	m->t.ndim = (uint8_t)n;
	m->dims = true;
	return 0;
}

static int member_offsets(struct reader *r, struct members *m)
{
	uint64_t v[2];
	size_t n;

	if (m->offsets)
		return duplicate(r);
	if (numbers(r, v, 2, &n, "data_offsets is not two offsets") == -1)
		return -1;
	if (n != 2)
		return bad_member(r, "data_offsets is not two offsets");
	m->begin = v[0];
	m->end = v[1];
	m->offsets = true;
	return 0;
}

static int read_members(struct reader *r, struct members *m)
{
	enum ofs_json_token token = ofs_json_next(&r->j, r->err);
	int ret;

	if (token == OFS_JSON_ERROR)
		return -1;
	if (token != OFS_JSON_OBJECT)
		return bad_member(r, "a tensor is not an object");
	while ((token = ofs_json_next(&r->j, r->err)) == OFS_JSON_KEY) {
		struct ofs_str k = r->j.str;

		if (ofs_str_is(k, "dtype"))
			ret = member_dtype(r, m);
		else if (ofs_str_is(k, "shape"))
			ret = member_shape(r, m);
		else if (ofs_str_is(k, "data_offsets"))
			ret = member_offsets(r, m);
		else
			ret = bad_member(r, "unknown member of a tensor");
		if (ret == -1)
			return -1;
	}
	if (token == OFS_JSON_ERROR)
		return -1;
	if (!m->dtype || !m->dims || !m->offsets)
		return bad_member(r,
		    "a tensor lacks dtype, shape or data_offsets");
	return 0;
}

/* The file counts half bytes, PyTorch counts bytes: halve the last dimension.
 * Where it is odd the tensor gets no dtype. */
static void halve(struct members *m)
{
	uint64_t *last = m->t.ndim == 0 ? NULL : &m->shape[m->t.ndim - 1];

	if (m->t.dtype != OFS_FLOAT4_E2M1FN_X2)
		return;
	if (last == NULL || *last % 2 != 0)
		m->t.dtype = OFS_DTYPE_NONE;
	else
		*last /= 2;
}

static int check_size(struct reader *r, struct members *m)
{
	uint64_t n;

	if (m->begin > m->end)
		return bad_name(r, &m->t.name,
		    "OFS656 safetensors: data_offsets run backwards");
	if (!ofs_numel(m->shape, m->t.ndim, &n))
		return bad_name(r, &m->t.name,
		    "OFS659 safetensors: size overflow");
	halve(m);
	if (m->t.dtype == OFS_DTYPE_NONE)
		return 0; /* reading the tensor fails, with a reason */
	if (m->t.dtype == OFS_FLOAT4_E2M1FN_X2)
		n /= 2;
	if (!ofs_mul_u64(n, ofs_dtype_size(m->t.dtype), &n) ||
	    n != m->end - m->begin)
		return bad_name(r, &m->t.name,
		    "OFS659 safetensors: shape and data_offsets disagree");
	return 0;
}

static int read_tensor(struct reader *r)
{
	struct ofs_safetensors *st = r->st;
	struct members m = { 0 };
	uint64_t *shape;

	if (st->n == LISTED_MAX)
		return optimfs_fail(r->err, E2BIG,
		    "OFS655 safetensors header: more than %u tensors",
		    LISTED_MAX);
	if (keep(st, r->j.str, &m.t.name, r->err) == -1 ||
	    read_members(r, &m) == -1 || check_size(r, &m) == -1 ||
	    ofs_grow(st->tensor, st->n, r->tensor_cap, r->err) == -1)
		return -1;
	shape = ofs_arena_alloc(&st->arena, m.t.ndim * sizeof(*shape));
	if (shape == NULL)
		return ofs_no_memory(r->err);
	memcpy(shape, m.shape, m.t.ndim * sizeof(*shape));
	m.t.shape = shape;
	m.t.off = m.begin;
	m.t.len = m.end - m.begin;
	st->tensor[st->n++] = m.t;
	return 0;
}

static int read_metadata(struct reader *r)
{
	struct ofs_safetensors *st = r->st;
	enum ofs_json_token token = ofs_json_next(&r->j, r->err);
	struct ofs_str *pair;

	if (token == OFS_JSON_ERROR)
		return -1;
	if (token != OFS_JSON_OBJECT)
		return bad_member(r, "__metadata__ is not an object");
	while ((token = ofs_json_next(&r->j, r->err)) == OFS_JSON_KEY) {
		if (ofs_reserve(st->metadata, 2 * (uint64_t)st->nmetadata + 2,
			r->metadata_cap, r->err) == -1)
			return -1;
		pair = &st->metadata[2 * st->nmetadata];
		if (keep(st, r->j.str, &pair[0], r->err) == -1)
			return -1;
		token = ofs_json_next(&r->j, r->err);
		/* members that are not strings are invalid but harmless */
		if (token != OFS_JSON_STRING) {
			if (ofs_json_skip(&r->j, token, r->err) == -1)
				return -1;
			st->nodd++;
			continue;
		}
		if (keep(st, r->j.str, &pair[1], r->err) == -1)
			return -1;
		st->nmetadata++;
	}
	return token == OFS_JSON_ERROR ? -1 : 0;
}

static int read_header(struct reader *r)
{
	enum ofs_json_token token = ofs_json_next(&r->j, r->err);
	bool metadata = false;
	int ret;

	if (token == OFS_JSON_ERROR)
		return -1;
	if (token != OFS_JSON_OBJECT)
		return ofs_json_fail(&r->j, r->err, "not an object");
	while ((token = ofs_json_next(&r->j, r->err)) == OFS_JSON_KEY) {
		if (!ofs_str_is(r->j.str, "__metadata__")) {
			ret = read_tensor(r);
		} else if (metadata) {
			ret = duplicate(r);
		} else {
			metadata = true;
			ret = read_metadata(r);
		}
		if (ret == -1)
			return -1;
	}
	if (token == OFS_JSON_ERROR)
		return -1;
	return ofs_json_next(&r->j, r->err) == OFS_JSON_END ? 0 : -1;
}

static int index_names(struct ofs_safetensors *st, struct optimfs_error *err)
{
	for (size_t i = 0; i < st->n; i++) {
		struct ofs_str s = st->tensor[i].name;
		uint32_t number = ofs_keys_add(&st->names, s, err);

		if (number == OFS_NONE)
			return -1;
		if (number < i)
			return optimfs_fail(err, EUCLEAN,
			    "OFS654 safetensors header: duplicate key '%.*s' "
			    "(readers differ in which one they use)",
			    OFS_STR_ARGS(s, 200));
	}
	return 0;
}

static int by_offset(const void *a, const void *b)
{
	const struct ofs_safetensors_tensor *const *x = a, *const *y = b;

	if ((*x)->off != (*y)->off)
		return (*x)->off < (*y)->off ? -1 : 1;
	if ((*x)->len != (*y)->len)
		return (*x)->len < (*y)->len ? -1 : 1;
	return *x < *y ? -1 : *x > *y;
}

/* Every byte belongs to exactly one tensor: sorted by offset, each begins where
 * the previous one ends. data is the number of bytes after the header. */
static int check_layout(const struct ofs_safetensors *st, uint64_t data,
    bool whole, struct optimfs_error *err)
{
	const struct ofs_safetensors_tensor **order;
	uint64_t at = 0;
	int ret = -1;

	order = malloc((st->n + 1) * sizeof(*order));
	if (order == NULL)
		return ofs_no_memory(err);
	for (size_t i = 0; i < st->n; i++)
		order[i] = &st->tensor[i];
	qsort(order, st->n, sizeof(*order), by_offset);
	for (size_t i = 0; i < st->n; i++) {
		if (order[i]->off != at) {
			optimfs_fail(err, EUCLEAN,
			    "OFS656 safetensors: tensor '%.*s' begins at "
			    "%" PRIu64 ", the one before ends at %" PRIu64,
			    OFS_STR_ARGS(order[i]->name, 200), order[i]->off,
			    at);
			goto out;
		}
		/* begin <= end <= INT64_MAX: no overflow */
		at += order[i]->len;
	}
	if (whole && at < data) {
		optimfs_fail(err, EUCLEAN,
		    "OFS658 safetensors: %" PRIu64
		    " bytes after the last tensor",
		    data - at);
		goto out;
	}
	ret = 0;
out:
	free(order);
	return ret;
}

static int parse(struct ofs_safetensors *st, const uint8_t *header, uint32_t n,
    struct optimfs_error *err)
{
	struct reader r = { .st = st, .err = err };
	int ret;

	ofs_json_init(&r.j, header, n);
	ret = read_header(&r);
	ofs_json_fini(&r.j);
	return ret;
}

int ofs_safetensors_open(struct ofs_safetensors *st, uint64_t size,
    uint64_t max, bool whole, ofs_zip_read_fn *read, void *ctx,
    struct optimfs_error *err)
{
	uint8_t prefix[8], *header = NULL;
	uint64_t n;
	int ret = -1;

	*st = (struct ofs_safetensors){ 0 };
	if (size < 8)
		return optimfs_fail(err, EUCLEAN,
		    "OFS651 safetensors: %" PRIu64 " bytes, no header", size);
	if (read(ctx, 0, 8, prefix, err) == -1)
		return -1;
	if (memcmp(prefix, "version ", 8) == 0)
		return optimfs_fail(err, EIO,
		    "OFS666 a pointer of Git LFS, not the file itself");
	n = ofs_le64(prefix);
	if (n < 2)
		return optimfs_fail(err, EUCLEAN,
		    "OFS651 safetensors: header of %" PRIu64 " bytes", n);
	if (n > OFS_SAFETENSORS_HEADER_MAX || n > size - 8)
		return optimfs_fail(err, EUCLEAN,
		    "OFS652 safetensors: header length %" PRIu64
		    ", limit 100000000, %" PRIu64 " bytes follow",
		    n, size - 8);
	if (max != 0 && n > max)
		return optimfs_fail(err, E2BIG,
		    "OFS440 safetensors: a header of %" PRIu64
		    " bytes, the limit is %" PRIu64 " (-o max_metadata)",
		    n, max);
	header = malloc(n);
	if (header == NULL)
		return ofs_no_memory(err);
	if (read(ctx, 8, n, header, err) == -1 ||
	    parse(st, header, (uint32_t)n, err) == -1 ||
	    index_names(st, err) == -1 ||
	    check_layout(st, size - 8 - n, whole, err) == -1)
		goto out;
	for (size_t i = 0; i < st->n; i++)
		st->tensor[i].off += 8 + n;
	ret = 0;
out:
	free(header);
	if (ret == -1)
		ofs_safetensors_fini(st);
	return ret;
}
