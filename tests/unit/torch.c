/* torch.c - paths, values and tensor views of torch.save files */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "archive/torch.h"

#include <errno.h>

#include "format/format.h"
#include "format/part.h"
#include "format/probe.h"
#include "format/torch/torch.h"
#include "mktorch.h"
#include "mkzip.h"
#include "tap.h"

/* A dict key. The caller appends the value, then "s". */
#define PAIR(m, key) mk_str(&(m)->pickle, key)

static void read_good(struct mktorch *m, const char *what)
{
	struct optimfs_error err;

	mk_end(&m->pickle);
	if (!is_int(mktorch_read(m, NULL, &err), 0, "%s: the file is read",
		what))
		diag("%s", err.text);
}

static void containers(void)
{
	struct mktorch m;
	struct ofs_buf *b = &m.pickle;
	float f[4];
	struct optimfs_error err;

	mktorch_init(&m);
	mk_ops(b, "}");
	PAIR(&m, "model");
	mk_ops(b, "}");
	PAIR(&m, "w.weight");
	mk_good(b, "0");
	mk_ops(b, "ss");
	PAIR(&m, "numbers");
	mk_ops(b,
	    "](K\x01K\x02"
	    "es");
	PAIR(&m, "list");
	mk_ops(b, "](");
	mk_good(b, "0");
	mk_ops(b, "N]}ae");
	mk_ops(b, "s");
	PAIR(&m, "deep");
	mk_ops(b, "]](NN]](");
	mk_good(b, "0");
	mk_ops(b, "eaeas");
	PAIR(&m, "empty");
	mk_ops(b, "}s");
	PAIR(&m, "betas");
	mk_ops(b, "K\x01K\x02\x86s");
	PAIR(&m, "pair");
	mk_good(b, "0");
	mk_ops(b, "N\x86s");
	mk_int(b, 0);
	mk_ops(b, "}");
	PAIR(&m, "step");
	mk_ops(b, "K\x05ss");
	read_good(&m, "containers");
	is_str(mktorch_paths(&m),
	    "T model/w.weight\n"
	    "V numbers\n"
	    "T list/#0\n"
	    "V list/#1\n"
	    "V list/#2/#0\n"
	    "V deep/#0/#0\n"
	    "V deep/#0/#1\n"
	    "T deep/#0/#2/#0/#0\n"
	    "V empty\n"
	    "V betas\n"
	    "T pair/#0\n"
	    "V pair/#1\n"
	    "V 0/step\n",
	    "containers: paths");
	is_int(mktorch_bytes(&m, "model/w.weight", f, 16, &err), 0,
	    "containers: a tensor can be read");
	is_mem(f, m.storage[0], 16, "containers: bytes of the tensor");
	mktorch_fini(&m);
}

/* A dict of the tensor "t" and a valid one, "good". */
static void dict(struct mktorch *m, const struct mk_tensor *t)
{
	mktorch_init(m);
	mk_ops(&m->pickle, "}(");
	PAIR(m, "t");
	mk_tensor(&m->pickle, t);
	PAIR(m, "good");
	mk_good(&m->pickle, "0");
	mk_ops(&m->pickle, "u");
}

static void roots(void)
{
	struct optimfs_error err;
	struct mktorch m;

	mktorch_init(&m);
	mk_good(&m.pickle, "0");
	read_good(&m, "a tensor as root");
	is_str(mktorch_paths(&m), "T tensor\n", "a tensor as root: path");
	mktorch_fini(&m);
	mktorch_init(&m);
	mk_ops(&m.pickle, "K\x05");
	read_good(&m, "a value as root");
	is_str(mktorch_paths(&m), "V value\n", "a value as root: path");
	mktorch_fini(&m);
	mktorch_init(&m);
	mk_ops(&m.pickle,
	    "](K\x05K\x06"
	    "e");
	mk_end(&m.pickle);
	is_int(mktorch_read(&m, "rng", &err), 0,
	    "a list as root, with a prefix, is read");
	is_str(mktorch_paths(&m), "V rng\n",
	    "a list as root: the prefix is its path");
	mktorch_fini(&m);
	mktorch_init(&m);
	mk_storage(&m.pickle, "FloatStorage", "0", 4);
	read_good(&m, "a storage as root");
	is_str(mktorch_paths(&m), "T tensor\n",
	    "a storage as root becomes a tensor");
	mktorch_fini(&m);
	mktorch_init(&m);
	mk_ops(&m.pickle, "}");
	read_good(&m, "an empty dict as root");
	is_str(mktorch_paths(&m), "", "an empty dict as root has no leaves");
	mktorch_fini(&m);
}

