/* packed.c - numbers stored in few bits, with scales, as float32 */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "derive/packed.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "archive/torch.h"
#include "archive/zip.h"
#include "base/checked.h"
#include "base/cursor.h"
#include "base/memory.h"
#include "catalog/budget.h"
#include "derive/derive.h"
#include "read/fetch.h"
#include "stats/number.h"

/* Elements that are unpacked at a time. */
#define BLOCK 65536u

/* Elements of codes, scales or tables: a tensor of the catalog, or those from
 * byte at on in an archive. */
struct elements {
	enum ofs_dtype dtype;
	uint32_t tensor;
	uint64_t at;
};

/* What is known before the first element is read: the values of the codes, the
 * factor. item: all is in the archive of this extent. */
struct unpacking {
	struct ofs_packed p;
	struct elements codes, scale;
	bool item;
	struct ofs_extent extent;
	float value[256];
	float factor;
	float scale_value[256]; /* of nested scales: those of their codes */
};

/* A part of the matrix: elements [first, first + n), and the scales from number
 * scale0 on that they need. */
struct part {
	struct ofs_reader *r;
	const struct ofs_packed *p;
	const struct unpacking *u;
	uint64_t first, scale0, nscales;
	size_t n;
	uint8_t *codes;
	float *scale;
};

static uint64_t blocks(uint64_t n, uint64_t block)
{
	return n / block + (n % block != 0);
}

/* Bytes [first, first + n) of a tensor with elements of size bytes. */
static int fetch_bytes(struct ofs_reader *r, const struct ofs_tensor *t,
    size_t size, uint64_t first, uint64_t n, void *buf,
    struct optimfs_error *err)
{
	uint64_t from = first / size, to = (first + n + size - 1) / size;
	uint8_t *raw = malloc((to - from) * size);
	int ret;

	if (raw == NULL)
		return ofs_no_memory(err);
	ret = ofs_fetch_elements(r, t, from, to - from, raw, err);
	if (ret == 0)
		memcpy(buf, raw + (first - from * size), n);
	free(raw);
	return ret;
}

static int fetch(struct ofs_reader *r, const struct unpacking *u,
    const struct elements *e, uint64_t first, uint64_t n, void *buf,
    struct optimfs_error *err)
{
	size_t size = ofs_dtype_size(e->dtype), own;
	const struct ofs_tensor *t;

	if (u->item)
		return ofs_transport_read(r->transport, &u->extent,
		    e->at + first * size, n * size, buf, err);
	t = &r->cat->tensors[e->tensor];
	own = ofs_dtype_size(t->dtype);
	return own == size ? ofs_fetch_elements(r, t, first, n, buf, err)
			   : fetch_bytes(r, t, own, first, n, buf, err);
}

/* n elements as float32. */
static int fetch_floats(struct ofs_reader *r, const struct unpacking *u,
    const struct elements *e, uint64_t first, uint64_t n, float *out,
    struct optimfs_error *err)
{
	const double *codes = ofs_code_values(e->dtype);
	size_t size = ofs_dtype_size(e->dtype);
	uint8_t *raw = malloc(n * size);
	double v;
	int ret;

	if (raw == NULL)
		return ofs_no_memory(err);
	ret = fetch(r, u, e, first, n, raw, err);
	for (uint64_t i = 0; ret == 0 && i < n; i++) {
		ofs_to_double(e->dtype, codes, raw + i * size, 1, &v);
		out[i] = (float)v;
	}
	free(raw);
	return ret;
}

static struct elements of_tensor(const struct ofs_reader *r, uint32_t tensor)
{
	return (struct elements){
		.dtype = tensor == OFS_NONE
		    ? OFS_DTYPE_NONE
		    : (enum ofs_dtype)r->cat->tensors[tensor].dtype,
		.tensor = tensor,
	};
}

/* table: of values; dtype NONE: there is none. */
static int read_values(struct ofs_reader *r, struct unpacking *u,
    const struct elements *table, struct optimfs_error *err)
{
	static const float e2m1[] = { 0, .5f, 1, 1.5f, 2, 3, 4, 6 };
	const double *own = ofs_code_values(u->codes.dtype);

	if (own == NULL)
		return ofs_no_memory(err);
	if (table->dtype != OFS_DTYPE_NONE)
		return fetch_floats(r, u, table, 0, u->p.nibbles ? 16 : 256,
		    u->value, err);
	for (unsigned i = 0; u->p.nibbles && i < 16; i++)
		u->value[i] = i < 8 ? e2m1[i] : -e2m1[i - 8];
	for (unsigned i = 0; !u->p.nibbles && i < 256; i++)
		u->value[i] = (float)own[i];
	return 0;
}

