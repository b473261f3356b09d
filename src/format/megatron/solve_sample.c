/* solve_sample.c - samples of weights, and of their copies in buckets */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/memory.h"
#include "base/search.h"
#include "base/step.h"
#include "format/megatron/solve.h"
#include "plan/cast.h"
#include "read/fetch.h"
#include "read/reader.h"

struct ofs_sampler {
	struct ofs_reader reader;
	/* a sample as stored, of at most 4 bytes an element, and rounded */
	uint8_t stored[OFS_BUCKET_SAMPLE * 4], rounded[OFS_BUCKET_SAMPLE * 4];
};

int ofs_sampler_open(struct ofs_solve *s)
{
	struct ofs_catalog *cat = s->m->cat;

	s->sampler = ofs_alloc(1, sizeof(*s->sampler), s->err);
	if (s->sampler == NULL)
		return -1;
	return ofs_reader_init(&s->sampler->reader, cat,
	    ofs_solve_source(cat, s->err), s->err);
}

void ofs_sampler_close(struct ofs_solve *s)
{
	if (s->sampler != NULL && s->sampler->reader.transport != NULL)
		ofs_reader_fini(&s->sampler->reader);
	free(s->sampler);
	s->sampler = NULL;
}

/* Reads elements [first, first + n) of a shard. 1; 0: they cannot be read; -1. */
static int read_shard(struct ofs_solve *s, uint32_t entry, uint32_t shard,
    uint64_t first, uint64_t n, void *to)
{
	const struct ofs_catalog *cat = s->m->cat;
	/* the catalog is not finished: its shards are not in order */
	struct ofs_tensor one = cat->tensors[cat->entries[entry].ref];
	struct optimfs_error why = { 0 };
	struct ofs_fetch_part part;

	one.shard = shard;
	one.nshards = 1;
	one.index = OFS_NONE;
	if (ofs_fetch_part_init(&part, cat, &one, shard, NULL, &why) == 0) {
		part.first = first;
		part.count = n;
		if (ofs_fetch_part(&s->sampler->reader, &part, to, &why) == 0)
			return 1;
	}
	return ofs_must_fail(&why) ? optimfs_fail_with(s->err, &why) : 0;
}

/* The length of part i of a parameter. */
static uint64_t part_len(const struct ofs_solve *s,
    const struct ofs_solve_param *p, unsigned int i)
{
	const struct ofs_catalog *cat = s->m->cat;
	const struct ofs_tensor *t =
	    &cat->tensors[cat->entries[p->part[i].entry].ref];
	uint64_t lo[OFS_MAX_DIMS], size[OFS_MAX_DIMS], n = 1;

	ofs_shard_box(cat, t, &cat->shards[p->part[i].shard], lo, size);
	for (unsigned int k = 0; k < t->ndim; k++)
		n *= size[k]; /* checked when the part was added */
	return n;
}

/* Reads a run of a parameter, which may be in several parts. */
static int read_param(struct ofs_solve *s, const struct ofs_solve_param *p,
    struct ofs_bucket_slice run, uint8_t *to)
{
	uint64_t at = 0, end = run.off + run.len,
		 item = ofs_dtype_size(p->dtype);

	for (unsigned int i = 0; i < p->nparts; i++) {
		uint64_t len = part_len(s, p, i);
		uint64_t lo = run.off > at ? run.off : at;
		uint64_t hi = end < at + len ? end : at + len;
		int ret = 1;

		if (lo < hi)
			ret = read_shard(s, p->part[i].entry, p->part[i].shard,
			    lo - at, hi - lo, to + (lo - run.off) * item);
		if (ret != 1)
			return ret;
		at += len;
	}
	return 1;
}

OFS_COMPARE_KEY(find_chunk, uint64_t, struct ofs_bucket_chunk, off)

/* Reads a run of a bucket, which may be in several chunks. */
static int read_bucket(struct ofs_solve *s, const struct ofs_solve_bucket *b,
    struct ofs_bucket_slice run, uint8_t *to)
{
	const struct ofs_solve_chunks *c = &b->chunks;
	uint64_t end = run.off + run.len;
	size_t i =
	    ofs_upper_bound(&run.off, c->at, c->n, sizeof(*c->at), find_chunk);

	for (i--; i < c->n && c->at[i].off < end; i++) {
		uint64_t lo = run.off > c->at[i].off ? run.off : c->at[i].off;
		uint64_t hi = c->at[i].off + c->at[i].len;
		int ret;

		hi = end < hi ? end : hi;
		ret = read_shard(s, s->state[b->main].entry, c->shard[i],
		    lo - c->at[i].off, hi - lo, to + (lo - run.off) * 4);
		if (ret != 1)
			return ret;
	}
	return 1;
}

