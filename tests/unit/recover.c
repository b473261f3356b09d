/* recover.c - recovery of a stage after a crash */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "optimfs/optimfs.h"
#include "optimfs/statistics.h"

#include "base/sys.h"
#include "fs/fs.h"
#include "journal/stage.h"
#include "overlay/overlay_impl.h"
#include "support/listing.h"
#include "support/scratch.h"
#include "tap.h"

#define TENSOR "model/norm.weight"

static char ck[96];
static struct optimfs_error err;

/* An unchanged copy of the checkpoint. */
static void fresh(void)
{
	const char *src = getenv("TOP_SRCDIR");
	char command[512], *real = realpath(src == NULL ? "." : src, NULL);

	snprintf(command, sizeof(command),
	    "rm -rf ck .ck.optimfs && "
	    "cp -r '%s/tests/data/pytorch/dcp_fsdp2_w2/ckpt' ck",
	    real);
	free(real);
	scratch_run(command);
}

static struct optimfs *open_rw(enum optimfs_recover recover)
{
	struct optimfs_options o = {
		.rw = true,
		.recover = recover,
		.explicit_commit = true,
	};

	err = (struct optimfs_error){ 0 };
	return optimfs_open(ck, &o, &err);
}

static struct optimfs *begin(void)
{
	struct optimfs *fs;

	fresh();
	fs = open_rw(OPTIMFS_RECOVER_NO);
	if (fs == NULL)
		bail_out("%s", err.text);
	return fs;
}

/* Writes all bytes of a tensor. */
static int put(struct optimfs *fs, const char *path, int byte)
{
	struct optimfs_file *f;
	uint8_t bytes[4096];
	int ret = -1;

	memset(bytes, byte, sizeof(bytes));
	if (optimfs_file_open_write(fs, listing_node(fs, path), false, &f,
		&err) == -1)
		return -1;
	if (optimfs_file_size(f) <= sizeof(bytes))
		ret =
		    optimfs_file_write(f, bytes, optimfs_file_size(f), 0, &err);
	optimfs_file_close(f);
	return ret;
}

/* The first byte of a tensor, or -1. */
static int first_byte(struct optimfs *fs, const char *path)
{
	struct optimfs_file *f;
	uint8_t byte;
	ssize_t n;

	err = (struct optimfs_error){ 0 };
	if (optimfs_file_open(fs, listing_node(fs, path), &f, &err) == -1)
		return -1;
	n = optimfs_file_read(f, &byte, 1, 0, &err);
	optimfs_file_close(f);
	return n == 1 ? byte : -1;
}

static bool errors_say(struct optimfs *fs, const char *part)
{
	char text[8192];
	struct optimfs_file *f;
	ssize_t n;

	if (optimfs_file_open(fs, listing_node(fs, ".optimfs/errors"), &f,
		&err) == -1)
		return false;
	n = optimfs_file_read(f, text, sizeof(text) - 1, 0, &err);
	optimfs_file_close(f);
	text[n < 0 ? 0 : n] = '\0';
	if (strstr(text, part) != NULL)
		return true;
	diag("%s", text);
	return false;
}

static void note(struct optimfs *fs, uint8_t type, const char *a)
{
	struct ofs_record r = { .type = type, .a = a };

	if (ofs_stage_append(fs->now->overlay->stage, &r, &err) == -1)
		bail_out("%s", err.text);
}

/* A process writes TENSOR and dies. The record says that the machine restarted
 * afterwards. */
static void write_and_die(void)
{
	pid_t child;
	int status;

	fresh();
	fflush(stdout);
	child = fork();
	if (child == 0) {
		struct optimfs *fs = open_rw(OPTIMFS_RECOVER_NO);

		if (fs == NULL || put(fs, TENSOR, 0x3f) == -1)
			_exit(1);
		note(fs, OFS_RECORD_BOOT, "another boot");
		_exit(0);
	}
	if (child == -1 || waitpid(child, &status, 0) != child || status != 0)
		bail_out("a process that writes: %d", status);
}

/* The machine crashed, and a page of data did not reach the disk. The journal's
 * hash of the written bytes detects it. */
