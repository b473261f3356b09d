/* fuzz_journal.c - recovery from an arbitrary journal of a killed mount */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "fs/fs.h"
#include "journal/publish.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

#define JOURNAL_MAX 65536
#define READ_MAX    4096

static char dir[64], ck[96], stage[96];
static uint8_t source[8192];
static size_t nsource;

static void must(bool holds)
{
	if (!holds)
		abort();
}

static void put(const char *path, const void *bytes, size_t n)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	must(fd != -1 && write(fd, bytes, n) == (ssize_t)n);
	close(fd);
}

static void end(void)
{
	ofs_publish_clear(AT_FDCWD, dir);
}

/* Parameter 0 of an Adam, saved by torch.save. */
static bool begin(void)
{
	const char *top = getenv("TOP_SRCDIR");
	char path[4096];
	FILE *f;

	snprintf(path, sizeof(path), "%s/tests/data/extra/torch_save/adam.pt",
	    top == NULL ? "." : top);
	f = fopen(path, "rb");
	if (f == NULL)
		return false;
	nsource = fread(source, 1, sizeof(source), f);
	fclose(f);
	snprintf(dir, sizeof(dir), "%s/optimfs-fuzz-%d",
	    access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp", (int)getpid());
	snprintf(ck, sizeof(ck), "%s/ck.pt", dir);
	snprintf(stage, sizeof(stage), "%s/.ck.pt.optimfs", dir);
	must(mkdir(dir, 0700) == 0);
	put(ck, source, nsource);
	return atexit(end) == 0;
}

/* Staged bytes of two files, in a staging directory without a lock. */
static void put_stage(const uint8_t *journal, size_t n)
{
	char path[128], data[64];

	memset(data, 'd', sizeof(data));
	(void)mkdir(stage, 0700);
	snprintf(path, sizeof(path), "%s/data", stage);
	(void)mkdir(path, 0700);
	for (int i = 1; i <= 2; i++) {
		snprintf(path, sizeof(path), "%s/data/%d", stage, i);
		put(path, data, sizeof(data));
	}
	snprintf(path, sizeof(path), "%s/journal", stage);
	put(path, journal, n);
}

static void put_le32(uint8_t *p, uint32_t v)
{
	for (int i = 0; i < 4; i++)
		p[i] = (uint8_t)(v >> 8 * i);
}

/* The input is a list of payloads, each after its length in two bytes. They become
 * journal records with valid checksums. */
static size_t cook(const uint8_t *p, size_t n, uint8_t *out)
{
	size_t at = 16;
	uint32_t sum = 0;

	memcpy(out, "optimfs journal1", 16);
	while (n >= 2) {
		size_t len = (size_t)p[0] | (size_t)p[1] << 8;

		p += 2;
		n -= 2;
		len = len < n ? len : n;
		if (at + 8 + len > JOURNAL_MAX)
			break;
		put_le32(out + at, (uint32_t)len);
		sum = (uint32_t)crc32_z(sum, out + at, 4);
		sum = (uint32_t)crc32_z(sum, p, len);
		put_le32(out + at + 4, sum);
		memcpy(out + at + 8, p, len);
		at += 8 + len;
		p += len;
		n -= len;
	}
	return at;
}

static int look_at(void *ctx, const struct optimfs_dirent *e);

static void read_dir(struct optimfs *fs, uint64_t dir_node, unsigned *left)
{
	void *ctx[] = { fs, left };

	(void)optimfs_readdir(fs, dir_node, 0, false, look_at, ctx, NULL);
}

/* No directory may be nested deeper than the records made it. */
static int look_at(void *ctx, const struct optimfs_dirent *e)
{
	void **both = ctx;
	struct optimfs *fs = both[0];
	unsigned *left = both[1];
	struct optimfs_file *f;
	uint8_t buf[READ_MAX];
	uint64_t node = e->ino;

	if (*left == 0 || strcmp(e->name, ".optimfs") == 0)
		return 1;
	--*left;
	if (e->mode == S_IFDIR) {
		read_dir(fs, node, left);
	} else if (optimfs_file_open(fs, node, &f, NULL) == 0) {
		must(optimfs_file_read(f, buf, sizeof(buf), 0, NULL) <=
		    (ssize_t)sizeof(buf));
		optimfs_file_close(f);
	}
	return 0;
}

/* After a commit the checkpoint must be undamaged. */
static void check_source(void)
{
	struct optimfs_error err = { 0 };
	struct optimfs *fs = optimfs_open(ck, NULL, &err);
	uint64_t problems = 0;

	must(fs != NULL &&
	    optimfs_fsck(fs, true, NULL, NULL, &problems, &err) == 0 &&
	    problems == 0);
	optimfs_close(fs);
}

static void check(void)
{
	struct optimfs_options o = { .rw = true,
		.recover = OPTIMFS_RECOVER_YES };
	struct optimfs_error err = { 0 };
	struct optimfs *fs = optimfs_open(ck, &o, &err);
	unsigned left = 500;
	int ret;

	if (fs == NULL) {
		must(err.code != 0 && err.text[0] != '\0');
		return;
	}
	read_dir(fs, OPTIMFS_ROOT, &left);
	ret = optimfs_commit(fs, NULL, NULL, &err);
	must(ret == 0 || (ret == -1 && err.code != 0));
	read_dir(fs, OPTIMFS_ROOT, &left);
	optimfs_close(fs);
	if (ret == 0) {
		check_source();
		put(ck, source, nsource);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
	static uint8_t journal[JOURNAL_MAX];
	static bool begun;

	if (!begun && !begin())
		return 0;
	begun = true;
	if (n == 0 || n > JOURNAL_MAX)
		return 0;
	if (bytes[0] == 'r')
		put_stage(bytes + 1, n - 1);
	else
		put_stage(journal, cook(bytes + 1, n - 1, journal));
	check();
	ofs_publish_clear(AT_FDCWD, stage);
	return 0;
}
