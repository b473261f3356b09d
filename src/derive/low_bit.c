/* low_bit.c - which tensors together are one in few bits */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "derive/low_bit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/step.h"
#include "base/str.h"
#include "derive/packed.h"
#include "derive/quant_state.h"
#include "read/fetch.h"
#include "read/reader.h"
#include "store/local.h"

/* A form is recognised by the names, types and shapes of all its parts, which
 * must agree in every number: nothing is guessed. */

enum part {
	CODES,
	SCALE,
	FACTOR,
	TABLE,
	NESTED_SCALE,
	NESTED_TABLE,
	STATE, /* a tensor that describes the others: its bytes are read */
	NPARTS,
};

/* The parts of a candidate, as tensors; NULL: there is no such part. */
struct parts {
	const struct ofs_catalog *cat;
	const struct ofs_tensor *codes, *scale, *factor, *table;
	const struct ofs_tensor *nested_scale, *nested_table;
	struct ofs_str state; /* the bytes of STATE; p NULL: there is none */
	struct optimfs_error *why; /* what is wrong with them */
	/* what is found out: */
	struct ofs_packed *p;
	uint64_t shape[OFS_MAX_DIMS];
	unsigned ndim;
};

static const uint64_t *shape_of(const struct parts *x,
    const struct ofs_tensor *t)
{
	return ofs_tensor_shape(x->cat, t);
}

static bool is_fp8(const struct ofs_tensor *t)
{
	return ofs_dtype_is_float(t->dtype) && ofs_dtype_size(t->dtype) == 1;
}

static bool is_wide(const struct ofs_tensor *t)
{
	return t->dtype == OFS_FLOAT32 || t->dtype == OFS_BFLOAT16 ||
	    t->dtype == OFS_FLOAT16;
}

/* The result has the shape of codes, but for the last dimension. */
static void set_shape(struct parts *x, unsigned ndim, uint64_t last)
{
	memcpy(x->shape, shape_of(x, x->codes), ndim * sizeof(*x->shape));
	x->shape[ndim - 1] = last;
	x->ndim = ndim;
	x->p->cols = last;
	x->p->rows = 1;
	for (unsigned i = 0; i + 1 < ndim; i++)
		x->p->rows *= x->shape[i]; /* no overflow: they are stored */
}

static bool is_one(const struct parts *x, const struct ofs_tensor *t)
{
	return t->ndim <= 1 && ofs_tensor_numel(x->cat, t) == 1;
}

/* FP8 in blocks of 128 x 128, as DeepSeek-V3: X, X_scale_inv. */
static bool match_fp8_blocks(struct parts *x)
{
	const uint64_t *c = shape_of(x, x->codes), *s = shape_of(x, x->scale);

	if (!is_fp8(x->codes) || !is_wide(x->scale) || x->codes->ndim != 2 ||
	    x->scale->ndim != 2 || s[0] != c[0] / 128 + (c[0] % 128 != 0) ||
	    s[1] != c[1] / 128 + (c[1] % 128 != 0))
		return false;
	set_shape(x, 2, c[1]);
	x->p->block_rows = x->p->block_cols = 128;
	return true;
}

/* FP8 with one scale, or one for each row: X, X_scale. */
static bool match_fp8(struct parts *x)
{
	const uint64_t *c = shape_of(x, x->codes), *s = shape_of(x, x->scale);
	const struct ofs_tensor *t = x->scale;
	bool one = is_one(x, t);

	if (!is_fp8(x->codes) || !is_wide(t) || x->codes->ndim < 1 ||
	    x->factor != NULL)
		return false;
	if (!one &&
	    (x->codes->ndim != 2 || t->ndim < 1 || t->ndim > 2 ||
		s[0] != c[0] || (t->ndim == 2 && s[1] != 1)))
		return false;
	set_shape(x, x->codes->ndim, c[x->codes->ndim - 1]);
	x->p->block_rows = one ? x->p->rows : 1;
	x->p->block_cols = x->p->cols;
	return x->p->rows > 0 && x->p->cols > 0;
}

