/* lines.h - a file of many generated lines, made where it is read */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FS_LINES_H
#define OFS_FS_LINES_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "optimfs/error.h"

#include "base/buf.h"

struct ofs_snapshot;

/* A file of a million lines is never held: every OFS_LINES_STRIDE steps its
 * offset is noted, and a read makes the lines from there again. What they say
 * must not change while the file system is open. */
struct ofs_lines_ops {
	/* Append what step at is: nothing, or lines. Step 0 is the first. */
	void (*put)(struct ofs_snapshot *snap, uint32_t at,
	    struct ofs_buf *out);
	/* The step after at; UINT32_MAX when there is none. */
	uint32_t (*next)(const struct ofs_snapshot *snap, uint32_t at);
	/* About how many steps there are. */
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
	atomic_bool known; /* mark and size are */
};

void ofs_lines_init(struct ofs_lines *l, const struct ofs_lines_ops *ops);
void ofs_lines_fini(struct ofs_lines *l);
/* Make mark and size: makes every line once. */
int ofs_lines_index(struct ofs_lines *l, struct ofs_snapshot *snap,
    struct optimfs_error *err);
/* len bytes at off, fewer at the end; the index must have been made. */
ssize_t ofs_lines_read(const struct ofs_lines *l, struct ofs_snapshot *snap,
    void *buf, size_t len, uint64_t off, struct optimfs_error *err);

#endif
