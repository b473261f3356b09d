/* read/locate.c - places of shards in items, records and raw bytes */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "read/locate.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "archive/zip.h"
#include "handmade.h"
#include "mkzip.h"
#include "tap.h"

/* A tensor in the form in which it is pickled. */
struct pickled {
	const char *storage; /* "FloatStorage" */
	uint64_t numel, offset;
	unsigned int ndim;
	uint64_t shape[3], stride[3];
};

static const struct pickled matrix = { "FloatStorage", 6, 0, 2, { 2, 3 },
	{ 3, 1 } };

static const float numbers[] = { 0, 1, 2, 3, 4, 5 };

static void put_int(struct ofs_buf *b, uint64_t v)
{
	ofs_buf_put(b, "\x8a\x08", 2);
	ofs_buf_put(b, &v, 8);
}

static void put_str(struct ofs_buf *b, const char *s)
{
	uint32_t n = (uint32_t)strlen(s);

	ofs_buf_putc(b, 'X');
	ofs_buf_put(b, &n, 4);
	ofs_buf_puts(b, s);
}

static void put_tuple(struct ofs_buf *b, const uint64_t *v, unsigned int n)
{
	ofs_buf_putc(b, '(');
	for (unsigned int i = 0; i < n; i++)
		put_int(b, v[i]);
	ofs_buf_putc(b, 't');
}

/* torch._utils._rebuild_tensor_v2(storage, offset, shape, stride, False, {}) */
static void put_tensor(struct ofs_buf *b, const struct pickled *p)
{
	ofs_buf_puts(b,
	    "\x80\x02"
	    "ctorch._utils\n_rebuild_tensor_v2\n((");
	put_str(b, "storage");
	ofs_buf_printf(b, "ctorch\n%s\n", p->storage);
	put_str(b, "0");
	put_str(b, "cpu");
	put_int(b, p->numel);
	ofs_buf_puts(b, "tQ");
	put_int(b, p->offset);
	put_tuple(b, p->shape, p->ndim);
	put_tuple(b, p->stride, p->ndim);
	ofs_buf_puts(b,
	    "\x89"
	    "ccollections\nOrderedDict\n)RtR.");
}

/* An archive with a tensor over n bytes of storage called key. If pickle is not
 * NULL, it replaces that of the tensor. */
static void archive(struct mkzip *z, const struct pickled *p,
    const char *pickle, const char *key, const void *bytes, size_t n,
    const char *order)
{
	struct ofs_buf b = { 0 };

	*z = (struct mkzip){ 0 };
	if (pickle == NULL)
		put_tensor(&b, p);
	else
		ofs_buf_puts(&b, pickle);
	mkzip_add(z, "archive/data.pkl", b.data, b.len);
	mkzip_add(z, "archive/byteorder", order, strlen(order));
	mkzip_add(z, key, bytes, n);
	mkzip_add(z, "archive/version", "3\n", 2);
	mkzip_end(z);
	ofs_buf_fini(&b);
}

/* A checkpoint with one float32 tensor in one shard. */
struct one {
	struct handmade h;
	struct ofs_reader r;
};

static void one_init(struct one *o, const uint64_t *shape, unsigned int ndim,
    const struct ofs_shard *s)
{
	struct optimfs_error err = { 0 };
	struct ofs_tensor t = { .ndim = (uint8_t)ndim,
		.grid_ndim = (uint8_t)ndim,
		.dtype = OFS_FLOAT32,
		.nshards = 1,
		.error = OFS_NONE };

	t.shape = t.grid = ofs_catalog_dims(o->h.cat, shape, ndim, &err);
	ofs_catalog_shard(o->h.cat, s, &err);
	ofs_catalog_tensor(o->h.cat, &t, &err);
	if (ofs_catalog_finish(o->h.cat, &err) == -1)
		bail_out("%s", err.text);
	if (o->h.cat->tensors->error != OFS_NONE)
		bail_out("%s", o->h.cat->notes->text);
	if (ofs_reader_init(&o->r, o->h.cat, handmade_transport(&o->h, 1 << 20),
		&err) == -1)
		bail_out("%s", err.text);
}

static void one_fini(struct one *o)
{
	ofs_reader_fini(&o->r);
	handmade_fini(&o->h);
}

/* Reads all elements through a plan and compares them. */
static bool reads(struct one *o, uint64_t count, const float *want)
{
	const struct ofs_tensor *t = o->h.cat->tensors;
	struct optimfs_error err = { 0 };
	struct ofs_plan plan = { 0 };
	float got[8] = { 0 };
	bool same = false;

	if (ofs_plan_elements(o->h.cat, t, 0, count, ofs_locate, &o->r, &plan,
		&err) == 0 &&
	    ofs_transport_fetch(o->r.transport, plan.seg, plan.n, got, &err) ==
		0)
		same = memcmp(got, want, count * sizeof(*want)) == 0;
	else
		diag("%s", err.text);
	ofs_plan_fini(&plan);
	return same;
}

