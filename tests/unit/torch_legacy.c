/* torch_legacy.c - streams of torch.save before version 1.6 */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <string.h>

#include "format/format.h"
#include "format/torch/torch.h"
#include "mktorch.h"
#include "tap.h"

/* Parts of a stream. NULL or 0: what torch writes. */
struct stream {
	const char *magic, *protocol, *system;
	size_t nmagic, nprotocol;
	const char *keys; /* opcodes of the list of storage keys */
	int64_t count;    /* stored length of storage "10" */
	size_t cut;       /* number of bytes removed from the end */
	const char *tail;
	int view; /* storage "9" is a view that begins at element 1 */
	bool net; /* a module "net" and its class "type" */
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

/* The class of a module, as it is written the first time. */
static void put_module_class(struct ofs_buf *out)
{
	mk_ops(out, "(");
	mk_str(out, "module");
	mk_global(out, "net", "Net");
	mk_str(out, "/home/me/net.py");
	mk_str(out, "class Net(torch.nn.Module):\n    pass\n");
	mk_ops(out, "tQ");
}

static void put_net(struct ofs_buf *out)
{
	mk_str(out, "net");
	put_module_class(out);
	mk_ops(out, ")\x81}");
	mk_str(out, "training");
	mk_ops(out, "\x88sb");
	mk_str(out, "type");
	put_module_class(out);
}

/* {"a": two floats in storage "10", "b": three shorts in storage "9"} */
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
	if (s->net)
		put_net(out);
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

	if (!is_int(read_stream(&m, &(struct stream){ 0 }, &err), 0,
		"a stream is read"))
		diag("%s", err.text);
	is_str(mktorch_paths(&m), "T a\nT b\n", "a stream: paths");
	is_int(mktorch_bytes(&m, "a", buf, 8, &err), 0,
	    "a stream: the float tensor can be read");
	is_mem(buf, a, 8, "a stream: bytes of the float tensor");
	is_int(mktorch_bytes(&m, "b", buf, 6, &err), 0,
	    "a stream: the short tensor can be read");
	is_mem(buf, b, 6, "a stream: bytes of the short tensor");
	mktorch_fini(&m);
	is_int(read_stream(&m, &(struct stream){ .view = 1 }, &err), 0,
	    "a stream with a storage view is read");
	is_int(mktorch_bytes(&m, "b", buf, 4, &err), 0,
	    "a tensor of a storage view can be read");
	is_mem(buf, b + 1, 4,
	    "a tensor of a storage view begins at its offset");
	mktorch_fini(&m);
	is_int(read_stream(&m, &(struct stream){ .tail = "xyz" }, &err), 0,
	    "a stream with extra bytes at the end is read");
	ok(mktorch_noted(&m, OFS_NOTE_WARNING, "OFS405"),
	    "extra bytes at the end of a stream are a warning");
	mktorch_fini(&m);
}

/* The class of a module is a persistent id, with the file it is from. */
static void module(void)
{
	struct optimfs_error err;
	struct mktorch m;
	uint8_t buf[6];

	if (!is_int(read_stream(&m, &(struct stream){ .net = true }, &err), 0,
		"a stream with a module is read"))
		diag("%s", err.text);
	is_str(mktorch_paths(&m), "T a\nT b\nV net\nV type\n",
	    "the module of a stream, and its class, are values");
	is_int(mktorch_bytes(&m, "b", buf, 6, &err), 0,
	    "a tensor beside a module can be read");
	is_mem(buf, b, 6, "bytes of a tensor beside a module");
	ok(!mktorch_noted(&m, OFS_NOTE_WARNING, "OFS421"),
	    "the class of a module is not taken for a tensor");
	mktorch_fini(&m);
}

