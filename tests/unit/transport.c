/* transport.c - reading segments of local files: correct bytes, few reads,
 * errors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "handmade.h"
#include "random.h"
#include "store/badspots.h"
#include "tap.h"

#define NO_PAGE UINT64_MAX

/* Replaces the library's system calls, to make reads fail. */
static struct {
	bool choppy; /* reads are interrupted or short at random */
	_Atomic uint64_t calls;
	uint64_t bad;         /* offset of an unreadable page */
	_Atomic int failures; /* number of attempts to read it */
} disk = { .bad = NO_PAGE };

static bool touches_bad_page(uint64_t off, const struct iovec *iov, int n)
{
	uint64_t end = off;

	for (int i = 0; i < n; i++)
		end += iov[i].iov_len;
	return disk.bad != NO_PAGE && off < disk.bad + 4096 && disk.bad < end;
}

static ssize_t disk_read(int fd, const struct iovec *iov, int n, off_t off)
{
	uint64_t call = ++disk.calls;
	struct iovec part = *iov;

	if (disk.choppy && call % 5 == 0) {
		errno = EINTR;
		return -1;
	}
	if (disk.choppy && call % 3 == 0 && part.iov_len > 1) {
		part.iov_len = 1 + call * 7919 % (part.iov_len - 1);
		n = 1;
		iov = &part;
	}
	if (touches_bad_page((uint64_t)off, iov, n)) {
		if ((uint64_t)off >= disk.bad) {
			disk.failures++;
			errno = EIO;
			return -1;
		}
		if (part.iov_len > disk.bad - (uint64_t)off)
			part.iov_len = disk.bad - (uint64_t)off;
		n = 1;
		iov = &part;
	}
	return syscall(SYS_preadv, fd, iov, n, (long)off, 0L);
}

ssize_t pread(int fd, void *buf, size_t n, off_t off)
{
	struct iovec iov = { buf, n };

	return disk_read(fd, &iov, 1, off);
}

ssize_t preadv(int fd, const struct iovec *iov, int n, off_t off)
{
	return disk_read(fd, iov, n, off);
}

#define FILES 3
#define SIZE  ((size_t)3 << 20)

static uint8_t content[FILES][SIZE];

static void make_files(struct handmade *h)
{
	char name[16];

	handmade_init(h);
	for (unsigned i = 0; i < FILES; i++) {
		handmade_fill(content[i], SIZE, i);
		snprintf(name, sizeof(name), "%u.bin", i);
		handmade_file(h, name, content[i], SIZE);
	}
}

static void copy_naively(const struct ofs_segment *seg, size_t n, uint8_t *dst)
{
	for (size_t s = 0; s < n; s++)
		for (uint64_t i = 0; i < seg[s].n; i++)
			memcpy(dst + seg[s].dst + i * seg[s].dst_pitch,
			    content[seg[s].object] + seg[s].src +
				i * seg[s].src_pitch,
			    seg[s].len);
}

static uint64_t below(uint64_t *state, uint64_t n)
{
	return tap_random(state) % n;
}

/* Fills *seg with a random segment from dst on that fits into room bytes.
 * Returns its end in the destination. */
static uint64_t random_segment(uint64_t *state, struct ofs_segment *seg,
    uint64_t dst, uint64_t room)
{
	static const uint64_t lens[] = { 1, 2, 4, 8, 16, 32, 64, 100, 1000,
		4095, 4096, 5000, 20000, 70000 };
	static const uint64_t gaps[] = { 0, 0, 1, 60, 1000, 4096, 4097, 30000 };
	uint64_t reach, pitch;

	*seg = (struct ofs_segment){ .object = (uint32_t)below(state, FILES) };
	seg->len = lens[below(state, sizeof(lens) / sizeof(lens[0]))];
	seg->n = 1 + below(state, below(state, 2) ? 3 : 400);
	pitch = seg->len + gaps[below(state, 8)];
	if (below(state, 8) == 0)
		pitch = below(state, seg->len + 1); /* overlapping runs */
	seg->dst_pitch =
	    (int64_t)(seg->len + below(state, 2) * gaps[below(state, 5)]);
	while (seg->n > 1 &&
	    ((seg->n - 1) * pitch + seg->len > SIZE ||
		(seg->n - 1) * (uint64_t)seg->dst_pitch + seg->len > room))
		seg->n /= 2;
	if (seg->len > room)
		seg->len = room;
	reach = (seg->n - 1) * pitch;
	seg->src = below(state, SIZE - reach - seg->len + 1);
	seg->src_pitch = (int64_t)pitch;
	seg->dst = dst;
	dst += (seg->n - 1) * (uint64_t)seg->dst_pitch + seg->len;
	if (below(state, 4) == 0) { /* backwards */
		seg->src += reach;
		seg->src_pitch = -seg->src_pitch;
	}
	return dst;
}

