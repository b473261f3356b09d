/* zstd.c - a decoder of untrusted Zstandard frames (RFC 8878) */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>
#include <zstd_errors.h>

#include "base/cursor.h"
#include "base/memory.h"
#include "store/codec.h"

#define MAGIC_FRAME      0xfd2fb528u
#define MAGIC_SKIP       0x184d2a50u /* and the 15 after it */
#define MAGIC_SEEK_TABLE 0x184d2a5eu
#define MAGIC_SEEK_END   0x8f92eab1u
#define SEEK_FOOTER      9
#define MAX_HEADER       18
#define MAX_WINDOW       (UINT64_C(1) << 27)
/* Windows above this are decoded one at a time in the process. */
#define LARGE_WINDOW (UINT64_C(8) << 20)
#define IN_SIZE      ((size_t)256 << 10)

struct decoder {
	struct ofs_codec_io *io;
	ZSTD_DCtx *ctx;
	uint8_t *in;
	size_t from, to; /* unused bytes of in */
	/* offset in the extent of the first byte after in */
	uint64_t next;
	uint64_t frames; /* so far */
	/* encoded and decoded bytes of frames so far */
	uint64_t taken, written;
	bool large;
};

/* A parsed frame header. */
struct frame {
	size_t size;
	uint64_t window, content;
	bool has_content, checksum;
};

static uint64_t position(const struct decoder *d)
{
	return d->next - (d->to - d->from);
}

static uint64_t left(const struct decoder *d)
{
	return d->io->len - position(d);
}

/* Fail with the current position. */
static int fail(const struct decoder *d, int code, const char *what,
    struct optimfs_error *err)
{
	return optimfs_fail_as(err, code,
	    "%.7s%s: zstd item of %" PRIu64 " bytes at %" PRIu64
	    ": %s (byte %" PRIu64 ", frame %" PRIu64 ")",
	    what, d->io->name, d->io->len, d->io->off, what + 7, position(d),
	    d->frames);
}

static int ends_early(const struct decoder *d, struct optimfs_error *err)
{
	return fail(d, EIO, "OFS702 the frame ends early", err);
}

/* Make at least want unused bytes available in in, or all that are left. */
static int fill(struct decoder *d, size_t want, struct optimfs_error *err)
{
	size_t have = d->to - d->from;
	uint64_t more = d->io->len - d->next;

	if (have >= want || more == 0)
		return 0;
	memmove(d->in, d->in + d->from, have);
	d->from = 0;
	d->to = have;
	if (more > IN_SIZE - have)
		more = IN_SIZE - have;
	if (d->io->read(d->io, d->next, d->in + have, more, err) == -1)
		return -1;
	d->to += more;
	d->next += more;
	return 0;
}

/* Skip n bytes, which exist. */
static void skip(struct decoder *d, uint64_t n)
{
	size_t have = d->to - d->from;

	if (n <= have) {
		d->from += n;
		return;
	}
	d->from = d->to = 0;
	d->next += n - have;
}

static uint64_t content_size(struct ofs_cursor *c, unsigned flag)
{
	switch (flag) {
	case 0:
		return ofs_cursor_u8(c);
	case 1:
		return ofs_cursor_le16(c) + 256;
	case 2:
		return ofs_cursor_le32(c);
	default:
		return ofs_cursor_le64(c);
	}
}

static int parse_header(const struct decoder *d, struct frame *f,
    struct optimfs_error *err)
{
	static const uint8_t id_size[] = { 0, 1, 2, 4 };
	struct ofs_cursor c = ofs_cursor_of(d->in + d->from, d->to - d->from);
	uint8_t flags, window = 0;
	const uint8_t *id;
	bool single;

