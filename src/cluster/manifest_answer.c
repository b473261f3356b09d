/* manifest_answer.c - what other ranks want of the files that are here */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdlib.h>

#include "cluster/commit/participant.h"
#include "cluster/manifest.h"
#include "cluster/wire.h"

static int no_such_file(struct optimfs_error *err)
{
	return optimfs_fail(err, EPROTO,
	    "OFS913 a request for a file that was not offered");
}

static int fetch(struct ofs_manifest *s, struct ofs_cursor *c, void *out,
    uint64_t want, struct optimfs_error *err)
{
	uint32_t n = ofs_cursor_le32(c);
	struct ofs_segment *seg = ofs_wire_take_segments(c, n, want, err);
	int ret = 0;

	if (seg == NULL)
		return -1;
	for (uint32_t i = 0; i < n && ret == 0; i++)
		if (seg[i].object >= s->files->nobjects)
			ret = no_such_file(err);
	if (ret == 0)
		ret = ofs_transport_fetch(s->transport, seg, n, out, err);
	free(seg);
	return ret;
}

static int length(struct ofs_manifest *s, struct ofs_cursor *c, uint8_t *out,
    uint64_t want, struct optimfs_error *err)
{
	struct ofs_extent at = { .object = ofs_cursor_le32(c),
		.codec = ofs_cursor_u8(c) };
	uint64_t max, len;

	at.off = ofs_cursor_le64(c);
	at.len = ofs_cursor_le64(c);
	max = ofs_cursor_le64(c);
	if (c->bad || ofs_cursor_left(c) != 0 || want != 8 ||
	    at.codec == OFS_PLAIN || at.object >= s->files->nobjects)
		return no_such_file(err);
	if (s->transport->ops->length(s->transport, &at, max, &len, err) == -1)
		return -1;
	for (unsigned i = 0; i < 8; i++)
		out[i] = (uint8_t)(len >> 8 * i);
	return 0;
}

int ofs_manifest_answer(struct ofs_manifest *s, uint8_t kind,
    struct ofs_cursor *c, void *out, uint64_t want, struct optimfs_error *err)
{
	switch (kind) {
	case OFS_WIRE_FETCH:
		return fetch(s, c, out, want, err);
	case OFS_WIRE_LENGTH:
		return length(s, c, out, want, err);
	case OFS_WIRE_SITE:
		return ofs_participant_answer(s, c, out, want, err);
	default:
		return no_such_file(err);
	}
}
