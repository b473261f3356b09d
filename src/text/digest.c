/* digest.c - a hash that distinguishes objects with the same text */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "text/digest.h"

#include <xxhash.h>

#include "archive/torch_storage.h"

/* This many hashed bytes count as one visit. */
#define VISIT_BYTES 1024

struct digest {
	const struct ofs_pickle *doc;
	struct ofs_text_budget *budget;
	bool whole; /* false: not all could be hashed */
};

static uint64_t hash_number(uint64_t hash, uint64_t v)
{
	return XXH64(&v, sizeof(v), hash);
}

static uint64_t add_str(uint64_t hash, struct ofs_str s)
{
	return hash_number(XXH64(s.p, s.len, hash), s.len);
}

static bool spend(struct digest *d, uint64_t cost)
{
	d->whole = cost <= d->budget->visits;
	if (d->whole)
		d->budget->visits -= cost;
	return d->whole;
}

static uint64_t hash_of(struct digest *d, uint32_t node);

static uint64_t add_items(struct digest *d, uint32_t node, uint64_t hash)
{
	uint32_t n = ofs_pk_len(d->doc, node);

	for (uint32_t i = 0; i < n && d->whole; i++)
		hash =
		    hash_number(hash, hash_of(d, ofs_pk_item(d->doc, node, i)));
	return hash;
}

/* Python writes the items of a set in any order. */
static uint64_t add_set(struct digest *d, uint32_t node, uint64_t hash)
{
	uint32_t n = ofs_pk_len(d->doc, node);
	uint64_t sum = 0;

	for (uint32_t i = 0; i < n && d->whole; i++)
		sum += hash_of(d, ofs_pk_item(d->doc, node, i));
	return hash_number(hash, sum);
}

static uint64_t add_pairs(struct digest *d, uint32_t node, uint64_t hash)
{
	uint32_t n = ofs_pk_len(d->doc, node);

	for (uint32_t i = 0; i < n && d->whole; i++) {
		hash =
		    hash_number(hash, hash_of(d, ofs_pk_key(d->doc, node, i)));
		hash =
		    hash_number(hash, hash_of(d, ofs_pk_val(d->doc, node, i)));
	}
	return hash;
}

static uint64_t add_class(const struct digest *d, uint32_t node, uint64_t hash)
{
	struct ofs_str module, name;

	ofs_pk_class(d->doc, node, &module, &name);
	return add_str(add_str(hash, module), name);
}

static uint64_t add_object(struct digest *d, uint32_t node, uint64_t hash)
{
	hash = hash_number(hash, hash_of(d, ofs_pk_callable(d->doc, node)));
	hash = hash_number(hash, hash_of(d, ofs_pk_args(d->doc, node)));
	hash = hash_number(hash, hash_of(d, ofs_pk_kwargs(d->doc, node)));
	return hash_number(hash, hash_of(d, ofs_pk_state(d->doc, node)));
}

/* In a copy the storage may have another key, or be on another device. */
static uint64_t add_storage(struct digest *d, uint32_t node, uint64_t hash)
{
	const struct ofs_text_storages *storages = d->budget->storages;
	struct ofs_torch_source s;
	uint64_t bytes = 0;
	int ret = 0;

	if (storages != NULL &&
	    ofs_torch_storage_of(d->doc, node, &s, NULL) == 0 && !s.meta &&
	    s.offset == 0 && spend(d, s.bytes / VISIT_BYTES))
		ret = storages->hash(storages->ctx, d->doc, node, &bytes,
		    d->budget->err);
	d->whole = ret == 1;
	d->budget->failed |= ret == -1;
	if (ret != 1)
		return 0;
	return hash_number(hash_number(hash_number(hash, s.dtype), s.bytes),
	    bytes);
}

/* The parser limits the depth of pickles, and replaces a container that
 * contains itself. */
static uint64_t hash_of(struct digest *d, uint32_t node)
{
	enum ofs_pk_kind kind = ofs_pk_kind(d->doc, node);
	struct ofs_str s = ofs_pk_str(d->doc, node);
	uint64_t hash = hash_number(0, kind);
	double number;
	int64_t i = 0;

	if (!d->whole || !spend(d, 1 + s.len / VISIT_BYTES))
		return 0;
	switch (kind) {
	case OFS_PK_NONE:
		return hash;
	case OFS_PK_BOOL:
		return hash_number(hash, ofs_pk_bool(d->doc, node));
	case OFS_PK_INT:
		ofs_pk_int(d->doc, node, &i);
		return hash_number(hash, (uint64_t)i);
	case OFS_PK_FLOAT:
		number = ofs_pk_float(d->doc, node);
		return XXH64(&number, sizeof(number), hash);
	case OFS_PK_BIGINT:
	case OFS_PK_STR:
	case OFS_PK_BYTES:
		return add_str(hash, s);
	case OFS_PK_LIST:
		hash = add_items(d, node, add_class(d, node, hash));
		return hash_number(hash,
		    hash_of(d, ofs_pk_state(d->doc, node)));
	case OFS_PK_TUPLE:
		return add_items(d, node, add_class(d, node, hash));
	case OFS_PK_SET:
		return add_set(d, node, hash);
	case OFS_PK_DICT:
		hash = add_pairs(d, node, add_class(d, node, hash));
		return hash_number(hash,
		    hash_of(d, ofs_pk_state(d->doc, node)));
	case OFS_PK_GLOBAL:
		return add_class(d, node, hash);
	case OFS_PK_OBJECT:
		return add_object(d, node, hash);
	case OFS_PK_PERSID:
		break;
	}
	return add_storage(d, node, hash);
}

bool ofs_text_digest(const struct ofs_pickle *doc, uint32_t node,
    struct ofs_text_budget *budget, uint64_t *digest)
{
	struct digest d = { .doc = doc, .budget = budget, .whole = true };

	*digest = hash_of(&d, node);
	return d.whole;
}
