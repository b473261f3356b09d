/* rewrite.c - rewriting of torch.save archives and their pickles */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "archive/torch.h"
#include "archive/zip.h"
#include "archive/zip_write.h"
#include "pickle/pickle.h"
#include "pickle/write.h"
#include "support/truth.h"
#include "tap.h"

struct bytes {
	const uint8_t *p;
	uint64_t n;
};

static unsigned narchives, ntensors, nvalues;

static int read_bytes(void *ctx, uint64_t off, uint64_t len, void *buf,
    struct optimfs_error *err)
{
	const struct bytes *b = ctx;

	if (off > b->n || len > b->n - off)
		return optimfs_fail(err, EIO, "out of the archive");
	memcpy(buf, b->p + off, len);
	return 0;
}

static int by_header(const void *a, const void *b)
{
	const struct ofs_zip_record *x = a, *y = b;

	return x->header < y->header ? -1 : x->header > y->header;
}

/* Writes the archive again from the names and bytes of its records. */
static void write_again(const struct bytes *a, const struct ofs_zip *zip,
    struct ofs_buf *out)
{
	struct ofs_zip_record *r = calloc(zip->n, sizeof(*r));
	struct ofs_buf directory = { 0 };
	char prefix[64], name[256];
	uint64_t start;

	memcpy(r, zip->record, zip->n * sizeof(*r));
	qsort(r, zip->n, sizeof(*r), by_header);
	snprintf(prefix, sizeof(prefix), "%.*s", (int)zip->prefix.len,
	    zip->prefix.p);
	for (size_t i = 0; i < zip->n; i++) {
		struct ofs_zip_new new = { prefix, name, out->len, r[i].size,
			r[i].crc };
		struct optimfs_error err;
		uint64_t off = 0;

		snprintf(name, sizeof(name), "%.*s", (int)r[i].name.len,
		    r[i].name.p);
		if (ofs_zip_data(zip, &r[i], read_bytes, (void *)a, &off,
			&err) == -1)
			bail_out("%s", err.text);
		ofs_zip_put_local(out, &new);
		ofs_buf_put(out, a->p + off, r[i].size);
		ofs_zip_put_descriptor(out, &new);
		if (out->len != ofs_zip_next(&new))
			ok(false, "a record's length is known in advance");
		ofs_zip_put_central(&directory, &new);
	}
	start = out->len;
	ofs_buf_put(out, directory.data, directory.len);
	ofs_zip_put_end(out, zip->n, start, directory.len);
	ofs_buf_fini(&directory);
	free(r);
}

static void pickle_again(const uint8_t *p, uint64_t n, const char *what)
{
	struct optimfs_error err;
	struct ofs_pickle *doc =
	    ofs_pickle_parse(p, n, false, NULL, NULL, &err);
	struct ofs_torch_tensor t;
	struct ofs_buf out = { 0 };
	struct ofs_pkw w = { .out = &out };
	uint32_t root;
	int ret;

	if (doc == NULL)
		bail_out("%s: %s", what, err.text);
	root = ofs_pickle_root(doc);
	ofs_pkw_begin(&w);
	if (ofs_torch_tensor(doc, root, &t, &err) == 1) {
		ret = ofs_pkw_tensor(&w, t.dtype, 0, t.shape, t.ndim, &err);
		ntensors++;
	} else {
		ret = ofs_pkw_node(&w, doc, root, &err);
		nvalues++;
	}
	ofs_pkw_op(&w, OFS_PKW_STOP);
	if (ret == -1)
		ok(false, "%s: %s", what, err.text);
	else if (out.len != n || memcmp(out.data, p, n) != 0)
		is_mem(out.data, p, out.len < n ? out.len : n,
		    "%s: the pickle equals PyTorch's", what);
	ofs_buf_fini(&out);
	ofs_pickle_free(doc);
}

