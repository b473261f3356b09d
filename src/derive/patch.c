/* patch.c - tensors of which a state before and changes are stored */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "derive/patch.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>
#include <zlib.h>

#include "base/cursor.h"
#include "base/memory.h"
#include "derive/derive.h"
#include "read/fetch.h"

/* A read computes its range only: elements of the state before, then each change
 * of that range over them. Positions are ascending, so the entries of a range are
 * found among samples, which are all that is kept of them: of each EVERY entries
 * the position that comes before, 8 bytes for 4096 changed elements. What is
 * compressed is decoded and cached by the store. */

#define EVERY 4096u
#define BLOCK (UINT64_C(1) << 18) /* bytes of a change, or of a checksum */

struct patched {
	struct ofs_reader *base;
	uint32_t of;
	uint64_t numel, item;
	uint32_t n;
	struct ofs_patch_step v[];
};

/* Positions of one change: how many there are, and where its samples are. What is
 * known before the first read is one of these for each change, then the
 * samples. */
struct positions {
	uint64_t n;
	size_t sample;
};

static const struct ofs_tensor *tensor_of(const struct ofs_patch_step *p,
    uint32_t i)
{
	return &p->reader->cat->tensors[i];
}

static uint64_t elements_of(const struct ofs_patch_step *p, uint32_t i)
{
	return ofs_tensor_numel(p->reader->cat, tensor_of(p, i));
}

static bool is_list(const struct ofs_patch_step *p)
{
	return p->change->kind != OFS_DELTA_XOR;
}

/* The bytes that an entry of a list replaces. */
static uint64_t unit_of(const struct patched *x, const struct ofs_patch_step *p)
{
	return p->change->kind == OFS_DELTA_BYTES ? 1 : x->item;
}

static int damaged(const struct ofs_patch_step *p, struct optimfs_error *err,
    const char *what)
{
	return optimfs_fail(err, EUCLEAN, "OFS883 %s: %s", p->name, what);
}

/* Entries [i, i + n) of a list, n at most EVERY. */

static int fetch(const struct ofs_patch_step *p, uint32_t tensor,
    uint64_t first, uint64_t n, void *buf, struct optimfs_error *err)
{
	if (ofs_fetch_elements(p->reader, tensor_of(p, tensor), first, n, buf,
		err) == -1)
		return optimfs_fail_in(err, "%s", p->name);
	return 0;
}

/* before: the position of the entry before the first one. */
static int read_positions(const struct ofs_patch_step *p, uint64_t i, size_t n,
    uint64_t before, uint64_t *out, struct optimfs_error *err)
{
	const struct ofs_delta_part *c = p->change;
	bool bytes = c->kind == OFS_DELTA_BYTES;
	size_t size = bytes ? 4 : ofs_dtype_size(tensor_of(p, c->at)->dtype);
	uint8_t raw[EVERY * 4];
	int ret = bytes ? fetch(p, c->at, 4 + 4 * i, 4 * n, raw, err)
			: fetch(p, c->at, i, n, raw, err);

	if (ret == -1)
		return -1;
	for (size_t k = 0; k < n; k++) {
		uint64_t v = ofs_get_le(raw + k * size, size);

		if (c->gaps && i + k > 0)
			v += before + 1;
		out[k] = before = v;
	}
	return 0;
}

static int read_values(const struct ofs_patch_step *p,
    const struct positions *of, uint64_t i, size_t n, void *out,
    struct optimfs_error *err)
{
	const struct ofs_delta_part *c = p->change;

	return c->kind == OFS_DELTA_BYTES
	    ? fetch(p, c->at, 4 + 4 * of->n + i, n, out, err)
	    : fetch(p, c->values, i, n, out, err);
}

/* Preparing. */

static int count_positions(const struct patched *x,
    const struct ofs_patch_step *p, uint64_t *n, struct optimfs_error *err)
{
	uint8_t raw[4];

	*n = 0;
	if (!is_list(p))
		return 0;
	if (p->change->kind == OFS_DELTA_ELEMENTS) {
		*n = elements_of(p, p->change->at);
		return 0;
	}
	if (fetch(p, p->change->at, 0, 4, raw, err) == -1)
		return -1;
	*n = ofs_le32(raw);
	if (*n > x->numel * x->item ||
	    elements_of(p, p->change->at) != 4 + 5 * *n)
		return damaged(p, err,
		    "the number of bytes that it changes does not fit its "
		    "length");
	return 0;
}

