/* wire.h - the encoding of requests between ranks */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_CLUSTER_WIRE_H
#define OFS_CLUSTER_WIRE_H

#include <stdint.h>

#include "optimfs/error.h"

#include "base/buf.h"
#include "base/cursor.h"
#include "plan/plan.h"

/* Integers are little-endian. A request is its kind (a byte), followed by:
 *
 *  FETCH   manifest (4), number of segments (4), the segments; answered with
 *          their bytes in order
 *  LENGTH  manifest (4), file (4), codec (1), offset, length, limit (8 each);
 *          answered with the decoded length (8)
 *  RELAY   manifest (4), file in it (4), offset, length (8 each): a call; the
 *          bytes. While checkpoints are opened
 *  DONE    nothing; the sender makes no more requests
 *  OVER    1 if some rank is lost (1); no rank makes more requests
 *  LOST    an error; ranks (4 each): they do not answer, for this reason
 *
 * Through GPUs (cluster/gpu/gather.h):
 *
 *  STAGE   manifest (4), file (4), offset, length (8 each); answered with a
 *          token (8) for these bytes
 *  SEQUENCE
 *          number of ranks (4), the ranks (4 each); answered with the sequence
 *          numbers (8) of the sender and of each rank
 *  SEND    sequence number (8), number of tokens (4), tokens (8 each); not
 *          answered
 *  HANG_UP connection (1): it is over for the sender
 *  CONNECT connection (1), its name (128), ranks (4 each): a call; nothing
 *
 * Sharing a task:
 *
 *  TASK    operation (1): task.c
 *
 * For work that may take long (mail.h, call.h):
 *
 *  LETTER  tag, total size, offset of these bytes (8 each), bytes; not answered
 *  PING    nothing; an answer is a sign of life. One byte: 1 after DONE
 *  CALL    id (4), a request; answered when the work has started; a letter
 *          brings the result
 *
 * For writing:
 *
 *  PARTICIPANT
 *          manifest (4), operation (1): cluster/commit/participant.h
 *  RESCAN  manifest (4), number of the next (4): a call; lists files again */
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
	OFS_WIRE_HANG_UP = 11,
	OFS_WIRE_CONNECT = 12,
	OFS_WIRE_PARTICIPANT = 16,
	OFS_WIRE_RESCAN = 17,
	OFS_WIRE_OVER = 18,
	OFS_WIRE_RELAY = 19,
	OFS_WIRE_LOST = 20,
};
#define OFS_WIRE_KINDS   21
#define OFS_WIRE_SEGMENT 53 /* bytes of a segment */

static inline void ofs_wire_u8(struct ofs_buf *b, uint8_t v)
{
	ofs_buf_put_le(b, v, 1);
}
static inline void ofs_wire_u16(struct ofs_buf *b, uint16_t v)
{
	ofs_buf_put_le(b, v, 2);
}
static inline void ofs_wire_u32(struct ofs_buf *b, uint32_t v)
{
	ofs_buf_put_le(b, v, 4);
}
static inline void ofs_wire_u64(struct ofs_buf *b, uint64_t v)
{
	ofs_buf_put_le(b, v, 8);
}
/* With its length first, for ofs_wire_take_str. */
void ofs_wire_str(struct ofs_buf *b, const char *s);
/* A valid string without NUL inside; otherwise sets c->bad and returns "".
 * Valid as long as the bytes; strings are written with their NUL. */
const char *ofs_wire_take_str(struct ofs_cursor *c);

/* An error: its code (4) and text. */
void ofs_wire_error(struct ofs_buf *b, const struct optimfs_error *e);
void ofs_wire_take_error(struct ofs_cursor *c, struct optimfs_error *e);
/* Fails with EPROTO (OFS913): an invalid message. */
int ofs_wire_malformed(struct optimfs_error *err);

/* A segment without its place in the reader's buffer. */
void ofs_wire_segment(struct ofs_buf *b, const struct ofs_segment *seg);
/* The n segments that follow, placed one after the other in a buffer of want
 * bytes; malloc'ed. NULL: EPROTO if they do not fit exactly, or ENOMEM. */
struct ofs_segment *ofs_wire_take_segments(struct ofs_cursor *c, uint32_t n,
    uint64_t want, struct optimfs_error *err);

#endif
