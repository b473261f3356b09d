/* fsck.c - fsck and reads of damaged copies of real checkpoints */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "optimfs/optimfs.h"

#include "base/buf.h"
#include "base/io.h"
#include "handmade.h"
#include "support/listing.h"
#include "support/truth.h"
#include "tap.h"

#define TENSOR "model/layers.0.w1.weight"

/* A copy of a checkpoint of tests/data, to be damaged. */
static struct handmade h;

static void copy_checkpoint(const char *name)
{
	struct optimfs_error err;
	struct ofs_names names;
	struct ofs_dir from;
	uint8_t *bytes;
	uint64_t len;

	handmade_init(&h);
	if (ofs_dir_open(data_path(name), &from, &err) == -1 ||
	    ofs_dir_list(&from, &names, &err) == -1)
		bail_out("%s", err.text);
	for (size_t i = 0; i < names.n; i++) {
		if (ofs_dir_read_file(&from, names.name[i], 1 << 24, &bytes,
			&len, &err) == -1)
			bail_out("%s", err.text);
		handmade_file(&h, names.name[i], bytes, len);
		free(bytes);
	}
	ofs_names_free(&names);
	ofs_dir_close(&from);
}

static struct optimfs *open_copy(void)
{
	struct optimfs_error err;
	struct optimfs *fs = optimfs_open(h.dir, NULL, &err);

	if (fs == NULL)
		bail_out("%s", err.text);
	return fs;
}

static void note(void *ctx, const struct optimfs_finding *f)
{
	ofs_buf_printf(ctx, "%s %.6s\n", f->path, f->text);
}

/* All findings; the caller frees them. */
static char *findings(struct optimfs *fs, bool data, uint64_t *problems)
{
	struct ofs_buf out = { 0 };
	struct optimfs_error err;

	if (optimfs_fsck(fs, data, note, &out, problems, &err) == -1)
		bail_out("%s", err.text);
	ofs_buf_putc(&out, '\0');
	return (char *)out.data;
}

static void finds(bool data, const char *want)
{
	struct optimfs *fs = open_copy();
	uint64_t problems;
	char *got = findings(fs, data, &problems);

	is_str(got, want, "fsck %s data gives the expected findings",
	    data ? "with" : "without");
	is_u64(problems, want[0] == '\0' ? 0 : 1,
	    "fsck %s data counts the expected problems",
	    data ? "with" : "without");
	free(got);
	optimfs_close(fs);
}

/* The bytes of the tensor; -1 with err if they cannot be read. */
static ssize_t read_tensor(const char *path, void *buf, size_t size,
    struct optimfs_error *err)
{
	struct optimfs *fs = open_copy();
	ssize_t n = listing_read_at(fs, path, buf, size, 0, err);

	optimfs_close(fs);
	return n;
}

/* Flips a bit in the first place where the file has these bytes. */
static bool spoil(const char *name, const void *bytes, size_t n)
{
	uint8_t file[1 << 18], *at, spoilt;
	int fd = open(handmade_path(&h, name), O_RDWR);
	ssize_t len = fd == -1 ? -1 : read(fd, file, sizeof(file));

	if (len == -1)
		bail_out("%s", name);
	at = memmem(file, (size_t)len, bytes, n);
	if (at != NULL) {
		spoilt = *at ^ 1;
		if (pwrite(fd, &spoilt, 1, at - file) != 1)
			bail_out("%s", name);
	}
	close(fd);
	return at != NULL;
}

static void checksums(void)
{
	uint8_t before[912], after[912];
	struct optimfs_error err;

	copy_checkpoint("pytorch/dcp_fsdp2_w2/ckpt");
	finds(false, "");
	finds(true, "");
	is_int(read_tensor(TENSOR, before, sizeof(before), &err), 912,
	    "reading a sound tensor succeeds");
	ok(spoil("__0_0.distcp", before, 64),
	    "a bit of the tensor's first shard is flipped");
	finds(false, "");
	finds(true, TENSOR " OFS530\n");
	is_int(read_tensor(TENSOR, after, sizeof(after), &err), 912,
	    "a read does not verify checksums");
	ok(after[0] == (before[0] ^ 1) &&
		memcmp(before + 1, after + 1, 911) == 0,
	    "a read of a damaged shard gives its bytes as they are stored");
	handmade_fini(&h);
}

/* The name of a record in its local header, in a file of a replica. */
static void replica(void)
{
	struct optimfs *fs;
	uint64_t problems;
	char *got;

	copy_checkpoint(
	    "pytorch/fsdp1_sharded_orig_hybridshard_w4/ckpt_rankfiles");
	ok(spoil("state_rank2.pt", "/50FB", 5),
	    "a bit of the header of a replica is flipped");
	fs = open_copy();
	got = findings(fs, true, &problems);
	ok(strstr(got, "/exp_avg OFS512\n") != NULL,
	    "fsck reports a replica whose header is damaged as OFS512");
	free(got);
	optimfs_close(fs);
	handmade_fini(&h);
}

