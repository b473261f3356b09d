/* format/torch_file/legacy.c - streams of torch.save before version 1.6 */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <string.h>

#include "format/format.h"
#include "format/torch/torch.h"
#include "mktorch.h"
#include "tap.h"

/* Parts of a stream; NULL is what torch writes. */
struct stream {
	const char *magic, *protocol, *system;
	size_t nmagic, nprotocol;
	const char *keys; /* as opcodes that make the list */
	int64_t count;    /* of storage "10", 0 for the right one */
	size_t cut;       /* bytes that are missing at the end */
	const char *tail;
	int view; /* storage "9" is a view of something from 1 on */
};

static const float a[2] = { 1, 2 };
static const int16_t b[3] = { 3, 4, 5 };

static void put64(struct ofs_buf *out, int64_t v)
{
	for (int i = 0; i < 8; i++)
		ofs_buf_putc(out, (int)((uint64_t)v >> 8 * i & 0xff));
}

static void put_id(struct ofs_buf *out, const char *type, const char *key,
    int64_t numel, int view)
{
	mk_ops(out, "(");
	mk_str(out, "storage");
	mk_global(out, "torch", type);
	mk_str(out, key);
	mk_str(out, "cpu");
	mk_int(out, numel);
	if (view) {
		mk_ops(out, "(");
		mk_str(out, "77");
		mk_int(out, 1);
		mk_int(out, 2);
		mk_ops(out, "t");
	} else
		mk_ops(out, "N");
	mk_ops(out, "tQ");
}

static void put_tensor(struct ofs_buf *out, const char *type, const char *key,
    int64_t numel, int view)
{
	mk_global(out, "torch._utils", "_rebuild_tensor_v2");
	mk_ops(out, "(");
	put_id(out, type, key, numel, view);
	mk_int(out, 0);
	mk_tuple(out, 1, (int64_t[]){ view ? 2 : numel });
	mk_tuple(out, 1, (int64_t[]){ 1 });
	ofs_buf_putc(out, 0x89);
	mk_ops(out, "}tR");
}

/* {"a": two floats, storage "10"; "b": three shorts, storage "9"} */
static void make(struct ofs_buf *out, const struct stream *s)
{
	if (s->magic != NULL)
		ofs_buf_put(out, s->magic, s->nmagic);
	else
		ofs_buf_put(out,
		    "\x80\2\x8a\12\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.",
		    15);
	if (s->protocol != NULL)
		ofs_buf_put(out, s->protocol, s->nprotocol);
	else
		ofs_buf_put(out, "\x80\2M\xe9\3.", 6);
	mk_begin(out);
	mk_ops(out, "}");
	mk_str(out, "little_endian");
	mk_ops(out, s->system != NULL ? s->system : "\x88");
	mk_ops(out, "s");
	mk_end(out);
	mk_begin(out);
	mk_ops(out, "}(");
	mk_str(out, "a");
	put_tensor(out, "FloatStorage", "10", 2, 0);
	mk_str(out, "b");
	put_tensor(out, "ShortStorage", "9", 3, s->view);
	mk_ops(out, "u");
	mk_end(out);
	mk_begin(out);
	mk_ops(out,
	    s->keys != NULL ? s->keys
			    : "](U\2"
			      "10U\1"
			      "9e");
	mk_end(out);
	put64(out, s->count != 0 ? s->count : 2);
	ofs_buf_put(out, a, sizeof(a));
	put64(out, 3);
	ofs_buf_put(out, b, sizeof(b));
	out->len -= s->cut;
	if (s->tail != NULL)
		ofs_buf_puts(out, s->tail);
}

static int read_stream(struct mktorch *m, const struct stream *s,
    struct optimfs_error *err)
{
	struct ofs_buf out = { 0 };
	int ret;

	mktorch_init(m);
	make(&out, s);
	ret = mktorch_read_bytes(m, &ofs_format_torch, "l.pt", out.data,
	    out.len, NULL, err);
	ofs_buf_fini(&out);
	return ret;
}

static void good(void)
{
	struct optimfs_error err;
	struct mktorch m;
	uint8_t buf[8];

	if (!is_int(read_stream(&m, &(struct stream){ 0 }, &err), 0, "reads"))
		diag("%s", err.text);
	is_str(mktorch_paths(&m), "T a\nT b\n", "paths");
	is_int(mktorch_bytes(&m, "a", buf, 8, &err), 0, "floats");
	is_mem(buf, a, 8, "their bytes");
	is_int(mktorch_bytes(&m, "b", buf, 6, &err), 0, "shorts");
	is_mem(buf, b, 6, "their bytes");
	mktorch_fini(&m);
	is_int(read_stream(&m, &(struct stream){ .view = 1 }, &err), 0,
	    "a storage that is a view");
	is_int(mktorch_bytes(&m, "b", buf, 4, &err), 0, "reads");
	is_mem(buf, b + 1, 4, "from its offset on");
	mktorch_fini(&m);
	is_int(read_stream(&m, &(struct stream){ .tail = "xyz" }, &err), 0,
	    "bytes at the end");
	ok(mktorch_noted(&m, OFS_NOTE_WARNING, "OFS405"), "are noted");
	mktorch_fini(&m);
}