static void lost(void)
{
	struct optimfs_statistics s;
	struct optimfs *fs;

	write_and_die();
	scratch_run(
	    "for f in .ck.optimfs/data/*; do "
	    "printf '\\0\\0' | dd of=$f bs=1 seek=2 conv=notrunc 2>dd; done");
	fs = open_rw(OPTIMFS_RECOVER_YES);
	ok(fs != NULL, "a stage with lost data is recovered: %s", err.text);
	is_int(first_byte(fs, TENSOR), -1,
	    "a tensor with lost data cannot be read");
	is_error(err, EIO, "OFS817", "a tensor with lost data: error text");
	is_int(optimfs_statistics(fs, TENSOR, NULL, &s, &err), -1,
	    "a tensor with lost data has no statistics");
	is_error(err, EIO, "OFS817 " TENSOR " bytes ",
	    "the statistics of a tensor with lost data: error text");
	ok(first_byte(fs, "model/norm.bias") != -1,
	    "a tensor without lost data can be read");
	is_int(optimfs_commit(fs, NULL, NULL, &err), -1,
	    "a tensor with lost data cannot be committed");
	is_int(put(fs, TENSOR, 0x40), 0,
	    "a tensor with lost data can be written again");
	is_int(first_byte(fs, TENSOR), 0x40,
	    "a tensor written again can be read");
	is_int(optimfs_commit(fs, NULL, NULL, &err), 0,
	    "a tensor written again can be committed: %s", err.text);
	optimfs_close(fs);
}

/* A refused attribute must not be in the journal, where replay would fail. */
static void refused(void)
{
	static const char lr[] = "optim/param_groups/0/lr";
	struct optimfs *fs = begin();

	is_int(optimfs_setxattr(fs, listing_node(fs, lr), "user.optimfs.dtype",
		   "int64", 5, &err),
	    -1, "setxattr of a dtype on a text fails");
	is_error(err, EINVAL, "OFS816", "with OFS816");
	is_int(optimfs_setxattr(fs, listing_node(fs, TENSOR),
		   "user.optimfs.shape", "", 0, &err),
	    -1, "setxattr of no dimensions on a tensor with some fails");
	is_error(err, EINVAL, "OFS816", "with OFS816");
	is_int(put(fs, TENSOR, 0x3f), 0, "a tensor is written");
	optimfs_close(fs);
	fs = open_rw(OPTIMFS_RECOVER_YES);
	ok(fs != NULL, "the journal is replayed: %s", err.text);
	is_int(first_byte(fs, TENSOR), 0x3f, "the staged tensor is recovered");
	optimfs_close(fs);
}

/* The same as lost(), without a lost page. */
static void not_lost(void)
{
	struct optimfs *fs;

	write_and_die();
	fs = open_rw(OPTIMFS_RECOVER_YES);
	is_int(first_byte(fs, TENSOR), 0x3f,
	    "data that reached the disk are recovered");
	optimfs_close(fs);
}

static int resize(struct optimfs *fs, const char *path, uint64_t size)
{
	return optimfs_truncate(fs, listing_node(fs, path), size, &err);
}

/* The writer died after the record of a truncation, before it cut its file. */
static void cut(void)
{
	struct optimfs *fs = begin();
	uint8_t bytes[8] = { 0 };
	struct optimfs_file *f;

	is_int(put(fs, TENSOR, 0x3f), 0, "write a tensor");
	is_int(resize(fs, TENSOR, 4), 0, "truncate it");
	optimfs_close(fs);
	scratch_run("for f in .ck.optimfs/data/*; do printf ???? >>$f; done");
	fs = open_rw(OPTIMFS_RECOVER_YES);
	is_int(resize(fs, TENSOR, 8), 0, "extend it after a recovery");
	if (optimfs_file_open(fs, listing_node(fs, TENSOR), &f, &err) == -1)
		bail_out("%s", err.text);
	is_int((int)optimfs_file_read(f, bytes, 8, 0, &err), 8, "read it");
	ok(memcmp(bytes, "\x3f\x3f\x3f\x3f\0\0\0", 8) == 0,
	    "bytes that a truncation had cut off do not appear again");
	optimfs_file_close(f);
	optimfs_close(fs);
}

