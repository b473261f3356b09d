/* dcp_index.c - one .metadata pickle of PyTorch's distributed checkpoint */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "format/dcp_index.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

int ofs_dcp_size(const struct ofs_pickle *doc, uint32_t node, const char *field,
    const char *owner, uint64_t *v, struct optimfs_error *err)
{
	int64_t i;

	if (ofs_pk_kind(doc, node) == OFS_PK_BIGINT)
		return optimfs_fail(err, ERANGE,
		    "OFS416 integer of %" PRIu32
		    " bytes where a size is expected: %s of %s",
		    ofs_pk_str(doc, node).len, field, owner);
	if (!ofs_pk_int(doc, node, &i))
		return ofs_pk_unexpected(doc, node, err, "OFS418", NULL,
		    "%s of %s", field, owner);
	if (i < 0)
		return optimfs_fail(err, EUCLEAN,
		    "OFS417 negative %s %" PRId64 " in %s", field, i, owner);
	*v = (uint64_t)i;
	return 0;
}

int ofs_dcp_sizes(const struct ofs_pickle *doc, uint32_t node,
    const char *field, const char *owner, struct ofs_dcp_dims *dims,
    struct optimfs_error *err)
{
	enum ofs_pk_kind kind = ofs_pk_kind(doc, node);
	uint32_t n;

	if (kind != OFS_PK_TUPLE && kind != OFS_PK_LIST)
		return ofs_pk_unexpected(doc, node, err, "OFS418", NULL,
		    "%s of %s", field, owner);
	n = ofs_pk_len(doc, node);
	if (n > OFS_MAX_DIMS)
		return optimfs_fail(err, EUCLEAN,
		    "OFS608 %s of %s has %" PRIu32 " dimensions, limit %d",
		    field, owner, n, OFS_MAX_DIMS);
	for (uint32_t i = 0; i < n; i++)
		if (ofs_dcp_size(doc, ofs_pk_item(doc, node, i), field, owner,
			&dims->v[i], err) == -1)
			return -1;
	dims->n = (uint8_t)n;
	return 0;
}

static bool is_none(const struct ofs_pickle *doc, uint32_t node)
{
	return node == OFS_NONE || ofs_pk_kind(doc, node) == OFS_PK_NONE;
}

/* Names of items and their offsets. */

/* The key that is looked for: an item, with its offsets outside of dims. */
struct want {
	struct ofs_str fqn;
	const struct ofs_dcp_dims *offset; /* NULL: it has none */
};

static uint32_t hash_key(const struct want *want)
{
	uint32_t h = ofs_map_hash(want->fqn.p, want->fqn.len);

	if (want->offset == NULL)
		return h;
	/* an odd multiplier keeps (a, b) apart from (b, a) */
	return h * UINT32_C(0x9e3779b1) +
	    ofs_map_hash(want->offset->v,
		want->offset->n * sizeof(want->offset->v[0])) +
	    1;
}

static bool same_key(const void *ctx, uint32_t i, const void *key, size_t n)
{
	const struct ofs_dcp_index *index = ctx;
	const struct ofs_dcp_item *item = &index->item[i];
	const struct want *want = key;

	(void)n;
	if (item->fqn.len != want->fqn.len ||
	    item->has_offset != (want->offset != NULL) ||
	    memcmp(item->fqn.p, want->fqn.p, want->fqn.len) != 0)
		return false;
	return !item->has_offset ||
	    (item->ndim == want->offset->n &&
		memcmp(index->dims + item->offset, want->offset->v,
		    item->ndim * sizeof(want->offset->v[0])) == 0);
}

static int no_memory(struct optimfs_error *err)
{
	return optimfs_fail(err, ENOMEM, "OFS443 index: out of memory");
}

/* Reading storage_data. */

static int keep_dims(struct ofs_dcp_index *index,
    const struct ofs_dcp_dims *dims, struct optimfs_error *err)
{
	uint64_t cap = index->dims_cap * 2 + OFS_MAX_DIMS, *more;

	if (dims->n == 0)
		return 0;
	if (index->ndims + dims->n > index->dims_cap) {
		more = realloc(index->dims, cap * sizeof(*more));
		if (more == NULL)
			return no_memory(err);
		index->dims = more;
		index->dims_cap = cap;
	}
	memcpy(index->dims + index->ndims, dims->v,
	    dims->n * sizeof(dims->v[0]));
	index->ndims += dims->n;
	return 0;
}

static int read_place(const struct ofs_pickle *doc, uint32_t node,
    struct ofs_dcp_place *place, struct optimfs_error *err)
{
	place->path = ofs_pk_attr(doc, node, "relative_path");
	if (ofs_pk_kind(doc, place->path) != OFS_PK_STR)
		return ofs_pk_unexpected(doc, place->path, err, "OFS418", NULL,
		    "relative_path of _StorageInfo");
	if (ofs_dcp_size(doc, ofs_pk_attr(doc, node, "offset"), "offset",
		"_StorageInfo", &place->off, err) == -1 ||
	    ofs_dcp_size(doc, ofs_pk_attr(doc, node, "length"), "length",
		"_StorageInfo", &place->len, err) == -1)
		return -1;
	place->transforms = ofs_pk_attr(doc, node, "transform_descriptors");
	if (is_none(doc, place->transforms))
		place->transforms = OFS_NONE;
	return 0;
}

/* MetadataIndex: fqn, and offset unless it is None. Its index is a hint of
 * where the chunk stands in a list, and wrong often enough to be ignored. */
static int read_key(const struct ofs_pickle *doc, uint32_t node,
    struct ofs_dcp_item *item, struct ofs_dcp_dims *offset,
    struct optimfs_error *err)
{
	uint32_t at = ofs_pk_attr(doc, node, "fqn");