/* 4-bit codes, two in a byte, in rows with a scale for each block of them. */
static bool match_nibbles(struct parts *x, unsigned block)
{
	const uint64_t *c = shape_of(x, x->codes), *s = shape_of(x, x->scale);
	unsigned n = x->codes->ndim;

	if (x->codes->dtype != OFS_UINT8 || n < 1 || x->scale->ndim != n ||
	    memcmp(c, s, (n - 1) * sizeof(*c)) != 0 || c[n - 1] == 0 ||
	    c[n - 1] % (block / 2) != 0 || s[n - 1] != c[n - 1] / (block / 2))
		return false;
	set_shape(x, n, c[n - 1] * 2);
	x->p->nibbles = true;
	x->p->block_rows = 1;
	x->p->block_cols = block;
	return true;
}

/* MXFP4 in rows: X_packed, X_scale. */
static bool match_mxfp4(struct parts *x)
{
	x->p->exponents = true;
	return x->factor == NULL && x->scale->dtype == OFS_UINT8 &&
	    match_nibbles(x, 32);
}

/* MXFP4 in blocks, as gpt-oss: X_blocks [..., n, 16], X_scales [..., n]. */
static bool match_mxfp4_blocks(struct parts *x)
{
	const uint64_t *c = shape_of(x, x->codes), *s = shape_of(x, x->scale);
	unsigned n = x->scale->ndim;

	if (x->codes->dtype != OFS_UINT8 || x->scale->dtype != OFS_UINT8 ||
	    n < 1 || x->codes->ndim != n + 1 || c[n] != 16 ||
	    memcmp(c, s, n * sizeof(*c)) != 0 || s[n - 1] == 0)
		return false;
	set_shape(x, n, s[n - 1] * 32);
	x->p->nibbles = x->p->exponents = true;
	x->p->block_rows = 1;
	x->p->block_cols = 32;
	return true;
}

/* NVFP4: X, X_scale, X_scale_2 of modelopt; X_packed, X_scale, X_global_scale of
 * compressed-tensors, which divides. */
static bool match_nvfp4(struct parts *x)
{
	return x->scale->dtype == OFS_FLOAT8_E4M3FN && x->factor != NULL &&
	    x->factor->dtype == OFS_FLOAT32 && is_one(x, x->factor) &&
	    match_nibbles(x, 16);
}

static bool match_nvfp4_divided(struct parts *x)
{
	x->p->divide = true;
	return match_nvfp4(x);
}

/* The size of the blocks of n elements of which there are count: a power of
 * two; 0: none. */
static uint64_t block_size(uint64_t n, uint64_t count)
{
	uint64_t b = 64;

	while (b < (UINT64_C(1) << 40) && n / b + (n % b != 0) > count)
		b *= 2;
	return n / b + (n % b != 0) == count ? b : 0;
}

/* A moment of an 8-bit optimizer of bitsandbytes: state1, absmax1, qmap1. Those
 * of AdEMAMix are two moments, each with scales of its own: [2, ...], [2, n]. */
static bool match_state(struct parts *x)
{
	uint64_t n = ofs_tensor_numel(x->cat, x->codes);
	uint64_t count = ofs_tensor_numel(x->cat, x->scale), rows = 1, block;

	if (x->codes->ndim < 1 || n == 0 || x->scale->ndim < 1)
		return false;
	if (x->scale->ndim == 2)
		rows = shape_of(x, x->scale)[0];
	if (rows == 0 || (rows > 1 && shape_of(x, x->codes)[0] != rows))
		return false;
	block = block_size(n / rows, count / rows);
	if (x->codes->dtype != OFS_UINT8 || x->scale->dtype != OFS_FLOAT32 ||
	    x->scale->ndim > 2 || x->table == NULL ||
	    x->table->dtype != OFS_FLOAT32 || x->table->ndim != 1 ||
	    shape_of(x, x->table)[0] != 256 || block == 0)
		return false;
	set_shape(x, x->codes->ndim, shape_of(x, x->codes)[x->codes->ndim - 1]);
	x->p->rows = rows;
	x->p->cols = n / rows;
	x->p->block_rows = 1;
	x->p->block_cols = block;
	return true;
}

static bool is_floats(const struct parts *x, const struct ofs_tensor *t,
    uint64_t n)
{
	return t != NULL && t->dtype == OFS_FLOAT32 && t->ndim == 1 &&
	    shape_of(x, t)[0] == n;
}

