/* solve_cache.c - samples that were read when a checkpoint was last opened */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/buf.h"
#include "base/cursor.h"
#include "base/memory.h"
#include "base/search.h"
#include "base/user_cache.h"
#include "format/megatron/solve.h"

/* Naming needs a sample of every weight and slice, a few reads each. The hashes
 * of these samples are kept in the user's cache, under a name that depends on
 * all files of the checkpoint: their sizes, times and inodes. Names are found
 * from them in the same way, so that a wrong cache cannot give a checkpoint a
 * structure that it has not. Floats of 8-bit weights are not kept. */

/* Fewer samples are read in less than 0.1 s. */
#define MIN_SAMPLES 1024
/* The format of the file, and the way in which samples are taken. */
#define CACHE_VERSION 1
#define HEAD    12 /* version, numbers of parameters and slices */
#define PARAM   8
#define SLICE   40

static int by_place(const void *a, const void *b)
{
	const struct ofs_solve_known *x = a, *y = b;

	if (x->bucket != y->bucket)
		return OFS_ORDER(x->bucket, y->bucket);
	if (x->at.off != y->at.off)
		return OFS_ORDER(x->at.off, y->at.off);
	return OFS_ORDER(x->at.len, y->at.len);
}

/* "buckets-" and the identity of the checkpoint. */
static void name_of(const struct ofs_solve *s, char name[48])
{
	const struct ofs_identity id = ofs_catalog_identity(s->m->cat);

	snprintf(name, 48, "buckets-%016" PRIx64 "%016" PRIx64,
	    id.hash[1] ^ CACHE_VERSION, id.hash[0]);
}

static void read_slices(struct ofs_solve *s, struct ofs_cursor *c, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		struct ofs_solve_known *x = &s->known[i];

		x->bucket = ofs_cursor_le32(c);
		x->n = ofs_cursor_le32(c);
		x->at.off = ofs_cursor_le64(c);
		x->at.len = ofs_cursor_le64(c);
		x->hash[0] = ofs_cursor_le64(c);
		x->hash[1] = ofs_cursor_le64(c);
		if (x->n > 2)
			x->n = 0;
	}
	s->nknown = s->nloaded = n;
	if (n > 0) /* its own order is not relied on */
		qsort(s->known, n, sizeof(*s->known), by_place);
}

int ofs_solve_cache_load(struct ofs_solve *s)
{
	uint64_t max = HEAD + (uint64_t)s->nparams * PARAM +
	    2 * (uint64_t)s->m->cat->nshards * SLICE;
	struct ofs_cursor c;
	uint8_t *bytes;
	uint64_t n;
	uint32_t nslices;
	char name[48];
	int ret;

	name_of(s, name);
	ret = ofs_user_cache_load(name, max, &bytes, &n, s->err);
	if (ret != 1)
		return ret;
	c = ofs_cursor_of(bytes, n);
	ret = 0;
	if (ofs_cursor_le32(&c) == CACHE_VERSION &&
	    ofs_cursor_le32(&c) == s->nparams) {
		nslices = ofs_cursor_le32(&c);
		if (ofs_cursor_left(&c) ==
		    (uint64_t)s->nparams * PARAM + (uint64_t)nslices * SLICE) {
			ret = ofs_reserve(s->known, nslices, s->known_cap,
			    s->err);
			for (uint32_t i = 0; ret == 0 && i < s->nparams; i++)
				s->param[i].hash = ofs_cursor_le64(&c);
			if (ret == 0)
				read_slices(s, &c, nslices);
		}
	}
	free(bytes);
	return ret;
}

const struct ofs_solve_known *ofs_solve_cache_find(const struct ofs_solve *s,
    uint32_t bucket, struct ofs_bucket_slice at)
{
	const struct ofs_solve_known want = { .bucket = bucket, .at = at };

	return ofs_search(&want, s->known, s->nloaded, sizeof(want), by_place);
}

int ofs_solve_cache_add(struct ofs_solve *s, const struct ofs_solve_known *k)
{
	if (ofs_grow(s->known, s->nknown, s->known_cap, s->err) == -1)
		return -1;
	s->known[s->nknown++] = *k;
	return 0;
}

static void put(struct ofs_buf *out, uint64_t v, unsigned n)
{
	uint8_t bytes[8];

	ofs_put_le(bytes, v, n);
	ofs_buf_put(out, bytes, n);
}

void ofs_solve_cache_save(const struct ofs_solve *s)
{
	struct ofs_buf out = { 0 };
	char name[48];

	if (s->nknown == s->nloaded ||
	    (uint64_t)s->nparams + s->nknown < MIN_SAMPLES)
		return;
	put(&out, CACHE_VERSION, 4);
	put(&out, s->nparams, 4);
	put(&out, s->nknown, 4);
	for (uint32_t i = 0; i < s->nparams; i++)
		put(&out, s->param[i].hash, 8);
	for (uint32_t i = 0; i < s->nknown; i++) {
		const struct ofs_solve_known *k = &s->known[i];

		put(&out, k->bucket, 4);
		put(&out, k->n, 4);
		put(&out, k->at.off, 8);
		put(&out, k->at.len, 8);
		put(&out, k->hash[0], 8);
		put(&out, k->hash[1], 8);
	}
	name_of(s, name);
	if (!out.bad)
		ofs_user_cache_save(name, out.data, out.len);
	ofs_buf_fini(&out);
}
