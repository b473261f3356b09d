/* legacy.h - the stream that torch.save wrote before version 1.6 */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FORMAT_TORCH_FILE_LEGACY_H
#define OFS_FORMAT_TORCH_FILE_LEGACY_H

#include "archive/torch.h"

struct ofs_legacy {
	struct ofs_pickle *doc;
	struct ofs_torch_storage *storage; /* sorted by key */
	size_t n;
	size_t lost;       /* storages that the stream should have had too */
	uint64_t trailing; /* bytes behind the last one */
};

/* Read the five pickles of a stream of size bytes and find its storages. A
 * storage that is cut off, or whose size is not what the object says, is lost
 * with all behind it. EUCLEAN (OFS671). On failure nothing is left to free. */
int ofs_legacy_open(struct ofs_legacy *l, uint64_t size,
    const struct ofs_pickle_limits *limits, ofs_zip_read_fn *read, void *ctx,
    struct optimfs_error *err);
/* doc stays with whoever took it and cleared it here. */
void ofs_legacy_fini(struct ofs_legacy *l);

#endif
