/* gpubench.cu - the kernel that lays runs out, against copies on the card */
/* SPDX-License-Identifier: Apache-2.0 */
#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/launch.h"
#include "gpu/place.h"

/* usage: gpubench SAMPLES. For each shape of runs, and each sample, one line:
 * the name, GB/s of a copy of as many bytes, GB/s of the kernel. A GPU that is
 * not there: status 77. What the kernel wrote is compared with what the same
 * arithmetic writes here. */

enum { REPEAT = 20 };
static const uint64_t SIZE = UINT64_C(256) << 20;

struct shape {
	const char *name;
	uint64_t len, n, src_pitch, dst_pitch;
};
static const struct shape shapes[] = {
	{ "one run", UINT64_C(64) << 20, 1, 0, 0 },
	{ "rows of 64 KiB", 64 << 10, 1024, 64 << 10, 128 << 10 },
	{ "rows of 4 KiB", 4 << 10, 16384, 4 << 10, 16 << 10 },
	{ "rows of 256 B", 256, 262144, 256, 1024 },
	{ "rows of 16 B", 16, 4194304, 16, 32 },
	{ "unaligned rows, 4098 B", 4098, 16000, 4098, 8196 },
	{ "elements of 2 B", 2, 16777216, 2, 4 },
};

#define CHECK(call)                                                \
	do {                                                       \
		cudaError_t e_ = (call);                           \
		if (e_ != cudaSuccess) {                           \
			fprintf(stderr, "%s: %s\n", #call,         \
			    cudaGetErrorString(e_));               \
			exit(1);                                   \
		}                                                  \
	} while (0)

static uint8_t *src, *dst;
static struct ofs_run *run;
static cudaStream_t stream;
static cudaEvent_t before, after;

static float stop(void)
{
	float ms;

	CHECK(cudaEventRecord(after, stream));
	CHECK(cudaEventSynchronize(after));
	CHECK(cudaEventElapsedTime(&ms, before, after));
	return ms / REPEAT;
}

static double copied(uint64_t bytes)
{
	CHECK(cudaEventRecord(before, stream));
	for (int i = 0; i < REPEAT; i++)
		CHECK(cudaMemcpyAsync(dst, src, bytes,
		    cudaMemcpyDeviceToDevice, stream));
	return (double)bytes / stop() / 1e6;
}

static double placed(uint64_t total, uint64_t bytes)
{
	CHECK(cudaEventRecord(before, stream));
	for (int i = 0; i < REPEAT; i++)
		CHECK(ofs_place_launch(run, 1, total, src, dst, stream));
	return (double)bytes / stop() / 1e6;
}

static void compare(const struct ofs_run *r, uint64_t total)
{
	uint8_t *from = (uint8_t *)malloc(SIZE), *want = (uint8_t *)malloc(SIZE);
	uint8_t *got = (uint8_t *)malloc(SIZE);

	if (from == NULL || want == NULL || got == NULL)
		exit(1);
	for (uint64_t i = 0; i < SIZE; i++)
		from[i] = (uint8_t)(i * UINT64_C(0x9e3779b97f4a7c15) >> 56);
	memset(want, 0, SIZE);
	CHECK(cudaMemcpy(src, from, SIZE, cudaMemcpyHostToDevice));
	CHECK(cudaMemset(dst, 0, SIZE));
	CHECK(ofs_place_launch(run, 1, total, src, dst, stream));
	CHECK(cudaStreamSynchronize(stream));
	CHECK(cudaMemcpy(got, dst, SIZE, cudaMemcpyDeviceToHost));
	ofs_place_thread(r, 1, total, 0, 1, from, want);
	if (memcmp(want, got, SIZE) != 0) {
		fprintf(stderr, "the kernel writes other bytes\n");
		exit(1);
	}
	free(from);
	free(want);
	free(got);
}

static void measure(const struct shape *s, int samples)
{
	struct ofs_run r = {};
	uint64_t total, bytes = s->len * s->n;

	r.len = s->len;
	r.n = s->n;
	r.src_pitch = (int64_t)s->src_pitch;
	r.dst_pitch = (int64_t)s->dst_pitch;
	total = ofs_place_number(&r, 1);
	CHECK(cudaMemcpy(run, &r, sizeof(r), cudaMemcpyHostToDevice));
	compare(&r, total);
	for (int i = 0; i < samples; i++) {
		double c = copied(bytes), p = placed(total, bytes);

		printf("%s\t%.4f\t%.4f\n", s->name, c, p);
	}
}

int main(int argc, char **argv)
{
	int n = 0;

	if (cudaGetDeviceCount(&n) != cudaSuccess || n == 0) {
		fprintf(stderr, "no GPU\n");
		return 77;
	}
	CHECK(cudaStreamCreate(&stream));
	CHECK(cudaEventCreate(&before));
	CHECK(cudaEventCreate(&after));
	CHECK(cudaMalloc((void **)&src, SIZE));
	CHECK(cudaMalloc((void **)&dst, SIZE));
	CHECK(cudaMalloc((void **)&run, sizeof(*run)));
	for (size_t i = 0; i < sizeof(shapes) / sizeof(*shapes); i++)
		measure(&shapes[i], argc > 1 ? atoi(argv[1]) : 7);
	return 0;
}