/* In the test files the item begins at byte 5. */
#define PAD 5

static struct ofs_shard put_item(struct one *o, const struct mkzip *z)
{
	struct ofs_shard s = { .at = { .off = PAD,
				   .len = z->b.len,
				   .encoding = OFS_TORCH_ITEM },
		.box = OFS_NONE,
		.view = OFS_NONE };
	struct ofs_buf file = { 0 };

	handmade_init(&o->h);
	ofs_buf_put(&file, "#####", PAD);
	ofs_buf_put(&file, z->b.data, z->b.len);
	ofs_buf_puts(&file, "what follows");
	s.at.object = handmade_file(&o->h, "f", file.data, file.len);
	ofs_buf_fini(&file);
	return s;
}

struct row {
	const char *what;
	struct pickled p;
	const char *pickle, *key;
	size_t stored; /* bytes of the storage */
	unsigned int ndim;
	uint64_t shape[3]; /* in the catalog */
	int code;          /* 0: the elements are want */
	const char *part;
	float want[6];
};

#define DATA "archive/data/0"

static const struct row items[] = {
	{ "contiguous tensor", { "FloatStorage", 6, 0, 2, { 2, 3 }, { 3, 1 } },
	    NULL, DATA, 24, 2, { 2, 3 }, 0, "", { 0, 1, 2, 3, 4, 5 } },
	{ "transposed tensor", { "FloatStorage", 6, 0, 2, { 3, 2 }, { 1, 3 } },
	    NULL, DATA, 24, 2, { 3, 2 }, 0, "", { 0, 3, 1, 4, 2, 5 } },
	{ "view of a storage", { "FloatStorage", 6, 2, 1, { 2 }, { 2 } }, NULL,
	    DATA, 24, 1, { 2 }, 0, "", { 2, 4 } },
	{ "expanded tensor", { "FloatStorage", 1, 0, 1, { 4 }, { 0 } }, NULL,
	    DATA, 4, 1, { 4 }, 0, "", { 0, 0, 0, 0 } },
	{ "tensor without dimensions",
	    { "FloatStorage", 1, 0, 0, { 0 }, { 0 } }, NULL, DATA, 4, 0, { 0 },
	    0, "", { 0 } },
	{ "item without a leading dimension of 1",
	    { "FloatStorage", 6, 0, 2, { 2, 3 }, { 3, 1 } }, NULL, DATA, 24, 3,
	    { 1, 2, 3 }, 0, "", { 0, 1, 2, 3, 4, 5 } },
	{ "item with an additional dimension of 1",
	    { "FloatStorage", 6, 0, 3, { 2, 1, 3 }, { 3, 9, 1 } }, NULL, DATA,
	    24, 2, { 2, 3 }, 0, "", { 0, 1, 2, 3, 4, 5 } },
	{ "item of another dtype",
	    { "IntStorage", 6, 0, 2, { 2, 3 }, { 3, 1 } }, NULL, DATA, 24, 2,
	    { 2, 3 }, EUCLEAN,
	    "OFS615 f at 5: the item holds int32, its index says float32",
	    { 0 } },
	{ "item of another shape",
	    { "FloatStorage", 6, 0, 2, { 3, 2 }, { 2, 1 } }, NULL, DATA, 24, 2,
	    { 2, 3 }, EUCLEAN,
	    "OFS615 f at 5: dim 0 of the item is 3, its index says 2", { 0 } },
	{ "item of a larger shape",
	    { "FloatStorage", 6, 0, 2, { 2, 3 }, { 3, 1 } }, NULL, DATA, 24, 1,
	    { 2 }, EUCLEAN, "OFS615", { 0 } },
	{ "item of fewer dimensions", { "FloatStorage", 2, 0, 1, { 2 }, { 1 } },
	    NULL, DATA, 8, 2, { 2, 3 }, EUCLEAN, "OFS615", { 0 } },
	{ "storage that is too short",
	    { "FloatStorage", 6, 0, 2, { 2, 3 }, { 3, 1 } }, NULL, DATA, 20, 2,
	    { 2, 3 }, EUCLEAN, "OFS527 f at 5", { 0 } },
	{ "storage that is too long", { "FloatStorage", 5, 0, 1, { 5 }, { 1 } },
	    NULL, DATA, 24, 1, { 5 }, EUCLEAN, "OFS527", { 0 } },
	{ "view past the end of its storage",
	    { "FloatStorage", 6, 1, 2, { 2, 3 }, { 3, 1 } }, NULL, DATA, 24, 2,
	    { 2, 3 }, EUCLEAN, "OFS528", { 0 } },
	{ "view whose offset overflows",
	    { "FloatStorage", 6, INT64_MAX, 1, { 2 }, { 1 } }, NULL, DATA, 24,
	    1, { 2 }, EUCLEAN, "OFS52", { 0 } },
	{ "item without its storage",
	    { "FloatStorage", 6, 0, 2, { 2, 3 }, { 3, 1 } }, NULL,
	    "archive/data/1", 24, 2, { 2, 3 }, EIO,
	    "OFS434 f at 5: storage '0' missing", { 0 } },
	{ "item that is a number", { 0 }, "\x80\x02K\x07.", DATA, 24, 2,
	    { 2, 3 }, EUCLEAN, "OFS615 f at 5: the item is a int", { 0 } },
	{ "item without a valid pickle", { 0 }, "]", DATA, 24, 2, { 2, 3 },
	    EUCLEAN, "OFS40", { 0 } },
};

