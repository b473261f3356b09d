/* zip.h - the directory of a STORED zip archive, as torch.save writes it */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_ZIP_H
#define OFS_ZIP_H

#include <stddef.h>
#include <stdint.h>

#include "optimfs/error.h"

#include "arena.h"
#include "catalog.h"

/* Where an archive's bytes come from: len bytes at off of the archive, which
 * may itself be a slice of a file or decoded. Returns -1 with err. */
typedef int ofs_zip_read_fn(void *ctx, uint64_t off, uint64_t len, void *buf,
    struct optimfs_error *err);

struct ofs_zip_record {
	struct ofs_str name; /* without the archive's prefix */
	uint64_t header;     /* of its local header, from the archive's start */
	uint64_t size;       /* of its bytes */
	uint32_t crc;
	uint16_t flags, name_len; /* of the local header: prefix included */
};

struct ofs_zip {
	struct ofs_arena arena;
	struct ofs_str prefix;         /* "archive/": part of every name */
	struct ofs_zip_record *record; /* in the order of the directory */
	size_t n;
	uint64_t size;      /* of the archive */
	uint64_t directory; /* where its central directory starts */
};

/* Read the central directory of an archive of size bytes. Anything that two
 * readers could understand differently is refused (docs/formats/zip.md, OFS501
 * to OFS535). */
int ofs_zip_open(struct ofs_zip *zip, uint64_t size, ofs_zip_read_fn *read,
    void *ctx, struct optimfs_error *err);
void ofs_zip_fini(struct ofs_zip *zip);
/* The record called name after the prefix; NULL. */
const struct ofs_zip_record *ofs_zip_find(const struct ofs_zip *zip,
    const char *name, size_t n);
/* Check the local header of a record against the directory and give the
 * offset of its first byte. */
int ofs_zip_data(const struct ofs_zip *zip, const struct ofs_zip_record *r,
    ofs_zip_read_fn *read, void *ctx, uint64_t *off, struct optimfs_error *err);
/* The same with the local header's place alone, for a record that was found
 * in the directory before: name_len and size as in the directory. */
int ofs_zip_data_at(uint64_t header, ofs_zip_read_fn *read, void *ctx,
    uint64_t archive_size, uint64_t *off, struct optimfs_error *err);

#endif
