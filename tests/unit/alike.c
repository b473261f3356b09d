/* alike.c - elements that are not stored are accounted for, and not read */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "optimfs/analyze.h"

#include "analyze/health.h"
#include "handmade.h"
#include "mktorch.h"
#include "stats/stats.h"
#include "support/listing.h"
#include "tap.h"

/* Work on all elements never ends. */
enum { WITHOUT_END_S = 300 };

#define TERA INT64_C(0x10000000000)

/* What is stored is a few blocks; one chunk of a tensor may be read for each. */
#define READ_MAX (64u << 20)

static bool same(const struct optimfs_statistics *a,
    const struct optimfs_statistics *b)
{
	struct optimfs_statistics x = *a, y = *b;

	x.exponent = y.exponent = NULL;
	return memcmp(&x, &y, sizeof(x)) == 0 &&
	    (a->nexponents == 0 ||
		memcmp(a->exponent, b->exponent,
		    a->nexponents * sizeof(*a->exponent)) == 0);
}

/* A chunk that is appended several times, before and behind others. */
static void test_stats(enum ofs_dtype t)
{
	static const uint64_t times[] = { 1, 5, 1, 1, 12, 2, 7, 64, 3 };
	struct ofs_stats *fast = ofs_stats_new(t, NULL);
	struct ofs_stats *slow = ofs_stats_new(t, NULL);
	struct ofs_stats *chunk = ofs_stats_new(t, NULL);
	size_t n = ofs_stats_chunk(t) * ofs_dtype_size(t), bad = 0;
	uint8_t *p = malloc(n);
	struct optimfs_statistics a, b;

	for (size_t i = 0; i < sizeof(times) / sizeof(*times); i++) {
		handmade_fill(p, n, i);
		for (size_t k = 0; k < n; k++)
			p[k] &= 0x3f; /* finite, and squares are too */
		if (i % 3 == 1)
			memset(p, 0, n);
		ofs_stats_clear(chunk);
		ofs_stats_add(chunk, p, ofs_stats_chunk(t));
		ofs_stats_join(fast, chunk, times[i]);
		for (uint64_t k = 0; k < times[i]; k++)
			ofs_stats_join(slow, chunk, 1);
		ofs_stats_result(fast, &a, NULL);
		ofs_stats_result(slow, &b, NULL);
		bad += !same(&a, &b);
		optimfs_statistics_fini(&a);
		optimfs_statistics_fini(&b);
	}
	is_int((int)bad, 0,
	    "%s: a chunk added many times is as many chunks, bit for bit",
	    ofs_dtype_name(t));
	free(p);
	ofs_stats_free(fast);
	ofs_stats_free(slow);
	ofs_stats_free(chunk);
}

static bool same_count(const struct ofs_count *a, const struct ofs_count *b)
{
	return a->n == b->n && (a->n == 0 || a->first == b->first);
}

static bool same_number(double a, double b)
{
	return a == b || (isnan(a) && isnan(b)) ||
	    fabs(a - b) <= 1e-12 * fabs(a);
}

static bool same_exam(const struct ofs_exam *a, const struct ofs_exam *b)
{
	bool ok = true;

	for (int i = 0; i < 3; i++)
		ok &= same_count(&a->odd[i], &b->odd[i]);
	return ok && same_count(&a->negative, &b->negative) &&
	    same_count(&a->broken, &b->broken) &&
	    same_count(&a->orphan, &b->orphan) &&
	    same_number(a->update, b->update) &&
	    same_number(a->weight, b->weight) && same_number(a->sum, b->sum) &&
	    same_number(a->squares, b->squares) && a->run == b->run &&
	    a->dead_rows == b->dead_rows;
}

/* Examines chunks of n elements, each with one value of v; chunks of one value
 * at once if told to. */
static struct ofs_exam examine(struct ofs_exam e, const float *v, size_t chunks,
    size_t n, bool at_once)
{
	float m[64], s[64];
	const void *buf[] = { m, s, m };
	struct ofs_finding found;

	for (size_t i = 0, k; i < chunks; i += k) {
		for (k = 1; at_once && i + k < chunks && v[i + k] == v[i]; k++)
			;
		for (size_t j = 0; j < n; j++) {
			m[j] = v[i];
			s[j] = fabsf(v[i]);
		}
		ofs_examine(&e, buf, i * n, n, &found);
		ofs_exam_join(&e, &found, buf, i * n, n, k);
	}
	return e;
}

static void test_exam(void)
{
	static const float v[] = { 0, 0, 0, 0, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0,
		INFINITY, INFINITY, NAN, 2, 2, 2, 0, 0, 0 };
	struct ofs_file_info f = { .dtype = OFS_FLOAT32 };
	struct ofs_exam one = { .kind = OFS_EXAM_ONE,
		.nfiles = 1,
		.no_negative = true,
		.no_infinite = true,
		.file = { &f } };
	struct ofs_exam adam = { .kind = OFS_EXAM_ADAM,
		.nfiles = 3,
		.stride = 1,
		.correct = { 1, 1 },
		.file = { &f, &f, &f } };
	size_t chunks = sizeof(v) / sizeof(*v), bad = 0;

	for (size_t n = 1; n < 60; n += 7)
		for (uint64_t k = 1; k < 300; k += 1 + k / 8) {
			struct ofs_exam a, b;

			one.stride = adam.row = k;
			a = examine(one, v, chunks, n, false);
			b = examine(one, v, chunks, n, true);
			bad += !same_exam(&a, &b);
			a = examine(adam, v, chunks, n, false);
			b = examine(adam, v, chunks, n, true);
			bad += !same_exam(&a, &b);
		}
	is_int((int)bad, 0,
	    "equal chunks are examined at once as one behind the other, for "
	    "all lengths of rows and diagonals");
}