static void item(const struct row *r)
{
	struct optimfs_error err = { 0 };
	struct ofs_shard s;
	struct mkzip z;
	struct one o;

	archive(&z, &r->p, r->pickle, r->key, numbers, r->stored, "little");
	s = put_item(&o, &z);
	mkzip_fini(&z);
	one_init(&o, r->shape, r->ndim, &s);
	if (r->code == 0) {
		uint64_t n = 1;

		for (unsigned int k = 0; k < r->ndim; k++)
			n *= r->shape[k];
		ok(reads(&o, n, r->want), "item: %s is read", r->what);
	} else {
		ok(ofs_locate(&o.r, o.h.cat->tensors, 0, &err) == NULL,
		    "item: %s is refused", r->what);
		is_error(err, r->code, r->part,
		    "item: %s is refused with the expected error", r->what);
	}
	one_fini(&o);
}

static void big_endian(void)
{
	struct optimfs_error err = { 0 };
	const struct ofs_place *p;
	struct ofs_shard s;
	struct mkzip z;
	struct one o;

	archive(&z, &matrix, NULL, DATA, numbers, 24, "big");
	s = put_item(&o, &z);
	mkzip_fini(&z);
	one_init(&o, matrix.shape, 2, &s);
	p = ofs_locate(&o.r, o.h.cat->tensors, 0, &err);
	ok(p != NULL && p->fix == OFS_FIX_SWAP,
	    "elements of a big-endian item are marked for swapping");
	one_fini(&o);
}

static void *find_it(void *ctx)
{
	struct one *o = ctx;

	return (void *)(uintptr_t)ofs_locate(&o->r, o->h.cat->tensors, 0, NULL);
}

static void remembers(void)
{
	const struct ofs_place *first;
	uint64_t requests;
	pthread_t thread[8];
	struct ofs_shard s;
	void *found[8];
	struct mkzip z;
	struct one o;
	int same = 0;

	archive(&z, &matrix, NULL, DATA, numbers, 24, "little");
	s = put_item(&o, &z);
	mkzip_fini(&z);
	one_init(&o, matrix.shape, 2, &s);
	for (int i = 0; i < 8; i++)
		if (pthread_create(&thread[i], NULL, find_it, &o) != 0)
			bail_out("no thread");
	for (int i = 0; i < 8; i++)
		pthread_join(thread[i], &found[i]);
	first = found[0];
	for (int i = 0; i < 8; i++)
		same += found[i] != NULL && found[i] == first;
	is_int(same, 8, "eight threads get the same place of a shard");
	requests = o.r.transport->counters.requests;
	ok(ofs_locate(&o.r, o.h.cat->tensors, 0, NULL) == first,
	    "a second call gives the same place");
	is_u64(o.r.transport->counters.requests, requests,
	    "a second call reads nothing");
	one_fini(&o);
}

