/* ops.h - the FUSE operations */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FUSE_OPS_H
#define OFS_FUSE_OPS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define FUSE_USE_VERSION 312
#include <fuse_lowlevel.h>

#include "optimfs/optimfs.h"

#include "fuse/ahead.h"
#include "fuse/assemble.h"
#include "fuse/passthrough.h"
#include "fuse/pending.h"

/* The largest read the kernel sends, and the buffer of each thread. */
#define OFS_MAX_READ (1u << 20)
/* How many may be stuck in the source, or wait for a rank that is silent, before
 * the mount is, too. */
#define OFS_MAX_THREADS 1024

struct ofs_op_counters {
	atomic_uint_least64_t lookup, getattr, readdir, open, read, read_bytes,
	    getxattr, failed, late, write, write_bytes;
};

struct ofs_handle;

/* The userdata of the session. */
struct ofs_session {
	struct ofs_passthrough pt; /* must be first: passthrough.h */
	struct optimfs *fs;
	struct fuse_session *se;       /* NULL: not mounted yet */
	struct ofs_assemble *assemble; /* NULL: always read on demand */
	struct ofs_ahead *ahead;       /* NULL: off */
	struct ofs_watch *watch;
	bool direct, rw;
	bool ahead_of_opens; /* may a thread gather files that are not open? */
	bool others;         /* other users may read */
	bool changes;        /* may change, by us or by another rank */
	unsigned timeout;
	struct ofs_op_counters count;
	pthread_mutex_t lock; /* protects handles, the list of open files */
	struct ofs_handle *handles;
};

extern const struct fuse_lowlevel_ops ofs_fuse_ops;

/* Close the files that were open when the connection ended. */
void ofs_ops_close_all(struct ofs_session *s);

/* Records that a request exceeded the timeout. */
void ofs_ops_late(struct ofs_session *s, uint64_t node);

#endif
