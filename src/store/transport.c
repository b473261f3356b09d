/* transport.c - code that all transports share */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "store/transport.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/checked.h"
#include "base/memory.h"

int ofs_transport_read(struct ofs_transport *t, const struct ofs_extent *at,
    uint64_t off, uint64_t len, void *buf, struct optimfs_error *err)
{
	struct ofs_segment seg = {
		.object = at->object,
		.codec = at->codec,
		.ext_off = at->off,
		.ext_len = at->len,
		.src = off,
		.len = len,
		.n = 1,
	};
	uint64_t end;

	if (at->codec != OFS_PLAIN)
		return ofs_transport_fetch(t, &seg, 1, buf, err);
	if (!ofs_add_u64(off, len, &end) || end > at->len ||
	    !ofs_add_u64(at->off, off, &seg.src))
		return optimfs_fail(err, EIO,
		    "OFS603 the item of %" PRIu64 " bytes at %" PRIu64
		    " is short: %" PRIu64 " bytes at %" PRIu64 " are needed",
		    at->len, at->off, len, off);
	return ofs_transport_fetch(t, &seg, 1, buf, err);
}

static int length(struct ofs_transport *t, const struct ofs_extent *at,
    uint64_t max, uint64_t *len, struct optimfs_error *err)
{
	if (at->codec != OFS_PLAIN)
		return t->ops->length(t, at, max, len, err);
	if (at->len > max)
		return optimfs_fail(err, E2BIG,
		    "OFS710 item at %" PRIu64 " has %" PRIu64
		    " bytes, more than %" PRIu64,
		    at->off, at->len, max);
	*len = at->len;
	return 0;
}

int ofs_transport_length(struct ofs_transport *t, const struct ofs_extent *at,
    uint64_t *len, struct optimfs_error *err)
{
	return length(t, at, UINT64_MAX, len, err);
}

int ofs_transport_read_all(struct ofs_transport *t, const struct ofs_extent *at,
    uint64_t max, uint8_t **bytes, uint64_t *len, struct optimfs_error *err)
{
	uint8_t *buf;
	uint64_t n;

	if (length(t, at, max, &n, err) == -1)
		return -1;
	buf = n < SIZE_MAX ? malloc((size_t)n + 1) : NULL;
	if (buf == NULL)
		return ofs_no_memory(err);
	if (ofs_transport_read(t, at, 0, n, buf, err) == -1) {
		free(buf);
		return -1;
	}
	*bytes = buf;
	*len = n;
	return 0;
}

void ofs_transport_close(struct ofs_transport *t)
{
	if (t != NULL)
		t->ops->close(t);
}
