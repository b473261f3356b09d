/* hf_shards_info.c - the positions of safetensors shards in their tensors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/memory.h"
#include "format/safetensors/safetensors.h"

/* DCP_SHARDING_INFO: {"w": {"saved_offsets": [4, 0]}, ...} as a string of the
 * header's __metadata__. It may name tensors in other files. */

const uint64_t ofs_hf_wrong_offsets[1];

struct info {
	const struct ofs_safetensors *st;
	struct ofs_arena *arena;
	struct ofs_json j;
	const uint64_t **offset;
	struct optimfs_error *err;
};

static int malformed(struct info *i, const char *what)
{
	return optimfs_fail(i->err, EUCLEAN,
	    "OFS628 DCP_SHARDING_INFO at byte %" PRIu64 ": %s", i->j.at, what);
}

/* Read a list of offsets; *n is its length. Those beyond OFS_MAX_DIMS are only
 * counted. */
static int read_offsets(struct info *i, uint64_t *v, size_t *n)
{
	enum ofs_json_token token = ofs_json_next(&i->j, NULL);

	*n = 0;
	if (token != OFS_JSON_ARRAY)
		return malformed(i, "saved_offsets is not a list");
	for (;; ++*n) {
		token = ofs_json_next(&i->j, NULL);
		if (token == OFS_JSON_ARRAY_END)
			return 0;
		if (token != OFS_JSON_NUMBER || !i->j.is_int ||
		    i->j.integer < 0)
			return malformed(i, "not an offset");
		if (*n < OFS_MAX_DIMS)
			v[*n] = (uint64_t)i->j.integer;
	}
}

static int keep_offsets(struct info *i, const struct ofs_safetensors_tensor *t,
    const uint64_t *v, size_t n)
{
	size_t index = (size_t)(t - i->st->tensor);
	uint64_t *copy;

	if (n != t->ndim) {
		i->offset[index] = ofs_hf_wrong_offsets;
		return 0;
	}
	copy = ofs_arena_alloc(i->arena, (n + 1) * sizeof(*copy));
	if (copy == NULL)
		return ofs_no_memory(i->err);
	memcpy(copy, v, n * sizeof(*copy));
	i->offset[index] = copy;
	return 0;
}

/* Read the members of tensor t; NULL: it is in another file. */
static int read_tensor(struct info *i, const struct ofs_safetensors_tensor *t)
{
	uint64_t v[OFS_MAX_DIMS] = { 0 };
	enum ofs_json_token token;
	size_t n;

	if (ofs_json_next(&i->j, NULL) != OFS_JSON_OBJECT)
		return malformed(i, "a tensor is not an object");
	while ((token = ofs_json_next(&i->j, NULL)) == OFS_JSON_KEY) {
		if (i->j.str.len != 13 ||
		    memcmp(i->j.str.p, "saved_offsets", 13) != 0) {
			token = ofs_json_next(&i->j, NULL);
			if (ofs_json_skip(&i->j, token, NULL) == -1)
				return malformed(i, "not JSON");
			continue;
		}
		if (read_offsets(i, v, &n) == -1 ||
		    (t != NULL && keep_offsets(i, t, v, n) == -1))
			return -1;
	}
	return token == OFS_JSON_OBJECT_END ? 0 : malformed(i, "not JSON");
}

static int read_info(struct info *i)
{
	enum ofs_json_token token;

	if (ofs_json_next(&i->j, NULL) != OFS_JSON_OBJECT)
		return malformed(i, "not an object");
	while ((token = ofs_json_next(&i->j, NULL)) == OFS_JSON_KEY)
		if (read_tensor(i,
			ofs_safetensors_find(i->st, i->j.str.p,
			    i->j.str.len)) == -1)
			return -1;
	if (token != OFS_JSON_OBJECT_END ||
	    ofs_json_next(&i->j, NULL) != OFS_JSON_END)
		return malformed(i, "not JSON");
	return 0;
}

const uint64_t **ofs_hf_offsets(const struct ofs_safetensors *st,
    struct ofs_arena *arena, struct optimfs_error *err)
{
	struct ofs_str text = ofs_safetensors_metadata(st, "DCP_SHARDING_INFO");
	struct info i = { .st = st, .arena = arena, .err = err };
	int ret = 0;

	i.offset = calloc(st->n + 1, sizeof(*i.offset));
	if (i.offset == NULL) {
		ofs_no_memory(i.err);
		return NULL;
	}
	if (text.p != NULL) {
		ofs_json_init(&i.j, text.p, text.len);
		ret = read_info(&i);
		ofs_json_fini(&i.j);
	}
	if (ret == -1) {
		free(i.offset);
		return NULL;
	}
	return i.offset;
}
