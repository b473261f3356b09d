/* recover.c - what a writer left behind, and what of it can be had */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "optimfs/optimfs.h"

#include "fs/fs.h"
#include "journal/stage.h"
#include "overlay/overlay_impl.h"
#include "tap.h"

#define TENSOR "model/norm.weight"

static char top[64], ck[96];
static struct optimfs_error err;

static void shell(const char *command)
{
	char all[1024];

	snprintf(all, sizeof(all), "cd '%s' && %s", top, command);
	if (system(all) != 0)
		bail_out("%s", all);
}

/* A copy that nobody has changed. */
static void fresh(void)
{
	const char *src = getenv("TOP_SRCDIR");
	char command[512], *real = realpath(src == NULL ? "." : src, NULL);

	snprintf(command, sizeof(command),
	    "rm -rf ck .ck.optimfs && "
	    "cp -r '%s/tests/data/pytorch/dcp_fsdp2_w2/ckpt' ck",
	    real);
	free(real);
	shell(command);
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

static uint64_t node_of(struct optimfs *fs, const char *path)
{
	struct optimfs_attr attr;

	if (optimfs_resolve(fs, path, &attr, &err) == -1)
		bail_out("%s: %s", path, err.text);
	return attr.node;
}

/* A tensor is written whole. */
static int put(struct optimfs *fs, const char *path, int byte)
{
	struct optimfs_file *f;
	uint8_t bytes[4096];
	int ret = -1;

	memset(bytes, byte, sizeof(bytes));
	if (optimfs_file_open_write(fs, node_of(fs, path), false, &f, &err) ==
	    -1)
		return -1;
	if (optimfs_file_size(f) <= sizeof(bytes))
		ret =
		    optimfs_file_write(f, bytes, optimfs_file_size(f), 0, &err);
	optimfs_file_close(f);
	return ret;
}

/* Its first byte; -1. */
static int get(struct optimfs *fs, const char *path)
{
	struct optimfs_file *f;
	uint8_t byte;
	ssize_t n;

	err = (struct optimfs_error){ 0 };
	if (optimfs_file_open(fs, node_of(fs, path), &f, &err) == -1)
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

	if (optimfs_file_open(fs, node_of(fs, ".optimfs/errors"), &f, &err) ==
	    -1)
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

/* TENSOR is written by a process that dies, and its machine with it. */
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

/* The machine went down, and a page of data did not reach the disk: what the
 * journal says was written there is not taken for it. */
static void lost(void)
{
	struct optimfs *fs;

	write_and_die();
	shell("for f in .ck.optimfs/data/*; do "
	      "printf '\\0\\0' | dd of=$f bs=1 seek=2 conv=notrunc 2>dd; done");
	fs = open_rw(OPTIMFS_RECOVER_YES);
	ok(fs != NULL, "recovered: %s", err.text);
	is_int(get(fs, TENSOR), -1, "what is lost cannot be read");
	is_error(err, EIO, "OFS817", "and is said to be lost");
	ok(get(fs, "model/norm.bias") != -1, "all else can");
	is_int(optimfs_commit(fs, NULL, NULL, &err), -1, "nor committed");
	is_int(put(fs, TENSOR, 0x40), 0, "until it is written again");
	is_int(get(fs, TENSOR), 0x40, "and read");
	is_int(optimfs_commit(fs, NULL, NULL, &err), 0, "and committed: %s",
	    err.text);
	optimfs_close(fs);
}

/* The same with the data as they should be. */
static void not_lost(void)
{
	struct optimfs *fs;

	write_and_die();
	fs = open_rw(OPTIMFS_RECOVER_YES);
	is_int(get(fs, TENSOR), 0x3f, "what reached the disk is there");
	optimfs_close(fs);
}

static void journals(void)
{
	struct optimfs *fs = begin();

	is_int(put(fs, TENSOR, 0x3f), 0, "written");
	note(fs, 99, "what/nobody/knows");
	optimfs_close(fs);
	ok(open_rw(OPTIMFS_RECOVER_YES) == NULL, "a record of no kind");
	is_error(err, EUCLEAN, "what/nobody/knows: ", "is named");
	fs = begin();
	is_int(put(fs, TENSOR, 0x3f), 0, "written");
	note(fs, OFS_REC_TIME, "model/none/of/ours");
	optimfs_close(fs);
	ok(open_rw(OPTIMFS_RECOVER_YES) == NULL,
	    "a record of another checkpoint");
	is_error(err, EUCLEAN, "model/none/of/ours: ", "is named");
	fs = begin();
	is_int(put(fs, TENSOR, 0x3f), 0, "written");
	note(fs, OFS_RECORD_BOOT, "a record to be cut");
	optimfs_close(fs);
	shell("truncate -s -3 .ck.optimfs/journal");
	fs = open_rw(OPTIMFS_RECOVER_YES);
	ok(fs != NULL && get(fs, TENSOR) == 0x3f, "what is before it is there");
	ok(errors_say(fs, "OFS810"), "a torn end is told");
	optimfs_close(fs);
	shell("echo something else entirely >.ck.optimfs/journal");
	ok(open_rw(OPTIMFS_RECOVER_YES) == NULL, "no journal at all");
	is_error(err, EUCLEAN, "OFS810", "is not taken for one");
}

static void orders(void)
{
	struct optimfs *fs = begin();
	struct optimfs_attr attr;

	is_int(optimfs_control(fs, "comit\n", 6, NULL, NULL, &err), -1,
	    "no order");
	is_error(err, EINVAL, "OFS818", "names those there are");
	is_int(optimfs_create(fs, node_of(fs, "optim/state"), "a%zz", true,
		   &attr, &err),
	    0, "a name that no key has");
	is_int(optimfs_create(fs, attr.node, "exp_avg", false, &attr, &err), 0,
	    "and a file");
	is_int(optimfs_commit(fs, NULL, NULL, &err), -1, "are not committed");
	is_error(err, EINVAL, "OFS302", "and named");
	is_int(optimfs_abort(fs, &err), 0, "abort");
	optimfs_close(fs);
}

/* What a commit says of itself while it is under way. */
struct progress {
	struct optimfs *fs;
	int last;
	unsigned steps; /* of several percent */
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

	is_int(put(p.fs, TENSOR, 0x3f), 0, "written");
	is_int(optimfs_commit(p.fs, look, &p, &err), 0, "committed");
	ok(!p.none && !p.back, "a commit goes from 0 to 99");
	ok(p.steps >= 2 && p.last > 90, "in %u steps, the last to %d", p.steps,
	    p.last);
	optimfs_status(p.fs, &s);
	is_int(s.percent, -1, "and then there is none");
	optimfs_close(p.fs);
}

/* Who has a file open that a commit has removed is told so. */
static void taken(void)
{
	struct optimfs *fs = begin();
	uint64_t dir = node_of(fs, "optim/state/norm.weight");
	struct optimfs_file *f;
	uint8_t byte;

	if (optimfs_file_open(fs,
		node_of(fs, "optim/state/norm.weight/exp_avg"), &f, &err) == -1)
		bail_out("%s", err.text);
	is_int(optimfs_remove(fs, dir, "exp_avg", false, &err), 0, "removed");
	is_int(optimfs_file_read(f, &byte, 1, 0, &err), 1,
	    "who has it open reads on");
	is_int(optimfs_commit(fs, NULL, NULL, &err), 0, "until a commit");
	is_int(optimfs_file_read(f, &byte, 1, 0, &err), -1, "takes it away");
	is_error(err, ESTALE, "OFS844", "which is said");
	optimfs_file_close(f);
	optimfs_close(fs);
}

int main(void)
{
	snprintf(top, sizeof(top), "/tmp/optimfs-recover-XXXXXX");
	if (mkdtemp(top) == NULL)
		bail_out("%s", top);
	snprintf(ck, sizeof(ck), "%s/ck", top);
	lost();
	not_lost();
	journals();
	orders();
	taken();
	progress();
	shell("rm -r \"$PWD\"");
	return done_testing();
}
