/* bucket.h - writing files below an address of S3 */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_STORE_HTTP_BUCKET_H
#define OFS_STORE_HTTP_BUCKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "optimfs/error.h"

#include "base/buf.h"
#include "store/http/answer.h"

/* A file is uploaded in parts, in any order, by several threads. Nobody sees it
 * until it is completed, which is one request. An upload that is neither completed
 * nor aborted stays, and costs money. Errors are those of ofs_http_send. */
struct ofs_bucket;

/* S3 takes no more parts of a file, and none that is smaller but the last. */
#define OFS_BUCKET_PARTS 10000u
#define OFS_BUCKET_LEAST (UINT64_C(5) << 20)

/* Can files be uploaded to the address? */
bool ofs_bucket_is(const char *address);
/* EINVAL (OFS920): it is that of a whole bucket. */
struct ofs_bucket *ofs_bucket_open(const char *address, unsigned timeout,
    struct optimfs_error *err);
void ofs_bucket_close(struct ofs_bucket *b);

/* Calls each for the files that exist. E2BIG: more than fit into a few pages. */
typedef int ofs_bucket_fn(void *ctx, const char *name,
    const struct ofs_http_version *is, struct optimfs_error *err);
int ofs_bucket_list(const struct ofs_bucket *b, ofs_bucket_fn *each, void *ctx,
    struct optimfs_error *err);

#define OFS_BUCKET_TAG 80
struct ofs_bucket_upload {
	const char *name; /* below the address */
	char *id;         /* malloc'ed; NULL: it was not begun */
	uint32_t nparts;
	char (*part)[OFS_BUCKET_TAG]; /* the tag of each; "": it is missing */
	char tag[OFS_BUCKET_TAG];     /* of the whole, once it is completed */
	bool done;                    /* completed */
};
/* Begins those of n that have no id and are not done. */
int ofs_bucket_begin(struct ofs_bucket *b, struct ofs_bucket_upload *u,
    size_t n, struct optimfs_error *err);
/* Uploads part number of a file, from 0 on. */
int ofs_bucket_put_part(struct ofs_bucket *b, struct ofs_bucket_upload *u,
    uint32_t number, const void *bytes, uint64_t n, struct optimfs_error *err);
/* Finds the parts that were uploaded, of part_size bytes, the last one up to size;
 * others are missing. ENOENT: there is no such upload. */
int ofs_bucket_find_parts(struct ofs_bucket *b, struct ofs_bucket_upload *u,
    uint64_t part_size, uint64_t size, struct optimfs_error *err);
/* Completes those of n that are not done. */
int ofs_bucket_complete(struct ofs_bucket *b, struct ofs_bucket_upload *u,
    size_t n, struct optimfs_error *err);
/* Aborts those of n that are not done, and have an id. */
int ofs_bucket_abort(struct ofs_bucket *b, struct ofs_bucket_upload *u,
    size_t n, struct optimfs_error *err);
int ofs_bucket_remove(struct ofs_bucket *b, const char *name,
    struct optimfs_error *err);

/* The note of who writes there, an object beside the address, as the stage of a
 * directory is: .NAME.optimfs/reshard. */
const char *ofs_bucket_note_name(const struct ofs_bucket *b);
int ofs_bucket_note_put(struct ofs_bucket *b, const struct ofs_buf *text,
    struct optimfs_error *err);
/* 0: there is none; 1. */
int ofs_bucket_note_get(struct ofs_bucket *b, struct ofs_buf *text,
    struct optimfs_error *err);
int ofs_bucket_note_remove(struct ofs_bucket *b, struct optimfs_error *err);

#endif
