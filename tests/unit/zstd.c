/* zstd.c - compressed extents: malformed frames, and the cache of decoded
 * ones */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "base/buf.h"
#include "handmade.h"
#include "random.h"
#include "tap.h"

/* Options of a frame. */
enum {
	CHECKSUM = 1,
	SIZE = 2, /* the header has the size of the content */
};

/* Appends a frame that decodes to the n bytes of p. */
static void put_frame(struct ofs_buf *b, const void *p, size_t n, int flags)
{
	ZSTD_CCtx *c = ZSTD_createCCtx();
	size_t room = ZSTD_compressBound(n) + 64;
	uint8_t *out = malloc(room);
	ZSTD_inBuffer in = { p, n, 0 };
	ZSTD_outBuffer to = { out, room, 0 };

	ZSTD_CCtx_setParameter(c, ZSTD_c_checksumFlag, flags & CHECKSUM);
	ZSTD_CCtx_setParameter(c, ZSTD_c_contentSizeFlag, (flags & SIZE) != 0);
	if (flags & SIZE)
		ZSTD_CCtx_setPledgedSrcSize(c, n);
	if (ZSTD_compressStream2(c, &to, &in, ZSTD_e_end) != 0)
		bail_out("ZSTD_compressStream2");
	ofs_buf_put(b, out, to.pos);
	free(out);
	ZSTD_freeCCtx(c);
}

static void put_le32(struct ofs_buf *b, uint32_t v)
{
	for (int i = 0; i < 4; i++)
		ofs_buf_putc(b, (int)(v >> 8 * i & 0xff));
}

static void put_skippable(struct ofs_buf *b, uint32_t magic, uint32_t n)
{
	put_le32(b, magic);
	put_le32(b, n);
	for (uint32_t i = 0; i < n; i++)
		ofs_buf_putc(b, 0x5a);
}

/* Bytes that can be compressed, but not to nearly nothing. */
static uint8_t *compressible(size_t n)
{
	uint8_t *p = malloc(n + 1);
	uint64_t seed = n;

	for (size_t i = 0; i < n; i += 8) {
		uint64_t v = tap_random(&seed) & 0x0f0f0f0f;

		memcpy(p + i, &v, n - i < 8 ? n - i : 8);
	}
	return p;
}

/* A file of compressed bytes and a transport for it. */
struct item {
	struct handmade h;
	struct ofs_transport *t;
	struct ofs_extent at;
};

static void open_item(struct item *it, const void *bytes, size_t n,
    uint64_t cache)
{
	handmade_init(&it->h);
	handmade_file(&it->h, "item", bytes, n);
	it->t = handmade_transport(&it->h, cache);
	it->at = (struct ofs_extent){ .len = n, .codec = OFS_ZSTD };
}

static void close_item(struct item *it)
{
	ofs_transport_close(it->t);
	handmade_fini(&it->h);
}

/* Decodes n bytes: 0 with *out and *len, or -1 with err. */
static int decode(const void *bytes, size_t n, uint8_t **out, uint64_t *len,
    struct optimfs_error *err)
{
	struct item it;
	int ret;

	*out = NULL;
	open_item(&it, bytes, n, 64 << 20);
	ret =
	    ofs_transport_read_all(it.t, &it.at, UINT64_MAX - 1, out, len, err);
	close_item(&it);
	return ret;
}

static void decodes_to(const struct ofs_buf *b, const void *want, size_t n,
    const char *what)
{
	struct optimfs_error err = { 0 };
	uint8_t *got;
	uint64_t len = 0;

	is_int(decode(b->data, b->len, &got, &len, &err), 0,
	    "%s is decoded: %s", what, err.text);
	ok(len == n && got != NULL && memcmp(got, want, n) == 0,
	    "%s has its bytes", what);
	free(got);
}

static void fails(const void *bytes, size_t n, int code, const char *text,
    const char *what)
{
	struct optimfs_error err = { 0 };
	uint8_t *got;
	uint64_t len;

	is_int(decode(bytes, n, &got, &len, &err), -1, "%s is refused", what);
	is_error(err, code, text, "%s: error text", what);
	free(got);
}

