/* archive_many.h - an archive of many tensors, as torch.save lays it out */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_LAYOUT_ARCHIVE_MANY_H
#define OFS_LAYOUT_ARCHIVE_MANY_H

#include <stdbool.h>
#include <stdint.h>

#include "optimfs/error.h"

#include "archive/zip_write.h"
#include "base/buf.h"
#include "layout/render.h"

/* What a storage is made of, end to end. */
struct ofs_torch_part {
	uint32_t tensor; /* OFS_NONE: padding */
	uint32_t item;   /* of padding: bytes of an element */
	/* count elements from first on; of padding: all are these bits */
	uint64_t first, count;
	enum ofs_dtype cast; /* of a tensor; OFS_DTYPE_NONE: the archive's */
};

/* One file: made by adding storages, each of any number of parts, and then
 * laid out around its pickle; const from then on. Zero-initialise. */
struct ofs_torch_new {
	char prefix[32];     /* "model_rank3/" */
	bool crc;            /* checksums of storages are right, not 0 */
	enum ofs_dtype cast; /* as in the compositions that are made of it */
	struct ofs_torch_part *part;
	size_t nparts, part_cap;
	struct ofs_torch_storage_new {
		size_t first; /* part; the next one's is the end */
		uint64_t bytes, header;
	} * storage; /* nstorages, and one for what is behind them */
	uint32_t nstorages, storage_cap;
	struct ofs_buf head; /* up to the first storage's header */
	struct ofs_zip_new pickle;
	uint64_t id, nrecords, directory, directory_len;
};

/* Begin a storage; its number is nstorages before the call. */
int ofs_torch_new_storage(struct ofs_torch_new *a, struct optimfs_error *err);
/* Add a part to the storage begun last. */
int ofs_torch_new_part(struct ofs_torch_new *a, const struct ofs_catalog *cat,
    const struct ofs_torch_part *part, struct optimfs_error *err);
/* The pickle is all: find where every record begins. */
int ofs_torch_new_lay(struct ofs_torch_new *a, const struct ofs_buf *pickle,
    struct optimfs_error *err);
void ofs_torch_new_fini(struct ofs_torch_new *a);

/* As the members of struct ofs_files_ops. */
int ofs_torch_new_spans(const struct ofs_torch_new *a, struct ofs_spans *out,
    struct optimfs_error *err);
int ofs_torch_new_make(const struct ofs_torch_new *a,
    const struct ofs_catalog *cat, const struct ofs_span *span, uint64_t at,
    struct ofs_composition *c, struct optimfs_error *err);

#endif