static void keys(void)
{
	struct mktorch m;
	struct ofs_buf *b = &m.pickle;

	mktorch_init(&m);
	mk_ops(b, "}(");
	mk_int(b, -12);
	mk_ops(b, "N");
	ofs_buf_put(b, "G\x3f\xb9\x99\x99\x99\x99\x99\x9aN", 10);
	ofs_buf_put(b, "\x88N", 2);
	mk_ops(b, "NN");
	mk_global(b, "torch", "float32");
	mk_ops(b, "N(");
	PAIR(&m, "a");
	mk_ops(b, "K\x01tN()tN");
	ofs_buf_put(b, "\x8a\x09\0\0\0\0\0\0\0\0\1N", 12);
	PAIR(&m, "");
	mk_ops(b, "NU");
	ofs_buf_put(b, "\2/\1N", 4);
	mk_ops(b, "u");
	read_good(&m, "keys of all types");
	is_str(mktorch_paths(&m),
	    "V -12\n"
	    "V 0.1\n"
	    "V True\n"
	    "V None\n"
	    "V torch.float32\n"
	    "V ('a', 1)\n"
	    "V tuple 6\n"
	    "V 0x010000000000000000\n"
	    "V \n"
	    "V /\x01\n",
	    "keys of all types: paths");
	mktorch_fini(&m);
	mktorch_init(&m);
	mk_ops(b, "}(");
	PAIR(&m, "0");
	mk_ops(b, "K\x01");
	mk_int(b, 0);
	mk_ops(b, "K\x02");
	PAIR(&m, "a");
	mk_ops(b, "}");
	PAIR(&m, "lost");
	mk_ops(b, "Ns");
	PAIR(&m, "a");
	mk_ops(b, "K\x03u");
	read_good(&m, "duplicate keys");
	is_str(mktorch_paths(&m), "V 0\nV 0\nV a\n",
	    "duplicate keys: the last one counts, and 0 differs from \"0\"");
	ok(mktorch_noted(&m, OFS_NOTE_WARNING, "OFS428"),
	    "duplicate keys: a warning");
	mktorch_fini(&m);
}

