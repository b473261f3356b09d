/* store/deflate.c - decoding of deflated zip records */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/buf.h"
#include "base/crc.h"
#include "handmade.h"
#include "random.h"
#include "tap.h"

/* Where a record has its sizes and its checksum. */
enum form { IN_HEADER, IN_ZIP64, IN_DESCRIPTOR, IN_DESCRIPTOR64 };

static void put(struct ofs_buf *b, unsigned bytes, uint64_t v)
{
	for (unsigned i = 0; i < bytes; i++)
		ofs_buf_putc(b, (int)(v >> 8 * i & 0xff));
}

static void put_stream(struct ofs_buf *b, const void *p, size_t n)
{
	z_stream z = { 0 };
	size_t room = n + n / 1000 + 64;
	uint8_t *out = malloc(room);

	deflateInit2(&z, 6, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
	z.next_in = (void *)p;
	z.avail_in = (uInt)n;
	z.next_out = out;
	z.avail_out = (uInt)room;
	if (deflate(&z, Z_FINISH) != Z_STREAM_END)
		bail_out("deflate");
	ofs_buf_put(b, out, room - z.avail_out);
	deflateEnd(&z);
	free(out);
}

/* A record of these deflated bytes, with this decoded size and checksum. */
static void put_record(struct ofs_buf *b, enum form form,
    const struct ofs_buf *stream, uint64_t size, uint32_t crc)
{
	bool behind = form == IN_DESCRIPTOR || form == IN_DESCRIPTOR64;
	uint64_t csize = stream->len;
	unsigned wide = form == IN_DESCRIPTOR64 ? 8 : 4;

	b->len = 0;
	put(b, 4, 0x04034b50);
	put(b, 2, 45);
	put(b, 2, behind ? 8 : 0);
	put(b, 2, 8);
	put(b, 4, 0);
	put(b, 4, behind ? 0 : crc);
	put(b, 4, behind ? 0 : form == IN_ZIP64 ? UINT32_MAX : csize);
	put(b, 4, behind ? 0 : form == IN_ZIP64 ? UINT32_MAX : size);
	put(b, 2, 5);
	put(b, 2, form == IN_ZIP64 ? 20 : 0);
	ofs_buf_puts(b, "w.npy");
	if (form == IN_ZIP64) {
		put(b, 2, 1);
		put(b, 2, 16);
		put(b, 8, size);
		put(b, 8, csize);
	}
	ofs_buf_put(b, stream->data, stream->len);
	if (behind) {
		put(b, 4, 0x08074b50);
		put(b, 4, crc);
		put(b, wide, csize);
		put(b, wide, size);
	}
}

/* Bytes that deflate shrinks, but not to almost nothing. */
static uint8_t *words(size_t n)
{
	uint8_t *p = malloc(n + 8);
	uint64_t seed = n;

	for (size_t i = 0; i < n; i += 8) {
		uint64_t v = tap_random(&seed) & 0x0f0f0f0f;

		memcpy(p + i, &v, 8);
	}
	return p;
}

/* Decodes a record: 0 and its bytes, or -1 with err. */
static int decode(const struct ofs_buf *b, uint8_t **out, uint64_t *len,
    struct optimfs_error *err)
{
	struct ofs_extent at = { .len = b->len, .codec = OFS_DEFLATE };
	struct ofs_transport *t;
	struct handmade h;
	int ret;

	*out = NULL;
	*err = (struct optimfs_error){ 0 };
	handmade_init(&h);
	handmade_file(&h, "item", b->data, b->len);
	t = handmade_transport(&h, 64 << 20);
	ret = ofs_transport_read_all(t, &at, UINT64_MAX - 1, out, len, err);
	if (ret == -1 && t->counters.cached > 4096)
		diag("%ju bytes are kept", (uintmax_t)t->counters.cached);
	ofs_transport_close(t);
	handmade_fini(&h);
	return ret;
}

static void fails(const struct ofs_buf *b, int code, const char *text,
    const char *what)
{
	struct optimfs_error err;
	uint8_t *got;
	uint64_t len;

	is_int(decode(b, &got, &len, &err), -1, "%s", what);
	is_error(err, code, text, "%s with the expected error", what);
	free(got);
}

static void records(void)
{
	static const size_t sizes[] = { 0, 1, 200, 3000000 };
	static const char *const names[] = { "header", "zip64 field",
		"descriptor", "64-bit descriptor" };
	struct ofs_buf stream = { 0 }, b = { 0 };
	struct optimfs_error err;

	for (size_t i = 0; i < 4; i++) {
		uint8_t *text = words(sizes[i]), *got;
		uint32_t crc = ofs_crc32(0, text, sizes[i]);
		uint64_t len = 0;

		stream.len = 0;
		put_stream(&stream, text, sizes[i]);
		for (int form = IN_HEADER; form <= IN_DESCRIPTOR64; form++) {
			put_record(&b, form, &stream, sizes[i], crc);
			if (!is_int(decode(&b, &got, &len, &err), 0,
				"%zu bytes with sizes in the %s are decoded",
				sizes[i], names[form]))
				diag("%s", err.text);
			ok(len == sizes[i] && got != NULL &&
				memcmp(got, text, len) == 0,
			    "%zu bytes with sizes in the %s have the right "
			    "content",
			    sizes[i], names[form]);
			free(got);
		}
		free(text);
	}
	ofs_buf_fini(&stream);
	ofs_buf_fini(&b);
}

/* Records with a wrong size, checksum or header. */
static void wrong_records(void)
{
	struct ofs_buf stream = { 0 }, b = { 0 };
	uint8_t *text = words(2000);
	uint32_t crc = ofs_crc32(0, text, 2000);

	put_stream(&stream, text, 2000);
	for (int form = IN_HEADER; form <= IN_DESCRIPTOR64; form++) {
		put_record(&b, form, &stream, 1999, crc);
		fails(&b, EBADMSG, "declares 1999 bytes and has at least",
		    "a record of more bytes than it declares is refused");
		put_record(&b, form, &stream, 2001, crc);
		fails(&b, EBADMSG, "OFS703 item: deflated record of",
		    "a record of fewer bytes than it declares is refused");
		put_record(&b, form, &stream, 2000, crc ^ 1);
		fails(&b, EBADMSG, "OFS530",
		    "a record with a wrong checksum is refused");
		b.len--;
		fails(&b, form < IN_DESCRIPTOR ? EIO : EBADMSG,
		    form < IN_DESCRIPTOR ? "OFS502" : "OFS515",
		    "a record that lacks its last byte is refused");
	}
	ofs_buf_putc(&stream, 0);
	put_record(&b, IN_HEADER, &stream, 2000, crc);
	fails(&b, EBADMSG, "OFS703", "a byte behind the stream is refused");
	b.data[8] = 0;
	fails(&b, EUCLEAN, "OFS513",
	    "a local header with another method is refused");
	b.data[0] = 'Q';
	fails(&b, EUCLEAN, "OFS511",
	    "a record without a local header is refused");
	b.len = 29;
	fails(&b, EIO, "OFS502", "a record shorter than its header is refused");
	ofs_buf_fini(&stream);
	ofs_buf_fini(&b);
	free(text);
}

static void truncated(void)
{
	struct ofs_buf stream = { 0 }, b = { 0 };
	struct optimfs_error err = { 0 };
	uint8_t *text = words(700), *got;
	uint64_t len;
	size_t n;
	bool good = true;

	put_stream(&stream, text, 700);
	n = stream.len;
	for (stream.len = 0; stream.len < n && good; stream.len++) {
		put_record(&b, IN_HEADER, &stream, 700, 0);
		good = decode(&b, &got, &len, &err) == -1 && err.code == EIO &&
		    err.number == 702;
		free(got);
	}
	if (!ok(good, "a stream cut at any byte is refused"))
		diag("at %zu: %s", stream.len, err.text);
	ofs_buf_fini(&stream);
	ofs_buf_fini(&b);
	free(text);
}

static void damaged(void)
{
	struct ofs_buf stream = { 0 }, b = { 0 };
	struct optimfs_error err = { 0 };
	uint8_t *text = words(20000), *got;
	uint64_t seed = 1, len;
	bool good = true;

	put_stream(&stream, text, 20000);
	put_record(&b, IN_HEADER, &stream, 20000, ofs_crc32(0, text, 20000));
	for (int i = 0; i < 1000 && good; i++) {
		size_t first = b.len - stream.len;
		size_t at = first + tap_random(&seed) % stream.len;
		uint8_t bit = (uint8_t)(1 << tap_random(&seed) % 8);

		b.data[at] ^= bit;
		good = decode(&b, &got, &len, &err) == -1
		    ? err.number == 530 ||
			(err.number >= 702 && err.number <= 704)
		    : len == 20000 && memcmp(got, text, len) == 0;
		free(got);
		b.data[at] ^= bit;
	}
	if (!ok(good, "a flipped bit is detected or has no effect"))
		diag("%s", err.text);
	ofs_buf_fini(&stream);
	ofs_buf_fini(&b);
	free(text);
}

/* A small stream that decodes to very many bytes. */
static void bomb(void)
{
	size_t n = (size_t)256 << 20;
	struct ofs_buf stream = { 0 }, b = { 0 };
	uint8_t *zeros = calloc(1, n);

	put_stream(&stream, zeros, n);
	free(zeros);
	ok(stream.len < 300000,
	    "256 MiB of zeros are deflated to less than 300 kB (%zu)",
	    stream.len);
	put_record(&b, IN_HEADER, &stream, 1 << 20, 0);
	fails(&b, EBADMSG, "OFS703", "decoding stops at the declared size");
	ofs_buf_fini(&stream);
	ofs_buf_fini(&b);
}

int main(void)
{
	records();
	wrong_records();
	truncated();
	damaged();
	bomb();
	return done_testing();
}
