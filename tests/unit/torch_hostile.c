/* torch_hostile.c - damaged and malicious torch.save files; P and T are rows of
 * docs/formats */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cluster/source.h"
#include "format/torch/torch.h"
#include "mktorch.h"
#include "mkzip.h"
#include "pickle/pickle.h"
#include "tap.h"

/* Begins {"t": ..., "good": a valid tensor}. The caller appends the value of
 * "t". */
static void begin(struct mktorch *m)
{
	mktorch_init(m);
	mk_ops(&m->pickle, "}(");
	mk_str(&m->pickle, "t");
}

static void finish(struct mktorch *m)
{
	mk_str(&m->pickle, "good");
	mk_good(&m->pickle, "0");
	mk_ops(&m->pickle, "u");
	mk_end(&m->pickle);
}

/* The file opens, "t" cannot be read for this reason, and "good" can. */
static void one_refused(struct mktorch *m, int code, const char *text,
    const char *what)
{
	struct optimfs_error err;
	uint8_t buf[64];

	finish(m);
	if (!is_int(mktorch_read(m, NULL, &err), 0, "%s: the file opens", what))
		diag("%s", err.text);
	is_int(mktorch_bytes(m, "t", buf, 16, &err), -1,
	    "%s: the tensor cannot be read", what);
	is_error(err, code, text, "%s: error text", what);
	is_int(mktorch_bytes(m, "good", buf, 16, &err), 0,
	    "%s: another tensor can be read", what);
	is_mem(buf, m->storage[0], 16, "%s: another tensor has its bytes",
	    what);
	mktorch_fini(m);
}

static void tensor_refused(const struct mk_tensor *t, int code,
    const char *text, const char *what)
{
	struct mktorch m;

	begin(&m);
	mk_tensor(&m.pickle, t);
	m.storage[1] = "0123456789abcdef";
	m.size[1] = 16;
	one_refused(&m, code, text, what);
}