static void *prepare_packed(struct ofs_reader *r, const struct ofs_tensor *t,
    const struct ofs_shard *s, struct optimfs_error *err)
{
	struct unpacking *u = ofs_alloc(1, sizeof(*u), err);
	struct elements table, factor;
	int ret = 0;

	(void)t;
	if (u == NULL)
		return NULL;
	u->p = *(const struct ofs_packed *)r->cat->derived[s->view].ctx;
	u->codes = of_tensor(r, u->p.codes);
	if (ofs_dtype_size(u->codes.dtype) > 1)
		u->codes.dtype = OFS_UINT8;
	u->scale = of_tensor(r, u->p.scale);
	table = of_tensor(r, u->p.table);
	factor = of_tensor(r, u->p.factor);
	if (u->p.factor != OFS_NONE)
		ret = fetch_floats(r, u, &factor, 0, 1, &u->factor, err);
	if (ret == 0)
		ret = read_values(r, u, &table, err);
	if (ret == 0 && u->p.nested_block != 0) {
		table = of_tensor(r, u->p.nested_table);
		ret = fetch_floats(r, u, &table, 0, 256, u->scale_value, err);
	}
	if (ret == 0)
		return u;
	free(u);
	return NULL;
}

/* The scales of a part of one row are those of its blocks; of several rows, all
 * of those. */
static void choose_scales(struct part *x)
{
	const struct ofs_packed *p = x->p;
	uint64_t last = x->first + x->n - 1,
		 per = blocks(p->cols, p->block_cols);
	uint64_t row = x->first / p->cols, end = last / p->cols;

	if (row == end) {
		x->scale0 = row / p->block_rows * per +
		    x->first % p->cols / p->block_cols;
		x->nscales = row / p->block_rows * per +
		    last % p->cols / p->block_cols + 1 - x->scale0;
		return;
	}
	x->scale0 = row / p->block_rows * per;
	x->nscales = (end / p->block_rows + 1) * per - x->scale0;
}

/* Scales that have a scale: their codes have been read. */
static int unpack_scales(struct part *x, struct optimfs_error *err)
{
	const struct ofs_packed *p = x->p;
	const struct elements nested = of_tensor(x->r, p->nested_scale);
	uint64_t from = x->scale0 / p->nested_block;
	uint64_t to = (x->scale0 + x->nscales - 1) / p->nested_block + 1;
	float *scale = malloc((to - from) * sizeof(*scale));
	int ret;

	if (scale == NULL)
		return ofs_no_memory(err);
	ret = fetch_floats(x->r, x->u, &nested, from, to - from, scale, err);
	for (uint64_t i = 0; ret == 0 && i < x->nscales; i++) {
		float v = x->u->scale_value[(uint8_t)x->scale[i]] *
		    scale[(x->scale0 + i) / p->nested_block - from];

		x->scale[i] = v + p->offset;
	}
	free(scale);
	return ret;
}

/* Reads the scales, and makes factors of them. */
static int fetch_scales(struct part *x, struct optimfs_error *err)
{
	const struct ofs_packed *p = x->p;

	if (fetch_floats(x->r, x->u, &x->u->scale, x->scale0, x->nscales,
		x->scale, err) == -1)
		return -1;
	for (uint64_t i = 0; i < x->nscales; i++) {
		float *s = &x->scale[i];

		if (p->exponents)
			*s = *s == 255 ? NAN : ldexpf(1, (int)*s - 127);
		if (p->factor != OFS_NONE)
			*s = p->divide ? *s / x->u->factor : *s * x->u->factor;
	}
	return p->nested_block == 0 ? 0 : unpack_scales(x, err);
}

static int fetch_codes(const struct part *x, struct optimfs_error *err)
{
	uint64_t first = x->first, end = x->first + x->n;

	if (x->p->nibbles) {
		first /= 2;
		end = (end + 1) / 2;
	}
	return fetch(x->r, x->u, &x->u->codes, first, end - first, x->codes,
	    err);
}

