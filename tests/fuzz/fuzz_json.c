/* fuzz_json.c - arbitrary bytes as JSON, and as a safetensors header */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "archive/safetensors.h"
#include "base/checked.h"
#include "base/dtype.h"
#include "base/json.h"
#include "format/safetensors/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

static void must(bool holds)
{
	if (!holds)
		abort();
}

/* Every token must consume input, and brackets must match. */
static void read_json(const uint8_t *bytes, uint32_t n)
{
	enum ofs_json_token token;
	struct ofs_json j;
	size_t steps = 0;
	int depth = 0;

	ofs_json_init(&j, bytes, n);
	do {
		token = ofs_json_next(&j, NULL);
		must(steps++ <= (size_t)n + 1 && j.at <= n);
		if (token == OFS_JSON_OBJECT || token == OFS_JSON_ARRAY)
			depth++;
		if (token == OFS_JSON_OBJECT_END || token == OFS_JSON_ARRAY_END)
			depth--;
		must(depth >= 0 && depth <= OFS_JSON_DEPTH);
		if (token == OFS_JSON_KEY || token == OFS_JSON_STRING)
			must(j.str.len <= n && j.str.p != NULL);
	} while (token > OFS_JSON_END);
	must(token == OFS_JSON_ERROR || depth == 0);
	must(token == OFS_JSON_ERROR ||
	    ofs_json_next(&j, NULL) == OFS_JSON_END);
	ofs_json_fini(&j);

	ofs_json_init(&j, bytes, n);
	token = ofs_json_next(&j, NULL);
	if (token > OFS_JSON_END && ofs_json_skip(&j, token, NULL) == 0)
		must(j.depth == 0);
	ofs_json_fini(&j);
}

struct blob {
	const uint8_t *p;
	uint64_t n;
};

static int read_blob(void *ctx, uint64_t off, uint64_t len, void *buf,
    struct optimfs_error *err)
{
	const struct blob *b = ctx;

	(void)err;
	must(off <= b->n && len <= b->n - off);
	memcpy(buf, b->p + off, len);
	return 0;
}

/* Accepted tensors must tile the bytes behind the header (a truncated file lacks
 * the last of them), and must be found by name. */
static void read_header(const uint8_t *bytes, size_t n)
{
	struct blob b = { bytes, n };
	struct ofs_safetensors st;
	uint64_t start = 0, total = 0, end = 0, numel;

	if (ofs_safetensors_open(&st, n, 0, true, read_blob, &b, NULL) == -1)
		return;
	for (size_t i = 0; i < st.n; i++) {
		const struct ofs_safetensors_tensor *t = &st.tensor[i];

		must(ofs_safetensors_find(&st, t->name.p, t->name.len) == t);
		must(t->off >= 10 && ofs_numel(t->shape, t->ndim, &numel));
		if (t->dtype != OFS_DTYPE_NONE)
			must(numel * ofs_dtype_size(t->dtype) == t->len);
		total += t->len;
		if (i == 0 || t->off < start)
			start = t->off;
		if (t->off + t->len > end)
			end = t->off + t->len;
	}
	must(start <= n && end - start == total);
	free(ofs_hf_offsets(&st, &st.arena, NULL));
	ofs_safetensors_fini(&st);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
	if (n > UINT32_MAX)
		return 0;
	read_json(bytes, (uint32_t)n);
	read_header(bytes, n);
	return 0;
}