/* Fetches random plans and compares all of the buffer with plain copies. */
static bool random_plans(struct ofs_transport *t, uint64_t seed, int rounds)
{
	enum { ROOM = 1 << 20, SEGS = 24 };
	uint8_t *got = malloc(ROOM), *want = malloc(ROOM);
	struct ofs_segment seg[SEGS];
	struct optimfs_error err;
	bool good = true;

	for (int round = 0; round < rounds && good; round++) {
		uint64_t dst = 0;
		size_t n = 0, want_n = 1 + below(&seed, SEGS);

		while (n < want_n && dst < ROOM)
			dst = random_segment(&seed, &seg[n++], dst, ROOM - dst);
		memset(got, 0x5a, ROOM);
		memset(want, 0x5a, ROOM);
		copy_naively(seg, n, want);
		good = ofs_transport_fetch(t, seg, n, got, &err) == 0 &&
		    memcmp(got, want, ROOM) == 0;
		if (!good)
			diag("round %d: %s", round, err.text);
	}
	free(got);
	free(want);
	return good;
}

/* A transposed matrix: runs of one element, with interleaved rows. */
static bool transposed(struct ofs_transport *t, uint64_t rows, uint64_t cols,
    uint64_t size)
{
	struct ofs_segment *seg = calloc(rows, sizeof(*seg));
	uint8_t *got = malloc(rows * cols * size);
	uint8_t *want = malloc(rows * cols * size);
	bool good;

	for (uint64_t r = 0; r < rows; r++)
		seg[r] = (struct ofs_segment){ .src = 64 + r * size,
			.dst = r * cols * size,
			.len = size,
			.n = cols,
			.src_pitch = (int64_t)(rows * size),
			.dst_pitch = (int64_t)size };
	copy_naively(seg, rows, want);
	good = ofs_transport_fetch(t, seg, rows, got, NULL) == 0 &&
	    memcmp(got, want, rows * cols * size) == 0;
	free(seg);
	free(got);
	free(want);
	return good;
}

static void right_bytes(void)
{
	struct handmade h;
	struct ofs_transport *t;

	make_files(&h);
	t = handmade_transport(&h, 0);
	ok(random_plans(t, 1, 400), "random plans give the bytes");
	disk.choppy = true;
	ok(random_plans(t, 2, 100),
	    "random plans give the bytes with short and interrupted reads");
	disk.choppy = false;
	ok(transposed(t, 700, 500, 8), "a transposed matrix gives the bytes");
	ok(transposed(t, 3, 300000, 2),
	    "a transposed narrow matrix gives the bytes");
	ok(transposed(t, 100000, 5, 4),
	    "a transposed wide matrix gives the bytes");
	ofs_transport_close(t);
	handmade_fini(&h);
}

static uint64_t reads_of(struct ofs_transport *t, const struct ofs_segment *seg,
    size_t n)
{
	uint64_t before = t->counters.reads;
	uint8_t *got = calloc(1, SIZE), *want = calloc(1, SIZE);

	copy_naively(seg, n, want);
	if (ofs_transport_fetch(t, seg, n, got, NULL) == -1 ||
	    memcmp(got, want, SIZE) != 0)
		before = UINT64_MAX / 2;
	free(got);
	free(want);
	return t->counters.reads - before;
}

