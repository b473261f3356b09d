/* route.c - follow a path of the source through a pickle */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "rewrite/route.h"

#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "base/memory.h"
#include "text/key.h"

/* Dicts with at least this many keys get an index. */
#define MANY 32

static bool key_is(struct ofs_routes *r, uint32_t dict, uint32_t i,
    const char *key, size_t n)
{
	r->text.len = 0;
	ofs_torch_key(r->doc, ofs_pk_key(r->doc, dict, i), i, &r->text);
	return r->text.len == n &&
	    (n == 0 || memcmp(r->text.data, key, n) == 0);
}

/* The keys of a large dict by text. */
struct ofs_route_dict {
	struct ofs_routes *r;
	uint32_t dict;
	struct ofs_map by_text;
};

static bool same_key(const void *ctx, uint32_t i, const void *key, size_t n)
{
	const struct ofs_route_dict *k = ctx;

	return key_is(k->r, k->dict, i, key, n);
}

/* Among equal keys the first one added stays. */
static bool add_key(struct ofs_route_dict *k, uint32_t i)
{
	struct ofs_routes *r = k->r;
	struct ofs_buf text = { 0 };
	uint32_t hash;
	bool done = true;

	ofs_torch_key(r->doc, ofs_pk_key(r->doc, k->dict, i), i, &text);
	hash = ofs_map_hash(text.data, text.len);
	if (ofs_map_find(&k->by_text, hash, same_key, k, text.data, text.len) ==
	    OFS_NONE)
		done = !text.bad && ofs_map_add(&k->by_text, hash, i);
	ofs_buf_fini(&text);
	return done;
}

/* NULL: no memory for an index; the caller searches linearly. */
static struct ofs_route_dict *keys_of(struct ofs_routes *r, uint32_t dict)
{
	struct ofs_route_dict *k;

	for (size_t i = r->ndicts; i-- > 0;)
		if (r->dicts[i].dict == dict)
			return &r->dicts[i];
	if (ofs_grow(r->dicts, r->ndicts, r->cap, NULL) == -1)
		return NULL;
	k = &r->dicts[r->ndicts];
	*k = (struct ofs_route_dict){ .r = r, .dict = dict };
	for (uint32_t i = ofs_pk_len(r->doc, dict); i-- > 0;)
		if (!add_key(k, i)) {
			ofs_map_fini(&k->by_text);
			return NULL;
		}
	r->ndicts++;
	return k;
}

static uint32_t find_key(struct ofs_routes *r, uint32_t dict,
    const struct ofs_key *key)
{
	uint32_t n = ofs_pk_len(r->doc, dict);
	struct ofs_route_dict *k = n < MANY ? NULL : keys_of(r, dict);

	if (key->index)
		return OFS_NONE;
	if (k != NULL)
		return ofs_map_find(&k->by_text,
		    ofs_map_hash(key->s.p, key->s.len), same_key, k, key->s.p,
		    key->s.len);
	for (uint32_t i = n; i-- > 0;)
		if (key_is(r, dict, i, key->s.p, key->s.len))
			return i;
	return OFS_NONE;
}

/* The item of a container for key, or OFS_NONE. As in Python, the last of equal
 * keys counts. */
static uint32_t find_item(struct ofs_routes *r, uint32_t node,
    const struct ofs_key *key)
{
	uint32_t n = ofs_pk_len(r->doc, node), i;
	char text[16] = "";

	switch (ofs_pk_kind(r->doc, node)) {
	case OFS_PK_DICT:
		return find_key(r, node, key);
	case OFS_PK_LIST:
	case OFS_PK_TUPLE:
		if (!key->index || key->s.len >= sizeof(text))
			return OFS_NONE;
		memcpy(text, key->s.p, key->s.len);
		i = (uint32_t)strtoul(text, NULL, 10);
		return i < n ? i : OFS_NONE;
	default:
		return OFS_NONE;
	}
}

struct ofs_route ofs_route(struct ofs_routes *r, const struct ofs_key *key,
    uint32_t n)
{
	struct ofs_route to = { OFS_NONE, OFS_NONE, 0,
		ofs_pickle_root(r->doc) };

	for (uint32_t i = 0; i < n; i++) {
		uint32_t at = find_item(r, to.value, &key[i]);

		if (at == OFS_NONE)
			break;
		to.node = to.value;
		to.item = at;
		to.value = ofs_pk_kind(r->doc, to.node) == OFS_PK_DICT
		    ? ofs_pk_val(r->doc, to.node, at)
		    : ofs_pk_item(r->doc, to.node, at);
		to.depth++;
	}
	return to;
}

void ofs_routes_fini(struct ofs_routes *r)
{
	for (size_t i = 0; i < r->ndicts; i++)
		ofs_map_fini(&r->dicts[i].by_text);
	free(r->dicts);
	ofs_buf_fini(&r->text);
}