static void views(void)
{
	static const int16_t s[6] = { 0, 1, 2, 3, 4, 5 };
	static const struct {
		struct mk_tensor t;
		const char *what;
		int16_t want[8];
		size_t n;
	} cases[] = {
		{ { .ndim = 2, .shape = { 2, 3 }, .stride = { 3, 1 } },
		    "a whole storage", { 0, 1, 2, 3, 4, 5 }, 6 },
		{ { .ndim = 2, .shape = { 3, 2 }, .stride = { 1, 3 } },
		    "a transposed view", { 0, 3, 1, 4, 2, 5 }, 6 },
		{ { .ndim = 1, .shape = { 3 }, .stride = { 1 }, .offset = 2 },
		    "a part of a storage", { 2, 3, 4 }, 3 },
		{ { .ndim = 1, .shape = { 3 }, .stride = { 2 } },
		    "a strided view", { 0, 2, 4 }, 3 },
		{ { .ndim = 2,
		      .shape = { 2, 2 },
		      .stride = { 0, 1 },
		      .offset = 4 },
		    "an expanded view", { 4, 5, 4, 5 }, 4 },
		{ { .ndim = 2, .shape = { 4, 2 }, .stride = { 1, 1 } },
		    "a view of overlapping windows", { 0, 1, 1, 2, 2, 3, 3, 4 },
		    8 },
		{ { .ndim = 0, .offset = 3 }, "a view without dimensions",
		    { 3 }, 1 },
		{ { .ndim = 2, .shape = { 0, 9 }, .stride = { 9, 1 } },
		    "a view without elements", { 0 }, 0 },
		{ { .ndim = 2, .shape = { 1, 6 }, .stride = { 77, 1 } },
		    "a view with an unused stride", { 0, 1, 2, 3, 4, 5 }, 6 },
		{ { .ndim = 1, .shape = { 3 }, .stride = { 1 }, .flag = "neg" },
		    "a negated view", { 0, -1, -2 }, 3 },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct mk_tensor t = cases[i].t;
		struct optimfs_error err;
		struct mktorch m;
		int16_t got[8];

		t.type = "ShortStorage";
		t.key = "1";
		t.numel = 6;
		dict(&m, &t);
		m.storage[1] = s;
		m.size[1] = sizeof(s);
		read_good(&m, cases[i].what);
		if (is_int(mktorch_bytes(&m, "t", got, 2 * cases[i].n, &err), 0,
			"%s: can be read", cases[i].what))
			is_mem(got, cases[i].want, 2 * cases[i].n,
			    "%s: elements", cases[i].what);
		else
			diag("%s", err.text);
		mktorch_fini(&m);
	}
}

/* The bytes of each element, or part of a complex one, are reversed. */
static void big_endian(void)
{
	static const uint8_t bytes[8] = { 1, 2, 3, 4, 5, 6, 7, 8 };
	static const struct {
		const char *type;
		int64_t numel;
		uint8_t want[8];
	} cases[] = {
		{ "ShortStorage", 4, { 2, 1, 4, 3, 6, 5, 8, 7 } },
		{ "LongStorage", 1, { 8, 7, 6, 5, 4, 3, 2, 1 } },
		{ "ComplexFloatStorage", 1, { 4, 3, 2, 1, 8, 7, 6, 5 } },
		{ "ByteStorage", 8, { 1, 2, 3, 4, 5, 6, 7, 8 } },
	};

	for (size_t i = 0; i < 4; i++) {
		struct optimfs_error err;
		struct mktorch m;
		uint8_t got[8];

		dict(&m,
		    &(struct mk_tensor){ .type = cases[i].type,
			.key = "1",
			.numel = cases[i].numel,
			.ndim = 1,
			.shape = { cases[i].numel },
			.stride = { 1 } });
		m.storage[1] = bytes;
		m.size[1] = sizeof(bytes);
		m.byteorder = "big";
		read_good(&m, cases[i].type);
		is_int(mktorch_bytes(&m, "t", got, 8, &err), 0,
		    "big-endian %s: can be read", cases[i].type);
		is_mem(got, cases[i].want, 8,
		    "big-endian %s: bytes are reversed", cases[i].type);
		ok(mktorch_noted(&m, OFS_NOTE_WARNING, "OFS525"),
		    "big-endian %s: a warning", cases[i].type);
		mktorch_fini(&m);
	}
}