	*f = (struct frame){ 0 };
	ofs_cursor_le32(&c);
	flags = ofs_cursor_u8(&c);
	single = flags & 0x20;
	if (!single)
		window = ofs_cursor_u8(&c);
	id = ofs_cursor_take(&c, id_size[flags & 3]);
	f->has_content = single || flags >> 6 != 0;
	if (f->has_content)
		f->content = content_size(&c, flags >> 6);
	if (c.bad)
		return ends_early(d, err);
	if (flags & 0x08)
		return fail(d, EBADMSG, "OFS704 a reserved bit is set", err);
	for (size_t i = 0; i < id_size[flags & 3]; i++)
		if (id[i] != 0)
			return fail(d, EOPNOTSUPP,
			    "OFS706 it needs a dictionary", err);
	f->checksum = flags & 0x04;
	f->window =
	    (UINT64_C(1) << (10 + (window >> 3))) / 8 * (8 + (window & 7));
	if (single)
		f->window = f->content;
	f->size = (size_t)(c.p - (d->in + d->from));
	if (f->window > MAX_WINDOW)
		return optimfs_fail(err, E2BIG,
		    "OFS701 %s: zstd item at %" PRIu64
		    " has a window of %" PRIu64 " bytes, more than %" PRIu64,
		    d->io->name, d->io->off, f->window, MAX_WINDOW);
	return 0;
}

/* The window descriptor of the smallest window of at least n bytes. */
static uint8_t window_byte(uint64_t n)
{
	uint8_t b = 0;

	while ((UINT64_C(1) << (10 + (b >> 3))) / 8 * (8 + (b & 7)) < n)
		b++;
	return b;
}

static int lib_failed(const struct decoder *d, size_t code,
    struct optimfs_error *err)
{
	char what[128];

	if (ZSTD_getErrorCode(code) == ZSTD_error_memory_allocation)
		return ofs_no_memory(err);
	strcpy(what, "OFS704 ");
	strncat(what, ZSTD_getErrorName(code), sizeof(what) - 8);
	return fail(d, EBADMSG, what, err);
}

static int wrong_size(const struct decoder *d, const struct frame *f,
    uint64_t got, struct optimfs_error *err)
{
	char what[128];

	snprintf(what, sizeof(what),
	    "OFS703 a frame declares %" PRIu64 " bytes and has %s%" PRIu64,
	    f->content, got > f->content ? "at least " : "", got);
	return fail(d, EBADMSG, what, err);
}

/* The context keeps its window until it is freed, so the lock is held until
 * then. */
static void take_turn(struct decoder *d, uint64_t window)
{
	if (d->large || window <= LARGE_WINDOW)
		return;
	pthread_mutex_lock(d->io->large);
	d->large = true;
}

/* Run the library on input until it needs more, or the frame ends (then 1). */
static int decode_input(struct decoder *d, const struct frame *f,
    ZSTD_inBuffer *input, uint64_t *got, struct optimfs_error *err)
{
	ZSTD_outBuffer output;
	size_t ret;

	do {
		output = (ZSTD_outBuffer){ .pos = 0 };
		output.dst = d->io->room(d->io, &output.size, err);
		if (output.dst == NULL)
			return -1;
		ret = ZSTD_decompressStream(d->ctx, &output, input);
		if (ZSTD_isError(ret))
			return lib_failed(d, ret, err);
		*got += output.pos;
		if (f->has_content && *got > f->content)
			return wrong_size(d, f, *got, err);
		if (d->io->wrote(d->io, output.pos, err) == -1)
			return -1;
		if (ret == 0)
			return 1;
	} while (input->pos < input->size || output.pos == output.size);
	return 0;
}

/* The library gets the header without the content size, which is checked here:
 * so the error is more precise than "corrupt", and a false size causes no
 * allocation. */
static int start(struct decoder *d, const struct frame *f,
    struct optimfs_error *err)
{
	uint8_t header[6] = { 0x28, 0xb5, 0x2f, 0xfd, f->checksum ? 4 : 0,
		window_byte(f->window) };
	ZSTD_inBuffer input = { header, sizeof(header), 0 };
	uint64_t got = 0;

	ZSTD_DCtx_reset(d->ctx, ZSTD_reset_session_only);
	skip(d, f->size);
	return decode_input(d, f, &input, &got, err);
}