static void archive(const struct bytes *a, const char *what)
{
	const struct ofs_zip_record *pickle;
	struct ofs_buf out = { 0 };
	struct optimfs_error err;
	struct ofs_zip zip;
	uint64_t off = 0;

	if (ofs_zip_open(&zip, a->n, read_bytes, (void *)a, &err) == -1)
		bail_out("%s: %s", what, err.text);
	write_again(a, &zip, &out);
	if (out.len != a->n || memcmp(out.data, a->p, a->n) != 0)
		is_mem(out.data, a->p, out.len < a->n ? out.len : a->n,
		    "%s: the archive equals PyTorch's", what);
	narchives++;
	pickle = ofs_zip_find(&zip, "data.pkl", strlen("data.pkl"));
	ofs_zip_data(&zip, pickle, read_bytes, (void *)a, &off, NULL);
	pickle_again(a->p + off, pickle->size, what);
	ofs_buf_fini(&out);
	ofs_zip_fini(&zip);
}

/* Rewrites each item of a .distcp file; an item ends with its end record. */
static void items(const char *path)
{
	FILE *f = fopen(data_path(path), "rb");
	uint8_t *all = malloc(1 << 22);
	size_t n, from = 0;

	if (f == NULL || all == NULL)
		bail_out("%s: cannot be read", path);
	n = fread(all, 1, 1 << 22, f);
	fclose(f);
	for (size_t i = 0; i + 22 <= n; i++) {
		struct bytes item = { all + from, i + 22 - from };
		char what[256];

		if (memcmp(all + i, "PK\5\6", 4) != 0)
			continue;
		snprintf(what, sizeof(what), "%s at %zu", path, from);
		archive(&item, what);
		from = i + 22;
	}
	is_u64(from, n, "%s: the last item ends with the file", path);
	free(all);
}

static void big_records(void)
{
	struct ofs_zip_new small = { "archive/", "data/0", 0, 24, 7 };
	struct ofs_zip_new big = small, far = small, both;
	struct ofs_buf b = { 0 };

	big.size = UINT32_MAX;
	far.header = (uint64_t)5 << 30;
	both = big;
	both.header = far.header;
	is_u64(ofs_zip_descriptor_len(&small), 16,
	    "a small record has a descriptor with 32-bit sizes");
	is_u64(ofs_zip_descriptor_len(&big), 24,
	    "a record of 2^32 - 1 bytes has a descriptor with 64-bit sizes");
	is_u64(ofs_zip_descriptor_len(&far), 24,
	    "a record beyond 4 GiB has a descriptor with 64-bit sizes");
	is_u64(ofs_zip_central_len(&big) - ofs_zip_central_len(&small), 20,
	    "the central entry of a large record adds two sizes");
	is_u64(ofs_zip_central_len(&far) - ofs_zip_central_len(&small), 12,
	    "the central entry of a far record adds an offset");
	is_u64(ofs_zip_central_len(&both) - ofs_zip_central_len(&small), 28,
	    "the central entry of a large, far record adds both");
	is_u64((far.header + ofs_zip_local_len(&far)) % 64, 0,
	    "the data of a far record are aligned");
	is_u64((both.header + ofs_zip_local_len(&both)) % 64, 0,
	    "the data of a large, far record are aligned");
	ofs_zip_put_local(&b, &both);
	is_u64(b.len, ofs_zip_local_len(&both),
	    "a local header has the predicted length");
	ofs_buf_fini(&b);
	small.size = 0;
	is_u64(ofs_zip_descriptor_len(&small), 0,
	    "a record without bytes has no descriptor");
}

/* Rewrites a pickle. want is the expected pickle or, if nwant is 0, the
 * error. */
static void put_value(const char *what, const char *p, size_t n,
    const char *want, size_t nwant, bool copies)
{
	struct optimfs_error err;
	struct ofs_pickle *doc =
	    ofs_pickle_parse((const uint8_t *)p, n, false, NULL, NULL, &err);
	struct ofs_buf out = { 0 };
	struct ofs_pkw w = { .out = &out, .copies = copies };
	int ret;

	if (doc == NULL)
		bail_out("%s: %s", what, err.text);
	ofs_pkw_begin(&w);
	ret = ofs_pkw_node(&w, doc, ofs_pickle_root(doc), &err);
	ofs_pkw_op(&w, OFS_PKW_STOP);
	if (nwant == 0)
		is_error(err,
		    strncmp(want, "OFS445", 6) == 0 ? EPERM : EOPNOTSUPP, want,
		    "%s", what);
	else if (ret == -1)
		ok(false, "%s: %s", what, err.text);
	else
		ok(out.len == nwant && memcmp(out.data, want, nwant) == 0, "%s",
		    what);
	ofs_buf_fini(&out);
	ofs_pickle_free(doc);
}