/* Tensors that do not fit their storage, or have invalid numbers. */
static void geometry(void)
{
	static const struct {
		struct mk_tensor t;
		int code;
		const char *text, *what;
	} cases[] = {
		{ { .numel = 3, .ndim = 1, .shape = { 3 }, .stride = { 1 } },
		    EUCLEAN, "OFS527", "a record longer than declared" },
		{ { .numel = 5, .ndim = 1, .shape = { 4 }, .stride = { 1 } },
		    EUCLEAN, "OFS527", "a record shorter than declared" },
		{ { .numel = INT64_MAX,
		      .ndim = 1,
		      .shape = { 4 },
		      .stride = { 1 } },
		    EUCLEAN, "OFS433", "a size that overflows" },
		{ { .numel = 4, .ndim = 1, .shape = { 5 }, .stride = { 1 } },
		    EUCLEAN, "OFS528", "a shape one element too large" },
		{ { .numel = 4,
		      .ndim = 1,
		      .shape = { 2 },
		      .stride = { 1 },
		      .offset = 3 },
		    EUCLEAN, "OFS528", "an offset past the storage" },
		{ { .numel = 4,
		      .ndim = 1,
		      .shape = { 1 },
		      .stride = { 1 },
		      .offset = INT64_MAX },
		    EUCLEAN, "OFS528", "an offset of 2^63 - 1" },
		{ { .numel = 4,
		      .ndim = 2,
		      .shape = { 2, 2 },
		      .stride = { 4, 1 } },
		    EUCLEAN, "OFS528", "a stride that leaves the storage" },
		{ { .numel = 4,
		      .ndim = 3,
		      .shape = { 4194305, 4194305, 211106198978564 },
		      .stride = { 1, 1, 1 } },
		    EUCLEAN, "OFS528", "a shape whose size wraps to 4" },
		{ { .numel = 4,
		      .ndim = 1,
		      .shape = { INT64_MAX },
		      .stride = { 0 } },
		    EUCLEAN, "OFS528", "a tensor larger than any file" },
		{ { .numel = 4,
		      .ndim = 1,
		      .shape = { 2 },
		      .stride = { -1 },
		      .offset = 2 },
		    EUCLEAN, "OFS529", "a negative stride" },
		{ { .numel = 4,
		      .ndim = 2,
		      .shape = { 3, 3 },
		      .stride = { INT64_MAX, 1 } },
		    EUCLEAN, "OFS529", "strides that overflow" },
		{ { .numel = 4,
		      .ndim = 2,
		      .nstride = 1,
		      .shape = { 2, 2 },
		      .stride = { 2 } },
		    EUCLEAN, "OFS529", "too few strides" },
		{ { .numel = 4, .ndim = 1, .shape = { -4 }, .stride = { 1 } },
		    EUCLEAN, "OFS417 negative size -4", "a negative size" },
		{ { .numel = -4, .ndim = 1, .shape = { 4 }, .stride = { 1 } },
		    EUCLEAN, "OFS417 negative storage size",
		    "a negative storage size" },
		{ { .numel = 4,
		      .ndim = 1,
		      .shape = { 4 },
		      .stride = { 1 },
		      .offset = -1 },
		    EUCLEAN, "OFS417 negative storage offset",
		    "a negative offset" },
		{ { .numel = 4,
		      .ndim = 1,
		      .shape = { 4 },
		      .stride = { 1 },
		      .type = "NoSuchStorage" },
		    EUCLEAN, "OFS433", "an unknown storage type" },
		{ { .numel = 4,
		      .ndim = 1,
		      .shape = { 4 },
		      .stride = { 1 },
		      .type = "UntypedStorage" },
		    EUCLEAN, "OFS534", "an untyped storage without dtype" },
		{ { .numel = 16,
		      .ndim = 1,
		      .shape = { 4 },
		      .stride = { 1 },
		      .type = "UntypedStorage",
		      .dtype = "float17" },
		    EUCLEAN, "OFS534", "an unknown dtype" },
		{ { .numel = 4,
		      .ndim = 1,
		      .shape = { 4 },
		      .stride = { 1 },
		      .flag = "conj" },
		    EUCLEAN, "OFS534", "a real tensor marked as conjugate" },
		{ { .numel = 4,
		      .ndim = 1,
		      .shape = { 4 },
		      .stride = { 1 },
		      .key = "17" },
		    EIO, "OFS434 storage '17' is missing", "a missing record" },
		{ { .numel = 4,
		      .ndim = 1,
		      .shape = { 4 },
		      .stride = { 1 },
		      .key = "" },
		    EUCLEAN, "OFS433", "an empty key" },
		{ { .numel = 4,
		      .ndim = 1,
		      .shape = { 4 },
		      .stride = { 1 },
		      .key = "../version" },
		    EIO, "OFS434", "a storage key that is a path" },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct mk_tensor t = cases[i].t;

		if (t.key == NULL)
			t.key = "1";
		tensor_refused(&t, cases[i].code, cases[i].text, cases[i].what);
	}
}

/* P20, P22: other values in place of a number. */
static void numbers(void)
{
	static const struct {
		const char *ops;
		size_t n;
		int code;
		const char *text;
	} cases[] = {
		{ "\x88\x85", 2, EUCLEAN, "OFS418 size is bool" },
		{ "N\x85", 2, EUCLEAN, "OFS418 size is None" },
		{ "G\0\0\0\0\0\0\0\0\x85", 10, EUCLEAN,
		    "OFS418 size is float" },
		{ "X\1\0\0\0a\x85", 7, EUCLEAN, "OFS418 size is str" },
		{ "\x8a\x09\0\0\0\0\0\0\0\0\1\x85", 12, ERANGE,
		    "OFS416 size is an integer of 9 bytes" },
		{ "]", 1, EUCLEAN, "OFS418 size is list" },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct mktorch m;
		struct ofs_buf *b = &m.pickle;

		begin(&m);
		mk_global(b, "torch._utils", "_rebuild_tensor_v2");
		mk_ops(b, "(");
		mk_storage(b, "FloatStorage", "0", 4);
		mk_int(b, 0);
		ofs_buf_put(b, cases[i].ops, cases[i].n);
		mk_ops(b, "K\1\x85");
		ofs_buf_putc(b, 0x89);
		mk_ops(b, "}tR");
		one_refused(&m, cases[i].code, cases[i].text, cases[i].text);
	}
}

