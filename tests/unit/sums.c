/* sums.c - checksums of boxes, combined from parts by several threads */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "plan/sums.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include <zlib.h>

#include "random.h"
#include "tap.h"

#define SIZE   65536u
#define PART   1000u
#define NPARTS ((SIZE + PART - 1) / PART)

static uint8_t bytes[SIZE];

static struct ofs_sum part(unsigned i, uint64_t box)
{
	unsigned at = i * PART, n = at + PART < SIZE ? PART : SIZE - at;

	return (struct ofs_sum){ box, box + at, n,
		(uint32_t)crc32_z(0, bytes + at, n) };
}

static uint32_t whole(void)
{
	return (uint32_t)crc32_z(0, bytes, SIZE);
}

static void count(void *ctx, const struct ofs_sum *sum)
{
	*(uint64_t *)ctx += sum->len;
}

/* Parts in random order, each added twice. */
static void any_order(void)
{
	size_t wrong = 0, kept = 0;

	for (unsigned round = 0; round < 200; round++) {
		unsigned order[NPARTS];
		uint64_t told = 0;
		struct ofs_sums s;
		uint32_t crc = 0;

		ofs_sums_init(&s);
		s.added = count;
		s.ctx = &told;
		ofs_sums_promise(&s, 7, 7 + SIZE, NULL);
		for (unsigned i = 0; i < NPARTS; i++)
			order[i] = i;
		for (unsigned i = NPARTS; i-- > 1;) {
			unsigned k = (unsigned)random() % (i + 1), t = order[i];

			order[i] = order[k];
			order[k] = t;
		}
		for (unsigned i = 0; i < NPARTS; i++) {
			struct ofs_sum sum = part(order[i], 7);

			ofs_sums_add(&s, &sum);
			ofs_sums_add(&s, &sum);
		}
		ofs_sums_release(&s, 7);
		if (ofs_sums_get(&s, 7, SIZE, &crc, NULL) != 1 ||
		    crc != whole() || told != SIZE)
			wrong++;
		kept += s.n;
		ofs_sums_fini(&s);
	}
	is_u64(wrong, 0, "parts in any order give the checksum of the whole");
	is_u64(kept, 200, "parts of one box are combined into one sum");
}

/* Adjacent boxes stay separate. Sums that nobody promised are kept only in
 * order. */
static void what_is_kept(void)
{
	struct ofs_sum a = part(0, 0), b = part(0, PART), c = part(5, 9999999);
	struct ofs_sums s;
	uint32_t crc;

	ofs_sums_init(&s);
	ofs_sums_add(&s, &a);
	ofs_sums_add(&s, &b);
	is_u64(s.n, 2, "adjacent boxes have separate sums");
	ok(ofs_sums_get(&s, 0, PART, &crc, NULL) == 1 && crc == a.crc,
	    "the first of adjacent boxes has its sum");
	ok(ofs_sums_get(&s, PART, PART, &crc, NULL) == 1 && crc == b.crc,
	    "the second of adjacent boxes has its sum");
	ok(ofs_sums_get(&s, 0, 2 * PART, &crc, NULL) == 0,
	    "adjacent boxes have no common sum");
	ofs_sums_add(&s, &c);
	is_u64(s.n, 2, "an unpromised sum that continues nothing is dropped");
	for (unsigned i = 1; i < NPARTS; i++) {
		struct ofs_sum sum = part(i, PART);

		ofs_sums_add(&s, &sum);
	}
	ok(ofs_sums_get(&s, PART, SIZE, &crc, NULL) == 1 && crc == whole(),
	    "unpromised sums in order are combined");
	ofs_sums_fini(&s);
}

/* Three readers add every third part each. The main thread asks for the
 * whole. */
struct reader {
	struct ofs_sums *s;
	unsigned first;
};

static void *read_parts(void *ctx)
{
	const struct timespec pause = { .tv_nsec = 100000 };
	struct reader *r = ctx;

	for (unsigned i = r->first; i < NPARTS; i += 3) {
		struct ofs_sum sum = part(i, 0);

		nanosleep(&pause, NULL);
		ofs_sums_add(r->s, &sum);
	}
	ofs_sums_release(r->s, r->first);
	return NULL;
}

static void waiting(void)
{
	struct reader r[3];
	pthread_t thread[3];
	struct ofs_sums s;
	uint32_t crc = 0;

	ofs_sums_init(&s);
	for (unsigned i = 0; i < 3; i++) {
		r[i] = (struct reader){ &s, i };
		ofs_sums_promise(&s, i, SIZE, NULL);
	}
	for (unsigned i = 0; i < 3; i++)
		if (pthread_create(&thread[i], NULL, read_parts, &r[i]) != 0)
			bail_out("no thread");
	ok(ofs_sums_get(&s, 0, SIZE, &crc, NULL) == 1 && crc == whole(),
	    "a promised sum is awaited");
	for (unsigned i = 0; i < 3; i++)
		pthread_join(thread[i], NULL);
	ofs_sums_fini(&s);
}