/* --- files --- */

static uint64_t header_of(int fd, const char *dtype, uint64_t elements,
    uint64_t bytes)
{
	char text[256];
	uint64_t n = (uint64_t)snprintf(text, sizeof(text),
	    "%8s{\"w\":{\"dtype\":\"%s\",\"shape\":[%llu],\"data_offsets\":[0,"
	    "%llu]}}",
	    "", dtype, (unsigned long long)elements, (unsigned long long)bytes);

	for (int i = 0; i < 8; i++)
		text[i] = (char)((n - 8) >> 8 * i & 0xff);
	if (write(fd, text, n) != (ssize_t)n)
		bail_out("write: %s", strerror(errno));
	return n;
}

/* Numbers at places, zeros between; dense: these are stored. Of 48 MiB. */
static void put(const char *path, const char *dtype, size_t item, bool dense)
{
	static const unsigned at[] = { 5u << 20, (5u << 20) + 4096, 11u << 20,
		(48u << 20) - 8 };
	int fd = open(path, O_CREAT | O_RDWR | O_TRUNC, 0644);
	uint64_t base = header_of(fd, dtype, (48u << 20) / item, 48u << 20);
	static const uint8_t zeros[1 << 20];
	uint8_t few[8] = { 1, 2, 3, 0x3f, 4, 5, 6, 0x40 };
	bool good = ftruncate(fd, (off_t)(base + (48u << 20))) == 0;

	for (unsigned i = 0; dense && i < 48; i++)
		good &= pwrite(fd, zeros, sizeof(zeros),
			    (off_t)(base + i * sizeof(zeros))) == sizeof(zeros);
	for (unsigned i = 0; i < sizeof(at) / sizeof(*at); i++)
		good &= pwrite(fd, few, sizeof(few), (off_t)(base + at[i])) ==
		    sizeof(few);
	if (close(fd) == -1 || !good)
		bail_out("%s: %s", path, strerror(errno));
}

static struct optimfs *open_file(const char *path)
{
	struct optimfs_error err;
	struct optimfs *fs = optimfs_open(path, NULL, &err);

	if (fs == NULL)
		bail_out("%s", err.text);
	return fs;
}

static uint64_t bytes_read(struct optimfs *fs)
{
	struct optimfs_error err;
	char text[16384];
	ssize_t n = listing_read_at(fs, ".optimfs/stats", text,
	    sizeof(text) - 1, 0, &err);
	const char *at;

	text[n < 0 ? 0 : n] = '\0';
	at = strstr(text, "local.read_bytes ");
	if (at == NULL)
		bail_out("no local.read_bytes in .optimfs/stats: %s", text);
	return strtoull(at + strlen("local.read_bytes "), NULL, 10);
}

static void statistics(struct optimfs *fs, struct optimfs_statistics *s)
{
	struct optimfs_error err;

	if (optimfs_statistics(fs, "model/w", NULL, s, &err) == -1)
		bail_out("%s", err.text);
}

static uint8_t *text_of(struct optimfs *fs)
{
	size_t n;

	return listing_content(fs, listing_node(fs, ".optimfs/stat/model/w"),
	    &n);
}

/* A file with holes has the statistics of a copy without. */
static void test_holes(const char *dtype, size_t item)
{
	struct handmade h;
	struct optimfs *fs[2];
	struct optimfs_statistics s[2];
	struct optimfs_comparison c;
	struct optimfs_error err;
	uint64_t node[2], read[2];
	uint8_t *text[2];

	handmade_init(&h);
	for (int i = 0; i < 2; i++) {
		const char *path = handmade_path(&h,
		    i == 0 ? "sparse.safetensors" : "dense.safetensors");

		put(path, dtype, item, i == 1);
		fs[i] = open_file(path);
		statistics(fs[i], &s[i]);
		read[i] = bytes_read(fs[i]);
		text[i] = text_of(fs[i]);
		node[i] = listing_node(fs[i], "model/w");
	}
	ok(same(&s[0], &s[1]),
	    "%s: a file with holes has the statistics of "
	    "one without, bit for bit",
	    dtype);
	ok(text[0] != NULL && text[1] != NULL &&
		strcmp((char *)text[0], (char *)text[1]) == 0,
	    "%s: so has .optimfs/stat", dtype);
	ok(read[0] < read[1], "%s: holes are not read", dtype);
	ok(optimfs_compare(fs[0], node[0], fs[1], node[1], NULL, NULL, &c,
	       &err) == 0 &&
		c.differ == 0,
	    "%s: both are equal", dtype);
	for (int i = 0; i < 2; i++) {
		free(text[i]);
		optimfs_statistics_fini(&s[i]);
		optimfs_close(fs[i]);
	}
	handmade_fini(&h);
}

