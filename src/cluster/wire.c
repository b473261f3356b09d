/* wire.c - the encoding of requests between ranks */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "cluster/wire.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/memory.h"

void ofs_wire_str(struct ofs_buf *b, const char *s)
{
	size_t n = strlen(s) + 1;

	ofs_wire_u32(b, (uint32_t)n);
	ofs_buf_put(b, s, n);
}

const char *ofs_wire_take_str(struct ofs_cursor *c)
{
	uint32_t n = ofs_cursor_le32(c);
	const char *s = (const char *)ofs_cursor_take(c, n);

	if (s != NULL && n > 0 && memchr(s, '\0', n) == s + n - 1)
		return s;
	c->bad = true;
	return "";
}

void ofs_wire_segment(struct ofs_buf *b, const struct ofs_segment *seg)
{
	ofs_wire_u32(b, seg->object);
	ofs_wire_u8(b, seg->codec);
	ofs_wire_u64(b, seg->ext_off);
	ofs_wire_u64(b, seg->ext_len);
	ofs_wire_u64(b, seg->src);
	ofs_wire_u64(b, seg->len);
	ofs_wire_u64(b, seg->n);
	ofs_wire_u64(b, (uint64_t)seg->src_pitch);
}

static void take_segment(struct ofs_cursor *c, struct ofs_segment *seg)
{
	seg->object = ofs_cursor_le32(c);
	seg->codec = ofs_cursor_u8(c);
	seg->ext_off = ofs_cursor_le64(c);
	seg->ext_len = ofs_cursor_le64(c);
	seg->src = ofs_cursor_le64(c);
	seg->len = ofs_cursor_le64(c);
	seg->n = ofs_cursor_le64(c);
	seg->src_pitch = (int64_t)ofs_cursor_le64(c);
	seg->dst_pitch = (int64_t)seg->len;
}

int ofs_wire_malformed(struct optimfs_error *err)
{
	return optimfs_fail(err, EPROTO,
	    "OFS913 its message is invalid: do all ranks run the same "
	    "version?");
}

void ofs_wire_error(struct ofs_buf *b, const struct optimfs_error *e)
{
	ofs_wire_u32(b, (uint32_t)e->code);
	if (e->code == 0)
		return;
	ofs_wire_u32(b, (uint32_t)e->number);
	ofs_wire_u16(b, e->how);
	ofs_wire_u16(b, e->lost);
	ofs_wire_u16(b, e->nlost);
	ofs_wire_str(b, e->text);
}

void ofs_wire_take_error(struct ofs_cursor *c, struct optimfs_error *e)
{
	*e = (struct optimfs_error){ .code = (int)ofs_cursor_le32(c) };
	if (e->code == 0)
		return;
	e->number = (int)ofs_cursor_le32(c);
	e->how = ofs_cursor_le16(c);
	e->lost = ofs_cursor_le16(c);
	e->nlost = ofs_cursor_le16(c);
	strncpy(e->text, ofs_wire_take_str(c), sizeof(e->text) - 1);
	if (e->how > OPTIMFS_LOST_UNITS ||
	    (size_t)e->lost + e->nlost > strlen(e->text))
		e->how = OPTIMFS_NOT_LOST;
}

struct ofs_segment *ofs_wire_take_segments(struct ofs_cursor *c, uint32_t n,
    uint64_t want, struct optimfs_error *err)
{
	struct ofs_segment *seg;
	uint64_t bytes, done = 0;
	bool fits = true;

	if (!ofs_cursor_fits(c, n, OFS_WIRE_SEGMENT)) {
		ofs_wire_malformed(err);
		return NULL;
	}
	seg = ofs_alloc((size_t)n + 1, sizeof(*seg), err);
	if (seg == NULL)
		return NULL;
	for (uint32_t i = 0; i < n && fits; i++) {
		take_segment(c, &seg[i]);
		seg[i].dst = done;
		fits = ofs_mul_u64(seg[i].len, seg[i].n, &bytes) &&
		    ofs_add_u64(done, bytes, &done) && done <= want;
	}
	if (fits && !c->bad && done == want && ofs_cursor_left(c) == 0)
		return seg;
	free(seg);
	ofs_wire_malformed(err);
	return NULL;
}