/* P40: malformed persistent IDs. */
static void ids(void)
{
#define ID(s)      \
 {                 \
  s, sizeof(s) - 1 \
 }
	static const struct {
		const char *ops;
		size_t n;
	} id[] = {
		ID("U\1aQ"),
		ID("K\1Q"),
		ID("K\1K\2K\3\x87Q"),
		ID("(U\6modulectorch\nFloatStorage\nU\0010U\1xK\4tQ"),
		ID("(U\7storagectorch\nFloatStorage\nK\1U\1xK\4tQ"),
		ID("(U\7storageK\1U\0010U\1xK\4tQ"),
	};

	for (size_t i = 0; i < sizeof(id) / sizeof(id[0]); i++) {
		struct mktorch m;
		struct ofs_buf *b = &m.pickle;
		struct optimfs_error err;
		uint8_t buf[16];

		begin(&m);
		mk_global(b, "torch._utils", "_rebuild_tensor_v2");
		mk_ops(b, "(");
		ofs_buf_put(b, id[i].ops, id[i].n);
		mk_int(b, 0);
		mk_ops(b, "K\4\x85K\1\x85");
		ofs_buf_putc(b, 0x89);
		mk_ops(b, "}tR");
		finish(&m);
		/* Either the parser refuses the file, or the tensor cannot be
		 * read. */
		if (mktorch_read(&m, NULL, &err) == 0)
			mktorch_bytes(&m, "t", buf, 16, &err);
		is_error(err, EUCLEAN, "OFS433",
		    "malformed persistent ID %zu is refused", i);
		mktorch_fini(&m);
	}
}

/* Two types for one storage. Both tensors are refused, as either may be
 * wrong. */
static void conflicts(void)
{
	struct optimfs_error err;
	struct mktorch m;
	uint8_t buf[16];

	begin(&m);
	mk_tensor(&m.pickle,
	    &(struct mk_tensor){ .type = "IntStorage",
		.numel = 4,
		.ndim = 1,
		.shape = { 4 },
		.stride = { 1 } });
	finish(&m);
	is_int(mktorch_read(&m, NULL, &err), 0,
	    "a file with two types of one storage opens");
	is_int(mktorch_bytes(&m, "t", buf, 16, &err), -1,
	    "a storage with two types: the first tensor cannot be read");
	is_error(err, EUCLEAN, "OFS435",
	    "a storage with two types: error text for the first");
	is_int(mktorch_bytes(&m, "good", buf, 16, &err), -1,
	    "a storage with two types: the second tensor cannot be read");
	is_error(err, EUCLEAN, "OFS435",
	    "a storage with two types: error text for the second");
	mktorch_fini(&m);
	begin(&m);
	mk_good(&m.pickle, "0");
	finish(&m);
	is_int(mktorch_read(&m, NULL, &err), 0,
	    "a file with two tensors of one storage opens");
	is_int(mktorch_bytes(&m, "t", buf, 16, &err), 0,
	    "the first tensor of a shared storage can be read");
	is_int(mktorch_bytes(&m, "good", buf, 16, &err), 0,
	    "the second tensor of a shared storage can be read");
	mktorch_fini(&m);
}