static void dtypes(void)
{
	static const float conj[4] = { 0, -1, 2, -3 };
	struct optimfs_error err;
	struct mktorch m;
	uint8_t got[16];

	dict(&m,
	    &(struct mk_tensor){ .type = "UntypedStorage",
		.key = "1",
		.numel = 16,
		.ndim = 1,
		.shape = { 14 },
		.stride = { 1 },
		.offset = 2,
		.dtype = "float8_e4m3fn" });
	m.storage[1] = m.storage[0];
	m.size[1] = 16;
	read_good(&m, "an untyped storage");
	if (!is_int(mktorch_bytes(&m, "t", got, 14, &err), 0,
		"an untyped storage: the tensor can be read"))
		diag("%s", err.text);
	is_mem(got, (const char *)m.storage[0] + 2, 14,
	    "an untyped storage: the offset is respected");
	ok(m.h.cat->tensors[0].dtype == OFS_FLOAT8_E4M3FN,
	    "an untyped storage: dtype of the tensor");
	mktorch_fini(&m);
	dict(&m,
	    &(struct mk_tensor){ .type = "ComplexFloatStorage",
		.key = "1",
		.numel = 2,
		.ndim = 1,
		.shape = { 2 },
		.stride = { 1 },
		.flag = "conj" });
	m.storage[1] = m.storage[0];
	m.size[1] = 16;
	read_good(&m, "a conjugate tensor");
	is_int(mktorch_bytes(&m, "t", got, 16, &err), 0,
	    "a conjugate tensor: can be read");
	is_mem(got, conj, 16,
	    "a conjugate tensor: imaginary parts are negated");
	mktorch_fini(&m);
}

/* Parameters and tensor subclasses. */
static void wrappers(void)
{
	struct mktorch m;
	struct ofs_buf *b = &m.pickle;
	struct optimfs_error err;
	float f[4];

	mktorch_init(&m);
	mk_ops(b, "}(");
	PAIR(&m, "parameter");
	mk_global(b, "torch._utils", "_rebuild_parameter");
	mk_ops(b, "(");
	mk_good(b, "0");
	ofs_buf_putc(b, 0x88);
	mk_global(b, "collections", "OrderedDict");
	mk_ops(b, ")RtR");
	PAIR(&m, "subclass");
	mk_global(b, "torch._tensor", "_rebuild_from_type_v2");
	mk_ops(b, "(");
	mk_global(b, "torch._utils", "_rebuild_tensor_v2");
	mk_global(b, "my.package", "Tensor");
	mk_ops(b, "(");
	mk_storage(b, "FloatStorage", "0", 4);
	mk_int(b, 0);
	mk_tuple(b, 1, (int64_t[]){ 4 });
	mk_tuple(b, 1, (int64_t[]){ 1 });
	ofs_buf_putc(b, 0x89);
	mk_ops(b, "}t}tR");
	mk_ops(b, "u");
	read_good(&m, "a parameter and a subclass");
	is_str(mktorch_paths(&m), "T parameter\nT subclass\n",
	    "a parameter and a subclass are tensors");
	is_int(mktorch_bytes(&m, "parameter", f, 16, &err), 0,
	    "a parameter can be read");
	is_int(mktorch_bytes(&m, "subclass", f, 16, &err), 0,
	    "a tensor subclass can be read");
	mktorch_fini(&m);
}

static void call(struct ofs_buf *b, const char *name)
{
	mk_global(b, "torch._utils", name);
	mk_ops(b, "(");
}

/* The error code of an item; -1: not an item. */
static int item_error(const struct mktorch *m, const char *path,
    struct optimfs_error *err)
{
	const struct ofs_entry *e = mktorch_find(m, path);

	if (e == NULL || e->kind != OFS_ENTRY_ITEM)
		return -1;
	ofs_catalog_fail(m->h.cat, m->h.cat->items[e->ref].error, err);
	return err->code;
}