static void few_reads(void)
{
	struct ofs_segment seg[4] = { 0 };
	struct ofs_transport *t;
	struct handmade h;

	make_files(&h);
	t = handmade_transport(&h, 0);
	seg[0] = (struct ofs_segment){ .src = 64, .len = SIZE - 64, .n = 1 };
	is_u64(reads_of(t, seg, 1), 1, "a contiguous range takes one read");
	for (unsigned i = 0; i < 4; i++)
		seg[i] = (struct ofs_segment){ .src = (3 - i) * 100,
			.dst = (3 - i) * 100,
			.len = 100,
			.n = 1 };
	is_u64(reads_of(t, seg, 4), 1,
	    "four adjacent parts out of order take one read");
	seg[0] = (struct ofs_segment){ .src = 64,
		.len = 512,
		.n = 2048,
		.src_pitch = 512,
		.dst_pitch = 1024 };
	is_u64(reads_of(t, seg, 1), 1,
	    "1 MiB of short rows to be scattered takes one read");
	seg[0] = (struct ofs_segment){ .src = 64,
		.len = 8192,
		.n = 100,
		.src_pitch = 8192,
		.dst_pitch = 16384 };
	is_u64(reads_of(t, seg, 1), 1, "long rows take one preadv");
	seg[0] = (struct ofs_segment){ .src = 64,
		.len = 512,
		.n = 1024,
		.src_pitch = 1024,
		.dst_pitch = 512 };
	is_u64(reads_of(t, seg, 1), 1, "rows with small gaps take one read");
	seg[0] = (struct ofs_segment){ .src = 64,
		.len = 4,
		.n = 10,
		.src_pitch = 100000,
		.dst_pitch = 4 };
	is_u64(reads_of(t, seg, 1), 10, "rows far apart take one read each");
	is_u64(t->counters.requests, 6, "requests are counted");
	is_u64(t->counters.bytes,
	    SIZE - 64 + 400 + (2048 + 1024) * 512 + 819200 + 40,
	    "requested bytes are counted");
	ofs_transport_close(t);
	handmade_fini(&h);
}

/* Reads one byte of an object. */
static int touch(struct ofs_transport *t, uint32_t object, uint64_t off,
    uint8_t *byte, struct optimfs_error *err)
{
	struct ofs_extent at = { .object = object, .off = off, .len = 1 };

	return ofs_transport_read(t, &at, 0, 1, byte, err);
}

static void extents(void)
{
	struct ofs_extent at = { .off = 100, .len = 1000 };
	struct optimfs_error err;
	struct ofs_transport *t;
	struct handmade h;
	uint8_t *bytes = NULL, buf[1000];
	uint64_t len = 0;

	make_files(&h);
	t = handmade_transport(&h, 0);
	is_int(ofs_transport_read(t, &at, 10, 990, buf, &err), 0,
	    "a range inside an extent is read");
	is_mem(buf, content[0] + 110, 990,
	    "a range inside an extent has its bytes");
	is_int(ofs_transport_read(t, &at, 10, 991, buf, &err), -1,
	    "a range past the end of an extent is refused");
	is_error(err, EIO, "OFS603 ",
	    "a range past the end of an extent: error text");
	is_int(ofs_transport_read(t, &at, UINT64_MAX, 2, buf, &err), -1,
	    "a range whose end wraps is refused");
	is_int(ofs_transport_length(t, &at, &len, &err), 0,
	    "the length of an extent is known");
	is_u64(len, 1000, "the length of an extent is that of the index");
	is_int(ofs_transport_read_all(t, &at, 999, &bytes, &len, &err), -1,
	    "an extent longer than the maximum is refused");
	is_error(err, E2BIG, "OFS710 ",
	    "an extent longer than the maximum: error text");
	is_int(ofs_transport_read_all(t, &at, 1000, &bytes, &len, &err), 0,
	    "a whole extent is read");
	is_mem(bytes, content[0] + 100, 1000, "a whole extent has its bytes");
	free(bytes);
	at.len = SIZE;
	is_int(ofs_transport_read_all(t, &at, SIZE, &bytes, &len, &err), -1,
	    "an extent past the end of the file cannot be read");
	is_error(err, EIO, "OFS603 0.bin is short: it ends at byte 3145728",
	    "an extent past the end of the file: error text");
	ofs_transport_close(t);
	handmade_fini(&h);
}

static void absent(void)
{
	struct optimfs_error err;
	struct ofs_transport *t;
	struct handmade h;
	uint32_t never, removed, kept;
	uint8_t byte;

	handmade_init(&h);
	never = handmade_file(&h, "never", NULL, 0);
	removed = handmade_file(&h, "removed", "abc", 3);
	kept = handmade_file(&h, "kept", "abc", 3);
	t = handmade_transport(&h, 0);
	is_int(touch(t, never, 0, &byte, &err), -1,
	    "a missing file cannot be read");
	is_error(err, EIO, "OFS140 never ", "a missing file fails with EIO");
	handmade_replace(&h, "never", "abc", 3);
	is_int(touch(t, never, 0, &byte, &err), -1,
	    "a missing file that appears later cannot be read");
	unlink(handmade_path(&h, "removed"));
	is_int(touch(t, removed, 0, &byte, &err), -1,
	    "a file removed before its first read cannot be read");
	is_error(err, EIO, "OFS754 removed ",
	    "a file removed before its first read fails with EIO");
	is_int(touch(t, kept, 0, &byte, &err), 0,
	    "a file is read before it is removed");
	unlink(handmade_path(&h, "kept"));
	is_int(touch(t, kept, 1, &byte, &err), 0,
	    "a file removed while open can be read");
	is_int(byte, 'b', "a file removed while open has its bytes");
	ofs_transport_close(t);
	handmade_fini(&h);
}