static unsigned code_at(const struct part *x, size_t i)
{
	size_t odd;

	if (!x->p->nibbles)
		return x->codes[i];
	odd = i + (x->first & 1);
	return x->codes[odd / 2] >>
	    ((odd % 2 == 0) == x->p->high_first ? 4 : 0) &
	    15;
}

/* Within a block of columns the scale stays. */
static void unpack(const struct part *x, uint8_t *out)
{
	const struct ofs_packed *p = x->p;
	uint64_t per = blocks(p->cols, p->block_cols);

	for (size_t i = 0; i < x->n;) {
		uint64_t row = (x->first + i) / p->cols;
		uint64_t col = (x->first + i) % p->cols;
		uint64_t end = (col / p->block_cols + 1) * p->block_cols;
		float scale = x->scale[row / p->block_rows * per +
		    col / p->block_cols - x->scale0];

		if (end > p->cols)
			end = p->cols;
		for (; col < end && i < x->n; col++, i++) {
			float v = x->u->value[code_at(x, i)] * scale;
			uint32_t bits;

			if (p->last != 0)
				v *= p->last;
			memcpy(&bits, &v, sizeof(bits));
			ofs_put_le(out + 4 * i, bits, 4);
		}
	}
}

static int read_part(struct part *x, uint8_t *out, struct optimfs_error *err)
{
	int ret;

	choose_scales(x);
	x->scale = malloc(x->nscales * sizeof(*x->scale));
	if (x->scale == NULL)
		return ofs_no_memory(err);
	ret = fetch_scales(x, err);
	if (ret == 0)
		ret = fetch_codes(x, err);
	if (ret == 0)
		unpack(x, out);
	free(x->scale);
	return ret;
}

/* How many of count elements are unpacked at a time. A part that goes on in the
 * next row needs the scales of whole rows, so that of a long row ends with it. */
static size_t part_length(const struct ofs_packed *p, uint64_t first,
    uint64_t count)
{
	uint64_t left = p->cols - first % p->cols;

	if (p->cols > BLOCK && count > left)
		count = left;
	return count < BLOCK ? (size_t)count : BLOCK;
}

static int read_packed(struct ofs_reader *r, const struct ofs_derived *d,
    const void *prepared, uint64_t first, uint64_t count, void *buf,
    struct optimfs_error *err)
{
	const struct unpacking *u = prepared;
	struct part x = { .r = r, .p = &u->p, .u = u, .first = first };
	uint8_t *out = buf;
	int ret = 0;

	(void)d;
	x.codes = malloc(count < BLOCK ? count + 1 : BLOCK + 1);
	if (x.codes == NULL)
		return ofs_no_memory(err);
	for (; count > 0 && ret == 0; count -= x.n, x.first += x.n) {
		x.n = part_length(x.p, x.first, count);
		ret = read_part(&x, out, err);
		out += 4 * x.n;
	}
	free(x.codes);
	return ret;
}

static const struct ofs_derived_ops packed_ops = {
	.name = "dequantize",
	.prepare = prepare_packed,
	.read = read_packed,
};

int ofs_packed_derive(struct ofs_catalog *cat, uint32_t tensor,
    const struct ofs_packed *p, struct optimfs_error *err)
{
	const uint32_t of[] = { p->codes, p->scale, p->factor, p->table,
		p->nested_block == 0 ? OFS_NONE : p->nested_scale,
		p->nested_block == 0 ? OFS_NONE : p->nested_table };
	struct ofs_packed *own = ofs_arena_alloc(&cat->arena, sizeof(*own));

	if (own == NULL)
		return ofs_no_memory(err);
	*own = *p;
	for (size_t i = 0; i < sizeof(of) / sizeof(of[0]); i++)
		if (of[i] != OFS_NONE &&
		    ofs_code_prepare(cat->tensors[of[i]].dtype, err) == -1)
			return -1;
	return ofs_derive_tensor(cat, tensor,
	    &(struct ofs_derived){ .ops = &packed_ops, .ctx = own }, err);
}

/* Archives of torchao. */

struct archive {
	struct ofs_reader *r;
	const struct ofs_extent *at;
	const struct ofs_zip *zip;
	struct ofs_window *w;
};

