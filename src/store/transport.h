/* transport.h - moving segments of objects */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_STORE_TRANSPORT_H
#define OFS_STORE_TRANSPORT_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "catalog/catalog.h"
#include "plan/plan.h"

/* Counters of a transport, for .optimfs/stats. */
struct ofs_counters {
	/* calls of fetch, and bytes requested */
	_Atomic uint64_t requests, bytes;
	/* system calls or requests, and bytes read */
	_Atomic uint64_t reads, read_bytes;
	_Atomic uint64_t decoded, hits, misses; /* codec cache */
	_Atomic uint64_t cached;                /* bytes in the cache now */
	/* time in fetch, summed over threads */
	_Atomic uint64_t wait_ns;
};

struct ofs_transport {
	const struct ofs_transport_ops *ops;
	struct ofs_counters counters;
};

/* The struct of each transport begins with a struct ofs_transport. Thread-safe.
 * After a failed fetch the content of buf is undefined and the transport
 * usable. */
struct ofs_transport_ops {
	const char *name;
	/* So many bytes are worth fetching at once; 0: it makes no
	 * difference. */
	uint64_t at_once;
	/* Read n segments into buf. EIO: a file is missing, was removed, is too
	 * short or unreadable (OFS140, OFS754, OFS603, OFS755); ESTALE: it is
	 * not the mounted file (OFS751); EACCES (OFS756); EBADMSG, EUCLEAN,
	 * EIO, E2BIG, EOPNOTSUPP: errors of a codec (OFS701 to OFS711); ENOSPC:
	 * no room for its output (OFS709). */
	int (*fetch)(struct ofs_transport *t, const struct ofs_segment *segs,
	    size_t n, void *buf, struct optimfs_error *err);
	/* The number of bytes that an extent with a codec decodes to, at most
	 * max (E2BIG). */
	int (*length)(struct ofs_transport *t, const struct ofs_extent *at,
	    uint64_t max, uint64_t *len, struct optimfs_error *err);
	void (*close)(struct ofs_transport *t); /* frees t */
	/* A hint: reader, which may be any address, will soon fetch these
	 * segments; they replace those of its last hint. Does not wait for I/O.
	 * With n 0 the last hint is cancelled. NULL: reading ahead has no
	 * benefit. */
	void (*ahead)(struct ofs_transport *t, const void *reader,
	    const struct ofs_segment *segs, size_t n);
	/* A hint: these bytes of objects will be read soon, in any order. NULL:
	 * it has no benefit. */
	void (*willneed)(struct ofs_transport *t, const struct ofs_extent *at,
	    size_t n);
	/* The same for one reader, who reads them in this order and each byte
	 * once. Does not wait: reads do. Until streamed() of what it returns.
	 * NULL: only willneed is possible. No such function: it has no
	 * benefit. */
	void *(*stream)(struct ofs_transport *t, const struct ofs_extent *at,
	    size_t n);
	void (*streamed)(struct ofs_transport *t, void *stream);
	/* A hint: these encoded extents will be read soon, in this order; each
	 * decodes to about bytes. Starts decoding as many as there are workers.
	 * Does not wait. NULL: it has no benefit. */
	void (*decode)(struct ofs_transport *t, const struct ofs_extent *at,
	    size_t n, uint64_t bytes);
	/* Are the runs of seg, which has no codec, and all between them, in a hole of
	 * the file: zeros that are not stored? false: it is not known. NULL: it never
	 * is. */
	bool (*hole)(struct ofs_transport *t, const struct ofs_segment *seg);
	/* The bytes of an object from off on that are in memory, at most *n:
	 * they stay there until let(*held). NULL: they have to be fetched. No
	 * such function: they always have to. */
	const void *(*hold)(struct ofs_transport *t, uint32_t object,
	    uint64_t off, uint64_t *n, void **held);
	void (*let)(struct ofs_transport *t, void *held);
};

static inline int ofs_transport_fetch(struct ofs_transport *t,
    const struct ofs_segment *segs, size_t n, void *buf,
    struct optimfs_error *err)
{
	return t->ops->fetch(t, segs, n, buf, err);
}
static inline bool ofs_transport_hole(struct ofs_transport *t,
    const struct ofs_segment *seg)
{
	return seg->codec == OFS_PLAIN && t->ops->hole != NULL &&
	    t->ops->hole(t, seg);
}
/* Read len bytes at off of an extent, of its decoded bytes with a codec; EIO
 * (OFS603) or EUCLEAN (OFS705) when it is shorter. */
int ofs_transport_read(struct ofs_transport *t, const struct ofs_extent *at,
    uint64_t off, uint64_t len, void *buf, struct optimfs_error *err);
/* Read all of an extent, decoded, at most max bytes (E2BIG). *bytes is
 * malloc'ed and the caller's. */
int ofs_transport_read_all(struct ofs_transport *t, const struct ofs_extent *at,
    uint64_t max, uint8_t **bytes, uint64_t *len, struct optimfs_error *err);
void ofs_transport_close(struct ofs_transport *t);

/* The decoded length of an extent, which is decoded if necessary; at->len for
 * OFS_PLAIN. */
int ofs_transport_length(struct ofs_transport *t, const struct ofs_extent *at,
    uint64_t *len, struct optimfs_error *err);

#endif
