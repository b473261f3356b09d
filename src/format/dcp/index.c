/* index.c - one .metadata pickle of PyTorch's distributed checkpoint */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "format/dcp/index.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "archive/torch_storage.h"
#include "base/memory.h"
#include "base/str.h"

/* Fail with what is wrong with a row. */
static int bad_sizes(const struct ofs_pickle *doc, uint32_t node,
    const char *field, struct optimfs_error *err)
{
	uint32_t n = ofs_pk_len(doc, node);
	uint64_t v;

	if (!ofs_pk_is_sequence(doc, node))
		return ofs_pk_unexpected(doc, node, err, "OFS418", NULL, "%s",
		    field);
	for (uint32_t i = 0; i < n && n <= OFS_MAX_DIMS; i++)
		if (ofs_torch_size(doc, ofs_pk_item(doc, node, i), field, &v,
			err) == -1)
			return -1;
	return optimfs_fail(err, EUCLEAN,
	    "OFS608 %s has %" PRIu32 " dimensions, limit %d", field, n,
	    OFS_MAX_DIMS);
}

int ofs_dcp_sizes(const struct ofs_pickle *doc, uint32_t node,
    const char *field, struct ofs_dcp_dims *dims, struct optimfs_error *err)
{
	int64_t v[OFS_MAX_DIMS];
	uint32_t n;

	if (!ofs_pk_ints(doc, node, v, OFS_MAX_DIMS, &n))
		return bad_sizes(doc, node, field, err);
	for (uint32_t i = 0; i < n; i++) {
		if (v[i] < 0)
			return bad_sizes(doc, node, field, err);
		dims->v[i] = (uint64_t)v[i];
	}
	dims->n = (uint8_t)n;
	return 0;
}

static bool is_none(const struct ofs_pickle *doc, uint32_t node)
{
	return node == OFS_NONE || ofs_pk_kind(doc, node) == OFS_PK_NONE;
}

/* The key of an item: a node of a string, and one of a row that ofs_dcp_sizes
 * has checked. In most indexes equal ones are the same node. */

struct key {
	uint32_t fqn, offset;
};

static uint64_t number(const struct ofs_pickle *doc, uint32_t row, uint32_t i)
{
	int64_t v = 0;

	ofs_pk_int(doc, ofs_pk_item(doc, row, i), &v);
	return (uint64_t)v;
}

static uint32_t hash_key(const struct ofs_dcp_index *index,
    const struct key *key)
{
	struct ofs_str s = ofs_pk_str(index->doc, key->fqn);
	uint32_t n = ofs_pk_len(index->doc, key->offset);
	uint64_t v[OFS_MAX_DIMS + 1];

	v[0] = ofs_hash64(s.p, s.len);
	for (uint32_t i = 0; i < n; i++)
		v[i + 1] = number(index->doc, key->offset, i);
	return ofs_map_hash(v, (n + 1) * sizeof(v[0]));
}

static bool same_row(const struct ofs_pickle *doc, uint32_t a, uint32_t b)
{
	uint32_t n = ofs_pk_len(doc, a);

	if (a == b)
		return true;
	if (a == OFS_NONE || b == OFS_NONE || n != ofs_pk_len(doc, b))
		return false;
	for (uint32_t i = 0; i < n; i++)
		if (number(doc, a, i) != number(doc, b, i))
			return false;
	return true;
}

static bool has_key(const struct ofs_dcp_index *index, uint32_t i,
    const struct key *key)
{
	const struct ofs_dcp_item *item = &index->item[i];

	if (item->fqn != key->fqn &&
	    !ofs_str_equal(ofs_pk_str(index->doc, item->fqn),
		ofs_pk_str(index->doc, key->fqn)))
		return false;
	return same_row(index->doc, item->offset, key->offset);
}

static bool same_key(const void *ctx, uint32_t i, const void *key, size_t n)
{
	(void)n;
	return has_key(ctx, i, key);
}

static uint32_t find_key(const struct ofs_dcp_index *index, uint32_t hash,
    const struct key *key)
{
	return ofs_map_find(&index->by_index, hash, same_key, index, key,
	    sizeof(*key));
}

/* Read storage_data. */

static const struct ofs_pk_fields place_fields = {
	.name = { "relative_path", "offset", "length", "transform_descriptors" }
};

static int read_place(struct ofs_dcp_index *index, uint32_t node,
    struct ofs_dcp_item *item, struct optimfs_error *err)
{
	const struct ofs_pickle *doc = index->doc;
	uint32_t field[OFS_PK_FIELDS];

