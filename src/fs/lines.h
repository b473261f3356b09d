/* lines.h - generated files of many lines */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FS_LINES_H
#define OFS_FS_LINES_H

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "optimfs/error.h"

#include "base/buf.h"

struct ofs_snapshot;

/* A file of a million lines is never held in memory. The offset of every
 * OFS_LINES_STRIDE-th step is kept; a read generates the lines from there. The
 * lines of a snapshot must not change: not by what a writer stages either. */
struct ofs_lines_ops {
	/* Appends the lines of step at, if any. Step 0 is the first. */
	void (*put)(struct ofs_snapshot *snap, uint32_t at,
	    struct ofs_buf *out);
	/* The step after at; UINT32_MAX at the end. */
	uint32_t (*next)(const struct ofs_snapshot *snap, uint32_t at);
	/* An estimate of the number of steps. */
	uint32_t (*steps)(const struct ofs_snapshot *snap);
};

#define OFS_LINES_STRIDE 64

struct ofs_lines {
	const struct ofs_lines_ops *ops;
	pthread_mutex_t lock;
	struct ofs_lines_mark {
		uint64_t off;
		uint32_t at;
	} * mark;
	size_t nmarks, cap;
	uint64_t size;
	atomic_bool known; /* mark and size are valid */
};

void ofs_lines_init(struct ofs_lines *l, const struct ofs_lines_ops *ops);
void ofs_lines_fini(struct ofs_lines *l);
/* Computes mark and size; generates every line once. */
int ofs_lines_index(struct ofs_lines *l, struct ofs_snapshot *snap,
    struct optimfs_error *err);
/* Reads up to len bytes at off. Requires the index. */
ssize_t ofs_lines_read(const struct ofs_lines *l, struct ofs_snapshot *snap,
    void *buf, size_t len, uint64_t off, struct optimfs_error *err);

#endif
