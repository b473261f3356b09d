/* failures.h - the recent failures of a mount */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FS_FAILURES_H
#define OFS_FS_FAILURES_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "optimfs/error.h"

#include "base/buf.h"

#define OFS_NFAILURES 128

/* Thread-safe. Equal failures are one record with a count. A new record
 * replaces the one that was seen longest ago. */
struct ofs_failures {
	pthread_mutex_t lock;
	struct ofs_failure *record; /* NULL before the first failure */
	uint64_t clock;             /* failures so far */
};

void ofs_failures_init(struct ofs_failures *f);
void ofs_failures_fini(struct ofs_failures *f);
/* node 0: the failure concerns no file, or is recorded with its file and is
 * not counted again. The bytes [off, off + len) were
 * requested; len 0: all. path is copied. */
void ofs_failures_add(struct ofs_failures *f, uint64_t node, const char *path,
    uint64_t off, uint64_t len, const struct optimfs_error *err);
/* One line for each record, oldest first: code, errno name, path, bytes,
 * message and count, separated by tabs. */
void ofs_failures_text(struct ofs_failures *f, struct ofs_buf *out);
/* The message of the last failure of node; false if there is none. */
bool ofs_failures_last(struct ofs_failures *f, uint64_t node,
    struct ofs_buf *out);
/* The number of failures so far. */
uint64_t ofs_failures_count(struct ofs_failures *f);

#endif