static void frames(void)
{
	size_t n = 3000000;
	uint8_t *text = compressible(n);
	struct ofs_buf b = { 0 };

	for (int flags = 0; flags < 4; flags++) {
		b.len = 0;
		put_frame(&b, text, n, flags);
		decodes_to(&b, text, n, "a frame");
		b.len = 0;
		put_frame(&b, text, 200, flags);
		decodes_to(&b, text, 200, "a small frame");
	}
	b.len = 0;
	put_frame(&b, text, 0, 0);
	decodes_to(&b, text, 0, "an empty frame");
	/* Empty and skippable frames, as left by writers that flush often. */
	b.len = 0;
	put_skippable(&b, 0x184d2a50, 0);
	put_frame(&b, text, 1000, 0);
	put_skippable(&b, 0x184d2a5f, 700000);
	for (int i = 0; i < 10000; i++)
		put_frame(&b, text, 0, i % 4);
	put_frame(&b, text + 1000, n - 1000, CHECKSUM);
	put_skippable(&b, 0x184d2a53, 3);
	decodes_to(&b, text, n, "a sequence of frames of all kinds");
	ofs_buf_fini(&b);
	free(text);
}

static void bomb(void)
{
	size_t n = (size_t)256 << 20;
	uint8_t *zeros = calloc(1, n), *got = NULL, buf[64];
	struct ofs_buf b = { 0 };
	struct optimfs_error err;
	struct item it;
	uint64_t len;
	bool clear = true;

	put_frame(&b, zeros, n, 0);
	ok(b.len < 100000, "256 MiB of zeros are compressed to a small frame");
	open_item(&it, b.data, b.len, 8 << 20);
	is_int(ofs_transport_read_all(it.t, &it.at, 1 << 20, &got, &len, &err),
	    -1, "an item longer than the maximum is refused");
	is_error(err, E2BIG,
	    "OFS710 item: ", "an item longer than the maximum: error text");
	is_u64(it.t->counters.cached, 0,
	    "an item longer than the maximum is not kept in the cache");
	is_int(ofs_transport_read(it.t, &it.at, n - 64, 64, buf, &err), 0,
	    "an item larger than the cache can be read");
	for (int i = 0; i < 64; i++)
		clear = clear && buf[i] == 0;
	ok(clear, "an item larger than the cache has its bytes");
	ok(it.t->counters.cached <= 8 << 20,
	    "an item larger than the cache does not exceed the budget");
	close_item(&it);
	ofs_buf_fini(&b);
	free(zeros);
}

static void windows(void)
{
	struct ofs_buf b = { 0 };

	put_frame(&b, "hello", 5, 0);
	is_int(b.data[4], 0, "the frame's header has only a window");
	b.data[5] = (31 - 10) << 3;
	fails(b.data, b.len, E2BIG,
	    "OFS701 item: zstd item at 0 has a window of 2147483648",
	    "a window of 2 GiB");
	b.data[5] = ((27 - 10) << 3) + 1;
	fails(b.data, b.len, E2BIG, "OFS701 ", "a window just above the limit");
	b.data[5] = (27 - 10) << 3;
	decodes_to(&b, "hello", 5, "a frame with the largest window");
	ofs_buf_fini(&b);
}

static void truncated(void)
{
	uint8_t *text = compressible(2000);
	struct ofs_buf b = { 0 };
	struct optimfs_error err;
	struct item it;
	uint64_t len;
	bool good = true;

	put_frame(&b, text, 700, CHECKSUM);
	put_skippable(&b, 0x184d2a51, 5);
	put_frame(&b, text, 2000, CHECKSUM | SIZE);
	open_item(&it, b.data, b.len, 1 << 20);
	for (it.at.len = 0; it.at.len < b.len && good; it.at.len++) {
		int ret = ofs_transport_length(it.t, &it.at, &len, &err);

		good = ret == 0
		    ? len == 700
		    : err.code == EIO && strncmp(err.text, "OFS702 ", 7) == 0;
		if (!good)
			diag("at %ju: %d %s", (uintmax_t)it.at.len, ret,
			    err.text);
	}
	ok(good, "an item truncated at any byte is reported");
	close_item(&it);
	ofs_buf_fini(&b);
	free(text);
}

