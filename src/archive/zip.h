/* zip.h - the directory of a zip archive, as torch.save and NumPy write it */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_ARCHIVE_ZIP_H
#define OFS_ARCHIVE_ZIP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "optimfs/error.h"

#include "base/arena.h"
#include "catalog/catalog.h"

/* Read len bytes at off of the archive, which may be a slice of a file or
 * decoded bytes. Returns -1 with err. */
typedef int ofs_zip_read_fn(void *ctx, uint64_t off, uint64_t len, void *buf,
    struct optimfs_error *err);

struct ofs_zip_record {
	struct ofs_str name; /* without the prefix */
	uint64_t header;     /* offset of its local header in the archive */
	uint64_t size;       /* number of its bytes */
	uint64_t stored;     /* the same in the archive; fewer if deflated */
	uint64_t end;        /* start of the next record or of the directory */
	uint32_t crc;        /* 0: written without checksums */
	uint32_t central;    /* offset of its entry in the directory */
	uint16_t flags, method;
};

struct ofs_zip {
	struct ofs_arena arena;
	struct ofs_str prefix;         /* "archive/", the start of every name */
	struct ofs_zip_record *record; /* in the order of the directory */
	uint32_t *by_name;             /* indexes, sorted by name */
	size_t n;
	uint64_t size;      /* of the archive */
	uint64_t directory; /* start of the central directory */
	/* The number of directory entries (left out) and symbolic links
	 * (treated as files), and the name of the first; for the warning
	 * OFS522. */
	size_t nodd;
	struct ofs_str odd;
	bool flat;       /* opened by ofs_zip_open_flat */
	bool big_endian; /* its tensors are; set by ofs_torch_open */
	/* its dicts were made from sorted keys; set by ofs_torch_open */
	bool unordered;
};

/* Read the central directory of an archive of size bytes: in one read when it
 * is in the last OFS_ZIP_TAIL bytes, else in two. Whatever two readers could
 * understand differently is refused (docs/formats/zip.md, OFS501 to OFS531). On
 * failure *zip needs no _fini. */
#define OFS_ZIP_TAIL 4096
int ofs_zip_open(struct ofs_zip *zip, uint64_t size, ofs_zip_read_fn *read,
    void *ctx, struct optimfs_error *err);
/* As above, for an archive as NumPy writes it: names have no common prefix, and
 * records may be deflated. */
int ofs_zip_open_flat(struct ofs_zip *zip, uint64_t size, ofs_zip_read_fn *read,
    void *ctx, struct optimfs_error *err);
void ofs_zip_fini(struct ofs_zip *zip);
/* The record with this name after the prefix, or NULL. */
const struct ofs_zip_record *ofs_zip_find(const struct ofs_zip *zip,
    const char *name, size_t n);
/* Check the local header of a record against the directory; *off = offset of
 * its first byte. */
int ofs_zip_data(const struct ofs_zip *zip, const struct ofs_zip_record *r,
    ofs_zip_read_fn *read, void *ctx, uint64_t *off, struct optimfs_error *err);
/* Is it deflated? Then its bytes at off, as above, are deflated bytes, and *at
 * gets its extent, with the codec. */
bool ofs_zip_deflated_extent(const struct ofs_zip_record *r, uint64_t off,
    struct ofs_extent *at);
/* Of a deflated record, what its local header or its descriptor says. */
struct ofs_zip_deflated {
	uint64_t off;    /* of the deflated bytes */
	uint64_t stored; /* their number */
	uint64_t size;   /* decoded size */
	uint32_t crc;
};
/* Find these in an extent of len bytes. */
int ofs_zip_deflated(uint64_t len, ofs_zip_read_fn *read, void *ctx,
    struct ofs_zip_deflated *d, struct optimfs_error *err);
/* As ofs_zip_data, for a record that was found earlier: at->off is the offset of
 * its local header, at->len its size, at->tag its ofs_zip_tag. Offsets are those of
 * read; end is the end of the archive. */
int ofs_zip_data_at(const struct ofs_extent *at, ofs_zip_read_fn *read,
    void *ctx, uint64_t end, uint64_t *off, struct optimfs_error *err);
/* A 16-bit hash of the name of a record with its prefix; never 0. */
uint16_t ofs_zip_tag(const struct ofs_zip *zip, const struct ofs_zip_record *r);
/* Read all of a record and check its checksum (EBADMSG, OFS530); a data
 * descriptor must agree with the directory (EBADMSG, OFS515). 1: there is no
 * checksum. A deflated record is left out: reading its elements checks it. */
int ofs_zip_verify(const struct ofs_zip *zip, const struct ofs_zip_record *r,
    ofs_zip_read_fn *read, void *ctx, struct optimfs_error *err);

/* As above, for a record that was found earlier, as in ofs_zip_data_at: the
 * checksum is in its local header or its descriptor. */
int ofs_zip_verify_at(const struct ofs_extent *at, ofs_zip_read_fn *read,
    void *ctx, uint64_t end, struct optimfs_error *err);

/* A reader that caches the last pieces it read, for the small adjacent reads of
 * an archive: pass ofs_window_read and the window as a read function and its
 * ctx. Not thread-safe. */
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