static uint64_t check(struct optimfs *fs)
{
	const struct optimfs_checkup out = { 0 };
	struct optimfs_error err;
	uint64_t found = 0;

	if (optimfs_check(fs, NULL, &out, &found, &err) == -1)
		bail_out("%s", err.text);
	return found;
}

/* A terabyte, of which a block exists. */
static void test_terabyte(void)
{
	struct optimfs_statistics s, of_copy;
	struct optimfs_comparison c;
	struct optimfs_error err;
	struct handmade h;
	struct optimfs *fs, *copy;
	uint64_t base;
	float x = 2.5f;
	uint8_t *text;
	int fd;

	handmade_init(&h);
	fd = open(handmade_path(&h, "x.safetensors"), O_CREAT | O_RDWR, 0644);
	base = header_of(fd, "F32", TERA / 4, TERA);
	if (ftruncate(fd, (off_t)base + TERA) == -1) {
		skip(7, "files here have no terabyte: %s", strerror(errno));
		close(fd);
		handmade_fini(&h);
		return;
	}
	if (pwrite(fd, &x, 4, (off_t)base + TERA / 2 + 4000) != 4)
		bail_out("pwrite: %s", strerror(errno));
	close(fd);
	fs = open_file(handmade_path(&h, "x.safetensors"));
	copy = open_file(handmade_path(&h, "x.safetensors"));
	statistics(fs, &s);
	ok(s.elements == TERA / 4 && s.finite == TERA / 4 &&
		s.zeros == TERA / 4 - 1 && s.sum == 2.5 && s.squares == 6.25 &&
		s.min == 0 && s.max == 2.5,
	    "a terabyte of holes is counted");
	ok(s.xxh3 == 0, "it has no hash");
	is_u64(check(fs), 0, "it can be checked");
	text = text_of(fs);
	ok(text != NULL && strstr((char *)text, "zeros 274877906943\n") &&
		strstr((char *)text, "xxh3") == NULL,
	    ".optimfs/stat counts it");
	ok(optimfs_compare(fs, listing_node(fs, "model/w"), copy,
	       listing_node(copy, "model/w"), NULL, NULL, &c, &err) == 0 &&
		c.elements == TERA / 4 && c.differ == 0,
	    "it can be compared");
	ok(bytes_read(fs) < READ_MAX, "hardly anything is read");
	statistics(copy, &of_copy);
	ok(same(&s, &of_copy), "it has the same statistics every time");
	free(text);
	optimfs_statistics_fini(&s);
	optimfs_statistics_fini(&of_copy);
	optimfs_close(fs);
	optimfs_close(copy);
	handmade_fini(&h);
}

/* Views of one stored element, or of a row of them. */
static void test_views(const char *name, const struct mk_tensor *view,
    double sum)
{
	struct optimfs_statistics s;
	struct optimfs_error err;
	struct mktorch m;
	struct optimfs *fs;

	mktorch_init(&m);
	mk_ops(&m.pickle, "}(");
	mk_str(&m.pickle, "w");
	mk_tensor(&m.pickle, view);
	mk_ops(&m.pickle, "u");
	mk_end(&m.pickle);
	if (mktorch_read(&m, NULL, &err) == -1)
		bail_out("%s: %s", name, err.text);
	fs = open_file(handmade_path(&m.h, "x.pt"));
	statistics(fs, &s);
	ok(s.elements == TERA && s.sum == sum, "%s is counted: %g", name,
	    s.sum);
	is_u64(check(fs), 0, "%s can be checked", name);
	ok(bytes_read(fs) < READ_MAX, "%s is not read", name);
	optimfs_statistics_fini(&s);
	optimfs_close(fs);
	mktorch_fini(&m);
}

int main(void)
{
	static const struct mk_tensor one = { .numel = 4,
		.offset = 3,
		.ndim = 1,
		.shape = { TERA },
		.stride = { 0 } };
	static const struct mk_tensor wide = { .numel = 4,
		.offset = 2,
		.ndim = 3,
		.shape = { 1 << 10, 1 << 20, 1 << 10 } };
	static const struct mk_tensor rows = { .numel = 4,
		.ndim = 2,
		.shape = { 4, TERA / 4 },
		.stride = { 1, 0 } };

	alarm(WITHOUT_END_S);
	test_stats(OFS_FLOAT32);
	test_stats(OFS_BFLOAT16);
	test_stats(OFS_COMPLEX64);
	test_stats(OFS_INT8);
	test_exam();
	test_holes("F32", 4);
	test_holes("BF16", 2);
	test_holes("F64", 8);
	test_terabyte();
	test_views("a view of one element", &one, 3.0 * TERA);
	test_views("a view of one element in three dimensions", &wide,
	    2.0 * TERA);
	test_views("a view of repeated columns", &rows,
	    (0.0 + 1 + 2 + 3) * (TERA / 4));
	return done_testing();
}