static void sizes(void)
{
	uint8_t *text = compressible(1000);
	struct ofs_buf b = { 0 };
	struct optimfs_error err;
	struct item it;
	uint8_t buf[8];

	put_frame(&b, text, 1000, SIZE);
	is_int(b.data[4] >> 6, 1, "the frame's header has a size of two bytes");
	b.data[5]++;
	fails(b.data, b.len, EBADMSG, "declares 1001 bytes and has 1000",
	    "a frame with fewer bytes than declared");
	fails(b.data, b.len, EBADMSG, "OFS703",
	    "a frame with fewer bytes than declared (code)");
	b.data[5] -= 2;
	fails(b.data, b.len, EBADMSG, "declares 999 bytes and has at least",
	    "a frame with more bytes than declared");
	b.data[5]++;
	open_item(&it, b.data, b.len, 1 << 20);
	is_int(ofs_transport_read(it.t, &it.at, 996, 4, buf, &err), 0,
	    "the last bytes of an item can be read");
	is_mem(buf, text + 996, 4, "the last bytes of an item are right");
	is_int(ofs_transport_read(it.t, &it.at, 996, 5, buf, &err), -1,
	    "a range past the end of an item is refused");
	is_error(err, EUCLEAN,
	    "OFS705 item: ", "a range past the end of an item: error text");
	close_item(&it);
	ofs_buf_fini(&b);
	free(text);
}

static void damaged(void)
{
	uint8_t *text = compressible(20000), *got;
	struct ofs_buf b = { 0 };
	uint64_t seed = 1, len;
	bool good = true;

	put_frame(&b, text, 20000, CHECKSUM);
	b.data[b.len - 1] ^= 1;
	fails(b.data, b.len, EBADMSG, "OFS704 ",
	    "a frame with a wrong checksum");
	b.data[b.len - 1] ^= 1;
	for (int i = 0; i < 1000 && good; i++) {
		size_t at = tap_random(&seed) % b.len;
		uint8_t was = b.data[at];
		struct optimfs_error err;

		b.data[at] ^= (uint8_t)(1 << tap_random(&seed) % 8);
		if (decode(b.data, b.len, &got, &len, &err) == 0) {
			good = len == 20000 && memcmp(got, text, len) == 0;
			free(got);
		} else {
			good = strncmp(err.text, "OFS70", 5) == 0;
		}
		if (!good)
			diag("byte %zu: %s", at, err.text);
		b.data[at] = was;
	}
	ok(good, "each flipped bit is detected or harmless");
	b.data[4] |= 8;
	fails(b.data, b.len, EBADMSG, "OFS704 ", "a frame with a reserved bit");
	ofs_buf_fini(&b);
	free(text);
}

static void dictionary(void)
{
	struct ofs_buf b = { 0 }, with = { 0 };

	put_frame(&b, "hello", 5, 0);
	ofs_buf_put(&with, b.data, 6);
	with.data[4] |= 1;
	ofs_buf_putc(&with, 7);
	ofs_buf_put(&with, b.data + 6, b.len - 6);
	fails(with.data, with.len, EOPNOTSUPP, "OFS706 ",
	    "a frame with a dictionary");
	with.data[6] = 0;
	decodes_to(&with, "hello", 5,
	    "a frame with dictionary 0, which means none,");
	ofs_buf_fini(&b);
	ofs_buf_fini(&with);
}

/* Two frames and a seek table. add is added to the second frame's size in it,
 * more to the number of frames. */
static void put_seekable(struct ofs_buf *b, uint32_t add, uint32_t more)
{
	uint8_t *text = compressible(5000);
	uint32_t first, second;

	b->len = 0;
	put_frame(b, text, 2000, 0);
	first = (uint32_t)b->len;
	put_frame(b, text + 2000, 3000, 0);
	second = (uint32_t)b->len - first;
	put_le32(b, 0x184d2a5e);
	put_le32(b, 2 * 8 + 9);
	put_le32(b, first);
	put_le32(b, 2000);
	put_le32(b, second);
	put_le32(b, 3000 + add);
	put_le32(b, 2 + more);
	ofs_buf_putc(b, 0);
	put_le32(b, 0x8f92eab1);
	free(text);
}

