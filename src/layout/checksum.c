/* checksum.c - checksums of a file, as its bytes pass */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "layout/checksum.h"

#include <stdlib.h>

#include "base/crc.h"
#include "base/memory.h"

/* Size of a read for a checksum whose bytes were not read before. */
#define CHECK_STEP (1u << 20)

static int compute(struct ofs_sums *sums, uint64_t from, uint64_t n,
    uint32_t *crc, ofs_checksum_read_fn *read, void *ctx,
    struct optimfs_error *err)
{
	uint8_t *buf = malloc(CHECK_STEP);
	uint64_t k;
	int ret = 0;

	if (buf == NULL)
		return ofs_no_memory(err);
	*crc = 0;
	for (uint64_t at = 0; at < n && ret == 0; at += k) {
		k = n - at < CHECK_STEP ? n - at : CHECK_STEP;
		ret = read(ctx, buf, k, from + at, err);
		if (ret == 0)
			*crc = ofs_crc32(*crc, buf, k);
	}
	free(buf);
	if (ret == 0)
		ofs_sums_add(sums, &(struct ofs_sum){ from, from, n, *crc });
	return ret;
}

int ofs_checksum_put(struct ofs_sums *sums, const struct ofs_piece *p,
    unsigned lo, unsigned hi, uint8_t *out, ofs_checksum_read_fn *read,
    void *ctx, struct optimfs_error *err)
{
	uint32_t crc = 0;
	int found;

	found = ofs_sums_get(sums, p->crc.from, p->crc.n, &crc, err);
	if (found == -1)
		return -1;
	if (found == 0 &&
	    compute(sums, p->crc.from, p->crc.n, &crc, read, ctx, err) == -1)
		return -1;
	for (unsigned i = lo; i < hi; i++)
		out[i - lo] = (uint8_t)(crc >> 8 * i);
	return 0;
}

void ofs_checksum_pass(struct ofs_sums *sums, const struct ofs_piece *p,
    const uint8_t *buf, uint64_t off, uint64_t len)
{
	uint64_t from = p->crc.from, end = from + p->crc.n;
	uint64_t lo = from > off ? from : off;
	uint64_t hi = end < off + len ? end : off + len;
	struct ofs_sum sum = { from, lo, hi - lo, 0 };

	if (lo >= hi)
		return;
	sum.crc = ofs_crc32(0, buf + (lo - off), hi - lo);
	ofs_sums_add(sums, &sum);
}
