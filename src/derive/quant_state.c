/* quant_state.c - what bitsandbytes says about a weight of 4 bits */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "derive/quant_state.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/json.h"
#include "base/str.h"

/* The largest block; bitsandbytes has some of up to 4096. */
#define BLOCK_MAX (INT64_C(1) << 32)

static int parse_size(struct ofs_json *j, uint64_t *out,
    struct optimfs_error *err)
{
	enum ofs_json_token token = ofs_json_next(j, err);

	if (token == OFS_JSON_ERROR)
		return -1;
	if (token != OFS_JSON_NUMBER || !j->is_int || j->integer < 1 ||
	    j->integer > BLOCK_MAX)
		return ofs_json_fail(j, err, "not a size");
	*out = (uint64_t)j->integer;
	return 0;
}

static int parse_offset(struct ofs_json *j, float *out,
    struct optimfs_error *err)
{
	enum ofs_json_token token = ofs_json_next(j, err);
	char digits[64];

	if (token == OFS_JSON_ERROR)
		return -1;
	if (token != OFS_JSON_NUMBER || j->str.len >= sizeof(digits))
		return ofs_json_fail(j, err, "not a number");
	memcpy(digits, j->str.p, j->str.len);
	digits[j->str.len] = '\0';
	*out = (float)strtod(digits, NULL);
	return isfinite(*out) ? 0 : ofs_json_fail(j, err, "not finite");
}

static int parse_shape(struct ofs_json *j, struct ofs_quant_state *q,
    struct optimfs_error *err)
{
	enum ofs_json_token token = ofs_json_next(j, err);

	if (token == OFS_JSON_ERROR)
		return -1;
	if (token != OFS_JSON_ARRAY)
		return ofs_json_fail(j, err, "not a shape");
	q->ndim = 0;
	while ((token = ofs_json_next(j, err)) == OFS_JSON_NUMBER) {
		if (!j->is_int || j->integer < 0 || q->ndim == OFS_MAX_DIMS)
			return ofs_json_fail(j, err, "not a shape");
		q->shape[q->ndim++] = (uint64_t)j->integer;
	}
	if (token == OFS_JSON_ERROR)
		return -1;
	return token == OFS_JSON_ARRAY_END
	    ? 0
	    : ofs_json_fail(j, err, "not a shape");
}

static int parse_member(struct ofs_json *j, struct ofs_quant_state *q,
    struct optimfs_error *err)
{
	if (ofs_str_is(j->str, "blocksize"))
		return parse_size(j, &q->block, err);
	if (ofs_str_is(j->str, "nested_blocksize"))
		return parse_size(j, &q->nested, err);
	if (ofs_str_is(j->str, "nested_offset"))
		return parse_offset(j, &q->offset, err);
	if (ofs_str_is(j->str, "shape"))
		return parse_shape(j, q, err);
	return ofs_json_skip(j, ofs_json_next(j, err), err);
}

static int parse_object(struct ofs_json *j, struct ofs_quant_state *q,
    struct optimfs_error *err)
{
	enum ofs_json_token token = ofs_json_next(j, err);

	if (token != OFS_JSON_OBJECT)
		return token == OFS_JSON_ERROR
		    ? -1
		    : ofs_json_fail(j, err, "not an object");
	while ((token = ofs_json_next(j, err)) == OFS_JSON_KEY)
		if (parse_member(j, q, err) == -1)
			return -1;
	if (token == OFS_JSON_ERROR || ofs_json_next(j, err) == OFS_JSON_ERROR)
		return -1;
	if (q->block == 0)
		return ofs_json_fail(j, err, "no blocksize");
	return q->ndim == 0 ? ofs_json_fail(j, err, "no shape") : 0;
}

int ofs_quant_state_parse(const void *text, uint32_t n,
    struct ofs_quant_state *out, struct optimfs_error *err)
{
	struct ofs_quant_state q = { 0 };
	struct ofs_json j;
	int ret;

	ofs_json_init(&j, text, n);
	ret = parse_object(&j, &q, OFS_SOME_ERROR(err));
	ofs_json_fini(&j);
	if (ret == 0)
		*out = q;
	return ret;
}