static void seekable(void)
{
	uint8_t *text = compressible(5000);
	struct ofs_buf b = { 0 };

	put_seekable(&b, 0, 0);
	decodes_to(&b, text, 5000, "a file with a seek table");
	put_seekable(&b, 1, 0);
	fails(b.data, b.len, EUCLEAN, "OFS707 ",
	    "a seek table with a wrong size");
	put_seekable(&b, 0, 1);
	fails(b.data, b.len, EUCLEAN, "OFS707 ",
	    "a seek table with a wrong count");
	put_seekable(&b, 0, UINT32_MAX - 2);
	fails(b.data, b.len, EUCLEAN, "OFS707 ",
	    "a seek table with a huge count");
	ofs_buf_fini(&b);
	free(text);
}

static void not_zstd(void)
{
	struct ofs_buf b = { 0 };

	fails("PK\3\4 and so on", 14, EUCLEAN, "OFS708 ", "a zip archive");
	put_frame(&b, "hello", 5, 0);
	ofs_buf_puts(&b, "hello");
	fails(b.data, b.len, EUCLEAN, "OFS708 ", "text after a frame");
	ofs_buf_fini(&b);
}

#define ITEMS 40
#define EACH  ((size_t)700000)

/* Many items in one file. */
struct many {
	struct handmade h;
	struct ofs_transport *t;
	struct ofs_extent at[ITEMS];
	uint8_t *text;
};

static void open_many(struct many *m, uint64_t cache)
{
	struct ofs_buf b = { 0 };

	m->text = compressible(EACH + ITEMS);
	handmade_init(&m->h);
	for (uint32_t i = 0; i < ITEMS; i++) {
		m->at[i] =
		    (struct ofs_extent){ .off = b.len, .codec = OFS_ZSTD };
		put_frame(&b, m->text + i, EACH, 0);
		m->at[i].len = b.len - m->at[i].off;
	}
	handmade_file(&m->h, "items", b.data, b.len);
	ofs_buf_fini(&b);
	m->t = handmade_transport(&m->h, cache);
}

static void close_many(struct many *m)
{
	ofs_transport_close(m->t);
	handmade_fini(&m->h);
	free(m->text);
}

/* Reads every third row of each item, in one fetch. */
static bool read_many(struct many *m)
{
	enum { ROW = 100, N = EACH / ROW / 3 };
	struct ofs_segment seg[ITEMS];
	uint8_t *got = malloc((size_t)ITEMS * N * ROW);
	bool good;

	for (uint32_t i = 0; i < ITEMS; i++)
		seg[i] = (struct ofs_segment){ .codec = OFS_ZSTD,
			.ext_off = m->at[ITEMS - 1 - i].off,
			.ext_len = m->at[ITEMS - 1 - i].len,
			.dst = (uint64_t)i * N * ROW,
			.len = ROW,
			.n = N,
			.src_pitch = 3 * ROW,
			.dst_pitch = ROW };
	good = ofs_transport_fetch(m->t, seg, ITEMS, got, NULL) == 0;
	for (uint32_t i = 0; i < ITEMS; i++)
		for (uint32_t r = 0; r < N && good; r++)
			good = memcmp(got + ((size_t)i * N + r) * ROW,
				   m->text + ITEMS - 1 - i + 3 * ROW * r,
				   ROW) == 0;
	free(got);
	return good;
}

