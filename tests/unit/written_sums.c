/* written_sums.c - checksums of a file's ranges, combined from those of its
 * writes */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "push/written_sums.h"

#include <string.h>

#include "base/crc.h"
#include "random.h"
#include "tap.h"

#define SIZE (256u << 10)

static uint64_t state = 88172645463325252u;
static uint8_t file[SIZE];

static void put(struct ofs_written_sums *s, uint64_t off, uint64_t len)
{
	ofs_written_sums_forget(s, 1, off, len);
	for (uint64_t i = off; i < off + len; i++)
		file[i] = (uint8_t)tap_below(&state, 256);
	ofs_written_sums_add(s, 1, off, len, ofs_crc32(0, file + off, len));
}

static bool knows(struct ofs_written_sums *s, uint64_t off, uint64_t len)
{
	uint32_t crc;

	return ofs_written_sums_get(s, 1, off, len, &crc) &&
	    crc == ofs_crc32(0, file + off, len);
}

static void in_order(void)
{
	struct ofs_written_sums *s = ofs_written_sums_new(2, NULL);
	uint32_t crc;

	for (uint64_t off = 4096; off < 65536; off += 8192)
		put(s, off, off + 8192 < 65536 ? 8192 : 65536 - off);
	ok(knows(s, 4096, 61440),
	    "writes in order are combined into one range");
	ok(!ofs_written_sums_get(s, 1, 4096, 61439, &crc) &&
		!ofs_written_sums_get(s, 1, 4097, 61439, &crc) &&
		!ofs_written_sums_get(s, 0, 4096, 61440, &crc),
	    "ranges with other bounds, or of other files, have no checksum");
	put(s, 65536, 10);
	ok(knows(s, 4096, 61450), "a short write extends the range before it");
	put(s, 100000, 10);
	ok(!ofs_written_sums_get(s, 1, 100000, 10, &crc),
	    "a short write alone is not kept");
	put(s, 20000, 5000);
	ok(!ofs_written_sums_get(s, 1, 4096, 61450, &crc) &&
		knows(s, 20000, 5000),
	    "a write into a range removes the range and is kept itself");
	ofs_written_sums_free(s);
}

/* From the end to the start, and in random order. */
static void out_of_order(void)
{
	struct ofs_written_sums *s = ofs_written_sums_new(2, NULL);
	unsigned order[64], n = 64, wrong = 0;

	for (uint64_t off = SIZE; off > 0; off -= 4096)
		put(s, off - 4096, 4096);
	ok(knows(s, 0, SIZE),
	    "writes in reverse order are combined into one range");
	for (unsigned i = 0; i < n; i++)
		order[i] = i;
	for (unsigned i = n; i > 1; i--) {
		unsigned k = (unsigned)tap_below(&state, i), t = order[k];

		order[k] = order[i - 1];
		order[i - 1] = t;
	}
	ofs_written_sums_forget(s, 1, 0, SIZE);
	for (unsigned i = 0; i < n; i++)
		put(s, order[i] * 4096, 4096);
	ok(knows(s, 0, SIZE),
	    "writes in random order are combined into one range");
	for (unsigned i = 0; i < 2000; i++) {
		uint64_t off = tap_below(&state, SIZE);
		uint64_t len = 1 + tap_below(&state, SIZE - off);
		uint32_t crc;

		put(s, off, len);
		off = tap_below(&state, SIZE);
		len = 1 + tap_below(&state, SIZE - off);
		if (ofs_written_sums_get(s, 1, off, len, &crc))
			wrong += crc != ofs_crc32(0, file + off, len);
	}
	ok(wrong == 0, "no checksum is of other bytes than asked for");
	ofs_written_sums_free(s);
}

int main(void)
{
	in_order();
	out_of_order();
	return done_testing();
}
