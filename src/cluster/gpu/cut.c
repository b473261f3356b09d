/* cut.c - intersect equal runs with a range */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "cluster/gpu/cut.h"

/* Cuts run i, which lies partly in the range. */
static unsigned part(uint64_t i, uint64_t at, uint64_t len, uint64_t lo,
    uint64_t hi, struct ofs_cut *cut)
{
	uint64_t a = at > lo ? at : lo, b = at + len < hi ? at + len : hi;

	if (a >= b)
		return 0;
	*cut = (struct ofs_cut){ i, 1, a - at, b - a };
	return 1;
}

unsigned ofs_cut(uint64_t base, uint64_t pitch, uint64_t len, uint64_t n,
    uint64_t lo, uint64_t hi, struct ofs_cut cut[OFS_MAX_CUTS])
{
	uint64_t i = 0, whole;
	unsigned m = 0;

	if (n == 1)
		return part(0, base, len, lo, hi, cut);
	if (base < lo) { /* the last one that begins before */
		i = (lo - base - 1) / pitch;
		i = i < n ? i : n - 1;
		m += part(i, base + i * pitch, len, lo, hi, cut);
		i++;
	}
	if (i == n || base + i * pitch >= hi)
		return m;
	if (base + i * pitch + len <= hi) {
		whole = (hi - len - base - i * pitch) / pitch + 1;
		whole = whole < n - i ? whole : n - i;
		cut[m++] = (struct ofs_cut){ i, whole, 0, len };
		i += whole;
	}
	if (i < n)
		m += part(i, base + i * pitch, len, lo, hi, &cut[m]);
	return m;
}