static void truncated(void)
{
	struct optimfs_error err = { 0 };
	struct ofs_shard s;
	struct mkzip z;
	struct one o;

	archive(&z, &matrix, NULL, DATA, numbers, 24, "little");
	s = put_item(&o, &z);
	mkzip_fini(&z);
	s.at.len += 100;
	one_init(&o, matrix.shape, 2, &s);
	ok(ofs_locate(&o.r, o.h.cat->tensors, 0, &err) == NULL,
	    "an item that ends behind its file is refused");
	is_error(err, EIO, "OFS603 f is short",
	    "an item that ends behind its file fails with its name");
	one_fini(&o);

	handmade_init(&o.h);
	s = (struct ofs_shard){ .at = { .len = 1577,
				    .encoding = OFS_TORCH_ITEM },
		.box = OFS_NONE,
		.view = OFS_NONE };
	s.at.object = handmade_file(&o.h, "gone", NULL, 0);
	one_init(&o, matrix.shape, 2, &s);
	ok(ofs_locate(&o.r, o.h.cat->tensors, 0, &err) == NULL,
	    "a shard in a missing file is refused");
	is_error(err, EIO, "OFS140 gone",
	    "a shard in a missing file fails with its name");
	one_fini(&o);
}

/* A tensor in raw bytes, with or without a view. */
static bool raw(const struct ofs_view *v, const int64_t *stride, uint64_t len,
    struct optimfs_error *err)
{
	struct ofs_shard s = { .at = { .off = 4, .len = len },
		.box = OFS_NONE,
		.view = OFS_NONE };
	struct ofs_view view;
	struct one o;
	bool good;

	*err = (struct optimfs_error){ 0 };
	handmade_init(&o.h);
	s.at.object = handmade_file(&o.h, "r", numbers, sizeof(numbers));
	if (v != NULL) {
		view = *v;
		view.stride = ofs_catalog_dims(o.h.cat,
		    (const uint64_t *)stride, 2, NULL);
		s.view = ofs_catalog_view(o.h.cat, &view, NULL);
	}
	one_init(&o, (uint64_t[]){ 2, 2 }, 2, &s);
	good = ofs_locate(&o.r, o.h.cat->tensors, 0, err) != NULL;
	if (good)
		good = reads(&o, 4,
		    v == NULL ? (float[]){ 1, 2, 3, 4 }
			      : (float[]){ 2, 4, 3, 5 });
	one_fini(&o);
	return good;
}

static void raws(void)
{
	static const int64_t turned[] = { 1, 2 }, back[] = { -1, 2 },
			     far[] = { INT64_MAX, INT64_MAX };
	struct ofs_view v = { .offset = 1, .numel = 5 };
	struct optimfs_error err;

	ok(raw(NULL, NULL, 16, &err), "raw bytes of the right length are read");
	ok(!raw(NULL, NULL, 20, &err),
	    "raw bytes of a wrong length are refused");
	is_error(err, EUCLEAN, "OFS527 r at 4: 20 bytes are stored for 16",
	    "raw bytes of a wrong length fail with both lengths");
	ok(raw(&v, turned, 20, &err), "a view of raw bytes is read");
	ok(!raw(&v, turned, 24, &err),
	    "a view of raw bytes of a wrong length is refused");
	is_error(err, EUCLEAN, "OFS527",
	    "a view of raw bytes of a wrong length fails with OFS527");
	v.offset = 2;
	ok(!raw(&v, turned, 20, &err),
	    "a view past the end of its raw bytes is refused");
	is_error(err, EUCLEAN, "OFS528",
	    "a view past the end of its raw bytes fails with OFS528");
	ok(!raw(&v, back, 20, &err),
	    "a view with a negative stride is refused");
	is_error(err, EUCLEAN, "OFS529",
	    "a view with a negative stride fails with OFS529");
	ok(!raw(&v, far, 20, &err), "a view whose strides overflow is refused");
	is_error(err, EUCLEAN, "OFS52",
	    "a view whose strides overflow fails with an OFS52x code");
	v.offset = UINT64_MAX;
	ok(!raw(&v, turned, 20, &err),
	    "a view whose offset overflows is refused");
	is_error(err, EUCLEAN, "OFS52",
	    "a view whose offset overflows fails with an OFS52x code");
}

static uint16_t tag_of(struct mkzip *z)
{
	struct mkzip_bytes bytes = { z->b.data, z->b.len, 0 };
	struct ofs_zip zip;
	uint16_t tag;

	if (ofs_zip_open(&zip, z->b.len, mkzip_read, &bytes, NULL) == -1)
		bail_out("no archive");
	tag = ofs_zip_tag(&zip, ofs_zip_find(&zip, "data/0", 6));
	ofs_zip_fini(&zip);
	return tag;
}