	if (ofs_pk_kind(doc, at) != OFS_PK_STR)
		return ofs_pk_unexpected(doc, node, err, "OFS442",
		    "MetadataIndex with a fqn", "a key of storage_data");
	item->fqn = ofs_pk_str(doc, at);
	at = ofs_pk_attr(doc, node, "offset");
	item->has_offset = !is_none(doc, at);
	offset->n = 0;
	if (!item->has_offset)
		return 0;
	return ofs_dcp_sizes(doc, at, "offset", "MetadataIndex", offset, err);
}

static int read_item(struct ofs_dcp_index *index, uint32_t pair,
    struct optimfs_error *err)
{
	const struct ofs_pickle *doc = index->doc;
	struct ofs_dcp_item *item = &index->item[pair];
	struct ofs_dcp_dims offset;
	struct want want;
	uint32_t h;

	if (read_key(doc, ofs_pk_key(doc, index->storage, pair), item, &offset,
		err) == -1 ||
	    read_place(doc, ofs_pk_val(doc, index->storage, pair), &item->place,
		err) == -1)
		return -1;
	item->used = false;
	item->ndim = offset.n;
	item->offset = index->ndims;
	want = (struct want){ item->fqn, item->has_offset ? &offset : NULL };
	h = hash_key(&want);
	if (ofs_map_find(&index->by_index, h, same_key, index, &want, 0) !=
	    UINT32_MAX)
		return optimfs_fail(err, EUCLEAN,
		    "OFS428 duplicate key '%.*s' in storage_data (Python "
		    "keeps the last: ambiguous)",
		    (int)(item->fqn.len > 200 ? 200 : item->fqn.len),
		    item->fqn.p);
	if (keep_dims(index, &offset, err) == -1)
		return -1;
	return ofs_map_add(&index->by_index, h, pair) ? 0 : no_memory(err);
}

static int read_storage(struct ofs_dcp_index *index, struct optimfs_error *err)
{
	index->nitems = ofs_pk_len(index->doc, index->storage);
	index->item =
	    malloc(((size_t)index->nitems + 1) * sizeof(*index->item));
	if (index->item == NULL)
		return no_memory(err);
	for (uint32_t i = 0; i < index->nitems; i++)
		if (read_item(index, i, err) == -1)
			return -1;
	return 0;
}

static bool same_name(const void *ctx, uint32_t pair, const void *want,
    size_t n)
{
	const struct ofs_dcp_index *index = ctx;
	struct ofs_str s = ofs_pk_str(index->doc,
	    ofs_pk_key(index->doc, index->planner, pair));

	return s.len == n && memcmp(s.p, want, n) == 0;
}

static int map_planner(struct ofs_dcp_index *index, struct optimfs_error *err)
{
	uint32_t n;

	if (index->planner == OFS_NONE)
		return 0;
	n = ofs_pk_len(index->doc, index->planner);
	for (uint32_t i = 0; i < n; i++) {
		uint32_t key = ofs_pk_key(index->doc, index->planner, i);
		struct ofs_str s = ofs_pk_str(index->doc, key);
		uint32_t h;

		if (ofs_pk_kind(index->doc, key) != OFS_PK_STR)
			continue;
		h = ofs_map_hash(s.p, s.len);
		/* a second one is as good as unreachable: the first stands */
		if (ofs_map_find(&index->by_name, h, same_name, index, s.p,
			s.len) == UINT32_MAX &&
		    !ofs_map_add(&index->by_name, h, i))
			return no_memory(err);
	}
	return 0;
}

static bool module_has(const struct ofs_pickle *doc, uint32_t node,
    const char *part)
{
	struct ofs_str module, name;

	ofs_pk_class(doc, node, &module, &name);
	return memmem(module.p, module.len, part, strlen(part)) != NULL;
}

/* The first TensorStorageMetadata's properties; OFS_NONE. */
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
    uint64_t len, uint64_t memory, struct optimfs_error *err)
{
	struct ofs_pickle_limits limits = { .memory = memory };

	*index = (struct ofs_dcp_index){ .planner = OFS_NONE, .rank = -1 };
	index->doc = ofs_pickle_parse(bytes, len, true, &limits, NULL, err);
	if (index->doc == NULL)
		return -1;
	if (find_parts(index, err) == 0 && read_storage(index, err) == 0 &&
	    map_planner(index, err) == 0)
		return 0;
	ofs_dcp_index_fini(index);
	return -1;
}

void ofs_dcp_index_fini(struct ofs_dcp_index *index)
{
	ofs_map_fini(&index->by_index);
	ofs_map_fini(&index->by_name);
	free(index->item);
	free(index->dims);
	ofs_pickle_free(index->doc);
	*index = (struct ofs_dcp_index){ 0 };
}

bool ofs_dcp_index_find(struct ofs_dcp_index *index, struct ofs_str fqn,
    const struct ofs_dcp_dims *offset, struct ofs_dcp_place *place)
{
	struct want want = { fqn, offset };
	uint32_t i = ofs_map_find(&index->by_index, hash_key(&want), same_key,
	    index, &want, 0);

	if (i == UINT32_MAX)
		return false;
	index->item[i].used = true;
	*place = index->item[i].place;
	return true;
}

uint32_t ofs_dcp_index_path(const struct ofs_dcp_index *index,
    struct ofs_str key)
{
	uint32_t pair;

	if (index->planner == OFS_NONE)
		return OFS_NONE;
	pair = ofs_map_find(&index->by_name, ofs_map_hash(key.p, key.len),
	    same_name, index, key.p, key.len);
	return pair == UINT32_MAX
	    ? OFS_NONE
	    : ofs_pk_val(index->doc, index->planner, pair);
}
