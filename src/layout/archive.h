/* archive.h - archives as torch.save lays them out, made on demand */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_LAYOUT_ARCHIVE_H
#define OFS_LAYOUT_ARCHIVE_H

#include <stdbool.h>
#include <stdint.h>

#include "optimfs/error.h"

#include "archive/zip_write.h"
#include "base/buf.h"
#include "layout/render.h"

/* A part of a storage; parts are contiguous. */
struct ofs_torch_part {
	uint32_t tensor; /* OFS_NONE: padding, or bytes */
	/* padding: bytes of an element; 0: bytes of literal; OFS_TORCH_OLD: of the
	 * archive that this one replaces */
	uint32_t item;
	/* count elements or bytes from first on; for padding first is the bits of
	 * each */
	uint64_t first, count;
	/* of a tensor; OFS_DTYPE_NONE: as in struct ofs_torch_new */
	enum ofs_dtype cast;
};
#define OFS_TORCH_OLD UINT32_MAX

/* An archive that is built by adding storages, each of any number of parts, and
 * then laid out around its pickle; const after that. Zero-initialise. With names
 * the storages are all of its records. */
struct ofs_torch_new {
	char prefix[32]; /* "model_rank3/" */
	/* compute checksums of storages, else they are 0 */
	bool crc;
	bool ordered;        /* keys are in the order of a state dict */
	enum ofs_dtype cast; /* as in compositions of this archive */
	uint64_t base;       /* offset of the archive in its file */
	struct ofs_torch_part *part;
	size_t nparts, part_cap;
	struct ofs_torch_storage_new {
		/* index of its first part; it ends where the next begins */
		size_t first;
		uint64_t bytes, header;
		uint32_t crc; /* if it is known; else 0 */
		char *name;   /* of the record, owned; NULL: data/NUMBER */
	} * storage;          /* nstorages, and one for their end */
	uint32_t nstorages, storage_cap;
	struct ofs_buf literal;       /* the bytes of literal parts */
	const struct ofs_extent *old; /* the archive that this one replaces */
	/* the records before and behind the storages, and what the directory
	 * has of them */
	struct ofs_buf head, tail;
	struct ofs_zip_new fixed[1 + OFS_ZIP_NBEFORE + OFS_ZIP_NAFTER];
	uint64_t nbefore, nrecords, directory, directory_len;
};

/* Begin a storage; its number is the value of nstorages before the call. */
int ofs_torch_new_storage(struct ofs_torch_new *a, struct optimfs_error *err);
/* Add a part to the last storage. */
int ofs_torch_new_part(struct ofs_torch_new *a, const struct ofs_catalog *cat,
    const struct ofs_torch_part *part, struct optimfs_error *err);
/* Place all records; the pickle must be complete. NULL: it is a storage. */
int ofs_torch_new_place(struct ofs_torch_new *a, const struct ofs_buf *pickle,
    struct optimfs_error *err);
/* All of it for an item of DCP: the archive of one tensor, whose elements are
 * data, or of a value, where data is NULL. */
int ofs_torch_new_item(struct ofs_torch_new *a, const struct ofs_catalog *cat,
    const struct ofs_buf *pickle, const struct ofs_torch_part *data,
    struct optimfs_error *err);
void ofs_torch_new_fini(struct ofs_torch_new *a);

uint64_t ofs_torch_new_size(const struct ofs_torch_new *a);
/* Append all of it to c. */
int ofs_torch_new_put(const struct ofs_torch_new *a,
    const struct ofs_catalog *cat, struct ofs_composition *c,
    struct optimfs_error *err);

/* As in struct ofs_files_ops. */
int ofs_torch_new_spans(const struct ofs_torch_new *a, struct ofs_spans *out,
    struct optimfs_error *err);
int ofs_torch_new_make(const struct ofs_torch_new *a,
    const struct ofs_catalog *cat, const struct ofs_span *span, uint64_t at,
    struct ofs_composition *c, struct optimfs_error *err);

#endif