/* Invalid and unusual records beside data.pkl. */
static void records(void)
{
	static const struct {
		const char *version, *byteorder;
		int code;
		const char *text;
	} bad[] = {
		{ "-", NULL, EUCLEAN,
		    "OFS524 x.pt: record 'version' is missing" },
		{ "0\n", NULL, EUCLEAN, "OFS524" },
		{ "11\n", NULL, EUCLEAN, "OFS524" },
		{ "999999999999999\n", NULL, EUCLEAN, "OFS524" },
		{ "x\n", NULL, EUCLEAN, "OFS524" },
		{ "", NULL, EUCLEAN, "OFS524" },
		{ "3\n3", NULL, EUCLEAN, "OFS524" },
		{ "3 and much more text than a version has", NULL, EUCLEAN,
		    "OFS524" },
		{ NULL, "middle", EUCLEAN, "OFS525" },
		{ NULL, "", EUCLEAN, "OFS525" },
		{ NULL, "little and much more than a byte order has", EUCLEAN,
		    "OFS524" },
	};
	static const struct {
		const char *name, *content, *note;
	} warn[] = {
		{ "x/.storage_alignment", "0", "OFS526" },
		{ "x/.storage_alignment", "1152921504606846976", "OFS526" },
		{ "x/.storage_alignment", "x", "OFS526" },
		{ "x/.storage_alignment", "", "OFS526" },
		{ "x/code/__torch__.py", "import os", "OFS532" },
		{ "x/constants.pkl", "N.", "OFS532" },
		{ "x/dir/", "", "OFS522" },
	};
	struct optimfs_error err;
	struct mktorch m;
	uint8_t buf[16];

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		begin(&m);
		mk_ops(&m.pickle, "N");
		finish(&m);
		m.version = bad[i].version;
		m.byteorder = bad[i].byteorder;
		is_int(mktorch_read(&m, NULL, &err), -1,
		    "version or byteorder record %zu is refused", i);
		is_error(err, bad[i].code, bad[i].text,
		    "version or byteorder record %zu: error text", i);
		mktorch_fini(&m);
	}
	for (size_t i = 0; i < sizeof(warn) / sizeof(warn[0]); i++) {
		begin(&m);
		mk_ops(&m.pickle, "N");
		finish(&m);
		m.record[0] = warn[i].name;
		m.content[0] = warn[i].content;
		is_int(mktorch_read(&m, NULL, &err), 0,
		    "a file with record %s \"%s\" opens", warn[i].name,
		    warn[i].content);
		is_int(mktorch_bytes(&m, "good", buf, 16, &err), 0,
		    "a file with record %s \"%s\" can be read", warn[i].name,
		    warn[i].content);
		ok(mktorch_noted(&m, OFS_NOTE_WARNING, warn[i].note),
		    "a file with record %s \"%s\": warning %s", warn[i].name,
		    warn[i].content, warn[i].note);
		mktorch_fini(&m);
	}
	begin(&m);
	mk_ops(&m.pickle, "N");
	finish(&m);
	m.record[0] = "x/.storage_alignment";
	m.content[0] = "64";
	is_int(mktorch_read(&m, NULL, &err), 0,
	    "a file with storage alignment 64 opens");
	ok(!mktorch_noted(&m, OFS_NOTE_WARNING, "OFS"),
	    "storage alignment 64 gives no warning");
	mktorch_fini(&m);
	begin(&m);
	mk_ops(&m.pickle, "N");
	finish(&m);
	m.version = "-";
	m.record[0] = "x/.data/version";
	m.content[0] = "3\n";
	is_int(mktorch_read(&m, NULL, &err), 0,
	    ".data/version replaces a missing version record");
	mktorch_fini(&m);
}

static void no_pickle(void)
{
	struct mkzip z = { 0 };
	struct optimfs_error err;
	struct mktorch m;

	mkzip_add(&z, "x/data/0", "abcd", 4);
	mkzip_add(&z, "x/version", "3\n", 2);
	mkzip_end(&z);
	mktorch_init(&m);
	is_int(mktorch_read_bytes(&m, &ofs_format_torch, "x.pt", z.b.data,
		   z.b.len, NULL, &err),
	    -1, "an archive without data.pkl is refused");
	is_error(err, EUCLEAN, "OFS524 x.pt: record 'data.pkl' is missing",
	    "an archive without data.pkl: error text");
	mktorch_fini(&m);
	mkzip_fini(&z);
}

