/* solve.h - names for the parameters in flat buckets */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FORMAT_MEGATRON_SOLVE_H
#define OFS_FORMAT_MEGATRON_SOLVE_H

#include <stdbool.h>
#include <stdint.h>

#include "optimfs/error.h"

#include "catalog/catalog.h"
#include "format/megatron/buckets/buckets.h"
#include "format/megatron/megatron.h"

/* docs/formats/megatron.md, "Buckets". solve_model.c lists what the model has,
 * solve_buckets.c the buckets; solve_sample.c reads samples of both;
 * solve_buffer.c names the slices of one buffer by the rules of buckets/;
 * solve_states.c turns named slices into tensors. */

/* A part of the model that one rank has in one piece: a chunk of a tensor, or
 * two for a gated matrix, one after the other in a bucket. */
#define OFS_SOLVE_PARTS 6
struct ofs_solve_param {
	struct ofs_bucket_param name;
	uint64_t len; /* elements */
	struct {
		uint32_t entry, shard; /* of the catalog */
	} part[OFS_SOLVE_PARTS];
	uint8_t nparts, dtype;
	bool whole;    /* all tensor-parallel ranks have the same */
	bool output;   /* as output layer of the last stage */
	bool unread;   /* its sample could not be read */
	uint64_t hash; /* of the sample; 0: not yet read, or unread */
	float *sample; /* for FP8 only */
};

/* A tensor of a bucket. */
struct ofs_solve_state {
	uint32_t chained, mp, buffer, bucket; /* numbers in its key */
	uint8_t dtype;                        /* of the weights */
	uint32_t name, entry;                 /* string; of the catalog */
};

/* A named slice. */
enum ofs_solve_how {
	OFS_SOLVE_OPEN,   /* no name */
	OFS_SOLVE_PROVED, /* its weight is that of this parameter only */
	OFS_SOLVE_ORDER,  /* the only choice by length and order, and by content
			     where that can be compared */
};
struct ofs_solve_slice {
	struct ofs_bucket_slice at;
	uint32_t bucket, param; /* indexes; OFS_NONE */
	enum ofs_solve_how how;
};

/* The chunks of a tensor of a bucket, in order, and their shards in the
 * catalog. */
struct ofs_solve_chunks {
	struct ofs_bucket_chunk *at;
	uint32_t *shard;
	uint32_t n; /* 0: they do not fill the tensor */
};

/* What a sample of a slice was found to be, if it is kept: its hashes. */
struct ofs_solve_known {
	uint32_t bucket, n;
	struct ofs_bucket_slice at;
	uint64_t hash[2];
};

struct ofs_solve_bucket {
	uint32_t first, n;              /* states */
	uint32_t main;                  /* state that is compared, or any */
	struct ofs_solve_chunks chunks; /* of main */
	uint32_t slice, nslices;
	bool whole; /* all its slices have names */
};

/* The buckets of one gradient buffer. */
struct ofs_solve_buffer {
	uint32_t chained, mp, number;
	uint8_t dtype;
	uint32_t first, n; /* buckets */
	uint32_t *use;     /* parameters that it may have */
	uint32_t nuse;
};

struct ofs_solve {
	struct ofs_megatron *m;
	struct ofs_solve_param *param;
	struct ofs_solve_state *state;
	struct ofs_solve_bucket *bucket;
	struct ofs_solve_buffer *buffer;
	struct ofs_solve_slice *slice;
	uint32_t nparams, nstates, nbuckets, nbuffers, nslices;
	uint32_t param_cap, state_cap, slice_cap;
	bool tied;   /* the output layer is the embedding */
	bool chains; /* a second optimizer has the experts */
	/* of the job; 0: unknown */
	uint32_t nlayers, stages, virtual_stages, world;
	int gated;       /* 1, 0; -1: unknown */
	bool own_layout; /* layers are not divided evenly among stages */
	uint64_t work;   /* steps that may still be made: a hostile index has
			  many more of everything than a model */
	struct ofs_sampler *sampler;
	/* samples of slices; the first nloaded are of the cache, sorted */
	struct ofs_solve_known *known;
	uint32_t nknown, nloaded, known_cap;
	struct optimfs_error *err;
};

/* solve.c: gives names to what is in flat buckets. Before entries are placed. */
int ofs_megatron_solve(struct ofs_megatron *m, struct optimfs_error *err);

/* False: too much was done. */
static inline bool ofs_solve_spend(struct ofs_solve *s, uint64_t n)
{
	if (s->work < n)
		return false;
	s->work -= n;
	return true;
}

/* solve_model.c */
int ofs_solve_model(struct ofs_solve *s);
/* solve_buckets.c */
int ofs_solve_buckets(struct ofs_solve *s);
void ofs_solve_buckets_free(struct ofs_solve *s);
int ofs_solve_chunks(struct ofs_solve *s, uint32_t state,
    struct ofs_solve_chunks *out);
void ofs_solve_chunks_free(struct ofs_solve_chunks *c);

/* solve_cache.c: the hashes of samples, of parameters (in s->param) and of slices,
 * from one time that a checkpoint is opened to the next. */
int ofs_solve_cache_load(struct ofs_solve *s);
/* NULL: it is not known. */
const struct ofs_solve_known *ofs_solve_cache_find(const struct ofs_solve *s,
    uint32_t bucket, struct ofs_bucket_slice at);
int ofs_solve_cache_add(struct ofs_solve *s, const struct ofs_solve_known *k);
void ofs_solve_cache_save(const struct ofs_solve *s);

/* solve_source.c: the files of the catalog, for many short reads by one thread;
 * ended by ofs_transport_close. */
struct ofs_transport *ofs_solve_source(const struct ofs_catalog *cat,
    struct optimfs_error *err);

/* solve_sample.c. A sample that cannot be read is no failure. */
int ofs_sampler_open(struct ofs_solve *s);
void ofs_sampler_close(struct ofs_solve *s);
/* Reads samples of the parameters use[0..n), and sets their hashes. keep: and
 * their samples, as float32. */
int ofs_sample_params(struct ofs_solve *s, const uint32_t *use, uint32_t n,
    bool keep);
/* The hash that a slice has as a weight of this type; *n gets 2 if ties can be
 * rounded in two ways, 0 if it cannot be read. Its bucket must be float32. */
int ofs_sample_slice(struct ofs_solve *s, uint32_t bucket,
    struct ofs_bucket_slice slice, enum ofs_dtype as, uint64_t hash[2],
    unsigned int *n);
/* The sample itself, at most OFS_BUCKET_SAMPLE numbers. */
int ofs_sample_floats(struct ofs_solve *s, const struct ofs_solve_bucket *b,
    struct ofs_bucket_slice slice, float *v, uint32_t *n);

/* solve_buffer.c: the slices of a buffer, added to s->slice. */
int ofs_solve_one(struct ofs_solve *s, struct ofs_solve_buffer *f);

/* solve_states.c: adds the tensors of named slices. */
int ofs_solve_states(struct ofs_solve *s);

#endif