	ofs_pk_read_fields(doc, node, &index->place, field);
	item->path = field[0];
	if (ofs_pk_kind(doc, item->path) != OFS_PK_STR)
		return ofs_pk_unexpected(doc, item->path, err, "OFS418", NULL,
		    "relative_path of _StorageInfo");
	if (ofs_torch_size(doc, field[1], "offset of _StorageInfo", &item->off,
		err) == -1 ||
	    ofs_torch_size(doc, field[2], "length of _StorageInfo", &item->len,
		err) == -1)
		return -1;
	item->transforms = field[3];
	if (is_none(doc, item->transforms))
		item->transforms = OFS_NONE;
	return 0;
}

/* A MetadataIndex: fqn, and offset unless it is None. Its index is a hint for
 * the position in a list, but often wrong, and is ignored. */
static const struct ofs_pk_fields key_fields = { .name = { "fqn", "offset" } };

static int read_key(struct ofs_dcp_index *index, uint32_t node, struct key *key,
    struct optimfs_error *err)
{
	const struct ofs_pickle *doc = index->doc;
	uint32_t field[OFS_PK_FIELDS];
	struct ofs_dcp_dims offset;

	ofs_pk_read_fields(doc, node, &index->key, field);
	key->fqn = field[0];
	if (ofs_pk_kind(doc, key->fqn) != OFS_PK_STR)
		return optimfs_fail(err, EUCLEAN,
		    "OFS442 a key of storage_data is %s, expected "
		    "MetadataIndex with a fqn",
		    ofs_pk_kind_name(doc, node));
	key->offset = field[1];
	if (!is_none(doc, key->offset))
		return ofs_dcp_sizes(doc, key->offset,
		    "offset of MetadataIndex", &offset, err);
	key->offset = OFS_NONE;
	return 0;
}

static int duplicate(const struct ofs_dcp_index *index, uint32_t fqn,
    struct optimfs_error *err)
{
	struct ofs_str s = ofs_pk_str(index->doc, fqn);

	return optimfs_fail(err, EUCLEAN,
	    "OFS428 duplicate key '%.*s' in storage_data (Python keeps the "
	    "last: ambiguous)",
	    OFS_STR_ARGS(s, 200));
}

static int read_item(struct ofs_dcp_index *index, uint32_t pair, uint32_t *hash,
    struct optimfs_error *err)
{
	const struct ofs_pickle *doc = index->doc;
	struct ofs_dcp_item *item = &index->item[pair];
	struct key key;

	if (read_key(index, ofs_pk_key(doc, index->storage, pair), &key, err) ==
		-1 ||
	    read_place(index, ofs_pk_val(doc, index->storage, pair), item,
		err) == -1)
		return -1;
	item->fqn = key.fqn & 0x7fffffff;
	item->offset = key.offset;
	item->used = 0;
	*hash = hash_key(index, &key);
	ofs_map_prefetch(&index->by_index, *hash);
	return 0;
}

static int add_item(struct ofs_dcp_index *index, uint32_t pair, uint32_t hash,
    struct optimfs_error *err)
{
	struct key key = { index->item[pair].fqn, index->item[pair].offset };

	if (find_key(index, hash, &key) != UINT32_MAX)
		return duplicate(index, key.fqn, err);
	return ofs_map_add(&index->by_index, hash, pair) ? 0
							 : ofs_no_memory(err);
}

int ofs_dcp_index_items(struct ofs_dcp_index *index, struct optimfs_error *err)
{
	uint32_t hash = 0, next = 0;

	index->key = key_fields;
	index->place = place_fields;
	index->item =
	    ofs_alloc_huge(((size_t)index->nitems + 1) * sizeof(*index->item));
	if (index->item == NULL ||
	    !ofs_map_reserve(&index->by_index, index->nitems))
		return ofs_no_memory(err);
	for (uint32_t i = 0; i < index->nitems; i++, hash = next)
		if (read_item(index, i, &next, err) == -1 ||
		    (i > 0 && add_item(index, i - 1, hash, err) == -1))
			return -1;
	return index->nitems == 0
	    ? 0
	    : add_item(index, index->nitems - 1, hash, err);
}

static bool module_has(const struct ofs_pickle *doc, uint32_t node,
    const char *part)
{
	struct ofs_str module, name;

	ofs_pk_class(doc, node, &module, &name);
	return memmem(module.p, module.len, part, strlen(part)) != NULL;
}

/* The properties of the first TensorStorageMetadata; OFS_NONE. */
static uint32_t some_properties(const struct ofs_dcp_index *index)
{
	uint32_t n = ofs_pk_len(index->doc, index->keys);

	for (uint32_t i = 0; i < n; i++) {
		uint32_t p = ofs_pk_attr(index->doc,
		    ofs_pk_val(index->doc, index->keys, i), "properties");

		if (p != OFS_NONE)
			return p;
	}
	return OFS_NONE;
}

