/* load.c - many ranges read at once, into this process and into a GPU */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "optimfs/optimfs.h"

#include "support/scratch.h"
#include "tap.h"

/* A file with a tensor of three pieces and a bit, one of a single element, and
 * an empty one. */
#define LARGE  ((uint64_t)(25 << 20) + 12345)
#define ON_GPU ((uintptr_t)1 << 62)

static struct optimfs *fs;
static uint8_t *want, *got;

static void write_checkpoint(const char *path)
{
	char header[512];
	uint64_t n;
	FILE *f = fopen(path, "w");

	n = (uint64_t)snprintf(header, sizeof(header),
	    "{\"a\":{\"dtype\":\"U8\",\"shape\":[%llu],\"data_offsets\":[0,%llu]},"
	    "\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[%llu,%llu]},"
	    "\"c\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[%llu,%llu]}}",
	    (unsigned long long)LARGE, (unsigned long long)LARGE,
	    (unsigned long long)LARGE, (unsigned long long)LARGE + 1,
	    (unsigned long long)LARGE + 1, (unsigned long long)LARGE + 1);
	want = malloc(LARGE + 1);
	got = malloc(2 * (LARGE + 1));
	if (f == NULL || want == NULL || got == NULL)
		bail_out("%s: %s", path, strerror(errno));
	for (uint64_t i = 0, x = 1; i <= LARGE; i++) {
		x = x * UINT64_C(6364136223846793005) + 1442695040888963407;
		want[i] = (uint8_t)(x >> 56);
	}
	if (fwrite(&n, 8, 1, f) != 1 || fwrite(header, n, 1, f) != 1 ||
	    fwrite(want, LARGE + 1, 1, f) != 1 || fclose(f) != 0)
		bail_out("%s: %s", path, strerror(errno));
}

static uint64_t node(const char *path)
{
	struct optimfs_attr attr;
	struct optimfs_error err;

	if (optimfs_resolve(fs, path, &attr, &err) == -1)
		bail_out("%s", err.text);
	return attr.node;
}

static void did(void *ctx, uint64_t bytes)
{
	uint64_t *sum = ctx;

	*sum += bytes;
}

static bool stop(void *ctx)
{
	(void)ctx;
	return true;
}

/* All three tensors, and 9 MiB from the middle of the large one once more. */
#define MIDDLE ((uint64_t)7 << 20)
#define AGAIN  ((uint64_t)9 << 20)

static int load(struct optimfs_load *how, struct optimfs_error *err)
{
	uintptr_t bit = how->device == OPTIMFS_HOST ? 0 : ON_GPU;
	uint8_t *to = (uint8_t *)((uintptr_t)got | bit);
	const struct optimfs_part part[] = {
		{ node("model/a"), 0, LARGE, to },
		{ node("model/c"), 0, 0, NULL },
		{ node("model/b"), 0, 1, to + LARGE },
		{ node("model/a"), MIDDLE, AGAIN, to + LARGE + 1 },
	};

	memset(got, 0, 2 * (LARGE + 1));
	return optimfs_load(fs, part, 4, how, err);
}

static bool is_right(void)
{
	return memcmp(got, want, LARGE + 1) == 0 &&
	    memcmp(got + LARGE + 1, want + MIDDLE, AGAIN) == 0;
}

static void whole(int device, const char *where)
{
	static const unsigned threads[] = { 0, 1, 3, 1000 };

	for (size_t i = 0; i < sizeof(threads) / sizeof(threads[0]); i++) {
		uint64_t sum = 0;
		struct optimfs_load how = { .threads = threads[i],
			.device = device,
			.did = did,
			.ctx = &sum };
		struct optimfs_error err = { 0 };

		ok(load(&how, &err) == 0, "threads=%u: parts are read into %s",
		    threads[i], where);
		ok(is_right(), "threads=%u: %s has their bytes", threads[i],
		    where);
		is_int((long)sum, (long)(LARGE + 1 + AGAIN),
		    "threads=%u: did counts them", threads[i]);
	}
}

/* Of .optimfs/stats. */
static long reads(void)
{
	struct optimfs_error err;
	struct optimfs_file *file;
	char text[4096] = "", *at;

	if (optimfs_file_open(fs, node(".optimfs/stats"), &file, &err) == -1 ||
	    optimfs_file_read(file, text, sizeof(text) - 1, 0, &err) == -1)
		bail_out("%s", err.text);
	optimfs_file_close(file);
	at = strstr(text, "reads ");
	return at == NULL ? -1 : atol(at + 6);
}

/* Short parts, which go to memory in the opposite order; the last one is of another
 * file, and one in the middle is empty. */
#define SHORT_ONES 2000