/* A file without read permission. The mode is set before the catalog records
 * the file's state. */
static void forbidden(void)
{
	struct optimfs_error err;
	struct ofs_transport *t;
	struct handmade h;
	uid_t me = geteuid();
	uint32_t secret;
	uint8_t byte;

	handmade_init(&h);
	if (close(open(handmade_path(&h, "secret"), O_CREAT | O_WRONLY, 0)) ==
	    -1)
		bail_out("secret: %s", strerror(errno));
	secret = handmade_file(&h, "secret", NULL, 0);
	t = handmade_transport(&h, 0);
	if (me == 0 && seteuid(65534) == -1)
		bail_out("seteuid: %s", strerror(errno));
	is_int(touch(t, secret, 0, &byte, &err), -1,
	    "a file without read permission cannot be read");
	is_error(err, EACCES, "OFS756 secret",
	    "a file without read permission fails with EACCES");
	if (me == 0 && seteuid(0) == -1)
		bail_out("seteuid: %s", strerror(errno));
	ofs_transport_close(t);
	handmade_fini(&h);
}

static void changed(void)
{
	struct optimfs_error err;
	struct ofs_transport *t;
	struct handmade h;
	uint32_t f[9];
	uint8_t byte;
	char name[32], snapshot[128];

	handmade_init(&h);
	for (int i = 0; i < 9; i++) {
		snprintf(name, sizeof(name), "f%d", i);
		f[i] = handmade_file(&h, name, "abcdef", 6);
	}
	t = handmade_transport(&h, 0);
	for (int i = 0; i < 5; i++)
		if (touch(t, f[i], 0, &byte, &err) == -1)
			bail_out("%s", err.text);
	handmade_replace(&h, "f0", "xyz", 3);
	is_int(touch(t, f[0], 1, &byte, &err), 0,
	    "a file replaced while open can be read");
	is_int(byte, 'b', "a file replaced while open has the old bytes");
	is_int(truncate(handmade_path(&h, "f1"), 2), 0,
	    "truncate a file that is open");
	is_int(touch(t, f[1], 4, &byte, &err), -1,
	    "a truncated file cannot be read past its end");
	is_error(err, ESTALE, "OFS751 f1 was 6 bytes when it was opened, is 2",
	    "a truncated file fails with ESTALE past its end");
	is_int(touch(t, f[1], 0, &byte, &err), -1,
	    "a truncated file cannot be read before its end");
	is_error(err, ESTALE, "OFS751 f1 ",
	    "a truncated file fails with ESTALE before its end");
	handmade_write(&h, "f2", 0, "x", 1);
	is_int(touch(t, f[2], 0, &byte, &err), -1,
	    "a file written in place cannot be read");
	is_error(err, ESTALE, "(6 bytes when opened, 6 now) was written",
	    "a file written in place fails with ESTALE");
	chmod(handmade_path(&h, "f3"), 0600);
	is_int(touch(t, f[3], 2, &byte, &err), 0,
	    "a file whose mode changes while open can be read");
	handmade_write(&h, "f4", 6, "x", 1);
	is_int(touch(t, f[4], 2, &byte, &err), -1,
	    "a file that became longer cannot be read");
	is_error(err, ESTALE, "was 6 bytes when it was opened, is 7",
	    "a file that became longer fails with ESTALE");
	handmade_replace(&h, "f5", "ghijkl", 6);
	is_int(touch(t, f[5], 2, &byte, &err), -1,
	    "a file replaced before its first read cannot be read");
	is_error(err, ESTALE, "was replaced",
	    "a file replaced before its first read fails with ESTALE");
	chmod(handmade_path(&h, "f6"), 0600);
	is_int(touch(t, f[6], 2, &byte, &err), 0,
	    "a file whose mode changes before its first read can be read");
	snprintf(snapshot, sizeof(snapshot), "%s",
	    handmade_path(&h, "f7.link"));
	is_int(link(handmade_path(&h, "f7"), snapshot), 0,
	    "make a hard link to a file");
	is_int(touch(t, f[7], 2, &byte, &err), 0,
	    "a file with a new hard link can be read");
	handmade_write(&h, "f7", 0, "x", 1);
	is_int(touch(t, f[7], 2, &byte, &err), -1,
	    "a file with a hard link, written in place, cannot be read");
	is_error(err, ESTALE, "was written",
	    "a file with a hard link, written in place, fails with ESTALE");
	handmade_write(&h, "f8", 0, "x", 1);
	is_int(touch(t, f[8], 2, &byte, &err), -1,
	    "a file written before its first read cannot be read");
	is_error(err, ESTALE, "was written",
	    "a file written before its first read fails with ESTALE");
	ofs_transport_close(t);
	handmade_fini(&h);
}

