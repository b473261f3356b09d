/* megatron_buckets.c - names of what is in a flat bucket: walk, proof, order */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/megatron/buckets/buckets.h"
#include "tap.h"

static uint64_t seed = 88172645463325252u;

static uint32_t below(uint32_t n)
{
	seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
	return (uint32_t)(seed % n);
}

static int by_u64(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/* A bucket as Megatron-Core lays it out: parameters at multiples of 64, cut into
 * equal shares. */
struct bucket {
	struct ofs_bucket_slice param[64];
	uint32_t nparams;
	struct ofs_bucket_chunk chunk[256];
	uint32_t nchunks;
	uint64_t len[64];
	uint32_t nlens;
};

static void add_chunk(struct bucket *b, uint64_t from, uint64_t to,
    uint64_t share)
{
	while (from < to) {
		uint64_t end = (from / share + 1) * share;

		if (end > to)
			end = to;
		b->chunk[b->nchunks++] = (struct ofs_bucket_chunk){ from,
			end - from, (int)(from / share) };
		from = end;
	}
}

static void lay_out(struct bucket *b, const uint64_t *len, uint32_t n,
    uint64_t ranks)
{
	uint64_t at = 0, share;

	memset(b, 0, sizeof(*b));
	for (uint32_t i = 0; i < n; i++) {
		at = (at + 63) / 64 * 64;
		b->param[i] = (struct ofs_bucket_slice){ at, len[i] };
		b->len[i] = len[i];
		at += len[i];
	}
	b->nparams = n;
	/* padded to a multiple of ranks and of 128 */
	share = (at + 128 * ranks - 1) / (128 * ranks) * 128;
	for (uint32_t i = 0; i < n; i++) {
		add_chunk(b, b->param[i].off, b->param[i].off + len[i], share);
		if (i + 1 < n)
			add_chunk(b, b->param[i].off + len[i],
			    b->param[i + 1].off, share);
	}
	qsort(b->len, n, sizeof(*b->len), by_u64);
	for (uint32_t i = 0; i < n; i++)
		if (i == 0 || b->len[i] != b->len[i - 1])
			b->len[b->nlens++] = b->len[i];
}

static int is_param(void *ctx, struct ofs_bucket_slice s,
    struct optimfs_error *err)
{
	const struct bucket *b = ctx;

	(void)err;
	for (uint32_t i = 0; i < b->nparams; i++)
		if (b->param[i].off == s.off)
			return b->param[i].len == s.len;
	return 0;
}

static uint64_t budget;

static struct ofs_bucket_walk walk_of(struct bucket *b, bool proof)
{
	budget = 1 << 20;
	return (struct ofs_bucket_walk){ .chunk = b->chunk,
		.nchunks = b->nchunks,
		.len = b->len,
		.nlens = b->nlens,
		.holds = proof ? is_param : NULL,
		.ctx = b,
		.budget = &budget };
}

/* Are the slices found those of the bucket? All of them, if whole. */
static bool right(const struct bucket *b, const struct ofs_bucket_slice *s,
    uint32_t n, bool whole)
{
	uint32_t k = 0;

	for (uint32_t i = 0; i < n; i++) {
		while (k < b->nparams && b->param[k].off < s[i].off)
			k++;
		if (k == b->nparams || b->param[k].off != s[i].off ||
		    b->param[k].len != s[i].len)
			return false;
	}
	return whole == (n == b->nparams);
}

static bool walks(struct bucket *b, bool proof, bool *whole)
{
	struct ofs_bucket_walk w = walk_of(b, proof);
	struct ofs_bucket_slice *s;
	uint32_t n;
	bool ok;

	if (ofs_bucket_walk(&w, &s, &n, whole, NULL) == -1)
		return false;
	ok = right(b, s, n, *whole);
	free(s);
	return ok;
}

static void test_random_buckets(void)
{
	/* few lengths, so that cuts fall on ends of parameters, and sums of two
	 * are lengths of others */
	static const uint64_t lengths[] = { 8, 48, 64, 100, 128, 192, 256, 320,
		512, 1000 };
	bool ok = true, all = true;
	uint32_t some = 0;

	for (int i = 0; i < 20000 && ok; i++) {
		uint32_t n = 1 + below(30);
		uint64_t len[64];
		struct bucket b;
		bool whole;

		for (uint32_t k = 0; k < n; k++)
			len[k] = lengths[below(10)];
		lay_out(&b, len, n, 1 + below(6));
		ok = walks(&b, false, &whole);
		some += !whole;
		ok = ok && walks(&b, true, &whole);
		all = all && whole;
	}
	ok(ok, "20000 buckets: every slice found is a parameter");
	ok(all, "with the proof all are found");
	ok(some > 0 && some < 10000, "without it some stay open (%u)", some);
}

static bool nothing(struct bucket *b)
{
	struct ofs_bucket_walk w = walk_of(b, false);
	struct ofs_bucket_slice *s;
	bool whole = true;
	uint32_t n = 1;

	if (ofs_bucket_walk(&w, &s, &n, &whole, NULL) == -1)
		return false;
	free(s);
	return n == 0 && !whole;
}

static void test_hostile(void)
{
	static const uint64_t len[] = { 100, 64, 1000, 8, 256 };
	static struct ofs_bucket_chunk many[50000];
	struct ofs_bucket_walk w = { .chunk = many, .nchunks = 50000 };
	const uint64_t huge = 1u << 30;
	struct ofs_bucket_slice *s;
	struct bucket b;
	bool whole;
	uint32_t n;

	lay_out(&b, len, 5, 2);
	b.chunk[2].off++;
	ok(nothing(&b), "a hole between chunks: no slices");
	lay_out(&b, len, 5, 2);
	b.chunk[1].off--, b.chunk[1].len++;
	ok(nothing(&b), "overlapping chunks: no slices");
	lay_out(&b, len, 5, 2);
	b.chunk[b.nchunks - 1].len = UINT64_MAX - 10;
	ok(nothing(&b), "a size that overflows: no slices");
	lay_out(&b, len, 5, 2);
	b.chunk[1].len = 0;
	ok(nothing(&b), "an empty chunk: no slices");
	lay_out(&b, len, 5, 2);
	b.nlens = 0;
	ok(nothing(&b), "no parameters: no slices");
	b.nchunks = b.nparams = 0;
	ok(walks(&b, false, &whole) && whole, "no chunks: nothing is left out");

	for (uint32_t i = 0; i < 50000; i++)
		many[i] = (struct ofs_bucket_chunk){ i * 64u, 64, (int)i };
	w.len = &huge;
	w.nlens = 1;
	w.budget = &budget;
	budget = 40000;
	ok(ofs_bucket_walk(&w, &s, &n, &whole, NULL) == 0 && n == 0 && !whole,
	    "50000 chunks of as many ranks: no more work than allowed");
	is_u64(budget, 0, "the budget is used up");
	free(s);
}

/* The lengths of three parameters, of which a rank's share ends behind the
 * second; the third is as long as the other two. */
static void test_ambiguous(void)
{
	static const uint64_t len[] = { 64, 64, 128 };
	struct bucket b;
	bool whole;

	lay_out(&b, len, 3, 4);
	is_u64(b.nchunks, 3, "three chunks");
	b.chunk[0].rank = 0;
	b.chunk[1].rank = 1;
	ok(walks(&b, false, &whole) && !whole,
	    "64 and 64, or 128: only what follows is certain");
	ok(walks(&b, true, &whole) && whole, "the proof decides");
}

/* Choices. */

#define MOST 7

static struct sets {
	uint32_t v[MOST][4];
	struct ofs_bucket_options o[MOST];
	uint32_t n;
} sets;

/* All choices, one by one: the longest, and what they have in common. */
static struct all {
	uint32_t best, only[MOST], now[MOST];
	bool any;
} all;

static void try_all(uint32_t i, int64_t last, uint32_t taken)
{
	if (i < sets.n) {
		all.now[i] = OFS_NONE;
		try_all(i + 1, last, taken);
		for (uint32_t k = 0; k < sets.o[i].n; k++)
			if (sets.o[i].v[k] > last) {
				all.now[i] = sets.o[i].v[k];
				try_all(i + 1, sets.o[i].v[k], taken + 1);
			}
		return;
	}
	if (taken < all.best)
		return;
	if (taken > all.best || !all.any) {
		memcpy(all.only, all.now, sizeof(all.only));
		all.best = taken;
		all.any = true;
		return;
	}
	for (uint32_t k = 0; k < sets.n; k++)
		if (all.only[k] != all.now[k])
			all.only[k] = OFS_NONE;
}

static void random_sets(void)
{
	sets.n = 1 + below(MOST);
	for (uint32_t i = 0; i < sets.n; i++) {
		uint32_t n = 0;

		for (uint32_t v = 0; v < 8 && n < 4; v++)
			if (below(4) == 0)
				sets.v[i][n++] = v;
		sets.o[i] = (struct ofs_bucket_options){ sets.v[i], n };
	}
}

static void test_chain(void)
{
	bool ok = true;

	for (int i = 0; i < 20000 && ok; i++) {
		uint32_t only[MOST];
		bool whole;

		random_sets();
		all = (struct all){ .best = 0 };
		try_all(0, -1, 0);
		ok =
		    ofs_bucket_chain(sets.o, sets.n, only, &whole, NULL) == 0 &&
		    whole == (all.best == sets.n) &&
		    memcmp(only, all.only, sets.n * sizeof(*only)) == 0;
	}
	ok(ok, "20000 families of sets: the choices that all longest have");
}

/* Order of registration. */

static struct ofs_bucket_param param(const char *key, uint64_t layer)
{
	struct ofs_bucket_param a;

	ofs_bucket_param_init(&a,
	    (struct ofs_str){ key, (uint32_t)strlen(key) }, layer, UINT64_MAX,
	    false);
	return a;
}

static bool before(const char *x, const char *y, unsigned int form)
{
	struct ofs_bucket_param a = param(x, 3), b = param(y, 3);

	return ofs_bucket_order(&a, &b, form) < 0 &&
	    ofs_bucket_order(&b, &a, form) > 0;
}

static void test_order(void)
{
	static const char
	    qkv[] = "decoder.layers.self_attention.linear_qkv.weight",
	    proj[] = "decoder.layers.self_attention.linear_proj.weight",
	    norm[] =
		"decoder.layers.self_attention.linear_qkv.layer_norm_weight";
	struct ofs_bucket_param a = param(qkv, 2), b = param(proj, 3),
				c = param("decoder.layers.mixer.A_log", 3),
				d = param("decoder.layers.mixer.D", 3), e, f;
	static const char
	    fc1[] = "decoder.layers.mlp.experts.experts.linear_fc1.weight",
	    fc2[] = "decoder.layers.mlp.experts.experts.linear_fc2.weight";

	ok(before(proj, qkv, 0) && before(proj, qkv, 1),
	    "linear_proj is registered before linear_qkv");
	ok(before(norm, proj, 0), "Megatron's own norm before both");
	ok(before(proj, norm, 1) && before(norm, qkv, 1),
	    "a fused one between them");
	ok(before("embedding.word_embeddings.weight", proj, 0) &&
		before(proj, "decoder.final_layernorm.weight", 0) &&
		before("decoder.final_layernorm.bias", "output_layer.weight",
		    0),
	    "embedding, layers, last norm, output layer");
	ok(ofs_bucket_order(&a, &b, 0) < 0 && ofs_bucket_ordered(&a, &b),
	    "layer 2 is before layer 3");
	ok(!ofs_bucket_ordered(&c, &d) && !ofs_bucket_ordered(&b, &c) &&
		ofs_bucket_ordered(&a, &c),
	    "modules that are not known have no order within a layer");
	a = param("decoder.layers.7.mlp.linear_fc1.weight", 7);
	b = param("decoder.layers.11.mlp.linear_fc1.weight", 11);
	ok(ofs_bucket_order(&a, &b, 0) < 0 && a.tail.len == b.tail.len &&
		a.head.len == b.head.len &&
		memcmp(a.tail.p, "mlp.linear_fc1.weight", a.tail.len) == 0,
	    "a number in the key is left out of the kind");
	a = param("3.weight", UINT64_MAX);
	is_u64(a.head.len, 0, "a key of another model has no known part");
	e = param(fc2, 1), f = param(fc1, 1);
	e.expert = 0, f.expert = 1;
	ok(ofs_bucket_order(&e, &f, 0) < 0 && ofs_bucket_order(&e, &f, 2) > 0,
	    "experts one after the other, or first all first matrices");
	ofs_bucket_param_init(&e,
	    (struct ofs_str){ "embedding.word_embeddings.weight", 32 },
	    UINT64_MAX, UINT64_MAX, true);
	ok(ofs_bucket_order(&b, &e, 0) < 0,
	    "the last stage's copy of the embedding is its output layer");
}

/* Rounding. */

static void test_round(void)
{
	/* 1 + 2^-8: a tie between 1 and 1.0078125; 1 + 3 * 2^-8: one between
	 * 1.0078125 and 1.015625 */
	static const float v[] = { 1.00390625f, 1.01171875f, 0.1f, -2, 0, NAN };
	static const uint16_t even[] = { 0x3f80, 0x3f82, 0x3dcd, 0xc000, 0,
		0x7fc0 };
	uint16_t out[6];

	ok(ofs_bucket_round(v, 6, OFS_BFLOAT16, false, out),
	    "two of them are ties");
	ok(memcmp(out, even, sizeof(out)) == 0, "ties to even");
	ofs_bucket_round(v, 6, OFS_BFLOAT16, true, out);
	ok(out[0] == 0x3f81 && out[1] == 0x3f82 && out[2] == 0x3dcd,
	    "ties up, nothing else");
	ok(!ofs_bucket_round(v + 2, 3, OFS_BFLOAT16, true, out),
	    "no ties, one result");
	ok(!ofs_bucket_round(v, 2, OFS_FLOAT16, true, out) && out[0] == 0x3c04,
	    "float16");
	ok(ofs_bucket_rounds_to(OFS_BFLOAT16) &&
		!ofs_bucket_rounds_to(OFS_UINT8),
	    "8 bits are not compared");
}

static void test_near(void)
{
	float a[64], b[64], c[64];

	for (int i = 0; i < 64; i++) {
		a[i] = (float)below(1000) / 500 - 1;
		b[i] = roundf(a[i] * 8) / 8;
		c[i] = (float)below(1000) / 500 - 1;
	}
	ok(ofs_bucket_near(a, b, 64), "rounded to a few bits: near");
	ok(!ofs_bucket_near(a, c, 64), "another one: not");
	ok(!ofs_bucket_near(a, b, 8), "8 elements prove nothing");
	b[3] = NAN;
	ok(!ofs_bucket_near(a, b, 64), "a NaN: not");
	memset(c, 0, sizeof(c));
	ok(!ofs_bucket_near(c, c, 64), "zeros: not");
}

static void test_runs(void)
{
	struct ofs_bucket_slice run[OFS_BUCKET_RUNS];

	is_u64(ofs_bucket_runs(300, run), 1, "a short one is compared whole");
	is_u64(run[0].len, 300, "all of it");
	is_u64(ofs_bucket_runs(1000, run), 3, "a long one in three runs");
	ok(run[0].off == 0 && run[1].off == 436 && run[2].off == 872 &&
		run[2].len == 128,
	    "at the start, in the middle, at the end");
}

int main(void)
{
	test_random_buckets();
	test_hostile();
	test_ambiguous();
	test_chain();
	test_order();
	test_round();
	test_near();
	test_runs();
	return done_testing();
}