static const char *find_writer(const struct ofs_dcp_index *index, uint32_t root)
{
	const struct ofs_pickle *doc = index->doc;
	uint32_t properties;

	if (ofs_pk_is(doc, root, NULL, "MCoreMetadata") ||
	    ofs_pk_attr(doc, root, "mcore_data") != OFS_NONE)
		return "Megatron-Core";
	if (ofs_pk_len(doc, index->storage) > 0 &&
	    module_has(doc, ofs_pk_val(doc, index->storage, 0), "olmo_core"))
		return "OLMo-core";
	if (module_has(doc, root, "torch.distributed._shard"))
		return "PyTorch 1.13";
	if (!is_none(doc, ofs_pk_attr(doc, root, "version")))
		return "PyTorch 2.10 or later";
	if (ofs_pk_attr(doc, root, "storage_meta") != OFS_NONE)
		return "PyTorch 2.3 or later";
	properties = some_properties(index);
	if (properties != OFS_NONE &&
	    module_has(doc, properties, "_shard.sharded_tensor"))
		return "PyTorch 2.0 to 2.2";
	return "PyTorch";
}

static int find_parts(struct ofs_dcp_index *index, struct optimfs_error *err)
{
	const struct ofs_pickle *doc = index->doc;
	uint32_t root = ofs_pickle_root(doc), planner;

	index->keys = ofs_pk_attr(doc, root, "state_dict_metadata");
	index->storage = ofs_pk_attr(doc, root, "storage_data");
	if (ofs_pk_is_cycle(doc, index->keys))
		return ofs_pk_unexpected(doc, index->keys, err, "OFS442", NULL,
		    "state_dict_metadata");
	if (ofs_pk_kind(doc, index->keys) != OFS_PK_DICT)
		return ofs_pk_unexpected(doc, root, err, "OFS442", "Metadata",
		    "top object");
	if (ofs_pk_is_cycle(doc, index->storage))
		return ofs_pk_unexpected(doc, index->storage, err, "OFS442",
		    NULL, "storage_data");
	if (index->storage == OFS_NONE ||
	    ofs_pk_kind(doc, index->storage) != OFS_PK_DICT)
		return optimfs_fail(err, EUCLEAN,
		    "OFS442 Metadata without storage_data: the index of a "
		    "save that never wrote its data");
	index->nitems = ofs_pk_len(doc, index->storage);
	planner = ofs_pk_attr(doc, root, "planner_data");
	if (!is_none(doc, planner)) {
		if (ofs_pk_kind(doc, planner) == OFS_PK_DICT)
			index->planner = planner;
		else
			index->odd_planner = true;
	}
	index->writer = find_writer(index, root);
	return 0;
}

int ofs_dcp_index_open(struct ofs_dcp_index *index, uint8_t *bytes,
    uint64_t len, const struct ofs_pickle_limits *limits,
    struct optimfs_error *err)
{
	*index = (struct ofs_dcp_index){ .planner = OFS_NONE, .rank = -1 };
	index->doc = ofs_pickle_parse(bytes, len, true, limits, NULL, err);
	if (index->doc == NULL)
		return -1;
	if (find_parts(index, err) == 0)
		return 0;
	ofs_dcp_index_fini(index);
	return -1;
}

void ofs_dcp_index_fini(struct ofs_dcp_index *index)
{
	ofs_map_fini(&index->by_index);
	free(index->item);
	ofs_pickle_free(index->doc);
	*index = (struct ofs_dcp_index){ 0 };
}

void ofs_dcp_index_prefetch(const struct ofs_dcp_index *index, uint32_t fqn,
    uint32_t offset)
{
	struct key key = { fqn, offset };

	if (ofs_pk_len(index->doc, offset) <= OFS_MAX_DIMS)
		ofs_map_prefetch(&index->by_index, hash_key(index, &key));
}

bool ofs_dcp_index_find(struct ofs_dcp_index *index, uint32_t fqn,
    uint32_t offset, struct ofs_dcp_place *place)
{
	struct key key = { fqn, offset };
	uint32_t i = index->next;
	struct ofs_dcp_item *item;

	index->in_order = i < index->nitems && has_key(index, i, &key);
	if (!index->in_order)
		i = find_key(index, hash_key(index, &key), &key);
	index->next = i + 1;
	if (i == UINT32_MAX)
		return false;
	item = &index->item[i];
	index->shared |= item->used;
	item->used = 1;
	*place = (struct ofs_dcp_place){ item->path, item->transforms,
		item->off, item->len };
	return true;
}
