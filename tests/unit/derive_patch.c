/* derive_patch.c - tensors with changes: ranges, long lists, damaged lists */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cursor.h"
#include "derive/patch.h"
#include "format/safetensors/safetensors.h"
#include "random.h"
#include "store/local.h"
#include "support/reader.h"
#include "support/scratch.h"
#include "tap.h"

/* More entries than samples have between them, in every list. */
#define N       30000u
#define ENTRIES 13000u

static struct optimfs_error err;
static uint64_t seed = 33;
static uint16_t state[N]; /* what the tensor is after the changes so far */

/* One file with the state and what changes it. */

struct stored {
	const char *name, *dtype;
	uint32_t n, item;
	uint8_t *bytes;
};

static struct stored stored[16];
static size_t nstored;

static uint8_t *add(const char *name, const char *dtype, uint32_t n,
    uint32_t item)
{
	struct stored *s = &stored[nstored++];

	*s = (struct stored){ name, dtype, n, item, calloc(n, item) };
	return s->bytes;
}

static void write_file(void)
{
	FILE *f = fopen(in_scratch("f.safetensors"), "wb");
	size_t n = 0, off = 0;
	char header[4096];
	uint8_t len[8];

	for (size_t i = 0; i < nstored; i++) {
		const struct stored *s = &stored[i];
		size_t bytes = (size_t)s->n * s->item;

		n += (size_t)snprintf(header + n, sizeof(header) - n,
		    "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%u],"
		    "\"data_offsets\":[%zu,%zu]}",
		    i == 0 ? "{" : ",", s->name, s->dtype, s->n, off,
		    off + bytes);
		off += bytes;
	}
	n += (size_t)snprintf(header + n, sizeof(header) - n, "}");
	ofs_put_le(len, n, 8);
	if (f == NULL || fwrite(len, 8, 1, f) != 1 ||
	    fwrite(header, n, 1, f) != 1)
		bail_out("f.safetensors");
	for (size_t i = 0; i < nstored; i++) {
		fwrite(stored[i].bytes, stored[i].item, stored[i].n, f);
		free(stored[i].bytes);
	}
	if (fclose(f) != 0)
		bail_out("f.safetensors");
}

/* ENTRIES different numbers below n, ascending. */
static uint32_t *choose(uint32_t n)
{
	uint32_t *v = malloc(ENTRIES * sizeof(*v)), k = 0;

	for (uint32_t i = 0; i < n && k < ENTRIES; i++)
		if (tap_below(&seed, n - i) < ENTRIES - k)
			v[k++] = i;
	return v;
}

static void add_state(void)
{
	uint8_t *p = add("w", "BF16", N, 2);

	for (uint32_t i = 0; i < N; i++) {
		state[i] = (uint16_t)tap_random(&seed);
		ofs_put_le(p + 2 * i, state[i], 2);
	}
}

static void add_elements(bool gaps)
{
	uint8_t *at = gaps ? add("gaps", "U16", ENTRIES, 2)
			   : add("at", "I32", ENTRIES, 4);
	uint8_t *values =
	    add(gaps ? "gap values" : "values", "BF16", ENTRIES, 2);
	uint32_t *v = choose(N);

	for (uint32_t k = 0; k < ENTRIES; k++) {
		if (gaps)
			ofs_put_le(at + 2 * k,
			    k == 0 ? v[0] : v[k] - v[k - 1] - 1, 2);
		else
			ofs_put_le(at + 4 * k, v[k], 4);
		state[v[k]] = (uint16_t)tap_random(&seed);
		ofs_put_le(values + 2 * k, state[v[k]], 2);
	}
	free(v);
}

static void add_bytes(void)
{
	uint8_t *p = add("bytes", "U8", 4 + 5 * ENTRIES, 1);
	uint32_t *v = choose(2 * N);

	ofs_put_le(p, ENTRIES, 4);
	for (uint32_t k = 0; k < ENTRIES; k++) {
		uint8_t b = (uint8_t)tap_random(&seed);
		unsigned shift = 8 * (v[k] & 1);

		ofs_put_le(p + 4 + 4 * k, v[k], 4);
		p[4 + 4 * ENTRIES + k] = b;
		state[v[k] / 2] =
		    (uint16_t)((state[v[k] / 2] & ~(0xff << shift)) |
			b << shift);
	}
	free(v);
}

static void add_mask(void)
{
	uint8_t *p = add("mask", "U8", 2 * N, 1);

	for (uint32_t i = 0; i < N; i++) {
		uint16_t mask =
		    (uint16_t)(tap_below(&seed, 9) == 0 ? tap_random(&seed)
							: 0);

		ofs_put_le(p + 2 * i, mask, 2);
		state[i] ^= mask;
	}
}

/* Lists of three positions of bytes. */
static void add_bad(const char *name, uint32_t count, uint32_t a, uint32_t b,
    uint32_t c)
{
	uint8_t *p = add(name, "U8", 4 + 15, 1);
	const uint32_t v[] = { count, a, b, c };

	for (unsigned i = 0; i < 4; i++)
		ofs_put_le(p + 4 * i, v[i], 4);
}

