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

/* A strided tensor as a pickle describes it: a view of a storage. */
struct ofs_torch_tensor {
	uint8_t dtype; /* enum ofs_dtype */
	uint8_t ndim;
	uint8_t fix;            /* enum ofs_fix: conj and neg bits */
	bool quantized;         /* elements mean nothing without a scale */
	bool typed;             /* the storage has a dtype of its own */
	bool meta;              /* it never had bytes */
	uint64_t offset;        /* of element 0, in elements of dtype */
	uint64_t storage_bytes; /* that the persistent id declares */
	struct ofs_str key;     /* of the storage: record "data/<key>" */
	uint64_t shape[OFS_MAX_DIMS];
	int64_t stride[OFS_MAX_DIMS]; /* elements */
};

/* Is node a tensor? 1: *t describes it; 0: it is something else; -1: it is a
 * tensor that is damaged (EUCLEAN) or of a kind not supported (EOPNOTSUPP:
 * sparse, quantized by channel, nested ...; ENODATA: meta), of which dtype,
 * ndim and shape are set when they could be told, and dtype is
 * OFS_DTYPE_NONE when not. Sees through parameters, subclasses and
 * _rebuild_from_type_v2. A storage that is no tensor's is a tensor with one
 * dimension. */
int ofs_torch_tensor(const struct ofs_pickle *doc, uint32_t node,
    struct ofs_torch_tensor *t, struct optimfs_error *err);

/* What node is an instance of, as far as its name goes: ofs_pk_class, but for
 * what _rebuild_from_type_v2 makes the type that it is told. */
void ofs_torch_class(const struct ofs_pickle *doc, uint32_t node,
    struct ofs_str *module, struct ofs_str *name);

/* Check t against the bytes that are stored for its storage: their number is
 * what the pickle says (OFS527), all elements lie inside (OFS528), and no two
 * of them overlap unless a stride is 0 (OFS529). EUCLEAN. */
int ofs_torch_check(const struct ofs_torch_tensor *t, uint64_t stored,
    struct optimfs_error *err);
/* Is it its whole storage, in C order, with nothing to fix? */
bool ofs_torch_is_plain(const struct ofs_torch_tensor *t);

/* What a pickled object's storages lie in. */
struct ofs_torch_archive {
	struct ofs_extent at;      /* the whole archive */
	const struct ofs_zip *zip; /* its directory; NULL for a legacy stream */
	const struct ofs_torch_storage *storage; /* of a legacy stream */
	size_t nstorage;
	bool big_endian;
};
struct ofs_torch_storage {
	struct ofs_str key;
	uint64_t off, len;
};
/* The parsed data.pkl of the archive that read gives, size bytes in all; zip,
 * when not NULL, gets its directory (ofs_zip_fini) and byte order. Checks what
 * torch.load would of the small records: version, byteorder (OFS524, OFS525).
 * limits may be NULL. read is called twice for an archive whose data.pkl is small; wrap it in a
 * struct ofs_window when more of the archive will be read. */
struct ofs_pickle *ofs_torch_open(uint64_t size,
    const struct ofs_pickle_limits *limits, ofs_zip_read_fn *read, void *ctx,
    struct ofs_zip *zip, struct optimfs_error *err);

/* Does a file that starts with these n bytes look like torch.save's: 0 no,
 * 1 zip, 2 legacy stream, 3 tar (refused), 4 a bare pickle? */
int ofs_torch_magic(const uint8_t *p, size_t n);

#endif