/* Kinds of tensors that are listed but cannot be read. */
static void unsupported(void)
{
	struct mktorch m;
	struct ofs_buf *b = &m.pickle;
	struct optimfs_error err;
	float f[12];

	mktorch_init(&m);
	mk_ops(b, "}(");
	PAIR(&m, "meta");
	call(b, "_rebuild_meta_tensor_no_storage");
	mk_global(b, "torch", "float32");
	mk_tuple(b, 2, (int64_t[]){ 3, 4 });
	mk_tuple(b, 2, (int64_t[]){ 4, 1 });
	mk_ops(b, "NtR");
	PAIR(&m, "sparse");
	call(b, "_rebuild_sparse_tensor");
	mk_ops(b, "N(");
	mk_good(b, "0");
	mk_good(b, "0");
	mk_tuple(b, 1, (int64_t[]){ 9 });
	ofs_buf_put(b, "\x88ttR", 4);
	PAIR(&m, "nested");
	call(b, "_rebuild_nested_tensor");
	mk_good(b, "0");
	mk_ops(b, "NNNtR");
	PAIR(&m, "opaque");
	mk_global(b, "my.package", "Thing");
	ofs_buf_put(b, ")\x81}", 3);
	PAIR(&m, "weight");
	mk_good(b, "0");
	mk_ops(b, "sb");
	PAIR(&m, "sharded");
	mk_global(b, "torch._tensor", "_rebuild_from_type_v2");
	mk_ops(b, "(");
	mk_global(b, "torch._utils", "_rebuild_wrapper_subclass");
	mk_global(b, "torch.distributed.tensor", "DTensor");
	mk_ops(b, ")N}");
	PAIR(&m, "_local_tensor");
	mk_good(b, "0");
	ofs_buf_put(b, "s\x86tR", 4);
	PAIR(&m, "dumped");
	call(b, "_rebuild_tensor_v2");
	mk_global(b, "torch.storage", "_load_from_bytes");
	ofs_buf_put(b, "C\1x\x85R", 5);
	mk_int(b, 0);
	mk_tuple(b, 1, (int64_t[]){ 4 });
	mk_tuple(b, 1, (int64_t[]){ 1 });
	mk_ops(b, "\x89NtR");
	PAIR(&m, "good");
	mk_good(b, "0");
	mk_ops(b, "u");
	read_good(&m, "unsupported tensors");
	is_str(mktorch_paths(&m),
	    "T meta\nT sparse\nI nested\nI opaque\nI sharded\nI dumped\n"
	    "T good\n",
	    "unsupported tensors: paths");
	is_int(mktorch_bytes(&m, "meta", f, 48, &err), -1,
	    "a meta tensor cannot be read");
	is_error(err, EOPNOTSUPP, "OFS538",
	    "a meta tensor fails with EOPNOTSUPP");
	is_int(mktorch_bytes(&m, "sparse", f, 36, &err), -1,
	    "a sparse tensor cannot be read");
	is_error(err, EOPNOTSUPP, "OFS533 sparse",
	    "a sparse tensor fails with EOPNOTSUPP");
	is_u64(ofs_tensor_bytes(m.h.cat,
		   ofs_entry_tensor(m.h.cat, mktorch_find(&m, "sparse"))),
	    36, "a sparse tensor has a size");
	is_int(item_error(&m, "nested", &err), EOPNOTSUPP,
	    "a nested tensor cannot be read");
	is_error(err, EOPNOTSUPP,
	    "OFS533 tensor made by _rebuild_nested_tensor",
	    "a nested tensor: error text");
	is_int(item_error(&m, "opaque", &err), EPERM,
	    "a tensor inside an unknown object cannot be read");
	is_error(err, EPERM,
	    "OFS110 a tensor is inside an object of class my.package.Thing",
	    "a tensor inside an unknown object: error text (P27)");
	is_int(item_error(&m, "sharded", &err), EUCLEAN,
	    "a DTensor without a spec cannot be read");
	is_error(err, EUCLEAN, "OFS691",
	    "a DTensor without a spec: error text");
	is_int(item_error(&m, "dumped", &err), EOPNOTSUPP,
	    "a tensor of pickle.dump cannot be read");
	is_error(err, EOPNOTSUPP, "OFS533 tensor that pickle.dump wrote",
	    "a tensor of pickle.dump: error text");
	ok(mktorch_noted(&m, OFS_NOTE_WARNING,
	       "OFS420 x.pt: pickle calls my.package.Thing"),
	    "the call of an unknown class is a warning");
	ok(mktorch_noted(&m, OFS_NOTE_GLOBAL,
	       "my.package.Thing\trefused\tx.pt"),
	    "an unknown class is listed as refused");
	ok(mktorch_noted(&m, OFS_NOTE_GLOBAL,
	       "torch.FloatStorage\tallowed\tx.pt"),
	    "a storage class is listed as allowed");
	is_int(mktorch_bytes(&m, "good", f, 16, &err), 0,
	    "a valid tensor beside unsupported ones can be read");
	mktorch_fini(&m);
}