/* Row R01 */
static void refused(void)
{
	static const struct {
		struct stream s;
		const char *what;
	} cases[] = {
		{ { .protocol = "\x80\2M\xea\3.", .nprotocol = 6 },
		    "protocol 1002" },
		{ { .protocol = "\x80\2N.", .nprotocol = 4 }, "no protocol" },
		{ { .system = "\x89" }, "a big-endian writer" },
		{ { .system = "K\1" }, "an odd byte order" },
		{ { .keys = "](U\1"
			    "9U\2"
			    "10e" },
		    "keys out of order" },
		{ { .keys = "](U\2"
			    "10U\2"
			    "10e" },
		    "a key twice" },
		{ { .keys = "](U\2"
			    "10U\1"
			    "8e" },
		    "a key nothing uses" },
		{ { .keys = "](U\2"
			    "10U\1"
			    "9U\2"
			    "99e" },
		    "a key too many" },
		{ { .keys = "](K\1e" }, "a key that is no string" },
		{ { .keys = "}" }, "keys that are no list" },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct optimfs_error err;
		struct mktorch m;

		is_int(read_stream(&m, &cases[i].s, &err), -1, "%s",
		    cases[i].what);
		is_error(err, EUCLEAN, "OFS671 l.pt", "is refused");
		mktorch_fini(&m);
	}
}

/* Row R02: what comes before the damage reads. */
static void lost(void)
{
	struct optimfs_error err;
	struct mktorch m;
	uint8_t buf[8];

	is_int(read_stream(&m, &(struct stream){ .cut = 1 }, &err), 0,
	    "the last byte is missing");
	is_int(mktorch_bytes(&m, "a", buf, 8, &err), 0, "the first reads");
	is_mem(buf, a, 8, "its bytes");
	is_int(mktorch_bytes(&m, "b", buf, 6, &err), -1, "the last does not");
	is_error(err, EIO, "OFS672 storage '9'", "says why");
	ok(mktorch_noted(&m, OFS_NOTE_MISSING, "OFS672 l.pt: 1 storages"),
	    "is noted");
	mktorch_fini(&m);
	for (int64_t n = -1; n < 4; n += 4) {
		is_int(read_stream(&m, &(struct stream){ .count = n }, &err), 0,
		    "a count of %d", (int)n);
		is_int(mktorch_bytes(&m, "a", buf, 8, &err), -1, "first");
		is_error(err, EIO, "OFS672", "is lost");
		is_int(mktorch_bytes(&m, "b", buf, 6, &err), -1, "last");
		is_error(err, EIO, "OFS672", "with all behind it");
		mktorch_fini(&m);
	}
	is_int(read_stream(&m, &(struct stream){ .count = (int64_t)1 << 40 },
		   &err),
	    0, "2^40 elements");
	is_int(mktorch_bytes(&m, "a", buf, 8, &err), -1, "are not there");
	mktorch_fini(&m);
	is_int(read_stream(&m,
		   &(struct stream){ .keys = "](U\2"
					     "10e" },
		   &err),
	    0, "a storage that the keys leave out");
	is_int(mktorch_bytes(&m, "b", buf, 6, &err), -1, "is missing");
	is_error(err, EIO, "OFS672", "says why");
	mktorch_fini(&m);
}

/* A stream that is cut within its pickles. */
static void cut(void)
{
	struct ofs_buf whole = { 0 };
	struct optimfs_error err;
	size_t n, wrong = 0;

	make(&whole, &(struct stream){ 0 });
	n = whole.len - sizeof(a) - sizeof(b) - 16;
	for (size_t i = 15; i < n; i += 7) {
		struct mktorch m;

		mktorch_init(&m);
		if (mktorch_read_bytes(&m, &ofs_format_torch, "l.pt",
			whole.data, i, NULL, &err) == 0 ||
		    err.code != EUCLEAN || strncmp(err.text, "OFS4", 4) != 0) {
			wrong++;
			diag("%zu bytes: %s", i, err.text);
		}
		mktorch_fini(&m);
	}
	is_u64(wrong, 0, "cut pickles are refused");
	ofs_buf_fini(&whole);
}

/* Pickles longer than what is read at first. */
static void large(void)
{
	struct ofs_buf out = { 0 };
	struct optimfs_error err;
	struct mktorch m;
	uint8_t buf[6];

	ofs_buf_put(&out,
	    "\x80\2\x8a\12\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."
	    "\x80\2M\xe9\3.\x80\2}X\15\0\0\0little_endian\x88s.",
	    15 + 6 + 24);
	mk_begin(&out);
	mk_ops(&out, "}(");
	for (int i = 0; i < 30000; i++) {
		mk_int(&out, i);
		mk_ops(&out, "N");
	}
	mk_str(&out, "b");
	put_tensor(&out, "ShortStorage", "9", 3, 0);
	mk_ops(&out, "u");
	mk_end(&out);
	mk_begin(&out);
	mk_ops(&out,
	    "](U\1"
	    "9e");
	mk_end(&out);
	put64(&out, 3);
	ofs_buf_put(&out, b, sizeof(b));
	mktorch_init(&m);
	if (!is_int(mktorch_read_bytes(&m, &ofs_format_torch, "l.pt", out.data,
			out.len, NULL, &err),
		0, "a pickle of %zu bytes", out.len))
		diag("%s", err.text);
	is_int(mktorch_bytes(&m, "b", buf, 6, &err), 0, "its tensor reads");
	is_mem(buf, b, 6, "its bytes");
	mktorch_fini(&m);
	ofs_buf_fini(&out);
}

int main(void)
{
	good();
	refused();
	lost();
	cut();
	large();
	return done_testing();
}