static void *give_up(void *ctx)
{
	const struct timespec pause = { .tv_nsec = 10000000 };

	nanosleep(&pause, NULL);
	ofs_sums_release(ctx, 5);
	return NULL;
}

static void broken_promise(void)
{
	pthread_t thread;
	struct ofs_sums s;
	uint32_t crc;

	ofs_sums_init(&s);
	ofs_sums_promise(&s, 5, 100, NULL);
	if (pthread_create(&thread, NULL, give_up, &s) != 0)
		bail_out("no thread");
	ok(ofs_sums_get(&s, 0, 50, &crc, NULL) == 0,
	    "a released promise ends the wait without a sum");
	pthread_join(thread, NULL);
	ofs_sums_promise(&s, 0, 100, NULL);
	ofs_sums_cancel(&s);
	is_int(ofs_sums_get(&s, 0, 50, &crc, NULL), -1,
	    "cancelling ends the wait with an error");
	s.cancelled = false;
	ofs_sums_release(&s, 0);
	ofs_sums_promise(&s, 50, 100, NULL);
	ok(ofs_sums_get(&s, 0, 50, &crc, NULL) == 0,
	    "a promise of other bytes is not awaited");
	ofs_sums_fini(&s);
}

/* Sums of bytes that are read in any order, for a file that is read once. */

#define FILE_SIZE (256u << 10)

static uint64_t state = 88172645463325252u;
static uint8_t file[FILE_SIZE];

static void writing(struct ofs_sums *s)
{
	ofs_sums_init(s);
	s->most = 4096;
}

static void put(struct ofs_sums *s, uint64_t off, uint64_t len)
{
	struct ofs_sum sum = { .from = off, .len = len };

	for (uint64_t i = off; i < off + len; i++)
		file[i] = (uint8_t)tap_below(&state, 256);
	sum.crc = (uint32_t)crc32_z(0, file + off, len);
	ofs_sums_add(s, &sum);
}

static bool knows(struct ofs_sums *s, uint64_t off, uint64_t len)
{
	uint32_t crc;

	return ofs_sums_get(s, off, len, &crc, NULL) == 1 &&
	    crc == (uint32_t)crc32_z(0, file + off, len);
}

static void writes_in_order(void)
{
	struct ofs_sums s;
	uint32_t crc;

	writing(&s);
	for (uint64_t off = 4096; off < 65536; off += 8192)
		put(&s, off, off + 8192 < 65536 ? 8192 : 65536 - off);
	ok(knows(&s, 4096, 61440),
	    "writes in order are combined into one range");
	ok(ofs_sums_get(&s, 4096, 61439, &crc, NULL) == 0 &&
		ofs_sums_get(&s, 4097, 61439, &crc, NULL) == 0,
	    "ranges with other bounds have no checksum");
	put(&s, 65536, 10);
	ok(knows(&s, 4096, 61450), "a short write extends the range before it");
	put(&s, 100000, 10);
	ok(ofs_sums_get(&s, 100000, 10, &crc, NULL) == 0,
	    "a short write alone is not kept");
	ofs_sums_fini(&s);
}

/* From the end to the start, and in random order. */
static void writes_out_of_order(void)
{
	struct ofs_sums s;
	unsigned order[64], n = 64;

	writing(&s);
	for (uint64_t off = FILE_SIZE; off > 0; off -= 4096)
		put(&s, off - 4096, 4096);
	ok(knows(&s, 0, FILE_SIZE),
	    "writes in reverse order are combined into one range");
	for (unsigned i = 0; i < n; i++)
		order[i] = i;
	for (unsigned i = n; i > 1; i--) {
		unsigned k = (unsigned)tap_below(&state, i), t = order[k];

		order[k] = order[i - 1];
		order[i - 1] = t;
	}
	ofs_sums_fini(&s);
	writing(&s);
	for (unsigned i = 0; i < n; i++)
		put(&s, order[i] * 4096, 4096);
	ok(knows(&s, 0, FILE_SIZE),
	    "writes in random order are combined into one range");
	ofs_sums_fini(&s);
}

int main(void)
{
	for (unsigned i = 0; i < SIZE; i++)
		bytes[i] = (uint8_t)(i * 7 + (i >> 8));
	any_order();
	what_is_kept();
	waiting();
	broken_promise();
	writes_in_order();
	writes_out_of_order();
	return done_testing();
}