/* Malformed headers and key lists. */
static void refused(void)
{
	static const struct {
		struct stream s;
		const char *what;
	} cases[] = {
		{ { .protocol = "\x80\2M\xea\3.", .nprotocol = 6 },
		    "protocol 1002" },
		{ { .protocol = "\x80\2N.", .nprotocol = 4 },
		    "a missing protocol" },
		{ { .system = "\x89" }, "a big-endian writer" },
		{ { .system = "K\1" }, "a byte order that is an int" },
		{ { .keys = "](U\1"
			    "9U\2"
			    "10e" },
		    "keys out of order" },
		{ { .keys = "](U\2"
			    "10U\2"
			    "10e" },
		    "a duplicate key" },
		{ { .keys = "](U\2"
			    "10U\1"
			    "8e" },
		    "a key that no tensor uses" },
		{ { .keys = "](U\2"
			    "10U\1"
			    "9U\2"
			    "99e" },
		    "a superfluous key" },
		{ { .keys = "](K\1e" }, "a key that is an int" },
		{ { .keys = "}" }, "keys that are a dict" },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct optimfs_error err;
		struct mktorch m;

		is_int(read_stream(&m, &cases[i].s, &err), -1,
		    "%s: the stream is refused", cases[i].what);
		is_error(err, EUCLEAN, "OFS671 l.pt", "%s: error text",
		    cases[i].what);
		mktorch_fini(&m);
	}
}

/* Storages before the damage can be read. */
static void lost(void)
{
	struct optimfs_error err;
	struct mktorch m;
	uint8_t buf[8];

	is_int(read_stream(&m, &(struct stream){ .cut = 1 }, &err), 0,
	    "a stream without its last byte opens");
	is_int(mktorch_bytes(&m, "a", buf, 8, &err), 0,
	    "a truncated stream: the first tensor can be read");
	is_mem(buf, a, 8, "a truncated stream: bytes of the first tensor");
	is_int(mktorch_bytes(&m, "b", buf, 6, &err), -1,
	    "a truncated stream: the last tensor cannot be read");
	is_error(err, EIO, "OFS672 storage '9'",
	    "a truncated stream: error text");
	ok(mktorch_noted(&m, OFS_NOTE_MISSING, "OFS672 l.pt: 1 storages"),
	    "a truncated stream: a note of the missing storage");
	mktorch_fini(&m);
	for (int64_t n = -1; n < 4; n += 4) {
		is_int(read_stream(&m, &(struct stream){ .count = n }, &err), 0,
		    "a stream with a storage length of %d opens", (int)n);
		is_int(mktorch_bytes(&m, "a", buf, 8, &err), -1,
		    "a storage length of %d: its tensor cannot be read",
		    (int)n);
		is_error(err, EIO, "OFS672",
		    "a storage length of %d: error text", (int)n);
		is_int(mktorch_bytes(&m, "b", buf, 6, &err), -1,
		    "a storage length of %d: the next tensor cannot be read",
		    (int)n);
		is_error(err, EIO, "OFS672",
		    "a storage length of %d: error text of the next tensor",
		    (int)n);
		mktorch_fini(&m);
	}
	is_int(read_stream(&m, &(struct stream){ .count = (int64_t)1 << 40 },
		   &err),
	    0, "a stream with a storage length of 2^40 opens");
	is_int(mktorch_bytes(&m, "a", buf, 8, &err), -1,
	    "a storage length of 2^40: its tensor cannot be read");
	mktorch_fini(&m);
	is_int(read_stream(&m,
		   &(struct stream){ .keys = "](U\2"
					     "10e" },
		   &err),
	    0, "a stream with a storage missing in the key list opens");
	is_int(mktorch_bytes(&m, "b", buf, 6, &err), -1,
	    "a storage missing in the key list cannot be read");
	is_error(err, EIO, "OFS672",
	    "a storage missing in the key list: error text");
	mktorch_fini(&m);
}

/* A stream that is truncated within its pickles. */
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
	is_u64(wrong, 0, "a stream truncated in its pickles is refused");
	ofs_buf_fini(&whole);
}

/* Pickles longer than the first read. */
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
		0, "a stream with a pickle of %zu bytes is read", out.len))
		diag("%s", err.text);
	is_int(mktorch_bytes(&m, "b", buf, 6, &err), 0,
	    "a tensor after a long pickle can be read");
	is_mem(buf, b, 6, "bytes of a tensor after a long pickle");
	mktorch_fini(&m);
	ofs_buf_fini(&out);
}

int main(void)
{
	good();
	module();
	refused();
	lost();
	cut();
	large();
	return done_testing();
}