static int read_extent(void *ctx, uint64_t off, uint64_t len, void *buf,
    struct optimfs_error *err)
{
	const struct archive *a = ctx;

	return ofs_transport_read(a->r->transport, a->at, off, len, buf, err);
}

/* Finds the elements of a tensor of the archive. */
static int find_elements(const struct archive *a,
    const struct ofs_torch_tensor *t, struct elements *e,
    struct optimfs_error *err)
{
	const struct ofs_zip_record *rec = ofs_torch_record(a->zip, t->key);

	e->dtype = (enum ofs_dtype)t->dtype;
	if (rec == NULL)
		return optimfs_fail(err, EIO,
		    "OFS434 storage '%.*s' missing from the archive",
		    OFS_STR_ARGS(t->key, 100));
	return ofs_torch_check(t, rec->size, err) == -1
	    ? -1
	    : ofs_zip_data(a->zip, rec, ofs_window_read, a->w, &e->at, err);
}

static int unpack_archive(const struct archive *a, const struct ofs_pickle *doc,
    uint64_t numel, struct unpacking *u, struct optimfs_error *err)
{
	struct elements table = { .dtype = OFS_DTYPE_NONE };
	struct ofs_torch_tensor plain;
	struct ofs_torch_packed t;

	if (!ofs_torch_packed(doc, ofs_pickle_root(doc), &t) ||
	    a->zip->big_endian)
		return ofs_torch_tensor(doc, ofs_pickle_root(doc), &plain,
			   err) == -1
		    ? -1
		    : optimfs_fail(err, EUCLEAN,
			  "OFS527 the item is shorter than its elements");
	if (t.numel != numel)
		return optimfs_fail(err, EUCLEAN,
		    "OFS615 the item has %" PRIu64
		    " elements, its index says %" PRIu64,
		    t.numel, numel);
	u->p = (struct ofs_packed){ .factor = OFS_NONE,
		.nibbles = t.nibbles,
		.high_first = true,
		.rows = 1,
		.cols = t.numel,
		.block_rows = 1,
		.block_cols = t.block };
	u->item = true;
	u->extent = *a->at;
	return find_elements(a, &t.codes, &u->codes, err) == -1 ||
		find_elements(a, &t.scale, &u->scale, err) == -1 ||
		(t.has_table && find_elements(a, &t.table, &table, err) == -1)
	    ? -1
	    : read_values(a->r, u, &table, err);
}

static int open_archive(struct ofs_reader *r, const struct ofs_extent *at,
    uint64_t numel, struct unpacking *u, struct optimfs_error *err)
{
	struct ofs_pickle_limits limits = ofs_pickle_budget(r->cat);
	struct archive a = { .r = r, .at = at };
	struct ofs_pickle *doc;
	struct ofs_window w;
	struct ofs_zip zip;
	int ret;

	ofs_window_init(&w, at->len, read_extent, &a);
	doc = ofs_torch_open(at->len, &limits, ofs_window_read, &w, &zip, err);
	if (doc == NULL)
		return -1;
	a.zip = &zip;
	a.w = &w;
	ret = unpack_archive(&a, doc, numel, u, err);
	ofs_pickle_free(doc);
	ofs_zip_fini(&zip);
	return ret;
}

static void *prepare_item(struct ofs_reader *r, const struct ofs_tensor *t,
    const struct ofs_shard *s, struct optimfs_error *err)
{
	struct unpacking *u = ofs_alloc(1, sizeof(*u), err);
	uint64_t lo[OFS_MAX_DIMS], size[OFS_MAX_DIMS], numel = 0;

	ofs_shard_box(r->cat, t, s, lo, size);
	(void)ofs_numel(size, t->grid_ndim, &numel);
	if (u == NULL || open_archive(r, &s->at, numel, u, err) == 0)
		return u;
	free(u);
	return NULL;
}

static const struct ofs_derived_ops item_ops = {
	.name = "dequantize",
	.prepare = prepare_item,
	.read = read_packed,
};

int ofs_packed_item(struct ofs_catalog *cat, struct ofs_shard *s,
    struct optimfs_error *err)
{
	s->view = ofs_catalog_derived(cat,
	    &(struct ofs_derived){ .ops = &item_ops }, err);
	s->at.encoding = OFS_DERIVED;
	return s->view == OFS_NONE ? -1 : 0;
}
