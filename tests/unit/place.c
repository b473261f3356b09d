/* place.c - copies by the GPU kernel's arithmetic, compared with plain
 * copies */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "cluster/gpu/place.h"

#include <inttypes.h>

#include "cluster/gpu/cut.h"
#include "random.h"
#include "store/runs.h"
#include "tap.h"

#define SIZE     65536
#define MAX_RUNS 40

static _Alignas(16) uint8_t source[SIZE], want[SIZE], got[SIZE];
static uint64_t state = 88172645463325252u;

static uint64_t rnd(uint64_t n)
{
	return tap_below(&state, n);
}

/* Random runs with increasing destinations, all multiples of grain. Some are
 * empty. */
static uint32_t make(struct ofs_gpu_run *run, uint64_t grain)
{
	uint32_t n = (uint32_t)rnd(MAX_RUNS) + 1, made = 0;
	uint64_t dst = rnd(4) * grain;

	for (uint32_t i = 0; i < n; i++) {
		struct ofs_gpu_run r = { .len = rnd(9) * grain, .n = rnd(9) };
		uint64_t gap = rnd(3) * grain, sgap = rnd(5) * grain;

		r.dst_pitch = (int64_t)(r.len + gap);
		r.src_pitch = (int64_t)(r.len + sgap);
		r.dst = dst;
		if (rnd(8) == 0) /* the source backwards */
			r.src_pitch = -r.src_pitch;
		r.src = SIZE / 2 + rnd(SIZE / 8 / grain) * grain;
		if (dst + r.n * (r.len + gap) + r.len > SIZE)
			break;
		dst += r.n * (r.len + gap) + rnd(3) * grain;
		run[made++] = r;
	}
	return made;
}

static void copy(const struct ofs_gpu_run *run, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		ofs_copy_runs(want + run[i].dst, run[i].dst_pitch,
		    source + run[i].src, run[i].src_pitch, run[i].len,
		    run[i].n);
}

static void place(struct ofs_gpu_run *run, uint32_t n, uint64_t threads)
{
	uint64_t total = ofs_place_number(run, n);

	for (uint64_t t = 0; t < threads; t++)
		ofs_place_thread(run, n, total, t, threads, source, got);
}

static void property(uint64_t grain)
{
	struct ofs_gpu_run run[MAX_RUNS];
	unsigned wrong = 0, tried = 0;

	for (unsigned i = 0; i < 2000; i++) {
		uint32_t n = make(run, grain);

		memset(want, 0xee, SIZE);
		memset(got, 0xee, SIZE);
		copy(run, n);
		place(run, n, rnd(300) + 1);
		wrong += memcmp(want, got, SIZE) != 0;
		tried += n > 1;
	}
	ok(wrong == 0 && tried > 1000,
	    "the kernel copies random runs in units of %" PRIu64
	    " bytes" PRIu64,
	    grain);
}

static void widths(void)
{
	static const struct {
		struct ofs_gpu_run run;
		uint32_t width;
	} cases[] = {
		{ { .src = 32, .dst = 16, .len = 4096, .n = 1 }, 16 },
		{ { .src = 8, .dst = 16, .len = 4096, .n = 1 }, 8 },
		{ { .src = 32, .dst = 4, .len = 4096, .n = 1 }, 4 },
		{ { .src = 32, .dst = 16, .len = 6, .n = 1 }, 2 },
		{ { .src = 33, .dst = 16, .len = 16, .n = 1 }, 1 },
		{ { .len = 16, .n = 1, .src_pitch = 3 }, 16 },
		{ { .len = 16, .n = 2, .src_pitch = 24, .dst_pitch = 16 }, 8 },
		{ { .len = 16, .n = 2, .src_pitch = -16, .dst_pitch = 16 },
		    16 },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		ok(ofs_place_width(&cases[i].run) == cases[i].width,
		    "case %zu: units are %" PRIu32 " bytes wide" PRIu32, i,
		    cases[i].width);
}

/* The cuts of all cells together are the bytes of the runs. */
static void cuts(void)
{
	unsigned wrong = 0;

	for (unsigned i = 0; i < 2000; i++) {
		uint64_t base = rnd(1000), len = rnd(300) + 1, n = rnd(20) + 1,
			 pitch = len + rnd(3) * rnd(200), cell = rnd(400) + 1;
		struct ofs_cut cut[OFS_MAX_CUTS];

		memset(got, 0, SIZE);
		memset(want, 0, SIZE);
		for (uint64_t r = 0; r < n; r++)
			memset(want + base + r * pitch, 1, len);
		for (uint64_t lo = 0; lo < SIZE; lo += cell) {
			unsigned m =
			    ofs_cut(base, pitch, len, n, lo, lo + cell, cut);

			for (unsigned k = 0; k < m; k++)
				for (uint64_t r = 0; r < cut[k].n; r++)
					for (uint64_t b = 0; b < cut[k].len;
					     b++) {
						uint64_t at = base +
						    (cut[k].first + r) * pitch +
						    cut[k].skip + b;

						got[at]++;
						wrong +=
						    at < lo || at >= lo + cell;
					}
		}
		wrong += memcmp(want, got, SIZE) != 0;
	}
	ok(wrong == 0, "runs cut into cells cover the same bytes");
}

int main(void)
{
	for (size_t i = 0; i < SIZE; i++)
		source[i] = (uint8_t)rnd(256);
	widths();
	property(1);
	property(2);
	property(4);
	property(8);
	property(16);
	cuts();
	return done_testing();
}
