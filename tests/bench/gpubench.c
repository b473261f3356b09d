/* gpubench.c - the kernel that scatters runs, compared with copies on the GPU */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <cuda_runtime.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cluster/gpu/launch.h"

/* usage: gpubench count     print the number of GPUs
 *        gpubench check     verify only, with small lists
 *        gpubench SAMPLES   verify and measure: for each shape of runs and each
 *                           sample a line with the name, the GB/s of a copy of as
 *                           many bytes, and the GB/s of the kernel
 * The output of the kernel is compared with that of the host build. Exits with 77
 * without a GPU. */

enum { REPEAT = 20, SMALLER = 64 };

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
	{ "rows of 4098 B, not aligned", 4098, 16000, 4098, 8196 },
	{ "elements of 2 B", 2, 16777216, 2, 4 },
};

static uint8_t *src, *dst; /* on the GPU */
static struct ofs_gpu_run *list;
static cudaStream_t stream;
static cudaEvent_t before, after;

static void check(cudaError_t e, const char *what)
{
	if (e == cudaSuccess)
		return;
	fprintf(stderr, "gpubench: %s: %s\n", what, cudaGetErrorString(e));
	exit(1);
}
#define CHECK(call) check(call, #call)

static void *memory(uint64_t n)
{
	void *p = calloc(1, n);

	if (p != NULL)
		return p;
	fprintf(stderr, "gpubench: out of memory\n");
	exit(1);
}

static uint64_t extent(uint64_t n, uint64_t pitch, uint64_t len)
{
	return (n - 1) * pitch + len;
}

/* Seconds per repetition since the event before. */
static double stop(void)
{
	float ms;

	CHECK(cudaEventRecord(after, stream));
	CHECK(cudaEventSynchronize(after));
	CHECK(cudaEventElapsedTime(&ms, before, after));
	return (double)ms / 1e3 / REPEAT;
}

static double copied(uint64_t bytes)
{
	CHECK(cudaEventRecord(before, stream));
	for (int i = 0; i < REPEAT; i++)
		CHECK(cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDeviceToDevice,
		    stream));
	return (double)bytes / stop() / 1e9;
}

static double placed(uint64_t total, uint64_t bytes)
{
	CHECK(cudaEventRecord(before, stream));
	for (int i = 0; i < REPEAT; i++)
		CHECK(ofs_place_launch(list, 1, total, src, dst, stream));
	return (double)bytes / stop() / 1e9;
}

static void compare(const char *name, const struct ofs_gpu_run *r,
    uint64_t total)
{
	uint64_t nsrc = extent(r->n, (uint64_t)r->src_pitch, r->len);
	uint64_t ndst = extent(r->n, (uint64_t)r->dst_pitch, r->len);
	uint8_t *from = memory(nsrc), *want = memory(ndst), *got = memory(ndst);

	for (uint64_t i = 0; i < nsrc; i++)
		from[i] = (uint8_t)(i * UINT64_C(0x9e3779b97f4a7c15) >> 56);
	CHECK(cudaMemcpy(src, from, nsrc, cudaMemcpyHostToDevice));
	CHECK(cudaMemset(dst, 0, ndst));
	CHECK(cudaMemcpy(list, r, sizeof(*r), cudaMemcpyHostToDevice));
	CHECK(ofs_place_launch(list, 1, total, src, dst, stream));
	CHECK(cudaStreamSynchronize(stream));
	CHECK(cudaMemcpy(got, dst, ndst, cudaMemcpyDeviceToHost));
	ofs_place_thread(r, 1, total, 0, 1, from, want);
	if (memcmp(want, got, ndst) != 0) {
		fprintf(stderr, "gpubench: %s: the kernel writes other bytes\n",
		    name);
		exit(1);
	}
	free(from);
	free(want);
	free(got);
}

static void try(const struct shape *s, uint64_t smaller, unsigned samples)
{
	struct ofs_gpu_run r = { .len = s->len,
		.n = s->n,
		.src_pitch = (int64_t)s->src_pitch,
		.dst_pitch = (int64_t)s->dst_pitch };
	uint64_t bytes, total;

	if (r.n == 1)
		r.len /= smaller;
	else
		r.n /= smaller;
	bytes = r.len * r.n;
	total = ofs_place_number(&r, 1);
	CHECK(cudaMalloc((void **)&src, extent(r.n, s->src_pitch, r.len)));
	CHECK(cudaMalloc((void **)&dst, extent(r.n, s->dst_pitch, r.len)));
	compare(s->name, &r, total);
	for (unsigned i = 0; i < samples; i++) {
		double c = copied(bytes), p = placed(total, bytes);

		printf("%s\t%.4f\t%.4f\n", s->name, c, p);
	}
	CHECK(cudaFree(src));
	CHECK(cudaFree(dst));
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "7";
	bool small = strcmp(what, "check") == 0;
	unsigned samples = small ? 0 : (unsigned)strtoul(what, NULL, 10);
	cudaError_t e;
	int n = 0;

	e = cudaGetDeviceCount(&n);
	if (e != cudaSuccess || n == 0) {
		fprintf(stderr, "no GPU: %s\n",
		    e == cudaSuccess ? "there is none" : cudaGetErrorString(e));
		return 77;
	}
	if (strcmp(what, "count") == 0) {
		printf("%d\n", n);
		return 0;
	}
	CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamDefault));
	CHECK(cudaEventCreateWithFlags(&before, cudaEventDefault));
	CHECK(cudaEventCreateWithFlags(&after, cudaEventDefault));
	CHECK(cudaMalloc((void **)&list, sizeof(*list)));
	for (size_t i = 0; i < sizeof(shapes) / sizeof(*shapes); i++)
		try(&shapes[i], small ? SMALLER : 1, samples);
	return 0;
}