static uint64_t blocks_of(uint64_t n, uint64_t block)
{
	return n / block + (n % block != 0);
}

/* Are the scales of n elements there, with scales of their own or without? */
static bool match_scales(struct parts *x, const struct ofs_quant_state *q,
    uint64_t n)
{
	uint64_t scales = blocks_of(n, q->block);

	if (x->scale->ndim != 1 || shape_of(x, x->scale)[0] != scales)
		return false;
	if (q->nested == 0)
		return x->nested_scale == NULL &&
		    x->scale->dtype == OFS_FLOAT32;
	x->p->nested_block = q->nested;
	x->p->offset = q->offset;
	return x->scale->dtype == OFS_UINT8 &&
	    is_floats(x, x->nested_scale, blocks_of(scales, q->nested)) &&
	    is_floats(x, x->nested_table, 256);
}

/* A weight of bitsandbytes in 4 bits, which may have any type: it is bytes. The
 * shape of the numbers is in the state only. */
static bool match_bnb_4bit(struct parts *x)
{
	uint64_t n = 0, bytes = ofs_tensor_numel(x->cat, x->codes);
	struct ofs_quant_state q;

	if (ofs_quant_state_parse(x->state.p, x->state.len, &q, x->why) == -1)
		return false;
	/* a transposed one, [1, n], is that of older releases */
	if (!ofs_numel(q.shape, q.ndim, &n) || n == 0 || n > INT64_MAX / 8 ||
	    x->codes->ndim != 2 || shape_of(x, x->codes)[1] != 1 ||
	    bytes * ofs_dtype_size(x->codes->dtype) != n / 2 + n % 2 ||
	    !is_floats(x, x->table, 16) || !match_scales(x, &q, n)) {
		optimfs_fail(x->why, EUCLEAN,
		    "its shape and blocks are not those of the other tensors");
		return false;
	}
	memcpy(x->shape, q.shape, q.ndim * sizeof(*x->shape));
	x->ndim = q.ndim;
	x->p->nibbles = x->p->high_first = true;
	x->p->rows = x->p->block_rows = 1;
	x->p->cols = n;
	x->p->block_cols = q.block;
	return true;
}

/* A weight of bitsandbytes in 8 bits: X.weight, X.SCB, the largest number of each
 * row. Its format is 0: as PyTorch has it. */
static bool match_bnb_8bit(struct parts *x)
{
	const uint64_t *c = shape_of(x, x->codes);

	if (x->codes->dtype != OFS_INT8 || x->codes->ndim != 2 || c[0] == 0 ||
	    c[1] == 0 || !is_floats(x, x->scale, c[0]))
		return false;
	if (x->state.p != NULL && (x->state.len != 1 || x->state.p[0] != 0)) {
		optimfs_fail(x->why, EOPNOTSUPP,
		    "the weight is in an order for certain GPUs");
		return false;
	}
	set_shape(x, 2, c[1]);
	x->p->block_rows = 1;
	x->p->block_cols = c[1];
	x->p->last = 1.0f / 127;
	return true;
}

/* The names of the parts: that of the whole, and the suffix of each. With whole,
 * that is the only name; NULL: any, with a suffix. anchor: the part that others
 * are looked for beside. */
static const struct form {
	const char *whole, *suffix;
	enum part anchor;
	const char *part[NPARTS];
	bool (*match)(struct parts *x);
} forms[] = {
	{ NULL, "", CODES, { "", "_scale_inv" }, match_fp8_blocks },
	{ NULL, "", CODES, { "", "_scale", "_scale_2" }, match_nvfp4 },
	{ NULL, "", CODES, { "", "_scale", "_scale_2" }, match_fp8 },
	{ NULL, "", CODES, { "_packed", "_scale", "_global_scale" },
	    match_nvfp4_divided },
	{ NULL, "", CODES, { "_packed", "_scale", "_global_scale" },
	    match_mxfp4 },
	{ NULL, "", CODES, { "_blocks", "_scales" }, match_mxfp4_blocks },
	{ "state1", "", CODES, { "state1", "absmax1", NULL, "qmap1" },
	    match_state },
	{ "state2", "", CODES, { "state2", "absmax2", NULL, "qmap2" },
	    match_state },
#define BNB_4BIT(type)                                                   \
 {                                                                       \
  NULL, "", STATE,                                                       \
      { "", ".absmax", NULL, ".quant_map", ".nested_absmax",             \
	      ".nested_quant_map", ".quant_state.bitsandbytes__" type }, \
      match_bnb_4bit                                                     \
 }
	BNB_4BIT("nf4"),
	BNB_4BIT("fp4"),
	{ NULL, ".weight", SCALE,
	    { ".weight", ".SCB", NULL, NULL, NULL, NULL, ".weight_format" },
	    match_bnb_8bit },
};
#define NFORMS (sizeof(forms) / sizeof(forms[0]))