/* The same in each process. */
static uint64_t hash_of(const void *p, size_t n)
{
	uint64_t hash = XXH3_64bits(p, n);

	return hash == 0 ? 1 : hash; /* 0: not yet known, or unreadable */
}

static int sample_param(struct ofs_solve *s, struct ofs_solve_param *p,
    bool keep)
{
	struct ofs_bucket_slice run[OFS_BUCKET_RUNS];
	unsigned int n = ofs_bucket_runs(p->len, run);
	size_t item = ofs_dtype_size(p->dtype), at = 0;
	uint8_t *to = s->sampler->stored;
	int ret = item <= 4;

	for (unsigned int i = 0; i < n && ret == 1; i++) {
		ret = read_param(s, p, run[i], to + at * item);
		at += run[i].len;
	}
	p->unread = ret != 1;
	p->hash = ret == 1 ? hash_of(to, at * item) : 0;
	if (ret != 1 || !keep || !ofs_bucket_rounds_to(p->dtype))
		return ret == -1 ? -1 : 0;
	p->sample = ofs_alloc(at, sizeof(*p->sample), s->err);
	if (p->sample == NULL)
		return -1;
	if (p->dtype == OFS_FLOAT32)
		memcpy(p->sample, to, at * 4);
	else
		ofs_cast(p->dtype, to, OFS_FLOAT32, p->sample, at);
	return 0;
}

int ofs_sample_params(struct ofs_solve *s, const uint32_t *use, uint32_t n,
    bool keep)
{
	for (uint32_t i = 0; i < n; i++) {
		struct ofs_solve_param *p = &s->param[use[i]];

		if (i % OFS_STEP_EVERY == 0 &&
		    ofs_step(s->m->cat->dir.watch, "comparing weights", i, n,
			s->err) == -1)
			return -1;
		if ((p->hash == 0 || (keep && p->sample == NULL)) &&
		    !p->unread && sample_param(s, p, keep) == -1)
			return -1;
	}
	return 0;
}

/* Reads the sample of a slice to the buffer of the sampler; *n gets its
 * length, 0: it cannot be read. */
static int sample_slice(struct ofs_solve *s, const struct ofs_solve_bucket *b,
    struct ofs_bucket_slice slice, uint32_t *n)
{
	struct ofs_bucket_slice run[OFS_BUCKET_RUNS];
	unsigned int nruns = ofs_bucket_runs(slice.len, run);
	uint64_t at = 0;
	int ret = 1;

	for (unsigned int i = 0; i < nruns && ret == 1; i++) {
		run[i].off += slice.off;
		ret = read_bucket(s, b, run[i], s->sampler->stored + at * 4);
		at += run[i].len;
	}
	*n = ret == 1 ? (uint32_t)at : 0;
	return ret == -1 ? -1 : 0;
}

/* Sets the hashes of the sample of a slice; k->n is 0 if it cannot be read. */
static int hash_slice(struct ofs_solve *s, const struct ofs_solve_bucket *b,
    enum ofs_dtype as, struct ofs_solve_known *k)
{
	size_t item = ofs_dtype_size(as);
	uint8_t *in = s->sampler->stored, *out = s->sampler->rounded;
	uint32_t len;
	bool tie;

	if (sample_slice(s, b, k->at, &len) == -1)
		return -1;
	if (len == 0)
		return 0;
	tie = ofs_bucket_round(in, len, as, false, out);
	k->hash[0] = hash_of(out, len * item);
	k->n = 1;
	if (tie) {
		ofs_bucket_round(in, len, as, true, out);
		k->hash[1] = hash_of(out, len * item);
		k->n = 2;
	}
	return ofs_solve_cache_add(s, k);
}

int ofs_sample_slice(struct ofs_solve *s, uint32_t bucket,
    struct ofs_bucket_slice slice, enum ofs_dtype as, uint64_t hash[2],
    unsigned int *n)
{
	struct ofs_solve_known new = { .bucket = bucket, .at = slice };
	const struct ofs_solve_known *k =
	    ofs_solve_cache_find(s, bucket, slice);

	if (k == NULL) {
		if (hash_slice(s, &s->bucket[bucket], as, &new) == -1)
			return -1;
		k = &new;
	}
	memcpy(hash, k->hash, sizeof(k->hash));
	*n = k->n;
	return 0;
}

int ofs_sample_floats(struct ofs_solve *s, const struct ofs_solve_bucket *b,
    struct ofs_bucket_slice slice, float *v, uint32_t *n)
{
	if (sample_slice(s, b, slice, n) == -1)
		return -1;
	memcpy(v, s->sampler->stored, *n * sizeof(*v));
	return 0;
}
