/* transport.h - moving segments of objects */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_STORE_TRANSPORT_H
#define OFS_STORE_TRANSPORT_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "catalog/catalog.h"
#include "plan/plan.h"

/* Counters of one transport, for .optimfs/stats. */
struct ofs_counters {
	_Atomic uint64_t requests, bytes; /* fetches and what they asked for */
	_Atomic uint64_t reads,
	    read_bytes; /* system calls and what they moved */
	_Atomic uint64_t decoded, hits, misses; /* codec cache */
	_Atomic uint64_t cached;                /* bytes in it now */
	_Atomic uint64_t wait_ns;               /* in fetch, all threads */
};

struct ofs_transport {
	const struct ofs_transport_ops *ops;
	struct ofs_counters counters;
};

/* A transport's own struct begins with a struct ofs_transport. Any thread may
 * call. A failed fetch leaves buf undefined and the transport usable. */
struct ofs_transport_ops {
	const char *name;
	/* Fill buf as the n segments say. EIO: a file is missing, gone, short
	 * or unreadable (OFS140, OFS754, OFS603, OFS755); ESTALE: it is not
	 * the file that was mounted (OFS751); EACCES (OFS756); EBADMSG,
	 * EUCLEAN, EIO, E2BIG, EOPNOTSUPP: what a codec finds (OFS701 to
	 * OFS711); ENOSPC: no room for what it gives (OFS709). */
	int (*fetch)(struct ofs_transport *t, const struct ofs_segment *segs,
	    size_t n, void *buf, struct optimfs_error *err);
	/* Bytes that a codec extent decodes to, at most max (E2BIG). */
	int (*length)(struct ofs_transport *t, const struct ofs_extent *at,
	    uint64_t max, uint64_t *len, struct optimfs_error *err);
	void (*close)(struct ofs_transport *t); /* frees t */
	/* A hint: reader, which is any address, will soon fetch just these
	 * segments. Never waits for bytes. With n 0 it will fetch none of what
	 * it said before. NULL: reading ahead saves nothing. */
	void (*ahead)(struct ofs_transport *t, const void *reader,
	    const struct ofs_segment *segs, size_t n);
	/* A hint: these bytes of objects are about to be read, in some order.
	 * NULL: that saves nothing. */
	void (*willneed)(struct ofs_transport *t, const struct ofs_extent *at,
	    size_t n);
	/* A hint: extents that are encoded will soon be wanted, in this order,
	 * each of which decodes to about bytes. As many are begun as may be
	 * worked at. Never waits. NULL: that saves nothing. */
	void (*decode)(struct ofs_transport *t, const struct ofs_extent *at,
	    size_t n, uint64_t bytes);
};

static inline int ofs_transport_fetch(struct ofs_transport *t,
    const struct ofs_segment *segs, size_t n, void *buf,
    struct optimfs_error *err)
{
	return t->ops->fetch(t, segs, n, buf, err);
}
/* len bytes at off of an extent (of its decoded bytes with a codec); EIO
 * (OFS603) or EUCLEAN (OFS705) when it has fewer. */
int ofs_transport_read(struct ofs_transport *t, const struct ofs_extent *at,
    uint64_t off, uint64_t len, void *buf, struct optimfs_error *err);
/* All of an extent's bytes, decoded, at most max (E2BIG); malloc'ed. */
int ofs_transport_read_all(struct ofs_transport *t, const struct ofs_extent *at,
    uint64_t max, uint8_t **bytes, uint64_t *len, struct optimfs_error *err);
void ofs_transport_close(struct ofs_transport *t);

/* Length of what a codec extent decodes to, decoding it when that is not
 * known yet; at->len for OFS_PLAIN. */
int ofs_transport_length(struct ofs_transport *t, const struct ofs_extent *at,
    uint64_t *len, struct optimfs_error *err);

#endif
