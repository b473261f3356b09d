/* torch_check.c - the check that a tensor fits its storage */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>

#include "archive/torch.h"
#include "base/checked.h"
#include "base/str.h"

/* *last = the index of the last element; false on overflow. */
static bool span(const struct ofs_torch_tensor *t, uint64_t *last)
{
	*last = t->offset;
	for (unsigned i = 0; i < t->ndim; i++) {
		uint64_t step;

		if (!ofs_mul_u64(t->shape[i] - 1, (uint64_t)t->stride[i],
			&step) ||
		    !ofs_add_u64(*last, step, last))
			return false;
	}
	return true;
}

int ofs_torch_check(const struct ofs_torch_tensor *t, uint64_t stored,
    struct optimfs_error *err)
{
	uint64_t item = ofs_dtype_size(t->dtype), numel, last, bytes;

	if (stored != t->storage_bytes)
		return optimfs_fail(err, EUCLEAN,
		    "OFS527 storage '%.*s' has %" PRIu64
		    " bytes, the pickle says %" PRIu64,
		    OFS_STR_ARGS(t->key, 100), stored, t->storage_bytes);
	if (!ofs_numel(t->shape, t->ndim, &numel) ||
	    !ofs_mul_u64(numel, item, &bytes) || bytes > INT64_MAX)
		return optimfs_fail(err, EUCLEAN,
		    "OFS528 the tensor's shape overflows");
	if (numel == 0)
		return 0;
	if (!span(t, &last))
		return optimfs_fail(err, EUCLEAN,
		    "OFS529 the tensor's strides overflow");
	if (last >= stored / item)
		return optimfs_fail(err, EUCLEAN,
		    "OFS528 element %" PRIu64
		    " of storage '%.*s', which has %" PRIu64,
		    last, OFS_STR_ARGS(t->key, 100), stored / item);
	return 0;
}

bool ofs_torch_is_plain(const struct ofs_torch_tensor *t)
{
	uint64_t next = 1;

	if (t->offset != 0 || t->fix != 0)
		return false;
	for (unsigned i = 0; i < t->ndim; i++)
		if (t->shape[i] == 0)
			return t->storage_bytes == 0;
	for (unsigned i = t->ndim; i-- > 0;) {
		if (t->shape[i] != 1 && (uint64_t)t->stride[i] != next)
			return false;
		next *= t->shape[i];
	}
	return next * ofs_dtype_size(t->dtype) == t->storage_bytes;
}