static void short_file(void)
{
	uint8_t bytes[912];
	struct optimfs_error err = { 0 };
	struct optimfs *fs;
	uint64_t problems;
	char *got;

	copy_checkpoint("pytorch/dcp_fsdp2_w2/ckpt");
	if (truncate(handmade_path(&h, "__1_0.distcp"), 100000) == -1)
		bail_out("truncate");
	fs = open_copy();
	got = findings(fs, true, &problems);
	ok(problems > 10 && strstr(got, "/exp_avg OFS603\n") != NULL,
	    "fsck reports data past the end of a truncated file as OFS603");
	ok(strstr(got, "OFS530") == NULL && strstr(got, "OFS5") == NULL,
	    "fsck reports nothing else about a truncated file");
	free(got);
	optimfs_close(fs);
	is_int(read_tensor("optim/state/tok_embeddings.weight/exp_avg_sq",
		   bytes, 900, &err),
	    900, "a shard in an undamaged file can still be read");
	unlink(handmade_path(&h, "__1_0.distcp"));
	fs = open_copy();
	got = findings(fs, false, &problems);
	ok(strstr(got, TENSOR " OFS140\n") != NULL,
	    "fsck reports a tensor of a missing file as OFS140");
	free(got);
	optimfs_close(fs);
	is_int(read_tensor(TENSOR, bytes, 912, &err), -1,
	    "reading a tensor of a missing file fails");
	is_error(err, EIO, "__1_0.distcp",
	    "reading a tensor of a missing file fails with EIO and its name");
	handmade_fini(&h);
}

/* A shard that may not be opened is found without reading any data. */
static void closed_file(void)
{
	static const char shard[] = "__0_0.distcp";
	uid_t user = geteuid();
	struct optimfs *fs;
	uint64_t without, with;
	char *quick, *all;

	copy_checkpoint("pytorch/dcp_fsdp2_w2/ckpt");
	fs = open_copy();
	if (chmod(handmade_path(&h, shard), 0) == -1 ||
	    (user == 0 && seteuid(65534) == -1))
		bail_out("%s: %m", shard);
	quick = findings(fs, false, &without);
	all = findings(fs, true, &with);
	if (user == 0 && seteuid(0) == -1)
		bail_out("seteuid: %m");
	ok(strstr(quick, TENSOR " OFS756\n") != NULL,
	    "fsck reports a shard without read permission as OFS756");
	is_str(quick, all, "fsck finds it without data as with data");
	ok(without > 1 && without == with,
	    "every tensor of an unreadable shard is a problem");
	free(quick);
	free(all);
	optimfs_close(fs);
	handmade_fini(&h);
}

/* A job saves to the same place again. Files that are open can still be read as
 * long as the shards exist; nothing new can be opened. */
static void saved_again(void)
{
	struct optimfs_error err = { 0 };
	struct optimfs_file *before, *after;
	struct optimfs_attr attr;
	struct optimfs *fs;
	uint8_t bytes[912], *index;
	uint64_t len;

	copy_checkpoint("pytorch/dcp_fsdp2_w2/ckpt");
	fs = open_copy();
	optimfs_resolve(fs, TENSOR, &attr, &err);
	is_int(optimfs_file_open(fs, attr.node, &before, &err), 0,
	    "a tensor opens before the index is replaced");
	if (ofs_dir_read_file(&h.cat->dir, ".metadata", 1 << 24, &index, &len,
		&err) == -1)
		bail_out("%s", err.text);
	handmade_replace(&h, ".metadata", index, len);
	free(index);
	is_int(optimfs_file_open(fs, attr.node, &after, &err), -1,
	    "opening a tensor after the index was replaced fails");
	is_error(err, ESTALE, "OFS753",
	    "a replaced index makes opens fail with OFS753");
	is_int(optimfs_file_read(before, bytes, 912, 0, &err), 912,
	    "a tensor that is already open can still be read");
	optimfs_resolve(fs, ".optimfs/errors", &attr, &err);
	is_int(optimfs_file_open(fs, attr.node, &after, &err), 0,
	    ".optimfs/errors still opens after the index was replaced");
	optimfs_file_close(after);
	optimfs_file_close(before);
	optimfs_close(fs);
	handmade_fini(&h);
}

/* Damage of a zstd frame shows in its checksum or its structure. */
static void compressed(void)
{
	struct optimfs *fs;
	uint8_t bytes[16];
	uint64_t problems;
	char *got;
	int fd;

	copy_checkpoint("pytorch/dcp_fsdp2_zstd_w2/ckpt");
	fs = open_copy();
	got = findings(fs, true, &problems);
	if (strstr(got, "OFS619") != NULL) {
		skip(1, "built without zstd");
	} else {
		is_str(got, "",
		    "fsck finds nothing in a sound compressed checkpoint");
		optimfs_close(fs);
		fd = open(handmade_path(&h, "__0_0.distcp"), O_RDWR);
		if (pread(fd, bytes, 16, 2000) != 16)
			bail_out("short");
		for (int i = 0; i < 16; i++)
			bytes[i] ^= 0x55;
		if (pwrite(fd, bytes, 16, 2000) != 16)
			bail_out("short");
		close(fd);
		free(got);
		fs = open_copy();
		got = findings(fs, true, &problems);
		is_u64(problems, 1,
		    "fsck reports a damaged zstd frame as one problem");
	}
	free(got);
	optimfs_close(fs);
	handmade_fini(&h);
}

int main(void)
{
	checksums();
	replica();
	short_file();
	closed_file();
	saved_again();
	compressed();
	return done_testing();
}