struct finding {
	struct ofs_catalog *cat;
	uint32_t *entry; /* of each tree path; OFS_NONE */
	uint32_t npaths, nentries;
	struct ofs_reader reader; /* once something is read */
	struct optimfs_error *err;
};

/* Finds the entry beside e whose name is base, then suffix. 1; 0: there is none;
 * -1. suffix NULL: none is wanted. */
static int beside(struct finding *f, const struct ofs_entry *e,
    struct ofs_str base, const char *suffix, uint32_t *entry)
{
	struct ofs_catalog *cat = f->cat;
	uint32_t n, *path, string, at;
	char name[512];

	*entry = OFS_NONE;
	if (suffix == NULL || base.len + strlen(suffix) >= sizeof(name))
		return 0;
	memcpy(name, base.p, base.len);
	strcpy(name + base.len, suffix);
	path = ofs_catalog_copy_components(cat, e->tree, &n, f->err);
	if (path == NULL)
		return -1;
	string = ofs_catalog_str(cat, name, strlen(name), f->err);
	path[n - 1] = string;
	at = string == OFS_NONE ? OFS_NONE
				: ofs_catalog_path(cat, path, n, f->err);
	free(path);
	if (at == OFS_NONE)
		return -1;
	if (at < f->npaths)
		*entry = f->entry[at];
	return *entry != OFS_NONE;
}

static const struct ofs_tensor *tensor_at(const struct ofs_catalog *cat,
    uint32_t entry)
{
	const struct ofs_tensor *t = entry == OFS_NONE
	    ? NULL
	    : ofs_entry_tensor(cat, &cat->entries[entry]);

	return t == NULL || t->error != OFS_NONE ? NULL : t;
}

static uint32_t ref_of(const struct ofs_catalog *cat, uint32_t entry)
{
	return entry == OFS_NONE ? OFS_NONE : cat->entries[entry].ref;
}

/* The derived tensor, and what the entries of its parts are from now on. */
static int add_found(struct finding *f, const struct parts *x, uint32_t name,
    const uint32_t *entry, size_t n)
{
	struct ofs_catalog *cat = f->cat;
	struct ofs_tensor t = *x->codes;
	struct ofs_low_bit l = { .name = name };

	t.dtype = OFS_FLOAT32;
	t.ndim = t.grid_ndim = (uint8_t)x->ndim;
	t.shape = t.grid = ofs_catalog_dims(cat, x->shape, x->ndim, f->err);
	if (t.shape == OFS_NONE)
		return -1;
	l.tensor = ofs_catalog_tensor(cat, &t, f->err);
	if (l.tensor == OFS_NONE ||
	    ofs_packed_derive(cat, l.tensor, x->p, f->err) == -1)
		return -1;
	for (size_t i = 0; i < n; i++) {
		if (entry[i] == OFS_NONE)
			continue;
		l.entry = entry[i];
		if (ofs_catalog_low_bit(cat, &l, f->err) == OFS_NONE)
			return -1;
		l.tensor = OFS_NONE; /* the others are only parts of it */
	}
	return 0;
}

/* A candidate: the entries of its parts, and the name of the whole. */
struct candidate {
	const struct form *form;
	uint32_t anchor; /* its entry */
	uint32_t part[NPARTS];
	struct ofs_str base;
	uint32_t whole; /* the entry that has this name already */
};

/* Does the name of an entry end as that of the anchor? */
static bool split_name(struct candidate *c, struct ofs_str name)
{
	const char *anchor = c->form->part[c->form->anchor];
	size_t n = strlen(anchor);

	c->base = name;
	if (c->form->whole != NULL) {
		c->base.len = 0;
		return ofs_str_is(name, c->form->whole);
	}
	if (name.len <= n || memcmp(name.p + name.len - n, anchor, n) != 0)
		return false;
	c->base.len -= (uint32_t)n;
	return true;
}