/* A change that was answered with an error is not in the journal. */
static void not_extended(void)
{
	const struct rlimit small = { 64 << 10, RLIM_INFINITY };
	const struct rlimit none = { RLIM_INFINITY, RLIM_INFINITY };
	struct optimfs *fs = begin();
	uint64_t dir = listing_node(fs, "optim/state/norm.weight");
	struct optimfs_attr attr;

	is_int(optimfs_create(fs, dir, "new", false, &attr, &err), 0,
	    "create a state");
	is_int(optimfs_truncate(fs, attr.node, 4, &err), 0, "extend it");
	signal(SIGXFSZ, SIG_IGN);
	setrlimit(RLIMIT_FSIZE, &small);
	is_int(optimfs_truncate(fs, attr.node, 1 << 20, &err), -1,
	    "it cannot be extended beyond the limit of files");
	is_error(err, EFBIG, "OFS801", "with OFS801");
	setrlimit(RLIMIT_FSIZE, &none);
	optimfs_close(fs);
	fs = open_rw(OPTIMFS_RECOVER_YES);
	is_int(optimfs_resolve(fs, "optim/state/norm.weight/new", &attr, &err),
	    0, "the state is recovered");
	is_u64(attr.size, 4, "with its size before the failure");
	optimfs_close(fs);
}

static void journals(void)
{
	struct optimfs *fs = begin();

	is_int(put(fs, TENSOR, 0x3f), 0,
	    "write a tensor before the unknown record");
	note(fs, 99, "what/nobody/knows");
	optimfs_close(fs);
	ok(open_rw(OPTIMFS_RECOVER_YES) == NULL,
	    "a journal with a record of unknown type is refused");
	is_error(err, EUCLEAN, "what/nobody/knows: ",
	    "a record of unknown type: the error names its path");
	fs = begin();
	is_int(put(fs, TENSOR, 0x3f), 0,
	    "write a tensor before the foreign record");
	note(fs, OFS_REC_TIME, "model/none/of/ours");
	optimfs_close(fs);
	ok(open_rw(OPTIMFS_RECOVER_YES) == NULL,
	    "a journal with a record of another checkpoint is refused");
	is_error(err, EUCLEAN, "model/none/of/ours: ",
	    "a record of another checkpoint: the error names its path");
	fs = begin();
	is_int(put(fs, TENSOR, 0x3f), 0,
	    "write a tensor before the truncated record");
	note(fs, OFS_RECORD_BOOT, "a record to be cut");
	optimfs_close(fs);
	scratch_run("truncate -s -3 .ck.optimfs/journal");
	fs = open_rw(OPTIMFS_RECOVER_YES);
	ok(fs != NULL && first_byte(fs, TENSOR) == 0x3f,
	    "records before a truncated one are recovered");
	ok(errors_say(fs, "OFS810"),
	    "a truncated record is reported in .optimfs/errors");
	optimfs_close(fs);
	scratch_run("echo something else entirely >.ck.optimfs/journal");
	ok(open_rw(OPTIMFS_RECOVER_YES) == NULL,
	    "a journal without its header is refused");
	is_error(err, EUCLEAN, "OFS810",
	    "a journal without its header: error text");
}

static void mistakes(void)
{
	struct optimfs *fs = begin();
	struct optimfs_attr attr;

	is_int(optimfs_control(fs, "comit\n", 6, NULL, NULL, &err), -1,
	    "an unknown control command is refused");
	is_error(err, EINVAL, "OFS818",
	    "an unknown control command: error text");
	is_int(optimfs_create(fs, listing_node(fs, "optim/state"), "a%zz", true,
		   &attr, &err),
	    0, "create a directory with a name that decodes to no key");
	is_int(optimfs_create(fs, attr.node, "exp_avg", false, &attr, &err), 0,
	    "create a file in the directory");
	is_int(optimfs_commit(fs, NULL, NULL, &err), -1,
	    "a name that decodes to no key cannot be committed");
	is_error(err, EINVAL, "OFS302",
	    "a name that decodes to no key: error text");
	is_int(optimfs_abort(fs, &err), 0, "abort removes the directory");
	is_int(optimfs_rename(fs, listing_node(fs, "model"), "norm.bias",
		   listing_node(fs, "model"), "norm.weight%00x", false, &err),
	    0, "rename a tensor to the name of a key with a NUL");
	is_int(optimfs_commit(fs, NULL, NULL, &err), -1,
	    "a new key with a NUL cannot be committed");
	is_error(err, EINVAL, "OFS302", "a new key with a NUL: error text");
	is_int(optimfs_abort(fs, &err), 0, "abort undoes the rename");
	optimfs_close(fs);
}

