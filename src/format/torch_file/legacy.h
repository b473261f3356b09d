/* legacy.h - the stream that torch.save wrote before version 1.6 */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FORMAT_TORCH_FILE_LEGACY_H
#define OFS_FORMAT_TORCH_FILE_LEGACY_H

#include "archive/torch.h"

struct ofs_legacy {
	struct ofs_pickle *doc;
	struct ofs_torch_storage *storage; /* sorted by key */
	size_t n;
	/* number of storages that are missing at the end of the stream */
	size_t lost;
	uint64_t trailing; /* bytes after the last storage */
};

/* Read the five pickles of a stream of size bytes and find its storages. A
 * storage that is truncated, or whose size differs from that in the object, is
 * lost together with all after it. EUCLEAN (OFS671). On failure *l needs no
 * _fini. */
int ofs_legacy_open(struct ofs_legacy *l, uint64_t size,
    const struct ofs_pickle_limits *limits, ofs_zip_read_fn *read, void *ctx,
    struct optimfs_error *err);
/* Does not free doc if the caller has taken it and set it to NULL. */
void ofs_legacy_fini(struct ofs_legacy *l);

#endif
