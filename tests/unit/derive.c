/* derive.c - derived tensors: rounding, sums, how they are read */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/cursor.h"
#include "derive/packed.h"
#include "derive/round.h"
#include "derive/sum.h"
#include "format/safetensors/safetensors.h"
#include "random.h"
#include "read/fetch.h"
#include "stats/number.h"
#include "store/local.h"
#include "support/reader.h"
#include "support/scratch.h"
#include "tap.h"

static struct optimfs_error err;
static uint64_t seed = 20;

/* Rounding, compared with a search among all values of the type. */

static double value_of(enum ofs_dtype t, unsigned code)
{
	uint8_t bytes[2] = { (uint8_t)code, (uint8_t)(code >> 8) };

	return ofs_dtype_number(t, bytes);
}

/* Is the number of code as near to v as any other, and even in a tie? */
static bool is_nearest(enum ofs_dtype t, unsigned code, double v)
{
	unsigned n = ofs_dtype_size(t) == 1 ? 0x100 : 0x10000;
	double got = value_of(t, code), off = fabs(got - v);

	for (unsigned i = 0; i < n; i++) {
		double d = fabs(value_of(t, i) - v);

		if (d < off || (d == off && value_of(t, i) != got && code & 1))
			return false;
	}
	return signbit(got) == signbit(v) || got == 0;
}

/* A number near those of the type: between two of them, close to the middle, or
 * close to one. */
static double near_some(enum ofs_dtype t)
{
	unsigned mask = ofs_dtype_size(t) == 1 ? 0xff : 0xffff;
	unsigned i = (unsigned)tap_random(&seed) & mask;
	double a = value_of(t, i), b = value_of(t, (i + 1) & mask), v;

	if (!isfinite(a) || !isfinite(b) || signbit(a) != signbit(b))
		return 0;
	v = (a + b) / 2;
	switch (tap_below(&seed, 4)) {
	case 0:
		return v;
	case 1:
		return nextafter(v, a);
	case 2:
		return nextafter(v, b);
	default:
		return a + (b - a) * (double)tap_below(&seed, 1000) / 1000;
	}
}

static void rounds_once(enum ofs_dtype t, unsigned rounds)
{
	unsigned bad = 0;

	for (unsigned i = 0; i < rounds; i++) {
		double v = near_some(t);
		uint8_t out[2] = { 0 };

		ofs_round(&v, 1, t, out);
		bad += !is_nearest(t, out[0] | out[1] << 8, v);
	}
	is_int(bad, 0, "%s: the nearest number, even in a tie",
	    ofs_dtype_name(t));
}

static void special_numbers(void)
{
	static const struct {
		enum ofs_dtype t;
		double v;
		unsigned code;
	} cases[] = {
		{ OFS_FLOAT8_E4M3FN, 464, 0x7e },
		{ OFS_FLOAT8_E4M3FN, 465, 0x7f },
		{ OFS_FLOAT8_E4M3FN, -1e300, 0xff },
		{ OFS_FLOAT8_E4M3FN, -0.0, 0x80 },
		{ OFS_FLOAT8_E5M2, 61440, 0x7c },
		{ OFS_FLOAT8_E5M2, -61439, 0xfb },
		{ OFS_FLOAT8_E5M2, INFINITY, 0x7c },
		{ OFS_FLOAT8_E5M2, NAN, 0x7f },
		{ OFS_FLOAT8_E4M3FNUZ, -0.0, 0 },
		{ OFS_FLOAT8_E4M3FNUZ, INFINITY, 0x80 },
		{ OFS_FLOAT8_E5M2FNUZ, 1e9, 0x80 },
		{ OFS_FLOAT16, 65519.999, 0x7bff },
		{ OFS_FLOAT16, 65520, 0x7c00 },
		{ OFS_BFLOAT16, -HUGE_VAL, 0xff80 },
		/* by way of float32 this would be 0x3f80 */
		{ OFS_BFLOAT16, 0x1.0100000001p0, 0x3f81 },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		uint8_t out[2] = { 0 };

		ofs_round(&cases[i].v, 1, cases[i].t, out);
		is_int(out[0] | out[1] << 8, cases[i].code, "%g as %s",
		    cases[i].v, ofs_dtype_name(cases[i].t));
	}
}

/* Sums over two files, which have a tensor of each type. */

#define ROWS 700u
#define COLS 301u
#define N    (ROWS * COLS) /* more than three blocks */

