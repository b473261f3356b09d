/* fuse/gather.c - reading whole files into memory with several threads */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "fuse/gather.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tap.h"

/* The file: byte i is a function of i; reads at or after fail_at fail. */
struct optimfs_file {
	uint64_t size, fail_at;
};

static uint8_t byte_at(uint64_t i)
{
	return (uint8_t)((i * UINT64_C(0x9e3779b97f4a7c15)) >> 56);
}

ssize_t optimfs_file_read(struct optimfs_file *f, void *buf, size_t len,
    uint64_t off, struct optimfs_error *err)
{
	if (off >= f->size)
		return 0;
	if (len > f->size - off)
		len = (size_t)(f->size - off);
	if (off + len > f->fail_at)
		return optimfs_fail(err, EBADMSG, "bad at %llu",
		    (unsigned long long)f->fail_at);
	for (size_t i = 0; i < len; i++)
		((uint8_t *)buf)[i] = byte_at(off + i);
	return (ssize_t)len;
}

static int dir;
static uint8_t scratch[OFS_GATHER_SCRATCH];
static atomic_int asked;

static bool never(void *ctx)
{
	(void)ctx;
	return false;
}

static bool third_time(void *ctx)
{
	(void)ctx;
	return atomic_fetch_add(&asked, 1) >= 2;
}

static bool holds_all(int fd, uint64_t size)
{
	uint8_t *buf = malloc(size + 1);
	bool same;

	same = buf != NULL && pread(fd, buf, size + 1, 0) == (ssize_t)size;
	for (uint64_t i = 0; same && i < size; i++)
		same = buf[i] == byte_at(i);
	free(buf);
	return same;
}

static void test_size(uint64_t size, unsigned threads)
{
	struct optimfs_file f = { .size = size, .fail_at = UINT64_MAX };
	struct ofs_gather g = { .file = &f,
		.size = size,
		.threads = threads,
		.scratch = scratch,
		.cancelled = never };
	struct optimfs_error err;
	struct stat st;
	int fd = ofs_gather_file(dir, &g, &err);

	ok(fd != -1 && holds_all(fd, size),
	    "%llu bytes are gathered with %u threads", (unsigned long long)size,
	    threads);
	ok(fd != -1 && fstat(fd, &st) == 0 && st.st_nlink == 0,
	    "the gathered file is unlinked");
	if (fd != -1)
		close(fd);
}

static void test_failures(void)
{
	struct optimfs_file f = { .size = 9000000, .fail_at = 7000000 };
	struct ofs_gather g = { .file = &f,
		.size = f.size,
		.threads = 3,
		.scratch = scratch,
		.cancelled = never };
	struct optimfs_error err;

	is_int(ofs_gather_file(dir, &g, &err), -1,
	    "gathering a file fails if one of its bytes cannot be read");
	is_error(err, EBADMSG, "bad at 7000000",
	    "a failed gather reports the error of the read");
	f.size = g.size = 1000;
	f.fail_at = 10;
	is_int(ofs_gather_file(dir, &g, &err), -1,
	    "gathering a small file fails if one of its bytes cannot be read");
	is_error(err, EBADMSG, "bad at 10",
	    "a failed gather of a small file reports the error of the read");
	f.fail_at = UINT64_MAX;
	g.size = 1001;
	is_int(ofs_gather_file(dir, &g, &err), -1,
	    "gathering a file that is shorter than its size fails");
	is_error(err, EIO, "1000 of 1001 bytes",
	    "a file that is too short fails with EIO and both sizes");
	f.size = g.size = 9000000;
	g.cancelled = third_time;
	is_int(ofs_gather_file(dir, &g, &err), -1, "a cancelled gather fails");
	is_error(err, ECANCELED, "", "a cancelled gather fails with ECANCELED");
	f.size = g.size = UINT64_C(64) << 20;
	g.cancelled = never;
	is_int(ofs_gather_file(dir, &g, &err), -1,
	    "gathering more than the directory can hold fails");
	is_error(err, ENOMEM, "", "a full directory causes ENOMEM, not SIGBUS");
}

int main(void)
{
	static const uint64_t sizes[] = { 1, 4096, 1 << 20, (1 << 20) + 1,
		2 << 20, (2 << 20) + 1, 9000001 };
	struct optimfs_error err;

	dir = ofs_gather_dir(UINT64_C(32) << 20, &err);
	if (dir == -1)
		skip_all("%s", err.text);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		for (unsigned threads = 1; threads <= 4; threads += 3)
			test_size(sizes[i], threads);
	test_failures();
	for (int i = 0; i < 20;
	     i++) /* fails soon if a failed gather keeps its room */
		test_size(30000000, 2);
	close(dir);
	return done_testing();
}