static void quantized(void)
{
	struct mktorch m;
	struct ofs_buf *b = &m.pickle;
	struct optimfs_error err;
	uint8_t got[16];

	for (int channel = 0; channel < 2; channel++) {
		mktorch_init(&m);
		call(b, "_rebuild_qtensor");
		mk_storage(b, "QInt8Storage", "0", 16);
		mk_int(b, 0);
		mk_tuple(b, 1, (int64_t[]){ 16 });
		mk_tuple(b, 1, (int64_t[]){ 1 });
		mk_ops(b, "(");
		mk_global(b, "torch",
		    channel ? "per_channel_affine" : "per_tensor_affine");
		ofs_buf_put(b, "G\x3f\xe0\0\0\0\0\0\0K\x02ttR", 14);
		read_good(&m, "a quantized tensor");
		if (channel) {
			is_int(mktorch_bytes(&m, "tensor", got, 16, &err), -1,
			    "a tensor with scales by channel cannot be read");
			is_error(err, EOPNOTSUPP, "OFS533",
			    "a tensor with scales by channel: error text");
		} else {
			is_int(mktorch_bytes(&m, "tensor", got, 16, &err), 0,
			    "a tensor with one scale is read as integers");
			ok(mktorch_noted(&m, OFS_NOTE_WARNING, "OFS535"),
			    "a tensor with one scale: a warning");
			ok(m.h.cat->nscales == 1 &&
				m.h.cat->scales[0].scale == 0.5 &&
				m.h.cat->scales[0].zero_point == 2,
			    "a tensor with one scale: scale and zero point");
		}
		mktorch_fini(&m);
	}
}

/* Opening an item of a checkpoint takes one read if it is small, two if its
 * storage is large. */
static void reads(void)
{
	static uint8_t data[100000];
	struct optimfs_error err;
	struct ofs_buf b = { 0 };

	mk_begin(&b);
	mk_good(&b, "0");
	mk_end(&b);
	for (size_t n = 16; n <= sizeof(data); n += sizeof(data) - 16) {
		struct mkzip z = { 0 };
		struct mkzip_bytes src;
		struct ofs_pickle *doc;
		struct ofs_zip zip;

		mkzip_add(&z, "archive/data.pkl", b.data, b.len);
		mkzip_add(&z, "archive/.format_version", "1", 1);
		mkzip_add(&z, "archive/byteorder", "little", 6);
		mkzip_add(&z, "archive/data/0", data, n);
		mkzip_add(&z, "archive/version", "3\n", 2);
		mkzip_end(&z);
		src = (struct mkzip_bytes){ z.b.data, z.b.len, 0 };
		doc =
		    ofs_torch_open(z.b.len, NULL, mkzip_read, &src, &zip, &err);
		ok(doc != NULL, "an item of %zu bytes opens", z.b.len);
		is_int(src.calls, n == 16 ? 1 : 2,
		    "an item of %zu bytes: number of reads", z.b.len);
		ofs_pickle_free(doc);
		ofs_zip_fini(&zip);
		mkzip_fini(&z);
	}
	ofs_buf_fini(&b);
}

