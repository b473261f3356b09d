/* zip.h - the directory of a STORED zip archive, as torch.save writes it */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_ARCHIVE_ZIP_H
#define OFS_ARCHIVE_ZIP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "optimfs/error.h"

#include "base/arena.h"
#include "catalog/catalog.h"

/* Where an archive's bytes come from: len bytes at off of the archive, which
 * may itself be a slice of a file or decoded. Returns -1 with err. */
typedef int ofs_zip_read_fn(void *ctx, uint64_t off, uint64_t len, void *buf,
    struct optimfs_error *err);

struct ofs_zip_record {
	struct ofs_str name; /* without the archive's prefix */
	uint64_t header;     /* of its local header, from the archive's start */
	uint64_t size;       /* of its bytes */
	uint64_t end;        /* the next record or the directory starts here */
	uint32_t crc;        /* 0: the writer was told to leave it out */
	uint32_t central;    /* of its entry, from the directory's start */
	uint16_t flags;
};

struct ofs_zip {
	struct ofs_arena arena;
	struct ofs_str prefix;         /* "archive/": part of every name */
	struct ofs_zip_record *record; /* in the order of the directory */
	uint32_t *by_name;             /* indexes, sorted */
	size_t n;
	uint64_t size;      /* of the archive */
	uint64_t directory; /* where its central directory starts */
	/* Directory entries (left out) and symbolic links (taken as files):
	 * how many, and the first one's name. For a warning, OFS522. */
	size_t nodd;
	struct ofs_str odd;
	bool big_endian; /* its tensors are; ofs_torch_open sets it */
};

/* Read the central directory of an archive of size bytes, in one read when it
 * lies in the last OFS_ZIP_TAIL bytes, in two otherwise. Anything that two
 * readers could understand differently is refused (docs/formats/zip.md, OFS501
 * to OFS531). On failure nothing is left to free. */
#define OFS_ZIP_TAIL 4096
int ofs_zip_open(struct ofs_zip *zip, uint64_t size, ofs_zip_read_fn *read,
    void *ctx, struct optimfs_error *err);
/* The same for an archive whose names have no directory in common. */
int ofs_zip_open_flat(struct ofs_zip *zip, uint64_t size, ofs_zip_read_fn *read,
    void *ctx, struct optimfs_error *err);
void ofs_zip_fini(struct ofs_zip *zip);
/* The record called name after the prefix; NULL. */
const struct ofs_zip_record *ofs_zip_find(const struct ofs_zip *zip,
    const char *name, size_t n);
/* Check the local header of a record against the directory and give the
 * offset of its first byte. */
int ofs_zip_data(const struct ofs_zip *zip, const struct ofs_zip_record *r,
    ofs_zip_read_fn *read, void *ctx, uint64_t *off, struct optimfs_error *err);
/* The same for a record that was found in the directory before: at->off is its
 * local header, at->len its size, at->tag its ofs_zip_tag. Offsets are those of
 * read, where the archive ends at end. */
int ofs_zip_data_at(const struct ofs_extent *at, ofs_zip_read_fn *read,
    void *ctx, uint64_t end, uint64_t *off, struct optimfs_error *err);
/* Sixteen bits of the whole name of a record, prefix included; never 0. */
uint16_t ofs_zip_tag(const struct ofs_zip *zip, const struct ofs_zip_record *r);
/* Read all of a record and compare it with its checksum (EBADMSG, OFS530), and
 * its data descriptor, where it has one, with the directory (EBADMSG, OFS515).
 * 1: the archive was written without checksums. */
int ofs_zip_verify(const struct ofs_zip *zip, const struct ofs_zip_record *r,
    ofs_zip_read_fn *read, void *ctx, struct optimfs_error *err);

/* The same of a record of which only its place is known, as ofs_zip_data_at
 * has it: its checksum is that of its local header or of its descriptor. */
int ofs_zip_verify_at(const struct ofs_extent *at, ofs_zip_read_fn *read,
    void *ctx, uint64_t end, struct optimfs_error *err);

/* A reader that remembers the last pieces it read, for the small neighbouring
 * reads that an archive needs: pass ofs_window_read and the window wherever a
 * read function and its ctx are wanted. Not for several threads. */
struct ofs_window {
	ofs_zip_read_fn *read;
	void *ctx;
	uint64_t size; /* of the archive */
	struct ofs_window_piece {
		uint64_t off, len;
		uint8_t bytes[OFS_ZIP_TAIL];
	} piece[2];
	unsigned next;
};
void ofs_window_init(struct ofs_window *w, uint64_t size, ofs_zip_read_fn *read,
    void *ctx);
ofs_zip_read_fn ofs_window_read;

#endif
