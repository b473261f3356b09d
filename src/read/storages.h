/* storages.h - the storages inside values, for the hashes of their texts */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_READ_STORAGES_H
#define OFS_READ_STORAGES_H

#include "archive/zip.h"
#include "catalog/catalog.h"
#include "read/reader.h"
#include "text/digest.h"

/* Where the storages of one value are: in the archive of an item, or, with item
 * NULL, among the tensors of the catalog. Set reader and item, zero the rest. */
struct ofs_storages {
	struct ofs_reader *reader;
	const struct ofs_item *item;
	struct ofs_zip zip; /* of the item, if it is open */
	bool open;
	unsigned elements; /* that were read, at most OFS_TORCH_ELEMENTS */
};

/* The functions of a struct ofs_text_storages; ctx is a struct ofs_storages.
 * The elements of an item are in its document. */
int ofs_storages_hash(void *ctx, const struct ofs_pickle *doc, uint32_t node,
    uint64_t *hash, struct optimfs_error *err);
int ofs_storages_read(void *ctx, const struct ofs_pickle *doc, uint32_t node,
    uint64_t off, uint64_t n, void *buf, struct optimfs_error *err);
void ofs_storages_fini(struct ofs_storages *s);

#endif