/* A file truncated at any length is reported as truncated. */
static void cut(void)
{
	struct mkzip z = { 0 };
	struct optimfs_error err;
	struct ofs_buf b = { 0 };
	size_t wrong = 0, n;

	mk_begin(&b);
	mk_good(&b, "0");
	mk_end(&b);
	mkzip_add(&z, "x/data.pkl", b.data, b.len);
	mkzip_add(&z, "x/data/0", "0123456789abcdef", 16);
	mkzip_add(&z, "x/version", "3\n", 2);
	mkzip_end(&z);
	n = z.b.len;
	for (size_t i = 4; i < n; i += i < 64 || i > n - 140 ? 1 : 64) {
		struct mktorch m;

		mktorch_init(&m);
		if (mktorch_read_bytes(&m, &ofs_format_torch, "x.pt", z.b.data,
			i, NULL, &err) == 0 ||
		    err.code != EIO ||
		    strncmp(err.text, "OFS502 x.pt: the archive is truncated",
			37) != 0) {
			wrong++;
			diag("%zu of %zu bytes: %s", i, n, err.text);
		}
		mktorch_fini(&m);
	}
	is_u64(wrong, 0, "each truncation of a file of %zu bytes is reported",
	    n);
	ofs_buf_fini(&b);
	mkzip_fini(&z);
}

/* T16: zip archives that are also safetensors files. Tar containers, and files
 * of no format. */
static void containers(void)
{
	static const struct {
		const char *name, *bytes;
		size_t n;
		int code;
		const char *text;
	} cases[] = {
		{ "a.pt", "PK\3\4\0\0\0\0{\"a\":1}", 15, EUCLEAN, "OFS662" },
		{ "a.safetensors", "PK\3\4\0\0\0\0\0\0\0\0\0\0", 14, EUCLEAN,
		    "OFS662" },
		{ "b.pt", "hello", 5, EUCLEAN, "OFS671" },
		{ "c.pt", "", 0, EIO, "OFS502" },
	};
	struct optimfs_error err;
	struct mktorch m;
	char tar[1024] = "storages";

	for (size_t i = 0; i < 4; i++) {
		mktorch_init(&m);
		is_int(mktorch_read_bytes(&m, &ofs_format_torch, cases[i].name,
			   cases[i].bytes, cases[i].n, NULL, &err),
		    -1, "%s: the file is refused", cases[i].name);
		is_error(err, cases[i].code, cases[i].text, "%s: error text",
		    cases[i].name);
		mktorch_fini(&m);
	}
	memcpy(tar + 257, "ustar", 6);
	mktorch_init(&m);
	is_int(mktorch_read_bytes(&m, &ofs_format_torch, "t.pt", tar,
		   sizeof(tar), NULL, &err),
	    -1, "a tar container is refused");
	is_error(err, EOPNOTSUPP, "OFS673", "a tar container: error text");
	mktorch_fini(&m);
	memcpy(tar, "step-1000/", 11);
	mktorch_init(&m);
	mktorch_read_bytes(&m, &ofs_format_torch, "t.pt", tar, sizeof(tar),
	    NULL, &err);
	is_error(err, EOPNOTSUPP, "OFS667", "another tar archive: error text");
	mktorch_fini(&m);
}

/* P11: shared containers that expand to too many entries. */
static void bombs(void)
{
	struct optimfs_error err;
	struct mktorch m;

	mktorch_init(&m);
	mk_ops(&m.pickle, "}");
	for (int i = 0; i < 50; i++) {
		/* Put it into the memo, and pop it: {a: it, b: it}. */
		mk_ops(&m.pickle, "q\0010}(");
		mk_str(&m.pickle, "a");
		mk_ops(&m.pickle, "h\1");
		mk_str(&m.pickle, "b");
		mk_ops(&m.pickle, "h\1u");
	}
	mk_end(&m.pickle);
	is_int(mktorch_read(&m, NULL, &err), -1,
	    "a dict that expands to 2^50 dicts is refused");
	is_error(err, E2BIG, "OFS444",
	    "a dict that expands to 2^50 dicts: error text");
	mktorch_fini(&m);
	mktorch_init(&m);
	mk_ops(&m.pickle, "}");
	for (int i = 0; i < 50; i++)
		mk_ops(&m.pickle, "q\0010](h\1h\1e");
	mk_end(&m.pickle);
	is_int(mktorch_read(&m, NULL, &err), -1,
	    "a list that expands to 2^50 lists is refused");
	is_error(err, E2BIG, "OFS444",
	    "a list that expands to 2^50 lists: error text");
	mktorch_fini(&m);
}

