/* wire.h - requests between ranks, as bytes */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_CLUSTER_WIRE_H
#define OFS_CLUSTER_WIRE_H

#include <stddef.h>
#include <stdint.h>

#include "optimfs/error.h"

#include "base/buf.h"
#include "base/cursor.h"
#include "plan/plan.h"

/* Integers are little-endian. A request is its kind (a byte), and
 *   FETCH   manifest (4), number of segments (4), the segments; answered with
 *           their bytes, one after the other
 *   LENGTH  manifest (4), file (4), codec (1), offset, length, limit (8 each);
 *           answered with the decoded length (8)
 *   DONE    nothing; the rank that says it will ask no more. Nothing comes
 *           back.
 * Through GPUs (cluster/gpu/gather.h):
 *   STAGE   manifest (4), file (4), offset, length (8 each); answered with a
 *           token (8) for those bytes
 *   SEQUENCE
 *           number of ranks (4), those ranks (4 each); answered with the
 *           sequence number (8) of who asks and that of each
 *   SEND    sequence number (8), number of tokens (4), tokens (8 each);
 *           nothing comes back
 * To share a task:
 *   TASK    what (1): task.c
 * What may take long (mail.h, call.h):
 *   LETTER  tag, bytes of all of it, offset of these (8 each), bytes; nothing
 *           comes back
 *   PING    nothing; an answer says that one lives
 *   CALL    id (4), a request; answered when the work has begun, of which a
 *           letter says what came
 * To write:
 *   PARTICIPANT
 *           manifest (4), what (1): cluster/commit/participant.h
 *   RESCAN  manifest (4), number of the next (4): a call; what the rank has
 *           now */
enum ofs_wire_kind {
	OFS_WIRE_FETCH = 1,
	OFS_WIRE_LENGTH = 2,
	OFS_WIRE_DONE = 3,
	OFS_WIRE_STAGE = 4,
	OFS_WIRE_SEQUENCE = 5,
	OFS_WIRE_SEND = 6,
	OFS_WIRE_TASK = 7,
	OFS_WIRE_CALL = 8,
	OFS_WIRE_LETTER = 9,
	OFS_WIRE_PING = 10,
	OFS_WIRE_PARTICIPANT = 16,
	OFS_WIRE_RESCAN = 17,
};
#define OFS_WIRE_KINDS   18
#define OFS_WIRE_HEAD    9  /* bytes of a FETCH without segments */
#define OFS_WIRE_SEGMENT 53 /* bytes of one */

/* Into an answer. */
void ofs_put_le32(uint8_t *at, uint32_t v);
void ofs_put_le64(uint8_t *at, uint64_t v);

void ofs_wire_u8(struct ofs_buf *b, uint8_t v);
void ofs_wire_u32(struct ofs_buf *b, uint32_t v);
void ofs_wire_u64(struct ofs_buf *b, uint64_t v);
/* With its length in front, for ofs_wire_take_str. */
void ofs_wire_str(struct ofs_buf *b, const char *s);
/* A string that ends where it should and holds no NUL, or c->bad and "". Valid
 * as long as the bytes are; strings are written with their NUL. */
const char *ofs_wire_take_str(struct ofs_cursor *c);

/* An error: its code (4) and text. */
void ofs_wire_error(struct ofs_buf *b, const struct optimfs_error *e);
void ofs_wire_take_error(struct ofs_cursor *c, struct optimfs_error *e);
/* Fail with EPROTO (OFS913): a request, or what a rank said, is none. */
int ofs_wire_malformed(struct optimfs_error *err);

/* A segment, but for its place in the reader's buffer. */
void ofs_wire_segment(struct ofs_buf *b, const struct ofs_segment *seg);
/* The n segments that follow, laid end to end in a buffer of want bytes;
 * malloc'ed. NULL: EPROTO when they are not that many, or ENOMEM. */
struct ofs_segment *ofs_wire_take_segments(struct ofs_cursor *c, uint32_t n,
    uint64_t want, struct optimfs_error *err);

#endif
