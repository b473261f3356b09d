/* zip_write.h - zip archives laid out as torch.save does, piece by piece */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_ARCHIVE_ZIP_WRITE_H
#define OFS_ARCHIVE_ZIP_WRITE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"

/* PyTorch's layout (caffe2/serialize/inline_container.cc, 2.11;
 * docs/formats/zip.md has the bytes): STORED records whose data begin at
 * multiples of 64 bytes of the archive, sizes and checksum behind each record
 * and in the directory, always zip64 end records. All lengths are known without
 * the data, and every part depends on its record only, so that an archive can
 * be generated from any offset on. */

#define OFS_ZIP_ALIGN 64u

/* Offset of the checksum in a descriptor and in a directory entry. */
#define OFS_ZIP_DESCRIPTOR_CRC 4u
#define OFS_ZIP_CENTRAL_CRC    16u

struct ofs_zip_new {
	const char *prefix, *name; /* "archive/", "data.pkl" */
	uint64_t header;           /* offset of its local header */
	uint64_t size;
	uint32_t crc; /* 0: none, an option of PyTorch */
};

/* Lengths of the parts before the data, behind the data, and in the
 * directory. */
uint64_t ofs_zip_local_len(const struct ofs_zip_new *r);
uint64_t ofs_zip_descriptor_len(const struct ofs_zip_new *r);
uint64_t ofs_zip_central_len(const struct ofs_zip_new *r);
/* The offset of the next record. */
uint64_t ofs_zip_next(const struct ofs_zip_new *r);
/* Append these parts to b. */
void ofs_zip_put_local(struct ofs_buf *b, const struct ofs_zip_new *r);
void ofs_zip_put_descriptor(struct ofs_buf *b, const struct ofs_zip_new *r);
void ofs_zip_put_central(struct ofs_buf *b, const struct ofs_zip_new *r);
/* Append the end of an archive of n records; the directory, of size bytes, is
 * at start. */
#define OFS_ZIP_TRAILER_LEN 98u
void ofs_zip_put_end(struct ofs_buf *b, uint64_t n, uint64_t start,
    uint64_t size);

/* The small records of a torch.save archive, before and after its storages.
 * .data/serialization_id has two numbers of 20 digits. The first is id, which
 * identifies the content. PyTorch's second one is a hash that is never 0 or 1,
 * and nothing reads it. Here it says whether the keys are in the order of the
 * state dict that they come from: dicts of an archive seem to be, but those that
 * were made from sorted keys are not. */
struct ofs_zip_small {
	const char *name;
	char bytes[44];
	uint32_t len;
};
#define OFS_ZIP_NBEFORE 3 /* small records after data.pkl */
#define OFS_ZIP_NAFTER  2
void ofs_zip_before(unsigned i, struct ofs_zip_small *r);
void ofs_zip_after(unsigned i, uint64_t id, bool ordered,
    struct ofs_zip_small *r);
/* Does the content of .data/serialization_id say that they are not? */
#define OFS_ZIP_ID_LEN 40u
bool ofs_zip_unordered(const char id[OFS_ZIP_ID_LEN]);

#endif
