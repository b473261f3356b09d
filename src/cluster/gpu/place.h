/* place.h - runs from where they were gathered to where they belong */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_CLUSTER_GPU_PLACE_H
#define OFS_CLUSTER_GPU_PLACE_H

#include <stdint.h>
#include <string.h>

/* Arithmetic of the kernel in place.cu, which is the same on both sides, so
 * that tests run it where there is no GPU. A list of runs is divided into
 * units, the widest that are aligned throughout a run; each thread finds the
 * run its unit belongs to by binary search and copies it. */
#ifdef __CUDACC__
# define OFS_ON_GPU __host__ __device__
#else
# define OFS_ON_GPU
#endif

/* n runs of len bytes: run i from src + i * src_pitch of what was gathered to
 * dst + i * dst_pitch of what is wanted. No two overlap in the destination. */
struct ofs_gpu_run {
	uint64_t src, dst, len, n;
	int64_t src_pitch, dst_pitch;
	/* for the kernel: ofs_place_number */
	uint64_t first; /* units in the runs before this one */
	uint64_t units; /* of one run */
	uint32_t unit;  /* bytes of one */
	uint32_t unused;
};

#define OFS_UNIT_MAX 16

static inline uint32_t ofs_place_width(const struct ofs_gpu_run *r)
{
	uint64_t bits = r->src | r->dst | r->len | OFS_UNIT_MAX;

	if (r->n > 1)
		bits |= (uint64_t)r->src_pitch | (uint64_t)r->dst_pitch;
	return (uint32_t)(bits & (~bits + 1));
}

/* Fill in what the kernel needs; how many units there are. */
static inline uint64_t ofs_place_number(struct ofs_gpu_run *run, uint64_t n)
{
	uint64_t total = 0;

	for (uint64_t i = 0; i < n; i++) {
		run[i].unit = ofs_place_width(&run[i]);
		run[i].units = run[i].len / run[i].unit;
		run[i].first = total;
		total += run[i].units * run[i].n;
	}
	return total;
}

/* Which of n runs unit t belongs to: the last that begins at or before it, as
 * runs without bytes share their number with the next. */
static inline OFS_ON_GPU uint64_t ofs_place_find(const struct ofs_gpu_run *run,
    uint64_t n, uint64_t t)
{
	uint64_t a = 0, b = n;

	while (b - a > 1) {
		uint64_t mid = a + (b - a) / 2;

		if (run[mid].first <= t)
			a = mid;
		else
			b = mid;
	}
	return a;
}

/* Copy unit t of a run; src and dst are aligned to OFS_UNIT_MAX. */
static inline OFS_ON_GPU void ofs_place_unit(const struct ofs_gpu_run *r,
    uint64_t t, const uint8_t *src, uint8_t *dst)
{
	uint64_t at = t - r->first, run = 0;

	/* Most runs are long, or there is one: no division then. */
	if (at >= r->units) {
		run = (at | r->units) >> 32 == 0
		    ? (uint32_t)at / (uint32_t)r->units
		    : at / r->units;
		at -= run * r->units;
	}
	src += r->src + run * (uint64_t)r->src_pitch + at * r->unit;
	dst += r->dst + run * (uint64_t)r->dst_pitch + at * r->unit;
	switch (r->unit) {
	case 16:
#ifdef __CUDA_ARCH__
		*(ulonglong2 *)dst = *(const ulonglong2 *)src;
#else
		memcpy(dst, src, 16);
#endif
		break;
	case 8:
		*(uint64_t *)dst = *(const uint64_t *)src;
		break;
	case 4:
		*(uint32_t *)dst = *(const uint32_t *)src;
		break;
	case 2:
		*(uint16_t *)dst = *(const uint16_t *)src;
		break;
	default:
		*dst = *src;
		break;
	}
}

/* What the kernel does, thread by thread: threads of them stand for all. A
 * thread's units are threads apart, mostly of one run. */
static inline OFS_ON_GPU void ofs_place_thread(const struct ofs_gpu_run *run,
    uint64_t n, uint64_t total, uint64_t thread, uint64_t threads,
    const uint8_t *src, uint8_t *dst)
{
	uint64_t i, end;

	if (thread >= total)
		return;
	i = ofs_place_find(run, n, thread);
	end = i + 1 < n ? run[i + 1].first : total;
	for (uint64_t t = thread; t < total; t += threads) {
		if (t >= end) {
			i += ofs_place_find(run + i, n - i, t);
			end = i + 1 < n ? run[i + 1].first : total;
		}
		ofs_place_unit(&run[i], t, src, dst);
	}
}

#endif