static void short_parts(unsigned threads)
{
	struct optimfs_part part[SHORT_ONES + 1];
	uint64_t sum = 0, bytes = 0, a = node("model/a");
	struct optimfs_load how = { .threads = threads,
		.device = OPTIMFS_HOST,
		.did = did,
		.ctx = &sum };
	struct optimfs_error err = { 0 };
	long before = reads();
	bool right = true;

	memset(got, 0, 2 * (LARGE + 1));
	for (uint64_t i = 0; i < SHORT_ONES; i++) {
		part[i] = (struct optimfs_part){ a, 5 + i * 12000,
			i == 70 ? 0 : 10 + i % 3, got + (SHORT_ONES - i) * 16 };
		bytes += part[i].len;
	}
	part[SHORT_ONES] =
	    (struct optimfs_part){ node("model/b"), 0, 1, got + LARGE };
	is_int(optimfs_load(fs, part, SHORT_ONES + 1, &how, &err), 0,
	    "threads=%u: short parts are read", threads);
	for (size_t i = 0; i < SHORT_ONES; i++)
		right = right &&
		    memcmp(part[i].to, want + part[i].off, part[i].len) == 0 &&
		    ((uint8_t *)part[i].to)[part[i].len] == 0;
	ok(right && got[LARGE] == want[LARGE],
	    "threads=%u: each has its bytes, and no more", threads);
	is_u64(sum, bytes + 1, "threads=%u: did counts them", threads);
	ok(reads() - before <= 3, "threads=%u: those of one file together",
	    threads);
	part[SHORT_ONES / 2].off = LARGE;
	is_int(optimfs_load(fs, part, SHORT_ONES + 1, &how, &err), -1,
	    "threads=%u: one of them behind the end is refused", threads);
	is_int(err.code, EINVAL, "threads=%u: with EINVAL", threads);
}

static void refused(void)
{
	struct optimfs_load how = { .device = OPTIMFS_HOST };
	struct optimfs_part part = { node("model/b"), 0, 2, got };
	struct optimfs_error err = { 0 };

	is_int(optimfs_load(fs, &part, 1, &how, &err), -1,
	    "a part behind the end of a file is refused");
	is_int(err.code, EINVAL, "with EINVAL");
	part.off = UINT64_MAX;
	is_int(optimfs_load(fs, &part, 1, &how, NULL), -1,
	    "and so is one whose end is beyond 64 bits");
	part = (struct optimfs_part){ node("model"), 0, 1, got };
	is_int(optimfs_load(fs, &part, 1, &how, &err), -1,
	    "a directory is refused");
	is_int(err.code, EISDIR, "with EISDIR");
	is_int(optimfs_load(fs, NULL, 0, &how, &err), 0, "no part is no error");
	how.stop = stop;
	is_int(load(&how, &err), -1, "it can be interrupted");
	is_int(err.code, ECANCELED, "with ECANCELED");
}

static void fails(const char *faults, int device, int code, const char *what)
{
	struct optimfs_load how = { .threads = 3, .device = device };
	struct optimfs_error err = { 0 };

	setenv("FAKECUDA", faults, 1);
	is_int(load(&how, &err), -1, "%s: it fails", what);
	is_int(err.code, code, "%s: its error", what);
	ok(strstr(err.text, "OFS904") != NULL, "%s: OFS904", what);
	setenv("FAKECUDA", "", 1);
}

/* The library is found by its name, so the loader's path must be set before the
 * program starts. */
static void use_fake(char **argv)
{
	const char *b = getenv("TOP_BUILDDIR");
	char path[4096];

	if (getenv("FAKECUDA") != NULL)
		return;
	snprintf(path, sizeof(path), "%s/tests/support/fakecuda",
	    b != NULL ? b : ".");
	setenv("LD_LIBRARY_PATH", path, 1);
	setenv("FAKECUDA", "", 1);
	execv("/proc/self/exe", argv);
	bail_out("%s: %s", argv[0], strerror(errno));
}

int main(int argc, char **argv)
{
	struct optimfs_options options = { 0 };
	struct optimfs_error err;

	(void)argc;
	use_fake(argv);
	scratch_make(false);
	write_checkpoint(in_scratch("model.safetensors"));
	fs = optimfs_open(in_scratch("model.safetensors"), &options, &err);
	if (fs == NULL)
		bail_out("%s", err.text);
	whole(OPTIMFS_HOST, "memory");
	short_parts(1);
	short_parts(3);
	refused();
	whole(0, "a GPU");
	fails("devices=1", 1, ENODEV, "a device that is not there");
	fails("copies=2", 0, EIO, "a copy that fails");
	fails("pinned=1", 0, ENOMEM, "no pinned memory");
	whole(0, "a GPU that works again");
	optimfs_close(fs);
	scratch_remove();
	free(want);
	free(got);
	return done_testing();
}