/* Reads all positions, and keeps samples. */
static int check_positions(const struct patched *x,
    const struct ofs_patch_step *p, const struct positions *of,
    uint64_t *sample, struct optimfs_error *err)
{
	uint64_t end = x->numel * x->item / unit_of(x, p), last = 0;
	uint64_t *at = malloc(EVERY * sizeof(*at));
	int ret = at == NULL ? ofs_no_memory(err) : 0;
	size_t k;

	for (uint64_t i = 0; ret == 0 && i < of->n; i += k) {
		k = of->n - i < EVERY ? (size_t)(of->n - i) : EVERY;
		sample[i / EVERY] = last;
		ret = read_positions(p, i, k, last, at, err);
		for (size_t j = 0; ret == 0 && j < k; j++) {
			if (at[j] >= end)
				ret = damaged(p, err,
				    "it changes an element that the tensor "
				    "does not have");
			else if (i + j > 0 && at[j] <= last)
				ret = damaged(p, err,
				    "positions of elements are not ascending");
			last = at[j];
		}
	}
	free(at);
	return ret;
}

static uint64_t *samples_of(const struct patched *x, const struct positions *r,
    uint32_t i)
{
	return (uint64_t *)(uintptr_t)(r + x->n) + r[i].sample;
}

static struct positions *read_lists(const struct patched *x,
    struct optimfs_error *err)
{
	struct positions *of = ofs_alloc(x->n, sizeof(*of), err);
	struct positions *r = NULL;
	size_t samples = 0;
	int ret = of == NULL ? -1 : 0;

	for (uint32_t i = 0; i < x->n && ret == 0; i++) {
		ret = count_positions(x, &x->v[i], &of[i].n, err);
		of[i].sample = samples;
		samples += (size_t)((of[i].n + EVERY - 1) / EVERY);
	}
	if (ret == 0)
		r = malloc(x->n * sizeof(*of) + samples * sizeof(uint64_t));
	if (ret == 0 && r == NULL)
		ret = ofs_no_memory(err);
	if (r != NULL)
		memcpy(r, of, x->n * sizeof(*of));
	for (uint32_t i = 0; i < x->n && ret == 0; i++)
		ret = check_positions(x, &x->v[i], &r[i], samples_of(x, r, i),
		    err);
	free(of);
	if (ret == 0)
		return r;
	free(r);
	return NULL;
}

/* Computing. */

/* Combines bytes [first, first + n) of the tensor with those of the change. */
static int combine(const struct ofs_patch_step *p, uint64_t first, uint64_t n,
    uint8_t *out, struct optimfs_error *err)
{
	uint64_t most = n < BLOCK ? n : BLOCK, k;
	uint8_t *mask = malloc(most);
	int ret = mask == NULL ? ofs_no_memory(err) : 0;

	for (; ret == 0 && n > 0; first += k, out += k, n -= k) {
		k = n < most ? n : most;
		ret = fetch(p, p->change->at, first, k, mask, err);
		for (uint64_t i = 0; ret == 0 && i < k; i++)
			out[i] ^= mask[i];
	}
	free(mask);
	return ret;
}

/* The block of the first entry at or after a position: in blocks before it, all
 * are before. */
static uint64_t block_of(const uint64_t *sample, uint64_t nblocks,
    uint64_t first)
{
	uint64_t lo = 0, hi = nblocks;

	while (hi - lo > 1) {
		uint64_t mid = lo + (hi - lo) / 2;

		if (sample[mid] < first)
			lo = mid;
		else
			hi = mid;
	}
	return lo;
}

/* The space in which entries of a list are read. */
struct entries {
	uint64_t at[EVERY];
	uint8_t value[EVERY * 16];
};