static void value(const char *what, const char *p, size_t n, const char *want,
    size_t nwant)
{
	put_value(what, p, n, want, nwant, false);
}

/* Objects of unknown globals: refused by default, and copied if that is
 * allowed. */
static void copy(const char *what, const char *p, size_t n, const char *want,
    size_t nwant)
{
	put_value(what, p, n, "OFS445", 0, false);
	put_value(what, p, n, want, nwant, true);
}

#define BYTES(s) s, sizeof(s) - 1
#define SAME(s)  BYTES(s), BYTES(s)

static void values(void)
{
	value("a shared list stays shared", SAME("\x80\2]q\0(]q\1K\1ah\1e."));
	value("integers of each length",
	    SAME("\x80\2]q\0(K\xffM\0\1J\0\0\1\0J\xff\xff\xff\xff"
		 "\x8a\5\0\0\0\x80\0\x8a\5\xff\xff\xff\x7f\xff"
		 "\x8a\x08\0\0\0\0\0\0\0\x80\x8a\x09\0\0\0\0\0\0\0\x80\0e."));
	value("torch.Size",
	    SAME("\x80\2"
		 "ctorch\nSize\nq\0K\2K\3\x86q\1"
		 "\x85q\2Rq\3."));
	value("OrderedDict",
	    SAME("\x80\2"
		 "ccollections\nOrderedDict\nq\0)Rq\1X\1\0\0\0aq\2"
		 "K\1s."));
	value("bytes",
	    SAME("\x80\2"
		 "c_codecs\nencode\nq\0X\3\0\0\0a\xc3\xbf"
		 "q\1X\6\0\0\0latin1q\2\x86q\3Rq\4."));
	value("a set",
	    SAME("\x80\2"
		 "c__builtin__\nset\nq\0]q\1(K\1K\2e"
		 "\x85q\2Rq\3."));
	value("a builtin of protocol 4 gets its protocol 2 name",
	    BYTES("\x80\4\x8c\x08"
		  "builtins\x8c\7complex\x93G\0\0\0\0\0\0\0\0"
		  "G\0\0\0\0\0\0\0\0\x86R."),
	    BYTES("\x80\2"
		  "c__builtin__\ncomplex\nq\0G\0\0\0\0\0\0\0\0"
		  "G\0\0\0\0\0\0\0\0\x86q\1Rq\2."));
	value("an object with a state",
	    SAME("\x80\2"
		 "cargparse\nNamespace\nq\0)\x81q\1}q\2X\1\0\0\0aq\3"
		 "K\1sb."));
	value("a call of os.system is refused",
	    BYTES("\x80\2"
		  "cos\nsystem\nq\0X\1\0\0\0aq\1\x85Rq\2."),
	    "OFS445", 0);
	value("the global os.system is refused",
	    BYTES("\x80\2"
		  "cos\nsystem\nq\0."),
	    "OFS445", 0);
	value("getattr of a function is refused",
	    BYTES("\x80\2"
		  "c__builtin__\ngetattr\nq\0ctorch\nSize\nq\1"
		  "X\1\0\0\0aq\2\x86Rq\3."),
	    "OFS445", 0);
	value("a list that contains itself", SAME("\x80\2]q\0h\0a."));
	value("two lists that contain each other",
	    SAME("\x80\2]q\0]q\1h\0aa."));
	value("a tuple of a list that contains the tuple",
	    BYTES("\x80\2]q\0(K\5h\0\x85q\1e0h\1."),
	    BYTES("\x80\2]q\0(K\5h\0\x85q\1e\x85q\2"
		  "0h\1."));
	value("a tuple of four in a list of one",
	    SAME("\x80\2]q\0(K\1K\2K\3K\4tq\1a."));
}

