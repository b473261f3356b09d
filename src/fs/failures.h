/* failures.h - the recent failures of a mount, in words */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FS_FAILURES_H
#define OFS_FS_FAILURES_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "optimfs/error.h"

#include "base/buf.h"

#define OFS_NFAILURES 128

/* Any thread may use it. Equal failures are one record with a count; the one
 * that was seen longest ago makes room for a new one. */
struct ofs_failures {
	pthread_mutex_t lock;
	struct ofs_failure *record; /* made when the first one comes */
	uint64_t clock;             /* failures so far */
};

void ofs_failures_init(struct ofs_failures *f);
void ofs_failures_fini(struct ofs_failures *f);
/* node 0: of no file. [off, off + len) are the bytes that were asked for,
 * len 0: all of it. path is copied. */
void ofs_failures_add(struct ofs_failures *f, uint64_t node, const char *path,
    uint64_t off, uint64_t len, const struct optimfs_error *err);
/* One line each, oldest first: code, errno's name, path, bytes, words, how
 * often; tabs between. */
void ofs_failures_text(struct ofs_failures *f, struct ofs_buf *out);
/* The words of the last failure of node; false when there is none. */
bool ofs_failures_last(struct ofs_failures *f, uint64_t node,
    struct ofs_buf *out);
/* How many there were. */
uint64_t ofs_failures_count(struct ofs_failures *f);

#endif