/* Finds the other parts: 1; 0: there are no codes or no scale, or the name of the
 * whole is taken; -1. */
static int find_parts(struct finding *f, struct candidate *c)
{
	const struct ofs_entry e = f->cat->entries[c->anchor];
	const struct form *form = c->form;

	for (size_t i = 0; i < NPARTS; i++) {
		int ret = 1;

		if (i == form->anchor)
			c->part[i] = c->anchor;
		else
			ret =
			    beside(f, &e, c->base, form->part[i], &c->part[i]);
		if (ret == -1 || (ret == 0 && (i == CODES || i == SCALE)))
			return ret;
	}
	if (form->whole != NULL || strcmp(form->suffix, form->part[CODES]) == 0)
		return 1;
	return beside(f, &e, c->base, form->suffix, &c->whole) == -1
	    ? -1
	    : c->whole == OFS_NONE;
}

/* The string of the name of the whole. */
static uint32_t name_whole(struct finding *f, const struct candidate *c)
{
	const struct ofs_str base =
	    c->form->whole != NULL ? ofs_str_of(c->form->whole) : c->base;
	char name[512 + 16];
	int n = snprintf(name, sizeof(name), "%.*s%s", OFS_STR_ARGS(base, 512),
	    c->form->suffix);

	return ofs_catalog_str(f->cat, name, (size_t)n, f->err);
}

/* The shard that has all of a tensor. The catalog is not finished: replicas are
 * not told apart. */
static uint32_t whole_shard(const struct ofs_catalog *cat,
    const struct ofs_tensor *t)
{
	uint64_t lo[OFS_MAX_DIMS], size[OFS_MAX_DIMS], numel;

	for (uint32_t i = 0; i < t->nshards; i++) {
		ofs_shard_box(cat, t, &cat->shards[t->shard + i], lo, size);
		if (ofs_numel(size, t->grid_ndim, &numel) &&
		    numel == ofs_tensor_numel(cat, t))
			return t->shard + i;
	}
	return OFS_NONE;
}

static int read_small(struct finding *f, const struct ofs_tensor *t, void *buf,
    struct optimfs_error *err)
{
	struct ofs_tensor one = *t;
	struct ofs_fetch_part part;

	one.shard = whole_shard(f->cat, t);
	one.nshards = 1;
	one.index = OFS_NONE;
	if (one.shard == OFS_NONE)
		return optimfs_fail(err, EIO, "no file has it");
	if (f->reader.transport == NULL &&
	    ofs_reader_init(&f->reader, f->cat,
		ofs_transport_of(f->cat, UINT64_C(1) << 20, err), err) == -1)
		return -1;
	if (ofs_fetch_part_init(&part, f->cat, &one, one.shard, NULL, err) ==
	    -1)
		return -1;
	part.count = part.total;
	return ofs_fetch_part(&f->reader, &part, buf, err);
}

/* Reads the tensor that describes the others. 1; 0: it cannot be; -1. */
static int read_state(struct finding *f, const struct candidate *c, char *buf,
    struct parts *x)
{
	const struct ofs_tensor *t = tensor_at(f->cat, c->part[STATE]);
	uint64_t n = t == NULL ? 0 : ofs_tensor_numel(f->cat, t);

	if (t == NULL)
		return 1;
	if (t->dtype != OFS_UINT8 || n > OFS_QUANT_STATE_MAX) {
		optimfs_fail(x->why, EUCLEAN, "not a text of bytes");
		return 0;
	}
	if (n > 0 && read_small(f, t, buf, x->why) == -1)
		return ofs_must_fail(x->why) ? optimfs_fail_with(f->err, x->why)
					     : 0;
	x->state = (struct ofs_str){ buf, (uint32_t)n };
	return 1;
}

/* A weight that says that it is in few bits is not left as it is in silence. */
static int note_odd(struct finding *f, const struct candidate *c,
    struct optimfs_error *why)
{
	uint32_t n,
	    at = c->part[STATE] != OFS_NONE ? c->part[STATE] : c->anchor;
	const uint32_t *path =
	    ofs_catalog_components(f->cat, f->cat->entries[at].tree, &n);
	struct ofs_str name = ofs_catalog_string(f->cat, path[n - 1]);

