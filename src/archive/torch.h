/* torch.h - torch.save: archives, legacy streams, tensors in their pickles */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_ARCHIVE_TORCH_H
#define OFS_ARCHIVE_TORCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "optimfs/error.h"

#include "archive/zip.h"
#include "catalog/catalog.h"
#include "pickle/pickle.h"

/* A strided tensor in a pickle: a view of a storage. */
struct ofs_torch_tensor {
	uint8_t dtype; /* enum ofs_dtype */
	uint8_t ndim;
	uint8_t fix;    /* enum ofs_fix: conj and neg bits */
	bool quantized; /* elements have no meaning without a scale */
	double scale;   /* of a quantized one */
	int64_t zero_point;
	bool typed;             /* the storage has its own dtype */
	uint64_t offset;        /* of element 0, counted in elements of dtype */
	uint64_t storage_bytes; /* as in the persistent id */
	/* of the storage, which is record "data/<key>" */
	struct ofs_str key;
	uint32_t storage; /* the node of its persistent id */
	uint64_t shape[OFS_MAX_DIMS];
	int64_t stride[OFS_MAX_DIMS]; /* counted in elements */
};

/* Is node a tensor? 1: yes, and *t describes it; 0: no; -1: it is a damaged
 * tensor (EUCLEAN) or one of a kind that is not supported (EOPNOTSUPP: sparse,
 * quantized by channel, nested ...; ENODATA: meta). Then dtype, ndim and shape
 * are set if known, else dtype is OFS_DTYPE_NONE. Parameters, subclasses and
 * _rebuild_from_type_v2 are unwrapped. A storage without a tensor is a tensor
 * with one dimension. */
int ofs_torch_tensor(const struct ofs_pickle *doc, uint32_t node,
    struct ofs_torch_tensor *t, struct optimfs_error *err);

/* A moment of 8 or 4 bits, as optimizers of torchao pickle it: codes in C order, a
 * scale for each block of them, and the values of the codes (not for float8). */
struct ofs_torch_packed {
	struct ofs_torch_tensor codes, scale, table;
	bool nibbles; /* two codes in a byte, the first in the upper half */
	bool has_table;
	uint64_t block; /* elements of a block */
	uint64_t numel;
	uint8_t ndim;
	uint64_t shape[OFS_MAX_DIMS];
};
/* Is node such a tensor? Then its parts are whole storages whose types and sizes
 * agree. */
bool ofs_torch_packed(const struct ofs_pickle *doc, uint32_t node,
    struct ofs_torch_packed *p);

/* The dtype that node is, as torch.float32; OFS_DTYPE_NONE: it is none. */
enum ofs_dtype ofs_torch_dtype(const struct ofs_pickle *doc, uint32_t node);

/* The class of node by name: ofs_pk_class, or for _rebuild_from_type_v2 the
 * type among its arguments. */
void ofs_torch_class(const struct ofs_pickle *doc, uint32_t node,
    struct ofs_str *module, struct ofs_str *name);

/* Check t against the stored length of its storage: it is that of the pickle
 * (OFS527), all elements are inside (OFS528), and their places can be computed
 * (OFS529). EUCLEAN. */
int ofs_torch_check(const struct ofs_torch_tensor *t, uint64_t stored,
    struct optimfs_error *err);
/* Is it all of its storage, in C order, without a fix? */
bool ofs_torch_is_plain(const struct ofs_torch_tensor *t);

/* The archive or stream that contains the storages of a pickle. */
struct ofs_torch_archive {
	struct ofs_extent at;      /* all of it */
	const struct ofs_zip *zip; /* its directory; NULL for a legacy stream */
	const struct ofs_torch_storage *storage; /* for a legacy stream */
	size_t nstorage;
	bool big_endian;
};
struct ofs_torch_storage {
	struct ofs_str key;
	uint64_t off, len;
};
/* Parse data.pkl of an archive of size bytes. zip, when not NULL, gets its
 * directory (free with ofs_zip_fini) and byte order. Checks the small records
 * like torch.load: version, byteorder (OFS524, OFS525). limits may be NULL.
 * read is called twice for an archive with a small data.pkl; wrap it in a
 * struct ofs_window if more of the archive will be read. */
struct ofs_pickle *ofs_torch_open(uint64_t size,
    const struct ofs_pickle_limits *limits, ofs_zip_read_fn *read, void *ctx,
    struct ofs_zip *zip, struct optimfs_error *err);

/* The directory of such an archive only, when its pickle is known. */
int ofs_torch_open_zip(uint64_t size, ofs_zip_read_fn *read, void *ctx,
    struct ofs_zip *zip, struct optimfs_error *err);

/* The record of the storage with this key; NULL: there is none. */
const struct ofs_zip_record *ofs_torch_record(const struct ofs_zip *zip,
    struct ofs_str key);
/* The same; EIO (OFS434) if there is none of this size. */
struct ofs_torch_source;
const struct ofs_zip_record *ofs_torch_record_of(const struct ofs_zip *zip,
    const struct ofs_torch_source *s, struct optimfs_error *err);

/* Note the elements of tensors without dimensions inside a value, so that its
 * text has them: at most OFS_TORCH_ELEMENTS. Those that cannot be read are left
 * out. zip and read are those of doc's archive. */
#define OFS_TORCH_ELEMENTS 256
int ofs_torch_note_elements(struct ofs_pickle *doc, const struct ofs_zip *zip,
    ofs_zip_read_fn *read, void *ctx, struct optimfs_error *err);

/* What the first bytes of a file say that it is. */
enum ofs_torch_magic {
	OFS_TORCH_NONE,
	OFS_TORCH_ZIP,
	OFS_TORCH_STREAM, /* as torch.save wrote before 1.6 */
	OFS_TORCH_PICKLE, /* and nothing else */
	/* refused: */
	OFS_TORCH_OLD_STREAM, /* of pickle protocols 0 or 1 */
	OFS_TORCH_TAR,        /* of torch 0.1 */
	OFS_TORCH_OTHER_TAR,  /* of any files */
	OFS_TORCH_GIT_LFS,    /* a pointer to any file */
};
enum ofs_torch_magic ofs_torch_magic(const uint8_t *p, size_t n);

#endif