/* Puts the entries with positions in [first, end) over out. */
static int replace(const struct patched *x, uint32_t i,
    const struct positions *r, uint64_t first, uint64_t end, uint8_t *out,
    struct entries *e, struct optimfs_error *err)
{
	const struct ofs_patch_step *p = &x->v[i];
	const struct positions *of = &r[i];
	const uint64_t *sample = samples_of(x, r, i);
	uint64_t unit = unit_of(x, p), nblocks = (of->n + EVERY - 1) / EVERY;

	for (uint64_t b = block_of(sample, nblocks, first); b < nblocks; b++) {
		uint64_t at = b * EVERY;
		size_t n = of->n - at < EVERY ? (size_t)(of->n - at) : EVERY;

		if (b > 0 && sample[b] + 1 >= end)
			break;
		if (read_positions(p, at, n, sample[b], e->at, err) == -1 ||
		    read_values(p, of, at, n, e->value, err) == -1)
			return -1;
		for (size_t k = 0; k < n; k++)
			if (e->at[k] >= first && e->at[k] < end)
				memcpy(out + (e->at[k] - first) * unit,
				    e->value + k * unit, unit);
	}
	return 0;
}

/* Elements [first, first + count). */
static int compute(const struct patched *x, const struct positions *r,
    uint64_t first, uint64_t count, uint8_t *out, struct entries *e,
    struct optimfs_error *err)
{
	const struct ofs_tensor *base = &x->base->cat->tensors[x->of];
	int ret = ofs_fetch_elements(x->base, base, first, count, out, err);

	for (uint32_t i = 0; i < x->n && ret == 0; i++) {
		uint64_t units = x->item / unit_of(x, &x->v[i]);

		ret = is_list(&x->v[i])
		    ? replace(x, i, r, first * units, (first + count) * units,
			  out, e, err)
		    : combine(&x->v[i], first * x->item, count * x->item, out,
			  err);
	}
	return ret;
}

/* The checksum of a whole tensor. */

struct summing {
	XXH3_state_t *xxh;
	uLong adler;
};

static void add_bytes(struct summing *s, const uint8_t *p, size_t n)
{
	if (s->xxh != NULL)
		XXH3_128bits_update(s->xxh, p, n);
	else
		s->adler = adler32_z(s->adler, p, n);
}

static bool is_sum(const struct summing *s, const uint8_t *want)
{
	XXH128_canonical_t digest;

	if (s->xxh == NULL)
		return s->adler ==
		    ((uLong)want[0] << 24 | (uLong)want[1] << 16 |
			(uLong)want[2] << 8 | want[3]);
	XXH128_canonicalFromHash(&digest, XXH3_128bits_digest(s->xxh));
	return memcmp(digest.digest, want, sizeof(digest.digest)) == 0;
}

static int add_blocks(const struct patched *x, const struct positions *r,
    struct summing *s, struct entries *e, uint8_t *buf,
    struct optimfs_error *err)
{
	uint64_t most = BLOCK / x->item, k;

	for (uint64_t i = 0; i < x->numel; i += k) {
		k = x->numel - i < most ? x->numel - i : most;
		if (compute(x, r, i, k, buf, e, err) == -1)
			return -1;
		add_bytes(s, buf, (size_t)(k * x->item));
	}
	return 0;
}

/* The last change says what the bytes are after all of them. */
static int verify(const struct patched *x, const struct positions *r,
    struct entries *e, struct optimfs_error *err)
{
	const struct ofs_patch_step *last = &x->v[x->n - 1];
	bool xxh = last->change->sum_kind == OFS_DELTA_SUM_XXH3_128;
	struct summing s = { .adler = 1 };
	uint8_t *buf;
	int ret;

	if (last->change->sum_kind == OFS_DELTA_SUM_NONE)
		return 0;
	buf = malloc(BLOCK);
	s.xxh = xxh ? XXH3_createState() : NULL;
	if (s.xxh != NULL)
		XXH3_128bits_reset(s.xxh);
	ret = buf == NULL || (xxh && s.xxh == NULL)
	    ? ofs_no_memory(err)
	    : add_blocks(x, r, &s, e, buf, err);
	if (ret == 0 && !is_sum(&s, last->change->sum))
		ret = optimfs_fail(err, EBADMSG,
		    "OFS884 %s: its bytes do not have the checksum that is "
		    "stored with the change: a version before it is damaged, or "
		    "the base is another one",
		    last->name);
	XXH3_freeState(s.xxh);
	free(buf);
	return ret;
}

