/* bucket.h - writes a view below an address of S3 */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_RESHARD_BUCKET_H
#define OFS_RESHARD_BUCKET_H

#include "reshard/reshard.h"

/* Can this layout appear in a bucket at once? EOPNOTSUPP (OFS930). The files of r
 * are known. */
int ofs_reshard_bucket_check(const struct ofs_reshard *r,
    struct optimfs_error *err);
/* Writes the files of r to an address that has none (EEXIST), or what an earlier run
 * has not. EIO (OFS931): what is there is not what was written. After a failure
 * finished parts are kept, for which r->how->kept is called. */
int ofs_reshard_bucket(struct ofs_reshard *r, const char *address,
    struct optimfs_error *err);

#endif