/* Names are longer than the pickle if its dicts share a long key. */
static void long_names(void)
{
	static char key[100001];
	struct optimfs_error err;
	struct mktorch m;

	memset(key, 'k', sizeof(key) - 1);
	mktorch_init(&m);
	for (int i = 0; i < 8; i++) {
		mk_ops(&m.pickle, "}(");
		if (i == 0)
			mk_str(&m.pickle, key);
		mk_ops(&m.pickle, i == 0 ? "q\1" : "h\1");
	}
	mk_ops(&m.pickle, "}(");
	for (int i = 0; i < 100; i++) {
		mk_int(&m.pickle, i);
		mk_int(&m.pickle, i);
	}
	mk_ops(&m.pickle, "uuuuuuuuu");
	mk_end(&m.pickle);
	is_int(mktorch_read(&m, NULL, &err), -1,
	    "names of 80 MB that share a key are refused");
	is_error(err, E2BIG, "OFS444",
	    "names of 80 MB that share a key: error text");
	mktorch_fini(&m);
}

/* P12: a large list with many references is traversed once. */
static void shared(void)
{
	struct optimfs_error err;
	struct mktorch m;

	mktorch_init(&m);
	mk_ops(&m.pickle, "](");
	for (int i = 0; i < 100000; i++)
		mk_ops(&m.pickle, "N");
	mk_ops(&m.pickle, "eq\0010}(");
	for (int i = 0; i < 100000; i++) {
		mk_int(&m.pickle, i);
		mk_ops(&m.pickle, "h\1");
	}
	mk_ops(&m.pickle, "u");
	mk_end(&m.pickle);
	is_int(mktorch_read(&m, NULL, &err), 0,
	    "a list with 100000 references is read");
	is_u64(m.h.cat->nentries, 100000,
	    "a list with 100000 references gives as many entries");
	mktorch_fini(&m);
}

/* A million keys are legitimate. They must fit into four times the file and 64
 * MiB. */
static void many_keys(void)
{
	struct ofs_pickle_limits limits = { 0 };
	struct optimfs_error err;
	struct ofs_pickle *doc;
	struct ofs_catalog *cat;
	struct mktorch m;
	char key[16];

	mktorch_init(&m);
	mk_ops(&m.pickle, "}(");
	for (int i = 0; i < 1000000; i++) {
		snprintf(key, sizeof(key), "k%d", i);
		mk_str(&m.pickle, key);
		mk_int(&m.pickle, i);
	}
	mk_ops(&m.pickle, "u");
	mk_end(&m.pickle);
	limits.memory = 4 * m.pickle.len + (64u << 20);
	doc = ofs_pickle_parse(m.pickle.data, m.pickle.len, false, &limits,
	    NULL, &err);
	ok(doc != NULL, "a million keys fit into the memory budget");
	ofs_pickle_free(doc);
	handmade_file(&m.h, "x.pkl", m.pickle.data, m.pickle.len);
	cat = ofs_read_checkpoint(m.h.dir, NULL, &err);
	if (ok(cat != NULL, "a checkpoint with a million keys is read"))
		is_u64(cat->nentries, 1000000,
		    "a checkpoint with a million keys has all entries");
	else
		diag("%s", err.text);
	ofs_catalog_free(cat);
	mktorch_fini(&m);
}

int main(void)
{
	geometry();
	numbers();
	ids();
	conflicts();
	records();
	no_pickle();
	cut();
	containers();
	bombs();
	long_names();
	shared();
	many_keys();
	return done_testing();
}