static void record(void)
{
	struct ofs_shard s = { .at = { .len = 24,
				   .encoding = OFS_TORCH_RECORD },
		.box = OFS_NONE,
		.view = OFS_NONE };
	struct optimfs_error err = { 0 };
	struct mkzip z;
	struct one o;

	archive(&z, &matrix, NULL, DATA, numbers, 24, "little");
	s.at.off = z.rec[2].header;
	s.at.tag = tag_of(&z);
	handmade_init(&o.h);
	s.at.object = handmade_file(&o.h, "z", z.b.data, z.b.len);
	one_init(&o, matrix.shape, 2, &s);
	ok(reads(&o, 6, numbers), "a record of an archive is read");
	one_fini(&o);

	handmade_init(&o.h);
	s.at.off++;
	s.at.object = handmade_file(&o.h, "z", z.b.data, z.b.len);
	one_init(&o, matrix.shape, 2, &s);
	ok(ofs_locate(&o.r, o.h.cat->tensors, 0, &err) == NULL,
	    "a record without a header at its offset is refused");
	is_error(err, EUCLEAN, "OFS511",
	    "a record without a header at its offset fails with OFS511");
	one_fini(&o);
	mkzip_fini(&z);
}

static void values(void)
{
	static const char pickle[] = "\x80\x02K\x07.";
	struct optimfs_error err = { 0 };
	struct ofs_item at = { .error = OFS_NONE };
	struct ofs_pickle *doc;
	struct ofs_shard s;
	struct mkzip z;
	int64_t v = 0;
	struct one o;

	archive(&z, NULL, pickle, DATA, numbers, 4, "little");
	s = put_item(&o, &z);
	mkzip_fini(&z);
	one_init(&o, (uint64_t[]){ 1 }, 1, &s);
	at.at = s.at;
	doc = ofs_locate_item(&o.r, &at, &err);
	ok(doc != NULL && ofs_pk_int(doc, ofs_pickle_root(doc), &v) && v == 7,
	    "the value of an archive is read");
	ofs_pickle_free(doc);
	at.at.off++;
	ok(ofs_locate_item(&o.r, &at, &err) == NULL,
	    "an item that is not an archive is refused");
	is_error(err, EUCLEAN, "f at 6",
	    "an item that is not an archive fails with file and offset");
	one_fini(&o);

	handmade_init(&o.h);
	s.at = (struct ofs_extent){ .len = 5 };
	s.at.object = handmade_file(&o.h, "p", pickle, 5);
	at.at = s.at;
	optimfs_fail(&err, EPERM, "OFS999 no");
	at.error = ofs_catalog_error(o.h.cat, &err, NULL);
	one_init(&o, (uint64_t[]){ 1 }, 1, &s);
	ok(ofs_locate_item(&o.r, &at, &err) == NULL,
	    "an item with an error in the catalog is refused");
	is_error(err, EPERM, "OFS999 no",
	    "an item with an error in the catalog fails with that error");
	at.error = OFS_NONE;
	doc = ofs_locate_item(&o.r, &at, &err);
	ok(doc != NULL && ofs_pk_int(doc, ofs_pickle_root(doc), &v) && v == 7,
	    "the value of a bare pickle is read");
	ofs_pickle_free(doc);
	one_fini(&o);
}

#ifdef HAVE_ZSTD
# include <zstd.h>

static void compressed(void)
{
	struct ofs_shard s;
	struct mkzip z;
	struct one o;
	char *out;
	size_t n;

	archive(&z, &matrix, NULL, DATA, numbers, 24, "little");
	n = ZSTD_compressBound(z.b.len);
	out = malloc(n);
	if (out == NULL)
		bail_out("out of memory");
	n = ZSTD_compress(out, n, z.b.data, z.b.len, 3);
	mkzip_fini(&z);
	handmade_init(&o.h);
	s = (struct ofs_shard){ .at = { .len = n,
				    .encoding = OFS_TORCH_ITEM,
				    .codec = OFS_ZSTD },
		.box = OFS_NONE,
		.view = OFS_NONE };
	s.at.object = handmade_file(&o.h, "c", out, n);
	one_init(&o, matrix.shape, 2, &s);
	ok(reads(&o, 6, numbers), "a compressed item is read");
	one_fini(&o);

	n = ZSTD_compress(out, ZSTD_compressBound(24), numbers, 24, 3);
	handmade_init(&o.h);
	s.at.len = n;
	s.at.encoding = OFS_RAW;
	s.at.object = handmade_file(&o.h, "c", out, n);
	one_init(&o, matrix.shape, 2, &s);
	ok(reads(&o, 6, numbers), "compressed raw bytes are read");
	one_fini(&o);
	free(out);
}
#else
static void compressed(void)
{
	skip(2, "built without zstd");
}
#endif

int main(void)
{
	for (size_t i = 0; i < sizeof(items) / sizeof(*items); i++)
		item(&items[i]);
	big_endian();
	remembers();
	truncated();
	raws();
	record();
	values();
	compressed();
	return done_testing();
}