static void copies(void)
{
	copy("an object of an unknown class",
	    SAME("\x80\2"
		 "cmy\nRun\nq\0)\x81q\1}q\2X\1\0\0\0aq\3K\1sb."));
	copy("a call of an unknown function",
	    SAME("\x80\2"
		 "cmy\nmake\nq\0K\1\x85q\1Rq\2."));
	copy("an instance of an unknown dict class, with attributes",
	    SAME("\x80\2"
		 "cmy\nDict\nq\0K\7\x85q\1\x81q\2"
		 "(X\1\0\0\0aq\3K\1X\1\0\0\0bq\4h\0u"
		 "}q\5X\1\0\0\0xq\6K\2sb."));
	copy("an instance of an unknown list class, with attributes",
	    SAME("\x80\2"
		 "cmy\nList\nq\0)Rq\1(K\1K\2e}q\2X\1\0\0\0xq\3K\3sb."));
	copy("a defaultdict with an unknown factory",
	    SAME("\x80\2"
		 "ccollections\ndefaultdict\nq\0cmy\nmake\nq\1\x85q\2Rq\3"
		 "X\1\0\0\0aq\4K\1s."));
	copy("a nested class of protocol 4 becomes getattr",
	    BYTES("\x80\4\x8c\2my\x8c\5A.B.C\x93)\x81."),
	    BYTES("\x80\2"
		  "c__builtin__\ngetattr\nq\0h\0cmy\nA\nX\1\0\0\0Bq\1\x86q\2R"
		  "X\1\0\0\0Cq\3\x86q\4Rq\5)\x81q\6."));
	copy("a member found by getattr",
	    SAME("\x80\2"
		 "c__builtin__\ngetattr\nq\0cmy\nKind\nq\1"
		 "X\1\0\0\0Aq\2\x86q\3Rq\4."));
	copy("an object that contains itself",
	    SAME("\x80\2"
		 "cmy\nRun\nq\0)\x81q\1}q\2X\1\0\0\0aq\3h\1sb."));
	copy("an object whose argument is a list that contains the object",
	    BYTES("\x80\2"
		  "cmy\nRun\nq\0]q\1h\0h\1\x85Rq\2a\x85R0h\2."),
	    BYTES("\x80\2"
		  "cmy\nRun\nq\0]q\1h\0h\1\x85q\2Rq\3a\x85q\4"
		  "0h\2Rq\5"
		  "0h\3."));
	copy("an object made with keywords",
	    BYTES("\x80\4\x8c\2my\x8c\3Run\x93)}\x8c\1aK\1s\x92."),
	    BYTES("\x80\2"
		  "cmy\nRun\nq\0)}q\1X\1\0\0\0aq\2K\1s\x92q\3."));
	value("a defaultdict keeps its factory",
	    SAME("\x80\2"
		 "ccollections\ndefaultdict\nq\0c__builtin__\nlist\nq\1\x85q\2"
		 "Rq\3."));
}

/* Batches of 1000 items, as Python writes them. */
static void long_list(void)
{
	struct ofs_buf p = { 0 };

	ofs_buf_put(&p, "\x80\2]q\0(", 6);
	for (int i = 0; i < 1500; i++) {
		if (i == 1000)
			ofs_buf_puts(&p, "e(");
		ofs_buf_put(&p, "K\1", 2);
	}
	ofs_buf_puts(&p, "e.");
	value("1500 items are written in two batches", (char *)p.data, p.len,
	    (char *)p.data, p.len);
	ofs_buf_fini(&p);
}

int main(void)
{
	items("pytorch/dcp_fsdp2_w2/ckpt/__0_0.distcp");
	items("pytorch/dcp_fsdp2_w2/ckpt/__1_0.distcp");
	items("pytorch/dcp_hsdp_w4/ckpt/__2_0.distcp");
	items("pytorch/dcp_opt_amsgrad_w2/ckpt/__1_0.distcp");
	ok(narchives > 100, "%u archives are rewritten byte for byte",
	    narchives);
	ok(ntensors > 50 && nvalues > 20,
	    "%u pickles of tensors, %u of values are rewritten equally",
	    ntensors, nvalues);
	big_records();
	values();
	copies();
	long_list();
	return done_testing();
}