/* Deriving. */

static struct reader in;

static uint32_t tensor(const char *name)
{
	const struct ofs_entry *e = reader_find(&in, name, "/");

	if (e == NULL)
		bail_out("no %s", name);
	return e->ref;
}

static struct reader derive(const struct ofs_delta_part *part, uint32_t n)
{
	struct reader r = { .cat = ofs_catalog_copy(in.cat, &err) };
	struct ofs_patch_step v[8];

	for (uint32_t i = 0; i < n; i++)
		v[i] = (struct ofs_patch_step){ &in.r, "version 7", &part[i] };
	if (ofs_patch_derive(r.cat, tensor("w"), &in.r, tensor("w"), v, n,
		&err) == -1)
		bail_out("%s", err.text);
	ofs_catalog_seal(r.cat);
	if (ofs_reader_init(&r.r, r.cat,
		ofs_transport_local(r.cat, 1 << 20, &err), &err) == -1)
		bail_out("%s", err.text);
	return r;
}

static void all_changes(void)
{
	const struct ofs_delta_part parts[] = {
		{ .kind = OFS_DELTA_ELEMENTS,
		    .at = tensor("at"),
		    .values = tensor("values") },
		{ .kind = OFS_DELTA_XOR, .at = tensor("mask") },
		{ .kind = OFS_DELTA_BYTES, .at = tensor("bytes") },
		{ .kind = OFS_DELTA_ELEMENTS,
		    .gaps = true,
		    .at = tensor("gaps"),
		    .values = tensor("gap values") },
	};
	struct reader r = derive(parts, 4);
	const struct ofs_tensor *t = &r.cat->tensors[tensor("w")];
	uint8_t *got = reader_tensor(&r, t, &err);
	unsigned bad = 0;

	ok(got != NULL && memcmp(got, state, sizeof(state)) == 0,
	    "changes of every kind, one after the other");
	free(got);
	for (unsigned turn = 0; turn < 300; turn++) {
		uint64_t first = tap_below(&seed, N);
		uint64_t most = N - first < 9000 ? N - first : 9000;
		uint64_t n = 1 + tap_below(&seed, turn % 2 == 0 ? 3 : most);

		n = n > most ? most : n;
		got = reader_range(&r, t, first, n, &err);
		bad += got == NULL || memcmp(got, state + first, 2 * n) != 0;
		free(got);
	}
	is_int(bad, 0, "any range of it is that of its elements");
	reader_close(&r);
}

static void is_refused(const char *name, enum ofs_delta_kind kind,
    const char *values, const char *words)
{
	const struct ofs_delta_part part = { .kind = (uint8_t)kind,
		.at = tensor(name),
		.values = values == NULL ? OFS_NONE : tensor(values) };
	struct reader r = derive(&part, 1);
	const struct ofs_tensor *t = &r.cat->tensors[tensor("w")];

	ok(reader_tensor(&r, t, &err) == NULL, "%s: cannot be read", name);
	is_error(err, EUCLEAN, words, "%s: the error says why", name);
	is_int(err.number, 883, "%s: it has a code", name);
	ok(strstr(err.text, "version 7") != NULL,
	    "%s: it says which version is damaged", name);
	reader_close(&r);
}

int main(void)
{
	scratch_make(false);
	add_state();
	add_elements(false);
	add_mask();
	add_bytes();
	add_elements(true);
	add_bad("beyond", 3, 0, 1, 2 * N);
	add_bad("descending", 3, 5, 4, 6);
	add_bad("twice", 3, 5, 5, 6);
	add_bad("few", 2, 1, 2, 3);
	add_bad("huge", 0xffffffffu, 1, 2, 3);
	(void)add("short", "U8", 3, 1);
	(void)add("odd", "F32", ENTRIES, 4);
	write_file();
	if (reader_open(&in, scratch, "f.safetensors", &ofs_format_safetensors,
		&(struct optimfs_options){ 0 }, &err) == -1)
		bail_out("%s", err.text);
	all_changes();
	is_refused("beyond", OFS_DELTA_BYTES, NULL, "does not have");
	is_refused("descending", OFS_DELTA_BYTES, NULL, "not ascending");
	is_refused("twice", OFS_DELTA_BYTES, NULL, "not ascending");
	is_refused("few", OFS_DELTA_BYTES, NULL, "does not fit its length");
	is_refused("huge", OFS_DELTA_BYTES, NULL, "does not fit its length");
	is_refused("short", OFS_DELTA_BYTES, NULL, "too short");
	is_refused("bytes", OFS_DELTA_XOR, NULL, "not as many bytes");
	is_refused("at", OFS_DELTA_ELEMENTS, "odd", "another type");
	is_refused("at", OFS_DELTA_ELEMENTS, "w", "do not fit each other");
	reader_close(&in);
	scratch_remove();
	return done_testing();
}