static void bad_disk(void)
{
	struct ofs_segment rows = { .object = 1,
		.src = 3996,
		.len = 100,
		.n = 20,
		.src_pitch = 4196,
		.dst_pitch = 100 };
	struct optimfs_error err;
	struct ofs_badspots b;
	struct ofs_transport *t;
	struct handmade h;
	static uint8_t buf[SIZE];
	uint64_t at;

	make_files(&h);
	t = handmade_transport(&h, 0);
	disk.bad = 8192;
	is_int(touch(t, 0, 8192, buf, &err), -1, "a bad sector cannot be read");
	is_error(err, EIO, "OFS755 0.bin cannot be read at offset 8192",
	    "a bad sector fails with EIO");
	is_int(disk.failures, 2, "a bad sector is tried twice");
	is_int(touch(t, 0, 9000, buf, &err), -1,
	    "another byte of a bad page cannot be read");
	is_error(err, EIO, "OFS755 ", "another byte of a bad page: error text");
	is_int(disk.failures, 2,
	    "a known bad page is not tried again for a while");
	is_int(touch(t, 0, 12288, buf, &err), 0,
	    "the page after a bad one can be read");
	is_int(touch(t, 1, 8000, buf, &err), 0,
	    "the same page of another file can be read");
	disk.bad = 4096;
	is_int(ofs_transport_fetch(t, &rows, 1, buf, &err), 0,
	    "short runs with a bad page between them can be read");
	is_mem(buf + 1900, content[1] + 3996 + 19 * 4196, 100,
	    "short runs with a bad page between them have their bytes");
	rows.object = 2;
	rows.src = 0;
	rows.len = 4096;
	rows.src_pitch = 8192;
	rows.dst_pitch = 4096;
	is_int(ofs_transport_fetch(t, &rows, 1, buf, &err), 0,
	    "long runs with a bad page between them can be read");
	is_mem(buf + 19 * 4096, content[2] + 19 * 8192, 4096,
	    "long runs with a bad page between them have their bytes");
	rows.src = 4096;
	is_int(ofs_transport_fetch(t, &rows, 1, buf, &err), -1,
	    "runs on a bad page cannot be read");
	is_error(err, EIO, "OFS755 2.bin", "runs on a bad page: error text");
	disk.bad = NO_PAGE;
	ofs_transport_close(t);
	handmade_fini(&h);

	ofs_badspots_init(&b);
	ok(!ofs_badspots_hit(&b, 0, 0, UINT64_MAX / 2, &at),
	    "an empty list has no bad spot");
	for (uint32_t i = 0; i < 1000; i++)
		ofs_badspots_add(&b, i, 5000);
	ok(ofs_badspots_hit(&b, 999, 0, 4097, &at) && at == 4096,
	    "the last bad spot is found");
	ok(!ofs_badspots_hit(&b, 999, 0, 4096, &at),
	    "a range that ends at a bad spot is good");
	ok(!ofs_badspots_hit(&b, 999, 8192, 10, &at),
	    "a range after a bad spot is good");
	ok(!ofs_badspots_hit(&b, 900, 0, 8192, &at),
	    "the oldest bad spots are dropped");
	for (int i = 0; i < OFS_BADSPOTS; i++)
		b.spot[i].until = 1;
	ok(!ofs_badspots_hit(&b, 999, 0, 4097, &at),
	    "an expired bad spot is ignored");
	ofs_badspots_fini(&b);
}

/* Several threads share one transport. */
struct job {
	struct ofs_transport *t;
	uint64_t seed;
	uint32_t n;
	bool good;
};

static void *plan_job(void *arg)
{
	struct job *job = arg;

	job->good = random_plans(job->t, job->seed, 20);
	return NULL;
}