static const enum ofs_dtype types[] = { OFS_FLOAT64, OFS_FLOAT32, OFS_FLOAT16,
	OFS_BFLOAT16, OFS_FLOAT8_E4M3FN, OFS_FLOAT8_E5M2, OFS_COMPLEX64,
	OFS_INT64, OFS_INT32, OFS_INT8, OFS_UINT64, OFS_UINT16, OFS_UINT8,
	OFS_BOOL };
#define NTYPES (sizeof(types) / sizeof(types[0]))

static uint8_t *data[2][NTYPES];

static size_t bytes_of(size_t type)
{
	return N * ofs_dtype_size(types[type]);
}

/* Numbers of a type: mostly small ones, and the ends of the range. */
static void fill(uint8_t *p, enum ofs_dtype t)
{
	unsigned parts = ofs_dtype_is_complex(t) ? 2 : 1;
	size_t size = ofs_dtype_size(t) / parts;

	for (size_t i = 0; i < (size_t)N * parts; i++) {
		double v = ((double)tap_below(&seed, 20001) - 10000) / 1024;

		if (t == OFS_BOOL)
			p[i] = (uint8_t)tap_below(&seed, 2);
		else if (ofs_rounds_to(t))
			ofs_round(&v, 1, parts == 2 ? OFS_FLOAT32 : t,
			    p + i * size);
		else
			ofs_put_le(p + i * size, tap_random(&seed),
			    (unsigned)size);
	}
}

/* Begins a safetensors file with its header. */
static void write_header(FILE *f, const char *header)
{
	uint8_t len[8];

	ofs_put_le(len, strlen(header), 8);
	fwrite(len, 8, 1, f);
	fwrite(header, strlen(header), 1, f);
}

static void write_file(const char *path, unsigned which)
{
	char header[4096];
	size_t n = 0, off = 0;
	FILE *f = fopen(path, "wb");

	if (f == NULL)
		bail_out("%s", path);
	for (size_t i = 0; i < NTYPES; i++) {
		n += (size_t)snprintf(header + n, sizeof(header) - n,
		    "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%u,%u],"
		    "\"data_offsets\":[%zu,%zu]}",
		    i == 0 ? "{" : ",", ofs_dtype_name(types[i]),
		    ofs_dtype_safetensors(types[i]), ROWS, COLS, off,
		    off + bytes_of(i));
		off += bytes_of(i);
	}
	snprintf(header + n, sizeof(header) - n, "}");
	write_header(f, header);
	for (size_t i = 0; i < NTYPES; i++) {
		data[which][i] = malloc(bytes_of(i));
		fill(data[which][i], types[i]);
		fwrite(data[which][i], bytes_of(i), 1, f);
	}
	if (fclose(f) != 0)
		bail_out("%s", path);
}

static uint32_t tensor_named(const struct reader *r, const char *name)
{
	const struct ofs_entry *e = reader_find(r, name, "/");

	if (e == NULL)
		bail_out("no %s", name);
	return e->ref;
}

static uint32_t tensor_of(const struct reader *r, enum ofs_dtype t)
{
	return tensor_named(r, ofs_dtype_name(t));
}

/* Ends a catalog with derived tensors, and opens a reader of it. */
static void finish(struct reader *r)
{
	ofs_catalog_seal(r->cat);
	if (ofs_reader_init(&r->r, r->cat,
		ofs_transport_local(r->cat, 1 << 20, &err), &err) == -1)
		bail_out("%s", err.text);
}

/* The sum of the two files as a catalog of its own; float types give to. */
static struct reader sum_of(struct reader *in,
    const struct ofs_combination *sum, enum ofs_dtype to)
{
	struct reader r = { .cat = ofs_catalog_copy(in[1].cat, &err) };

	for (size_t i = 0; i < NTYPES; i++) {
		const uint32_t of[] = { tensor_of(&in[0], types[i]),
			tensor_of(&in[1], types[i]) };
		struct ofs_tensor *t = &r.cat->tensors[of[1]];

		if (!ofs_rounds_to(types[i]))
			t->dtype = OFS_INT64;
		else if (to != OFS_DTYPE_NONE &&
		    !ofs_dtype_is_complex(types[i]))
			t->dtype = (uint8_t)to;
		if (!ofs_sum_fits(types[i], t->dtype) ||
		    ofs_sum_derive(r.cat, of[1], sum, of, &err) == -1)
			bail_out("%s: %s", ofs_dtype_name(types[i]), err.text);
	}
	finish(&r);
	return r;
}