/* What optimfs_status reports during a commit. */
struct progress {
	struct optimfs *fs;
	int last;
	unsigned steps; /* increases of percent */
	bool back, none;
};

static bool look(void *ctx)
{
	struct progress *p = ctx;
	struct optimfs_status s;

	optimfs_status(p->fs, &s);
	p->none |= s.percent < 0 || s.percent > 99;
	p->back |= s.percent < p->last;
	p->steps += s.percent > p->last;
	p->last = s.percent;
	return false;
}

static void progress(void)
{
	struct progress p = { .fs = begin() };
	struct optimfs_status s;

	is_int(put(p.fs, TENSOR, 0x3f), 0, "write a tensor");
	is_int(optimfs_commit(p.fs, look, &p, &err), 0,
	    "commit with a callback");
	ok(!p.none && !p.back,
	    "progress of a commit grows from 0 to at most 99");
	ok(p.steps >= 2 && p.last > 90,
	    "progress of a commit has %u steps, the last to %d", p.steps,
	    p.last);
	optimfs_status(p.fs, &s);
	is_int(s.percent, -1, "progress is -1 after a commit");
	optimfs_close(p.fs);
}

/* A file that is open while a commit removes it becomes stale. */
static void stale(void)
{
	struct optimfs *fs = begin();
	uint64_t dir = listing_node(fs, "optim/state/norm.weight");
	struct optimfs_file *f;
	uint8_t byte;

	if (optimfs_file_open(fs,
		listing_node(fs, "optim/state/norm.weight/exp_avg"), &f,
		&err) == -1)
		bail_out("%s", err.text);
	is_int(optimfs_remove(fs, dir, "exp_avg", false, &err), 0,
	    "remove an open file");
	is_int(optimfs_file_read(f, &byte, 1, 0, &err), 1,
	    "an open removed file can be read before the commit");
	is_int(optimfs_commit(fs, NULL, NULL, &err), 0, "commit the removal");
	is_int(optimfs_file_read(f, &byte, 1, 0, &err), -1,
	    "an open removed file cannot be read after the commit");
	is_error(err, ESTALE, "OFS844",
	    "an open removed file fails with ESTALE");
	optimfs_file_close(f);
	optimfs_close(fs);
}

static int unlinks, unlink_at;

static int fail_unlink(const char *call)
{
	return strcmp(call, "unlink") == 0 && ++unlinks == unlink_at ? EIO : 0;
}

/* Commits; call number at to unlink fails. Returns the number of these calls. */
static int commit_failing(struct optimfs *fs, int at)
{
	unlinks = 0;
	unlink_at = at;
	ofs_sys_fault = fail_unlink;
	if (optimfs_commit(fs, NULL, NULL, &err) != 0)
		bail_out("commit: %s", err.text);
	ofs_sys_fault = NULL;
	return unlinks;
}

/* The last file that a commit removes is its record. A mount that finds it
 * takes all staged changes for published. */
static void record_stays(void)
{
	struct optimfs *fs = begin();
	int last;

	put(fs, TENSOR, 1);
	last = commit_failing(fs, 0);
	optimfs_close(fs);
	fs = begin();
	put(fs, TENSOR, 1);
	commit_failing(fs, last);
	is_int(put(fs, TENSOR, 2), -1,
	    "nothing can be written when the record of a commit stays");
	is_error(err, EIO, "OFS809",
	    "a write when the record of a commit stays fails with OFS809");
	optimfs_close(fs);
	fs = open_rw(OPTIMFS_RECOVER_NO);
	if (!ok(fs != NULL, "the next mount removes the record of the commit"))
		bail_out("%s", err.text);
	is_int(put(fs, TENSOR, 2), 0,
	    "the mount that removed the record can be written to");
	optimfs_close(fs);
}

int main(void)
{
	scratch_make(false);
	snprintf(ck, sizeof(ck), "%s/ck", scratch);
	lost();
	not_lost();
	cut();
	not_extended();
	refused();
	journals();
	mistakes();
	stale();
	record_stays();
	progress();
	scratch_remove();
	return done_testing();
}
