/* mkzip.h - zip archives in the layout of torch.save, for tests */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MKZIP_H
#define MKZIP_H

#include <stddef.h>
#include <stdint.h>

#include "optimfs/error.h"

#include "base/buf.h"

#define MKZIP_MAX 24

/* The directory's entry for a record. A test may change it between mkzip_add
 * and mkzip_end. */
struct mkzip_record {
	char name[160];
	size_t name_len;
	uint32_t crc, csize, size, header, attributes;
	uint16_t flags, method, disk;
	const void *extra;
	uint16_t extra_len, comment_len;
	/* offsets of the record's bytes and of its entry */
	size_t data, data_len, entry;
};

/* Zero-initialise but for the prefix. */
struct mkzip {
	struct ofs_buf b;
	struct mkzip_record rec[MKZIP_MAX];
	size_t n;
	size_t base; /* where the archive starts in b */
	bool no64;   /* leave the zip64 records out */
	/* filled by mkzip_end; offsets in b */
	size_t directory, end64, locator, end;
};

/* Append a record, its data aligned to 64, and return it. */
struct mkzip_record *mkzip_add(struct mkzip *z, const char *name,
    const void *data, size_t len);
void mkzip_end(struct mkzip *z);
void mkzip_fini(struct mkzip *z);
/* "archive/data.pkl" with these bytes, "archive/version" and mkzip_end. */
void mkzip_simple(struct mkzip *z, const void *pickle, size_t len);

void mkzip_put(struct mkzip *z, size_t at, size_t bytes, uint64_t v);

/* An ofs_zip_read_fn over a buffer: ctx is a struct mkzip_bytes. It fails with
 * EIO "OFS603" past the end, and counts calls. */
struct mkzip_bytes {
	const uint8_t *p;
	size_t n;
	unsigned calls;
};
int mkzip_read(void *ctx, uint64_t off, uint64_t len, void *buf,
    struct optimfs_error *err);

#endif