/* What NumPy would compute. */
static void expect(const struct ofs_combination *sum, size_t type,
    enum ofs_dtype to, uint8_t *out)
{
	unsigned parts = ofs_dtype_is_complex(types[type]) ? 2 : 1;
	size_t in = ofs_dtype_size(types[type]) / parts;
	size_t size = ofs_dtype_size(to) / parts;

	for (size_t i = 0; i < (size_t)N * parts; i++) {
		const uint8_t *a = data[0][type] + i * in,
			      *b = data[1][type] + i * in;
		double v;

		if (to == OFS_INT64) {
			int64_t x = (int64_t)ofs_get_le(a, in),
				y = (int64_t)ofs_get_le(b, in);

			if (types[type] == OFS_INT32) {
				x = (int32_t)x;
				y = (int32_t)y;
			} else if (types[type] == OFS_INT8) {
				x = (int8_t)x;
				y = (int8_t)y;
			}
			ofs_put_le(out + i * 8,
			    (uint64_t)(int64_t)sum->source[0].weight *
				    (uint64_t)x +
				(uint64_t)(int64_t)sum->source[1].weight *
				    (uint64_t)y,
			    8);
			continue;
		}
		v = (sum->source[0].weight * ofs_dtype_number(types[type], a) +
			sum->source[1].weight *
			    ofs_dtype_number(types[type], b)) /
		    sum->divisor;
		ofs_round(&v, 1, parts == 2 ? OFS_FLOAT32 : to, out + i * size);
	}
}

static void sums(struct reader *in, const struct ofs_combination *sum,
    enum ofs_dtype to, const char *what)
{
	struct reader r = sum_of(in, sum, to);

	for (size_t i = 0; i < NTYPES; i++) {
		const struct ofs_tensor *t =
		    &r.cat->tensors[tensor_of(&in[1], types[i])];
		size_t bytes = N * ofs_dtype_size(t->dtype);
		uint8_t *got = reader_tensor(&r, t, &err);
		uint8_t *want = malloc(bytes);

		expect(sum, i, t->dtype, want);
		ok(got != NULL && memcmp(got, want, bytes) == 0, "%s of %s",
		    what, ofs_dtype_name(types[i]));
		free(got);
		free(want);
	}
	reader_close(&r);
}

/* Any box of a derived tensor is that of its elements. */
static void boxes(struct reader *in, const struct ofs_combination *sum)
{
	struct reader r = sum_of(in, sum, OFS_DTYPE_NONE);
	const struct ofs_tensor *t =
	    &r.cat->tensors[tensor_of(&in[1], OFS_FLOAT32)];
	float *all = (float *)(void *)reader_tensor(&r, t, &err);
	unsigned bad = 0;

	for (unsigned turn = 0; turn < 60; turn++) {
		uint64_t lo[2] = { tap_below(&seed, ROWS),
			tap_below(&seed, COLS) };
		uint64_t box[4] = { lo[0], lo[1],
			1 + tap_below(&seed, ROWS - lo[0]),
			1 + tap_below(&seed, COLS - lo[1]) };
		uint64_t n = box[2] * box[3];
		float *got = malloc(n * sizeof(*got));
		struct ofs_plan p = { 0 };

		if (ofs_plan_box(r.cat, t, box, 0, n, 0, ofs_locate, &r.r, &p,
			&err) == -1 ||
		    ofs_fetch(&r.r, &p, got, &err) == -1)
			bail_out("%s", err.text);
		for (uint64_t i = 0; i < n; i++)
			bad += got[i] !=
			    all[(lo[0] + i / box[3]) * COLS + lo[1] +
				i % box[3]];
		ofs_plan_fini(&p);
		free(got);
	}
	is_int(bad, 0, "boxes of a derived tensor are those of its elements");
	free(all);
	reader_close(&r);
}

static void failures(struct reader *in, const struct ofs_combination *sum,
    const char *path)
{
	struct reader r = sum_of(in, sum, OFS_DTYPE_NONE);
	const struct ofs_tensor *t =
	    &r.cat->tensors[tensor_of(&in[1], OFS_BOOL)];

	if (truncate(path, 4096) == -1)
		bail_out("%s", path);
	ok(reader_tensor(&r, t, &err) == NULL,
	    "a sum of what cannot be read fails");
	is_error(err, ESTALE, "step 1", "the error says which source");
	reader_close(&r);
	ok(!ofs_sum_fits(OFS_FLOAT32, OFS_INT64) &&
		!ofs_sum_fits(OFS_INT32, OFS_FLOAT32) &&
		!ofs_sum_fits(OFS_COMPLEX64, OFS_FLOAT32) &&
		!ofs_sum_fits(OFS_FLOAT8_E8M0FNU, OFS_FLOAT32) &&
		!ofs_sum_fits(OFS_QINT8, OFS_INT64),
	    "numbers, complex numbers and integers are not mixed");
}

