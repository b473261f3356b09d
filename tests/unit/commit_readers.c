/* commit_readers.c - reads during commits */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "optimfs/optimfs.h"

#include "support/truth.h"
#include "tap.h"

#define TENSOR  "model/norm.weight"
#define COMMITS 20
#define READERS 3

static char top[] = "/tmp/optimfs-readers-XXXXXX", ck[64];
static struct optimfs *fs;
static atomic_bool over;

/* A reader makes whole rounds of open, read and close until it is told to
 * stop. */
struct reader {
	pthread_t thread;
	unsigned reads, mixed;
	bool failed;
	struct optimfs_error err; /* of the read that failed */
	_Atomic unsigned seen;    /* the first byte of the last read */
};

static void shell(const char *command)
{
	if (system(command) != 0)
		bail_out("%s", command);
}

static int open_tensor(bool write, struct optimfs_file **f,
    struct optimfs_error *err)
{
	struct optimfs_attr attr;

	if (optimfs_resolve(fs, TENSOR, &attr, err) == -1)
		return -1;
	return write ? optimfs_file_open_write(fs, attr.node, false, f, err)
		     : optimfs_file_open(fs, attr.node, f, err);
}

static int read_once(struct reader *r)
{
	struct optimfs_file *f;
	uint8_t bytes[4096];
	size_t n;
	ssize_t got;

	if (open_tensor(false, &f, &r->err) == -1)
		return -1;
	n = optimfs_file_size(f);
	got =
	    n > sizeof(bytes) ? -1 : optimfs_file_read(f, bytes, n, 0, &r->err);
	optimfs_file_close(f);
	if (got != (ssize_t)n)
		return -1;
	r->reads++;
	r->mixed += memcmp(bytes, bytes + 1, n - 1) != 0;
	atomic_store(&r->seen, bytes[0]);
	return 0;
}

static void *read_on(void *arg)
{
	struct reader *r = arg;

	while (!atomic_load(&over))
		if (read_once(r) == -1) {
			r->failed = true;
			break;
		}
	return NULL;
}

/* Sets all bytes of the tensor to one value and commits. */
static int commit(int byte, struct optimfs_error *err)
{
	struct optimfs_file *f;
	uint8_t bytes[4096];
	int ret;

	memset(bytes, byte, sizeof(bytes));
	if (open_tensor(true, &f, err) == -1)
		return -1;
	ret = optimfs_file_write(f, bytes, optimfs_file_size(f), 0, err);
	optimfs_file_close(f);
	return ret == -1 ? -1 : optimfs_commit(fs, NULL, NULL, err);
}

/* A file that stays open follows commits, also those that came after its last
 * read. */
static void stays_open(void)
{
	struct optimfs_error err = { 0 };
	struct optimfs_file *f;
	uint8_t byte = 0;

	if (open_tensor(false, &f, &err) == -1 || commit(100, &err) != 0)
		bail_out("%s", err.text);
	is_int((int)optimfs_file_read(f, &byte, 1, 0, &err), 1,
	    "reading a file that was open before a commit succeeds");
	is_int(byte, 100,
	    "a file that was open before a commit shows the new bytes");
	if (commit(101, &err) != 0 || commit(102, &err) != 0)
		bail_out("%s", err.text);
	is_int((int)optimfs_file_read(f, &byte, 1, 0, &err), 1,
	    "reading the same open file after two more commits succeeds");
	is_int(byte, 102, "the open file shows the bytes of the last commit");
	optimfs_file_close(f);
}

/* The kernel may still have node numbers of views from before a commit. They
 * must not name another view afterwards. */
static void numbers_of_views(void)
{
	struct optimfs_attr before, after;
	struct optimfs_error err = { 0 };

	if (optimfs_resolve(fs, ".optimfs/view/dcp@2", &before, &err) == -1 ||
	    commit(103, &err) != 0 ||
	    optimfs_resolve(fs, ".optimfs/view/dcp@3", &after, &err) == -1)
		bail_out("%s", err.text);
	ok(before.node != after.node,
	    "views before and after a commit have different node numbers");
	is_int(optimfs_getattr(fs, before.node, &after, &err), -1,
	    "the node number of a view fails after a commit");
	is_int(err.code, ESTALE,
	    "the old node number of a view fails with ESTALE");
}

/* Who does not want to know why passes NULL. */
static void fail_without_error(void)
{
	struct optimfs_options options = { .rw = true };
	struct optimfs_copy how = { 0 };

	ok(optimfs_open(ck, &options, NULL) == NULL,
	    "a second writer is refused without an error to fill");
	is_int(optimfs_copy(fs, "no/such", top, &how, NULL), -1,
	    "so is copying what does not exist");
}

int main(void)
{
	struct optimfs_options options = { .rw = true };
	struct optimfs_error err = { 0 };
	struct reader reader[READERS] = { 0 };
	char command[512];

	if (mkdtemp(top) == NULL)
		bail_out("%s: %m", top);
	snprintf(ck, sizeof(ck), "%s/ck", top);
	snprintf(command, sizeof(command), "cp -r '%s' '%s'",
	    data_path("pytorch/dcp_fsdp2_w2/ckpt"), ck);
	shell(command);
	fs = optimfs_open(ck, &options, &err);
	if (fs == NULL || commit(1, &err) != 0)
		bail_out("%s", err.text);
	for (int i = 0; i < READERS; i++)
		if (pthread_create(&reader[i].thread, NULL, read_on,
			&reader[i]) != 0)
			bail_out("pthread_create");
	for (int k = 2; k < COMMITS + 2; k++)
		if (commit(k, &err) != 0)
			bail_out("commit %d: %s", k, err.text);
	atomic_store(&over, true);
	for (int i = 0; i < READERS; i++) {
		pthread_join(reader[i].thread, NULL);
		ok(!reader[i].failed, "reader %d: no read fails during commits",
		    i);
		if (reader[i].failed)
			diag("%s", reader[i].err.text);
		is_int(reader[i].mixed, 0,
		    "reader %d: no read mixes two commits", i);
		is_int(read_once(&reader[i]), 0,
		    "reader %d: reading after the last commit succeeds", i);
		is_int((int)atomic_load(&reader[i].seen), COMMITS + 1,
		    "reader %d: the last read shows the last commit", i);
	}
	stays_open();
	numbers_of_views();
	fail_without_error();
	optimfs_close(fs);
	snprintf(command, sizeof(command), "rm -rf '%s'", top);
	shell(command);
	return done_testing();
}
