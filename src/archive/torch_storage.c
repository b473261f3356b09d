/* torch_storage.c - persistent ids of storages, and numbers of tensors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "archive/torch_storage.h"

#include <errno.h>
#include <inttypes.h>

#include "base/checked.h"
#include "base/str.h"

int ofs_torch_size(const struct ofs_pickle *doc, uint32_t node,
    const char *field, uint64_t *v, struct optimfs_error *err)
{
	int64_t i;

	if (ofs_pk_kind(doc, node) == OFS_PK_BIGINT)
		return optimfs_fail(err, ERANGE,
		    "OFS416 %s is an integer of %" PRIu32 " bytes", field,
		    ofs_pk_str(doc, node).len);
	if (!ofs_pk_int(doc, node, &i))
		return ofs_pk_unexpected(doc, node, err, "OFS418", NULL, "%s",
		    field);
	if (i < 0)
		return optimfs_fail(err, EUCLEAN, "OFS417 negative %s %" PRId64,
		    field, i);
	*v = (uint64_t)i;
	return 0;
}

static int bad_id(const char *what, struct optimfs_error *err)
{
	return optimfs_fail(err, EUCLEAN, "OFS433 persistent id: %s", what);
}

static int get_class(const struct ofs_pickle *doc, uint32_t node,
    struct ofs_torch_source *s, struct optimfs_error *err)
{
	struct ofs_str module, name;

	if (ofs_pk_kind(doc, node) != OFS_PK_GLOBAL)
		return bad_id("its storage type is not a class", err);
	ofs_pk_class(doc, node, &module, &name);
	s->dtype = ofs_dtype_of_storage(name.p, name.len);
	if (s->dtype != OFS_DTYPE_NONE || ofs_str_is(name, "UntypedStorage") ||
	    ofs_str_is(name, "_UntypedStorage"))
		return 0;
	return optimfs_fail(err, EUCLEAN,
	    "OFS433 persistent id: unknown storage type %.*s.%.*s",
	    OFS_STR_ARGS(module, 100), OFS_STR_ARGS(name, 100));
}

/* (view key, offset, size), before about torch 0.4; only offset is used. */
static int get_view(const struct ofs_pickle *doc, uint32_t node,
    struct ofs_torch_source *s, struct optimfs_error *err)
{
	if (ofs_pk_kind(doc, node) == OFS_PK_NONE)
		return 0;
	if (ofs_pk_kind(doc, node) != OFS_PK_TUPLE ||
	    ofs_pk_len(doc, node) != 3)
		return bad_id("its view is not a tuple of three", err);
	return ofs_torch_size(doc, ofs_pk_item(doc, node, 1),
	    "storage view offset", &s->offset, err);
}

int ofs_torch_storage_of(const struct ofs_pickle *doc, uint32_t node,
    struct ofs_torch_source *s, struct optimfs_error *err)
{
	uint32_t id, n, key;
	uint64_t numel;

	*s = (struct ofs_torch_source){ 0 };
	if (ofs_pk_is(doc, node, "torch.storage", "_load_from_bytes"))
		return optimfs_fail(err, EOPNOTSUPP,
		    "OFS533 tensor that pickle.dump wrote: its elements are "
		    "inside a string of the pickle");
	if (ofs_pk_kind(doc, node) != OFS_PK_PERSID)
		return ofs_pk_unexpected(doc, node, err, "OFS433", NULL,
		    "storage");
	id = ofs_pk_item(doc, node, 0);
	n = ofs_pk_len(doc, id);
	if (ofs_pk_kind(doc, id) != OFS_PK_TUPLE || n < 5 || n > 6 ||
	    !ofs_pk_str_is(doc, ofs_pk_item(doc, id, 0), "storage"))
		return bad_id("not a storage of five or six parts", err);
	if (get_class(doc, ofs_pk_item(doc, id, 1), s, err) == -1)
		return -1;
	key = ofs_pk_item(doc, id, 2);
	if (ofs_pk_kind(doc, key) != OFS_PK_STR ||
	    ofs_pk_str(doc, key).len == 0)
		return bad_id("its key is not a string", err);
	s->key = ofs_pk_str(doc, key);
	s->meta = ofs_pk_str_is(doc, ofs_pk_item(doc, id, 3), "meta");
	if (ofs_torch_size(doc, ofs_pk_item(doc, id, 4), "storage size", &numel,
		err) == -1)
		return -1;
	s->bytes = numel;
	if (s->dtype != OFS_DTYPE_NONE &&
	    !ofs_mul_u64(numel, ofs_dtype_size(s->dtype), &s->bytes))
		return bad_id("its size overflows", err);
	return n < 6 ? 0 : get_view(doc, ofs_pk_item(doc, id, 5), s, err);
}