/* Numbers in few bits. */

static long peak_kb(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return usage.ru_maxrss;
}

/* The end of a row and the start of the next one need few of their scales, of
 * which this file claims a quarter of a gigabyte. */
static void long_rows(void)
{
	static const char header[] =
	    "{\"codes\":{\"dtype\":\"F8_E4M3\",\"shape\":[2,8589934592],"
	    "\"data_offsets\":[0,17179869184]},"
	    "\"scale\":{\"dtype\":\"F32\",\"shape\":[1,67108864],"
	    "\"data_offsets\":[17179869184,17448304640]}}";
	const char *path = in_scratch("long.safetensors");
	struct reader in, r = { 0 };
	struct ofs_packed p = { .factor = OFS_NONE,
		.table = OFS_NONE,
		.rows = 2,
		.cols = UINT64_C(1) << 33,
		.block_rows = 128,
		.block_cols = 128 };
	FILE *f = fopen(path, "wb");
	struct ofs_tensor t;
	uint8_t *got;
	uint32_t i;
	long before;

	if (f == NULL)
		bail_out("%s", path);
	write_header(f, header);
	if (fclose(f) != 0 ||
	    truncate(path, 8 + (off_t)strlen(header) + 17448304640) == -1 ||
	    reader_open(&in, scratch, "long.safetensors",
		&ofs_format_safetensors, &(struct optimfs_options){ 0 },
		&err) == -1)
		bail_out("%s: %s", path, err.text);
	r.cat = ofs_catalog_copy(in.cat, &err);
	p.codes = tensor_named(&in, "codes");
	p.scale = tensor_named(&in, "scale");
	t = r.cat->tensors[p.codes];
	t.dtype = OFS_FLOAT32;
	i = ofs_catalog_tensor(r.cat, &t, &err);
	if (ofs_packed_derive(r.cat, i, &p, &err) == -1)
		bail_out("%s", err.text);
	finish(&r);
	before = peak_kb();
	got = reader_range(&r, &r.cat->tensors[i], p.cols - 8, 16, &err);
	ok(got != NULL, "elements of two long rows");
	ok(peak_kb() - before < 100000, "need few of their scales");
	free(got);
	reader_close(&r);
	reader_close(&in);
}

int main(void)
{
	const char *path[2];
	struct reader in[2];
	struct ofs_summand source[2] = { { NULL, "step 1", -1 },
		{ NULL, "step 2", 1 } };
	struct ofs_combination sum = { 1, 2, source };

	scratch_make(false);
	rounds_once(OFS_FLOAT8_E4M3FN, 4000);
	rounds_once(OFS_FLOAT8_E5M2, 4000);
	rounds_once(OFS_FLOAT8_E4M3FNUZ, 4000);
	rounds_once(OFS_FLOAT8_E5M2FNUZ, 4000);
	rounds_once(OFS_FLOAT16, 300);
	rounds_once(OFS_BFLOAT16, 300);
	special_numbers();
	for (unsigned i = 0; i < 2; i++) {
		char name[16];

		snprintf(name, sizeof(name), "%u.safetensors", i);
		path[i] = in_scratch(name);
		write_file(path[i], i);
		if (reader_open(&in[i], scratch, name, &ofs_format_safetensors,
			&(struct optimfs_options){ 0 }, &err) == -1)
			bail_out("%s", err.text);
		source[i].reader = &in[i].r;
	}
	sums(in, &sum, OFS_FLOAT32, "difference as float32");
	source[0].weight = 1;
	sum.divisor = 2;
	sums(in, &sum, OFS_DTYPE_NONE, "mean");
	source[0].weight = 3;
	sum.divisor = 1;
	sums(in, &sum, OFS_BFLOAT16, "weighted sum as bfloat16");
	boxes(in, &sum);
	failures(in, &sum, path[0]);
	long_rows();
	for (unsigned i = 0; i < 2; i++) {
		reader_close(&in[i]);
		for (size_t k = 0; k < NTYPES; k++)
			free(data[i][k]);
	}
	scratch_remove();
	return done_testing();
}
