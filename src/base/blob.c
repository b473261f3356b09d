/* blob.c - bytes that several owners share */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "base/blob.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

struct ofs_blob *ofs_blob_new(size_t len, struct optimfs_error *err)
{
	struct ofs_blob *blob = NULL;

	if (len <= SIZE_MAX - sizeof(*blob))
		blob = malloc(sizeof(*blob) + len);
	if (blob == NULL) {
		ofs_no_memory(err);
		return NULL;
	}
	atomic_init(&blob->refs, 1);
	blob->len = len;
	return blob;
}

struct ofs_blob *ofs_blob_of(struct ofs_buf *out, struct optimfs_error *err)
{
	struct ofs_blob *blob = NULL;

	if (out->bad)
		ofs_no_memory(err);
	else
		blob = ofs_blob_new(out->len, err);
	if (blob != NULL && out->len > 0)
		memcpy(blob->bytes, out->data, out->len);
	ofs_buf_fini(out);
	return blob;
}

struct ofs_blob *ofs_blob_ref(struct ofs_blob *blob)
{
	atomic_fetch_add_explicit(&blob->refs, 1, memory_order_relaxed);
	return blob;
}

bool ofs_blob_equal(const struct ofs_blob *a, const struct ofs_blob *b)
{
	return a->len == b->len && memcmp(a->bytes, b->bytes, a->len) == 0;
}

void ofs_blob_unref(struct ofs_blob *blob)
{
	if (blob != NULL && atomic_fetch_sub(&blob->refs, 1) == 1)
		free(blob);
}