static void *touch_job(void *arg)
{
	struct job *job = arg;
	uint8_t byte;
	uint32_t f;

	job->good = true;
	for (uint32_t i = 0; i < job->n && job->good; i++) {
		f = (uint32_t)((i * job->seed) % job->n);
		job->good = touch(job->t, f, 3, &byte, NULL) == 0 &&
		    byte == (uint8_t)('0' + f % 10);
	}
	return NULL;
}

static bool in_threads(void *(*fn)(void *), struct ofs_transport *t, uint32_t n)
{
	static const uint64_t seeds[] = { 1, 3, 7, 9, 11, 13, 17, 19 };
	pthread_t thread[8];
	struct job job[8];
	bool good = true;

	for (int i = 0; i < 8; i++) {
		job[i] = (struct job){ t, seeds[i], n, false };
		if (pthread_create(&thread[i], NULL, fn, &job[i]) != 0)
			bail_out("pthread_create");
	}
	for (int i = 0; i < 8; i++) {
		pthread_join(thread[i], NULL);
		good = good && job[i].good;
	}
	return good;
}

static void threads(void)
{
	struct ofs_transport *t;
	struct handmade h;

	make_files(&h);
	t = handmade_transport(&h, 0);
	ok(in_threads(plan_job, t, 0),
	    "eight threads with random plans get the bytes");
	ofs_transport_close(t);
	handmade_fini(&h);
}

/* Must run last, since the lowered limits cannot be raised again. */
static void descriptors(void)
{
	enum { N = 10000 };
	struct ofs_segment *seg = calloc(N, sizeof(*seg));
	struct rlimit r = { 64, 128 };
	struct ofs_transport *t;
	struct handmade h;
	uint8_t *buf = malloc(N), byte;
	char name[16], text[8];
	int fds[128], n = 0;
	bool good = true;

	handmade_init(&h);
	for (uint32_t i = 0; i < N; i++) {
		snprintf(name, sizeof(name), "%05u", i);
		snprintf(text, sizeof(text), "%04u", i % 10);
		handmade_file(&h, name, text, 4);
		seg[i] = (struct ofs_segment){ .object = N - 1 - i,
			.src = 3,
			.dst = N - 1 - i,
			.len = 1,
			.n = 1 };
	}
	setrlimit(RLIMIT_NOFILE, &r);
	t = handmade_transport(&h, 0);
	getrlimit(RLIMIT_NOFILE, &r);
	is_u64(r.rlim_cur, 128,
	    "the soft limit of descriptors is raised to the hard one");
	ofs_transport_close(t);
	r = (struct rlimit){ 64, 64 };
	setrlimit(RLIMIT_NOFILE, &r);
	t = handmade_transport(&h, 0);
	is_int(ofs_transport_fetch(t, seg, N, buf, NULL), 0,
	    "10,000 files are read with 64 descriptors");
	for (uint32_t i = 0; i < N; i++)
		good = good && buf[i] == '0' + i % 10;
	ok(good, "10,000 files have their bytes");
	ok(in_threads(touch_job, t, N),
	    "eight threads read 10,000 files with 64 descriptors");
	while (n < 128 && (fds[n] = dup(0)) != -1)
		n++;
	is_int(errno, EMFILE, "all descriptors are in use");
	is_int(touch(t, 5, 3, &byte, NULL), 0,
	    "a read without free descriptors closes one of its own");
	while (n > 0)
		close(fds[--n]);
	ofs_transport_close(t);
	handmade_fini(&h);
	free(seg);
	free(buf);
}

#ifndef HAVE_ZSTD
static void no_codec(void)
{
	struct ofs_extent at = { .len = 3, .codec = OFS_ZSTD };
	struct optimfs_error err;
	struct ofs_transport *t;
	struct handmade h;
	uint64_t len;

	handmade_init(&h);
	handmade_file(&h, "f", "abc", 3);
	t = handmade_transport(&h, 1 << 20);
	is_int(ofs_transport_length(t, &at, &len, &err), -1,
	    "without zstd, a compressed item cannot be read");
	is_error(err, EOPNOTSUPP, "this build has no zstd",
	    "without zstd, a compressed item: error text");
	ofs_transport_close(t);
	handmade_fini(&h);
}
#endif

int main(void)
{
	right_bytes();
	few_reads();
	extents();
	absent();
	forbidden();
	changed();
	bad_disk();
	threads();
#ifndef HAVE_ZSTD
	no_codec();
#endif
	descriptors();
	return done_testing();
}