	if (why->code == 0)
		return 0;
	optimfs_fail_in(why,
	    "OFS867 %.*s: the weight is shown as it is stored, not as float32",
	    OFS_STR_ARGS(name, 120));
	return ofs_catalog_note_as(f->cat, OFS_NOTE_WARNING, why, f->err);
}

/* Are the parts those of the form? 1; 0; -1. */
static int match_parts(struct finding *f, const struct candidate *c,
    struct parts *x)
{
	char state[OFS_QUANT_STATE_MAX];
	struct optimfs_error why = { 0 };
	int ret;

	x->why = &why;
	x->codes = tensor_at(x->cat, c->part[CODES]);
	x->scale = tensor_at(x->cat, c->part[SCALE]);
	x->factor = tensor_at(x->cat, c->part[FACTOR]);
	x->table = tensor_at(x->cat, c->part[TABLE]);
	x->nested_scale = tensor_at(x->cat, c->part[NESTED_SCALE]);
	x->nested_table = tensor_at(x->cat, c->part[NESTED_TABLE]);
	if (x->codes == NULL || x->scale == NULL || x->codes->ndim == 0)
		return 0;
	ret = read_state(f, c, state, x);
	if (ret == 1 && c->form->match(x))
		return 1;
	return ret == -1 || note_odd(f, c, &why) == -1 ? -1 : 0;
}

/* Does the entry belong to this form? 1; 0; -1. */
static int try_form(struct finding *f, uint32_t i, const struct form *form)
{
	struct ofs_catalog *cat = f->cat;
	struct candidate c = { .form = form, .anchor = i, .whole = OFS_NONE };
	struct ofs_packed p = { 0 };
	struct parts x = { .cat = cat, .p = &p };
	uint32_t n, name;
	const uint32_t *path =
	    ofs_catalog_components(cat, cat->entries[i].tree, &n);
	int ret;

	memset(c.part, 0xff, sizeof(c.part));
	if (!split_name(&c, ofs_catalog_string(cat, path[n - 1])))
		return 0;
	ret = find_parts(f, &c);
	if (ret == 1)
		ret = match_parts(f, &c, &x);
	if (ret != 1)
		return ret;
	p.codes = ref_of(cat, c.part[CODES]);
	p.scale = ref_of(cat, c.part[SCALE]);
	p.factor = x.factor == NULL ? OFS_NONE : ref_of(cat, c.part[FACTOR]);
	p.table = x.table == NULL ? OFS_NONE : ref_of(cat, c.part[TABLE]);
	if (p.nested_block != 0) {
		p.nested_scale = ref_of(cat, c.part[NESTED_SCALE]);
		p.nested_table = ref_of(cat, c.part[NESTED_TABLE]);
	}
	name = name_whole(f, &c);
	return name == OFS_NONE || add_found(f, &x, name, c.part, NPARTS) == -1
	    ? -1
	    : 1;
}

/* Codes are bytes. */
static bool may_be_codes(const struct ofs_catalog *cat,
    const struct ofs_entry *e)
{
	const struct ofs_tensor *t =
	    e->tree == OFS_NONE ? NULL : ofs_entry_tensor(cat, e);

	return t != NULL && t->error == OFS_NONE && t->ndim > 0 &&
	    (t->dtype == OFS_UINT8 || is_fp8(t));
}

/* May the entry be the anchor of a form? */
static bool may_be_anchor(const struct ofs_catalog *cat,
    const struct ofs_entry *e, const struct form *form)
{
	const char *suffix = form->part[form->anchor];
	const uint32_t *c;
	uint32_t n;

	if (form->anchor == CODES)
		return may_be_codes(cat, e);
	if (e->tree == OFS_NONE || e->kind != OFS_ENTRY_TENSOR)
		return false;
	c = ofs_catalog_components(cat, e->tree, &n);
	return ofs_str_ends(ofs_catalog_string(cat, c[n - 1]), suffix);
}

static bool may_be_some(const struct ofs_catalog *cat,
    const struct ofs_entry *e)
{
	for (size_t k = 0; k < NFORMS; k++)
		if (may_be_anchor(cat, e, &forms[k]))
			return true;
	return false;
}