static void *prepare(struct ofs_reader *r, const struct ofs_tensor *t,
    const struct ofs_shard *s, struct optimfs_error *err)
{
	const struct patched *x = r->cat->derived[s->view].ctx;
	struct entries *e = ofs_alloc(1, sizeof(*e), err);
	struct positions *made = NULL;

	(void)t;
	if (e != NULL)
		made = read_lists(x, err);
	if (made != NULL && verify(x, made, e, err) == -1) {
		free(made);
		made = NULL;
	}
	free(e);
	return made;
}

static int read_patched(struct ofs_reader *r, const struct ofs_derived *d,
    const void *prepared, uint64_t first, uint64_t count, void *buf,
    struct optimfs_error *err)
{
	struct entries *e = ofs_alloc(1, sizeof(*e), err);
	int ret = -1;

	(void)r;
	if (e != NULL)
		ret = compute(d->ctx, prepared, first, count, buf, e, err);
	free(e);
	return ret;
}

static const struct ofs_derived_ops patch_ops = {
	.name = "patch",
	.prepare = prepare,
	.read = read_patched,
};

/* Deriving. */

/* Can the change be made, by what the index says? */
static int fits(const struct patched *x, enum ofs_dtype dtype,
    const struct ofs_patch_step *p, struct optimfs_error *why)
{
	const struct ofs_delta_part *c = p->change;
	uint64_t n = elements_of(p, c->at);
	uint32_t error = tensor_of(p, c->at)->error;

	if (error == OFS_NONE && c->kind == OFS_DELTA_ELEMENTS)
		error = tensor_of(p, c->values)->error;
	if (error != OFS_NONE) {
		(void)ofs_catalog_fail(p->reader->cat, error, why);
		return optimfs_fail_in(why, "%s", p->name);
	}
	switch (c->kind) {
	case OFS_DELTA_XOR:
		return n == x->numel * x->item
		    ? 0
		    : damaged(p, why, "it has not as many bytes as the tensor");
	case OFS_DELTA_BYTES:
		return n >= 4 ? 0 : damaged(p, why, "it is too short");
	default:
		break;
	}
	if (tensor_of(p, c->values)->dtype != dtype)
		return damaged(p, why, "its values have another type");
	if (n != elements_of(p, c->values) || n > x->numel)
		return damaged(p, why,
		    "the numbers of positions, values and elements do not fit "
		    "each other");
	return 0;
}

static int condemn(struct ofs_catalog *cat, uint32_t tensor,
    const struct optimfs_error *why, struct optimfs_error *err)
{
	uint32_t note = ofs_catalog_error(cat, why, err);

	cat->tensors[tensor].error = note;
	return note == OFS_NONE ? -1 : 0;
}

int ofs_patch_derive(struct ofs_catalog *cat, uint32_t tensor,
    struct ofs_reader *base, uint32_t of, const struct ofs_patch_step *v,
    uint32_t n, struct optimfs_error *err)
{
	const struct ofs_tensor *t = &cat->tensors[tensor];
	struct patched *x =
	    ofs_arena_alloc(&cat->arena, sizeof(*x) + n * sizeof(*v));
	struct optimfs_error why;

	if (t->error != OFS_NONE)
		return 0;
	if (x == NULL)
		return ofs_no_memory(err);
	*x = (struct patched){ .base = base,
		.of = of,
		.numel = ofs_tensor_numel(cat, t),
		.item = ofs_dtype_size(t->dtype),
		.n = n };
	memcpy(x->v, v, n * sizeof(*v));
	for (uint32_t i = 0; i < n; i++)
		if (fits(x, t->dtype, &v[i], &why) == -1)
			return condemn(cat, tensor, &why, err);
	return ofs_derive_tensor(cat, tensor,
	    &(struct ofs_derived){ .ops = &patch_ops, .ctx = x }, err);
}