static int frame(struct decoder *d, struct optimfs_error *err)
{
	uint64_t at = position(d), got = 0;
	ZSTD_inBuffer input;
	struct frame f;
	int ret;

	if (fill(d, MAX_HEADER, err) == -1 || parse_header(d, &f, err) == -1)
		return -1;
	take_turn(d, f.window);
	for (ret = start(d, &f, err); ret == 0; d->from += input.pos) {
		if (fill(d, 1, err) == -1)
			return -1;
		if (d->from == d->to)
			return ends_early(d, err);
		input = (ZSTD_inBuffer){ d->in + d->from, d->to - d->from, 0 };
		ret = decode_input(d, &f, &input, &got, err);
		if (ret == -1)
			return -1;
	}
	if (ret == -1)
		return -1;
	if (f.has_content && got != f.content)
		return wrong_size(d, &f, got, err);
	d->written += got;
	d->taken += position(d) - at;
	d->frames++;
	return 0;
}

/* zstd's seekable format ends with a table of frames, which is not needed. But
 * a table that disagrees with its frames is damage. */
static int check_table(struct decoder *d, uint64_t size, uint64_t before,
    struct optimfs_error *err)
{
	uint64_t stored = 0, decoded = 0, n, entry;
	struct ofs_cursor c;
	uint8_t footer[SEEK_FOOTER];

	if (size < SEEK_FOOTER)
		return 0;
	if (d->io->read(d->io, position(d) + size - SEEK_FOOTER, footer,
		SEEK_FOOTER, err) == -1)
		return -1;
	c = ofs_cursor_of(footer, SEEK_FOOTER);
	n = ofs_cursor_le32(&c);
	entry = ofs_cursor_u8(&c) & 0x80 ? 12 : 8;
	if (ofs_cursor_le32(&c) != MAGIC_SEEK_END)
		return 0;
	if (n != (size - SEEK_FOOTER) / entry ||
	    (size - SEEK_FOOTER) % entry != 0)
		return fail(d, EUCLEAN,
		    "OFS707 the seek table's size and count disagree", err);
	for (; n > 0; n--) {
		if (fill(d, entry, err) == -1)
			return -1;
		c = ofs_cursor_of(d->in + d->from, entry);
		stored += ofs_cursor_le32(&c);
		decoded += ofs_cursor_le32(&c);
		d->from += entry;
	}
	if (decoded != d->written || (stored != d->taken && stored != before))
		return fail(d, EUCLEAN,
		    "OFS707 the seek table disagrees with the frames", err);
	skip(d, SEEK_FOOTER);
	return 0;
}

static int skippable(struct decoder *d, uint32_t magic,
    struct optimfs_error *err)
{
	uint64_t before = position(d), end, size;

	if (left(d) < 8)
		return ends_early(d, err);
	size = ofs_le32(d->in + d->from + 4);
	if (size > left(d) - 8)
		return ends_early(d, err);
	d->from += 8;
	end = position(d) + size;
	if (magic == MAGIC_SEEK_TABLE &&
	    check_table(d, size, before, err) == -1)
		return -1;
	skip(d, end - position(d));
	return 0;
}

static int frames(struct decoder *d, struct optimfs_error *err)
{
	uint32_t magic;

	if (d->io->len == 0)
		return ends_early(d, err);
	while (left(d) > 0) {
		if (fill(d, MAX_HEADER, err) == -1)
			return -1;
		if (left(d) < 4)
			return ends_early(d, err);
		magic = ofs_le32(d->in + d->from);
		if ((magic & ~15u) == MAGIC_SKIP) {
			if (skippable(d, magic, err) == -1)
				return -1;
			continue;
		}
		if (magic != MAGIC_FRAME)
			return fail(d, EUCLEAN, "OFS708 not a zstd frame", err);
		if (frame(d, err) == -1)
			return -1;
	}
	return 0;
}

int ofs_zstd_decode(struct ofs_codec_io *io, struct optimfs_error *err)
{
	struct decoder d = { .io = io };
	int ret = -1;

	d.ctx = ZSTD_createDCtx();
	d.in = malloc(IN_SIZE);
	if (d.ctx == NULL || d.in == NULL)
		ofs_no_memory(err);
	else
		ret = frames(&d, err);
	ZSTD_freeDCtx(d.ctx);
	if (d.large)
		pthread_mutex_unlock(io->large);
	free(d.in);
	return ret;
}