static int find_all(struct finding *f)
{
	int ret = 0;

	for (uint32_t i = 0; i < f->nentries; i++) {
		if (f->cat->entries[i].tree != OFS_NONE &&
		    f->cat->entries[i].tree < f->npaths)
			f->entry[f->cat->entries[i].tree] = i;
	}
	for (uint32_t i = 0; i < f->nentries; i++)
		for (size_t k = 0; k < NFORMS; k++) {
			ret = may_be_anchor(f->cat, &f->cat->entries[i],
				  &forms[k])
			    ? try_form(f, i, &forms[k])
			    : 0;
			if (ret == -1)
				return -1;
			if (ret == 1)
				break;
		}
	return 0;
}

int ofs_low_bit_find(struct ofs_catalog *cat, struct optimfs_error *err)
{
	struct finding f = { .cat = cat,
		.npaths = cat->npaths,
		.nentries = cat->nentries,
		.err = OFS_SOME_ERROR(err) };
	bool some = false;
	int ret;

	for (uint32_t i = 0; i < cat->nentries && !some; i++)
		some = may_be_some(cat, &cat->entries[i]);
	if (!some)
		return 0;
	f.entry = ofs_alloc(cat->npaths + 1ul, sizeof(*f.entry), err);
	if (f.entry == NULL)
		return -1;
	memset(f.entry, 0xff, cat->npaths * sizeof(*f.entry));
	ret = find_all(&f);
	if (f.reader.transport != NULL)
		ofs_reader_fini(&f.reader);
	free(f.entry);
	return ret;
}

/* Replaces the last component of a path. */
static uint32_t rename_path(struct ofs_catalog *cat, uint32_t path,
    uint32_t name, struct optimfs_error *err)
{
	uint32_t n, *c = ofs_catalog_copy_components(cat, path, &n, err), at;

	if (c == NULL)
		return OFS_NONE;
	c[n - 1] = name;
	at = ofs_catalog_path(cat, c, n, err);
	free(c);
	return at;
}

/* Adds the entry as it is when unpacked; *to: its new index, or OFS_NONE. */
static int unpack_entry(struct ofs_catalog *cat, const struct ofs_entry *entry,
    const struct ofs_low_bit *l, uint32_t *to, struct optimfs_error *err)
{
	struct ofs_entry e = *entry;

	*to = OFS_NONE;
	if (l != NULL && l->tensor == OFS_NONE)
		return 0;
	if (l != NULL) {
		e.kind = OFS_ENTRY_TENSOR;
		e.ref = l->tensor;
	}
	if (l != NULL && l->name != OFS_NONE) {
		e.path = rename_path(cat, e.path, l->name, err);
		e.tree = rename_path(cat, e.tree, l->name, err);
		if (e.path == OFS_NONE || e.tree == OFS_NONE)
			return -1;
	}
	*to = ofs_catalog_entry(cat, &e, err);
	return *to == OFS_NONE ? -1 : 0;
}

static int unpack_all(struct ofs_catalog *cat, const struct ofs_catalog *base,
    uint32_t *to, struct optimfs_error *err)
{
	for (uint32_t i = 0; i < base->nentries; i++)
		if (unpack_entry(cat, &base->entries[i],
			ofs_low_bit_of(base, i), &to[i], err) == -1)
			return -1;
	for (uint32_t i = 0; i < base->nvariants; i++) {
		struct ofs_variant v = base->variants[i];

		v.entry = to[v.entry];
		if (v.entry != OFS_NONE &&
		    ofs_catalog_variant(cat, &v, err) == OFS_NONE)
			return -1;
	}
	return 0;
}

struct ofs_catalog *ofs_low_bit_unpacked(const struct ofs_catalog *base,
    struct optimfs_error *err)
{
	struct ofs_catalog *cat = ofs_catalog_copy(base, err);
	uint32_t *to = ofs_alloc(base->nentries + 1ul, sizeof(*to), err);
	int ret = -1;

	if (cat != NULL && to != NULL)
		ret = unpack_all(cat, base, to, err);
	free(to);
	if (ret == -1) {
		ofs_catalog_free(cat);
		return NULL;
	}
	cat->nlow_bits = 0;
	ofs_catalog_seal(cat);
	return cat;
}