static void cache(void)
{
	struct many m;

	open_many(&m, (uint64_t)ITEMS * (EACH + 4096));
	ok(read_many(&m) && read_many(&m),
	    "forty items that fit the cache can be read twice");
	is_u64(m.t->counters.decoded, ITEMS * EACH,
	    "items that fit the cache are decoded once");
	ok(m.t->counters.hits >= ITEMS,
	    "items that fit the cache are found in it");
	close_many(&m);
	open_many(&m, 4 * EACH);
	ok(read_many(&m) && read_many(&m),
	    "forty items with a cache for four can be read twice");
	ok(m.t->counters.cached <= 4 * EACH,
	    "a small cache does not exceed its budget");
	ok(m.t->counters.cached >= 2 * EACH, "a small cache uses its budget");
	close_many(&m);
	open_many(&m, 0);
	ok(read_many(&m) && read_many(&m),
	    "forty items without a cache in memory can be read twice");
	is_u64(m.t->counters.decoded, ITEMS * EACH,
	    "items without a cache in memory are kept in files");
	close_many(&m);
}

static void no_room(void)
{
	const char *tmp = getenv("TMPDIR");
	char *saved = tmp == NULL ? NULL : strdup(tmp);
	struct optimfs_error err;
	struct many m;
	uint8_t byte;

	open_many(&m, 0);
	setenv("TMPDIR", "/nonexistent", 1);
	is_int(ofs_transport_read(m.t, m.at, 0, 1, &byte, &err), -1,
	    "an item without room for its decoded bytes cannot be read");
	is_error(err, EIO, "OFS709 no temporary file in /nonexistent",
	    "an item without room for its decoded bytes fails with EIO");
	if (saved == NULL)
		unsetenv("TMPDIR");
	else
		setenv("TMPDIR", saved, 1);
	is_int(ofs_transport_read(m.t, m.at, 0, 1, &byte, &err), 0,
	    "an item can be read once there is room");
	close_many(&m);
	free(saved);
}

static void remembered(void)
{
	struct ofs_buf b = { 0 };
	struct optimfs_error err;
	struct item it;
	uint64_t len, reads;

	put_frame(&b, "hello", 5, CHECKSUM);
	b.data[b.len - 1] ^= 1;
	open_item(&it, b.data, b.len, 1 << 20);
	is_int(ofs_transport_length(it.t, &it.at, &len, &err), -1,
	    "an item with a wrong checksum has no length");
	reads = it.t->counters.reads;
	is_int(ofs_transport_length(it.t, &it.at, &len, &err), -1,
	    "an item with a wrong checksum has no length the second time");
	is_error(err, EBADMSG,
	    "OFS704 item: ", "a second failure has the same error");
	is_u64(it.t->counters.reads, reads,
	    "a second failure does not read the item again");
	handmade_write(&it.h, "item", b.len - 1, "x", 1);
	is_int(ofs_transport_length(it.t, &it.at, &len, &err), -1,
	    "a damaged item in a changed file has no length");
	is_error(err, ESTALE, "OFS751 ",
	    "a damaged item in a changed file fails with ESTALE");
	close_item(&it);
	ofs_buf_fini(&b);
}

struct job {
	struct many *m;
	bool good;
};

static void *read_job(void *arg)
{
	struct job *job = arg;

	job->good = read_many(job->m);
	return NULL;
}

static void threads(uint64_t budget, bool once)
{
	pthread_t thread[8];
	struct job job[8];
	struct many m;
	bool good = true;

	open_many(&m, budget);
	for (int i = 0; i < 8; i++) {
		job[i] = (struct job){ &m, false };
		if (pthread_create(&thread[i], NULL, read_job, &job[i]) != 0)
			bail_out("pthread_create");
	}
	for (int i = 0; i < 8; i++) {
		pthread_join(thread[i], NULL);
		good = good && job[i].good;
	}
	ok(good, "eight threads read all items with a cache of %ju bytes",
	    (uintmax_t)budget);
	if (once)
		is_u64(m.t->counters.decoded, ITEMS * EACH,
		    "eight threads decode each item once");
	close_many(&m);
}

int main(void)
{
	frames();
	bomb();
	windows();
	truncated();
	sizes();
	damaged();
	dictionary();
	seekable();
	not_zstd();
	cache();
	no_room();
	remembered();
	threads(UINT64_C(1) << 30, true);
	threads(3 * EACH, false);
	threads(0, true);
	return done_testing();
}