static void other_files(void)
{
	static const char pickle[] = "\x80\x04}\x8c\1aK\1s.";
	struct optimfs_error err;
	struct mktorch m;
	char got[5];

	mktorch_init(&m);
	is_int(mktorch_read_bytes(&m, &ofs_format_pickle, "r.pkl", pickle,
		   sizeof(pickle) - 1, NULL, &err),
	    0, "a bare pickle is read");
	is_str(mktorch_paths(&m), "V a\n", "a bare pickle: path");
	mktorch_fini(&m);
	mktorch_init(&m);
	is_int(mktorch_read_bytes(&m, &ofs_format_torch, "r.pt", pickle,
		   sizeof(pickle) - 1, NULL, &err),
	    0, "a bare pickle with suffix .pt is read");
	mktorch_fini(&m);
	mktorch_init(&m);
	is_int(mktorch_read_bytes(&m, &ofs_format_raw, "a.json", "{}\n \n", 5,
		   NULL, &err),
	    0, "a raw file is read");
	is_str(mktorch_paths(&m), "T a.json\n", "a raw file: path");
	is_int(mktorch_bytes(&m, "a.json", got, 5, &err), 0,
	    "a raw file: its bytes can be read");
	is_mem(got, "{}\n \n", 5, "a raw file: bytes");
	mktorch_fini(&m);
	mktorch_init(&m);
	is_int(mktorch_read_bytes(&m, &ofs_format_raw, "empty", "", 0, "p",
		   &err),
	    0, "an empty raw file is read");
	is_str(mktorch_paths(&m), "T p\n",
	    "an empty raw file with a prefix: path");
	is_int(mktorch_bytes(&m, "p", got, 0, &err), 0,
	    "an empty raw file has no bytes");
	mktorch_fini(&m);
}

static void strict(void)
{
	struct optimfs_options opt = { .strict = true };
	struct ofs_part part = { .format = &ofs_format_pickle,
		.rel = (char[]){ "p.pkl" },
		.rank = -1 };
	struct optimfs_error err = { 0 };
	struct mktorch m;

	mktorch_init(&m);
	handmade_file(&m.h, "p.pkl", "\x80\2cos\nsystem\nU\1x\x85R.", 19);
	is_int(ofs_format_pickle.read(m.h.cat, &part, &opt, &err), -1,
	    "with strict, a pickle that calls os.system is refused");
	is_error(err, EPERM, "OFS420 p.pkl: pickle calls os.system",
	    "with strict, a pickle that calls os.system: error text");
	mktorch_fini(&m);
}

static void probes(void)
{
	static const struct {
		const char *name, *bytes;
		size_t n;
		int torch, pickle;
	} cases[] = {
		{ "a.pt",
		    "PK\3\4\0\0\10\10\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\12\0"
		    "\0\0a/data.pkl",
		    40, 95, 0 },
		{ "a.npz",
		    "PK\3\4\0\0\10\10\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\5\0"
		    "\0\0a.npy",
		    35, 10, 0 },
		{ "b.pt",
		    "\x80\2\x8a\12\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.",
		    15, 100, 0 },
		{ "c.pkl", "\x80\4N.", 4, 0, 80 },
		{ "d.txt", "hello", 5, 0, 0 },
	};
	struct ofs_file_head head;
	struct mktorch m;

	mktorch_init(&m);
	for (size_t i = 0; i < 5; i++) {
		handmade_file(&m.h, cases[i].name, cases[i].bytes, cases[i].n);
		if (!ok(ofs_probe_head(&m.h.cat->dir, cases[i].name, &head),
			"%s has a head", cases[i].name))
			continue;
		is_int(ofs_format_torch.bid_file(&head, NULL), cases[i].torch,
		    "bid of torch for %s", cases[i].name);
		is_int(ofs_format_pickle.bid_file(&head, NULL), cases[i].pickle,
		    "bid of pickle for %s", cases[i].name);
	}
	ok(!ofs_probe_head(&m.h.cat->dir, "none", &head),
	    "a missing file has no head");
	ok(!ofs_probe_head(&m.h.cat->dir, "", &head),
	    "a directory has no head");
	mktorch_fini(&m);
}

int main(void)
{
	containers();
	roots();
	keys();
	views();
	big_endian();
	dtypes();
	wrappers();
	unsupported();
	quantized();
	reads();
	other_files();
	strict();
	probes();
	return done_testing();
}
