/* manifest_answer.c - answer requests for local files */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdlib.h>

#include "cluster/manifest.h"
#include "cluster/wire.h"

static int no_such_file(struct optimfs_error *err)
{
	return optimfs_fail(err, EPROTO,
	    "OFS913 a request for a file that was not offered");
}

int ofs_manifest_fetch(struct ofs_request *q, struct optimfs_error *err)
{
	const struct ofs_manifest *s = q->manifest;
	uint32_t n = ofs_cursor_le32(&q->c);
	struct ofs_segment *seg =
	    ofs_wire_take_segments(&q->c, n, q->want, err);
	int ret = 0;

	if (seg == NULL)
		return -1;
	for (uint32_t i = 0; i < n && ret == 0; i++)
		if (seg[i].object >= s->files->nobjects)
			ret = no_such_file(err);
	if (ret == 0)
		ret = ofs_transport_fetch(s->transport, seg, n, q->out, err);
	free(seg);
	return ret;
}

int ofs_manifest_length(struct ofs_request *q, struct optimfs_error *err)
{
	const struct ofs_manifest *s = q->manifest;
	struct ofs_cursor *c = &q->c;
	struct ofs_extent at = { .object = ofs_cursor_le32(c),
		.codec = ofs_cursor_u8(c) };
	uint64_t max, len;

	at.off = ofs_cursor_le64(c);
	at.len = ofs_cursor_le64(c);
	max = ofs_cursor_le64(c);
	if (c->bad || ofs_cursor_left(c) != 0 || q->want != 8 ||
	    at.codec == OFS_PLAIN || at.object >= s->files->nobjects)
		return no_such_file(err);
	if (s->transport->ops->length(s->transport, &at, max, &len, err) == -1)
		return -1;
	ofs_put_le(q->out, len, 8);
	return 0;
}
