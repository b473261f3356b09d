/* overlay.c - written checkpoints, through the public functions */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "overlay/overlay.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fs/fs.h"
#include "sample.h"
#include "support/listing.h"
#include "tap.h"

static struct sample s;
static struct optimfs_error err;

static void begin(void)
{
	struct optimfs_options o = { .rw = true };

	sample_init(&s, &o, &err);
	if (s.fs == NULL)
		bail_out("%s", err.text);
}

/* A handle for writing. */
static struct optimfs_file *writer(const char *path, bool truncate)
{
	struct optimfs_file *f;

	if (optimfs_file_open_write(s.fs, sample_node(&s, path), truncate, &f,
		&err) == -1)
		bail_out("%s: %s", path, err.text);
	return f;
}

/* Writes the bytes to path. Returns the result of the write or of the flush. */
static int put_at(const char *path, const void *bytes, size_t n, uint64_t off,
    bool truncate)
{
	struct optimfs_file *f = writer(path, truncate);
	int ret = optimfs_file_write(f, bytes, n, off, &err);

	if (ret == 0)
		ret = optimfs_file_flush(f, &err);
	optimfs_file_close(f);
	return ret;
}

static int say(const char *path, const char *text)
{
	return put_at(path, text, strlen(text), 0, true);
}

static void shows(const char *path, const void *want, size_t n,
    const char *name)
{
	size_t len = 0;
	char *got = sample_read(&s, path, &len, &err);

	if (got == NULL)
		ok(false, "%s: %s", name, err.text);
	else if (len != n)
		is_u64(len, n, "%s: size of %s", name, path);
	else
		is_mem(got, want, n, "%s", name);
	free(got);
}

static void says(const char *path, const char *text, const char *name)
{
	shows(path, text, strlen(text), name);
}

static int make(const char *dir, const char *name, bool is_dir)
{
	struct optimfs_attr a;

	return optimfs_create(s.fs, sample_node(&s, dir), name, is_dir, &a,
	    &err);
}

static int take(const char *dir, const char *name, bool is_dir)
{
	return optimfs_remove(s.fs, sample_node(&s, dir), name, is_dir, &err);
}

static int move(const char *dir, const char *name, const char *to,
    const char *newname)
{
	return optimfs_rename(s.fs, sample_node(&s, dir), name,
	    sample_node(&s, to), newname, true, &err);
}

static int set(const char *path, const char *name, const char *value)
{
	return optimfs_setxattr(s.fs, sample_node(&s, path), name, value,
	    strlen(value), &err);
}

/* The changes that a commit would get, as lines "KIND path"; "!" marks those
 * that cannot be committed. */
static const char *changes(void)
{
	static char text[2000];
	static const char *const kinds[] = { "data", "value", "add", "remove" };
	struct ofs_changes c;
	size_t n = 0;

	text[0] = '\0';
	if (ofs_hold_writers(s.fs, true, &err) == -1 ||
	    ofs_overlay_changes(s.fs->now->overlay, &c, &err) == -1)
		return err.text;
	for (size_t i = 0; i < c.n && n < sizeof(text); i++)
		n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%s %s\n",
		    c.v[i].problem.code != 0 ? "!" : "", kinds[c.v[i].kind],
		    c.v[i].path);
	ofs_changes_free(&c);
	ofs_let_writers(s.fs);
	return text;
}

/* A write is seen in each mirror. model/t is (2,4) of int16; columns 0-1 are on
 * rank 0, 2-3 on rank 1. */
static void every_mirror(void)
{
	uint8_t t[16], want[8], npy[200];
	size_t len;
	char *got;

	memcpy(t, s.t, sizeof(t));
	is_str(changes(), "", "an open checkpoint has no changes");
	memcpy(t + 3, "abcdefg", 7);
	is_int(put_at("model/t", "abcdefg", 7, 3, false), 0,
	    "write into model/t");
	shows("model/t", t, sizeof(t), "model/t has the written bytes");
	got = sample_read(&s, ".optimfs/npy/model/t.npy", &len, &err);
	memcpy(npy, got, len);
	ok(len > 16 && memcmp(npy + len - 16, t, 16) == 0,
	    "the .npy file has the written bytes");
	free(got);
	memcpy(want, t, 4);
	memcpy(want + 4, t + 8, 4);
	shows(".optimfs/rank/0/model/t", want, 8,
	    "rank 0 has its written columns");
	memcpy(want, t + 4, 4);
	memcpy(want + 4, t + 12, 4);
	shows(".optimfs/rank/1/model/t", want, 8,
	    "rank 1 has its written columns");
	is_str(changes(), "data model/t\n", "a written tensor is one change");
	is_int(optimfs_abort(s.fs, &err), 0, "abort succeeds");
	shows("model/t", s.t, 16, "abort restores the bytes");
	is_str(changes(), "", "abort leaves no changes");
}

/* Half of optim/state/w/exp_avg is in a file that is lost. */
static void repair(void)
{
	uint8_t bytes[16];
	char *got;

	memcpy(bytes, s.exp_avg, sizeof(bytes));
	handmade_fill(bytes + 8, 8, 77);
	got = sample_read(&s, "optim/state/w/exp_avg", NULL, &err);
	ok(got == NULL && err.code == EIO,
	    "a tensor with a lost half cannot be read");
	is_int(put_at("optim/state/w/exp_avg", bytes + 9, 7, 9, false), 0,
	    "write all but one byte of the lost half");
	got = sample_read(&s, "optim/state/w/exp_avg", NULL, &err);
	ok(got == NULL && err.code == EIO,
	    "a tensor with one lost byte cannot be read");
	is_int(put_at("optim/state/w/exp_avg", bytes + 8, 1, 8, false), 0,
	    "write the last lost byte");
	shows("optim/state/w/exp_avg", bytes, 16,
	    "a tensor whose lost half was written can be read");
	optimfs_abort(s.fs, NULL);
}

static void sizes(void)
{
	uint8_t w[64] = { 0 };
	struct optimfs_file *f;
	struct optimfs_attr a;

	f = writer("model/w", true);
	is_u64(optimfs_file_size(f), 0,
	    "a tensor opened with truncation has size 0");
	is_int(optimfs_getattr(s.fs, sample_node(&s, "model/w"), &a, &err), 0,
	    "getattr of a truncated tensor");
	is_u64(a.size, 0, "getattr reports size 0 for a truncated tensor");
	is_int(optimfs_file_write(f, s.w, 20, 0, &err), 0,
	    "write the first 20 bytes of a truncated tensor");
	is_int(optimfs_file_flush(f, &err), 0,
	    "flush of an incomplete tensor succeeds");
	is_str(changes(), "!data model/w\n",
	    "an incomplete tensor cannot be committed");
	is_int(sample_read(&s, ".optimfs/rank/1/model/w", NULL, &err) == NULL,
	    true, "bytes that were cut off are not read from the checkpoint");
	is_error(err, EIO, "OFS301",
	    "bytes that were cut off are an error, not zeros");
	memcpy(w, s.w, 20);
	is_int(optimfs_file_truncate(f, 8, &err), 0, "truncate to 8 bytes");
	is_int(optimfs_file_truncate(f, 60, &err), 0,
	    "extend to the full size");
	memset(w + 8, 0, 52);
	shows("model/w", w, 60, "an extended tensor has zeros after the cut");
	is_int(optimfs_file_write(f, "xyz", 3, 57, &err), 0,
	    "write the last bytes of a tensor");
	is_int(optimfs_file_write(f, "xyz", 3, 58, &err), -1,
	    "a write past the end of a tensor fails");
	is_error(err, EFBIG, "OFS813",
	    "a write past the end of a tensor fails with EFBIG");
	is_int(optimfs_file_truncate(f, 61, &err), -1,
	    "extending a tensor past its size fails");
	is_int(optimfs_file_flush(f, &err), -1,
	    "flush reports the earlier failed write");
	is_int(optimfs_file_flush(f, &err), -1,
	    "a second flush reports it again");
	is_error(err, EFBIG, "OFS813", "a second flush has the same error");
	optimfs_file_close(f);
	is_str(changes(), "data model/w\n",
	    "a complete tensor can be committed");
	is_int(put_at("model/w", s.w, 60, 0, true), 0,
	    "truncate and write a whole tensor, as cp does");
	shows("model/w", s.w, 60, "a rewritten tensor has the new bytes");
	optimfs_abort(s.fs, NULL);
}

static void texts(void)
{
	struct optimfs_file *f;
	char buf[20];

	is_int(say("optim/param_groups/0/lr", "1e-5\n"), 0, "write a number");
	says("optim/param_groups/0/lr", "1e-05\n",
	    "a number is shown in canonical form");
	is_int(say("optim/param_groups/0/lr", "abc\n"), -1,
	    "text that is not a number is refused");
	is_error(err, EINVAL, "OFS806",
	    "text that is not a number fails with EINVAL");
	says("optim/param_groups/0/lr", "1e-05\n",
	    "a refused text leaves the old value");
	is_int(say("optim/state/w/step", "7\n"), 0,
	    "write a 0-dimensional tensor as text");
	says("optim/state/w/step", "7.0\n",
	    "a 0-dimensional float32 tensor is shown as a float");
	is_int(say("optim/state/w/step", "1e999\n"), -1,
	    "a number too large for float32 is refused");
	is_error(err, ERANGE, "OFS806",
	    "a number too large for float32 fails with ERANGE");
	is_int(say("extra/note", "ho\n"), 0, "write a string");
	is_int(say("extra/epoch", "4\n5\n"), -1,
	    "two lines for one value are refused");
	f = writer("extra/epoch", true);
	is_int(optimfs_file_flush(f, &err), 0,
	    "flush of a truncated text succeeds, as shells do it");
	is_int(optimfs_file_write(f, "1", 1, 0, &err), 0, "write one digit");
	is_int(optimfs_file_write(f, "2", 1, 1, &err), 0,
	    "write a second digit");
	is_int((int)optimfs_file_read(f, buf, 20, 0, &err), 2,
	    "the writer's handle reads the unfinished text");
	says("extra/epoch", "3\n",
	    "other readers see the old value before the flush");
	is_int(optimfs_file_flush(f, &err), 0,
	    "flush of the new text succeeds");
	optimfs_file_close(f);
	says("extra/epoch", "12\n",
	    "other readers see the new value after the flush");
	f = writer("extra/epoch", false);
	is_int(optimfs_file_write(f, "x", 1, 1, &err), -1,
	    "a write that makes the text invalid is refused");
	is_int(optimfs_file_flush(f, &err), -1,
	    "flush of an invalid text fails");
	is_int(optimfs_file_flush(f, &err), -1,
	    "a second flush of an invalid text fails");
	optimfs_file_close(f);
	says("extra/epoch", "12\n", "an invalid text is dropped at close");
	is_str(changes(),
	    "value extra/epoch\nvalue extra/note\n"
	    "value optim/param_groups/0/lr\nvalue optim/state/w/step\n",
	    "four written values are four changes");
	optimfs_abort(s.fs, NULL);
	says("extra/epoch", "3\n", "abort restores a value");
}

static void names(void)
{
	struct optimfs_file *f;
	struct optimfs_attr a;
	char buf[4], *shape;
	size_t len;

	is_int(make("optim/state", "t", true), 0,
	    "create a directory for a parameter's state");
	is_int(make("optim/state", "t", true), -1,
	    "creating an existing directory fails");
	is_error(err, EEXIST, "t",
	    "creating an existing directory fails with EEXIST");
	is_int(make("", "other", true), -1,
	    "creating a directory at the top fails");
	is_error(err, EPERM, "OFS814",
	    "creating a directory at the top fails with EPERM");
	is_int(make(".optimfs/layout/model", "x", false), -1,
	    "creating a file in the layout mirror fails");
	is_error(err, EPERM, "OFS814",
	    "creating a file in the layout mirror fails with EPERM");
	is_int(make("optim/state/t", "exp_avg", false), 0,
	    "create a file for a state");
	is_int(optimfs_rename(s.fs, sample_node(&s, ".optimfs/npy/model"),
		   "t.npy", sample_node(&s, "model"), "t2", true, &err),
	    -1, "renaming a file of npy to one of the tree fails");
	is_error(err, EPERM, "OFS814 .optimfs/npy/model: ",
	    "renaming a file of npy fails with EPERM, and names its directory");
	is_str(changes(), "!add optim/state/t/exp_avg\n",
	    "a new empty state cannot be committed yet");
	is_int(put_at("optim/state/t/exp_avg", s.t, 16, 0, false), 0,
	    "write a state of its parameter's size");
	is_int(optimfs_getxattr(s.fs, sample_node(&s, "optim/state/t/exp_avg"),
		   "user.optimfs.shape", &shape, &len, &err),
	    0, "a new state has a shape");
	is_str(shape, "2,4", "a new state has its parameter's shape");
	free(shape);
	ok(listing_has(s.fs, ".optimfs/npy/optim/state/t/exp_avg.npy"),
	    "a new state has a .npy file");
	is_int(take("optim/state", "t", true), -1,
	    "removing a directory that is not empty fails");
	is_error(err, ENOTEMPTY, "t",
	    "removing a directory that is not empty fails with ENOTEMPTY");
	is_int(move("optim/state", "t", "optim/state", "t2"), 0,
	    "rename a parameter's state");
	shows("optim/state/t2/exp_avg", s.t, 16,
	    "a renamed state keeps its bytes");
	says("optim/param_groups/0/params", "w\nt2\n",
	    "params lists the renamed state");
	is_int(move("optim/state", "t2", "optim/state", "w"), -1,
	    "rename onto an existing state fails");
	says("optim/param_groups/0/params", "w\nt2\n",
	    "a failed rename leaves params unchanged");
	is_int(move("optim", "state", "optim/state/t2", "x"), -1,
	    "rename of a directory into itself fails");
	is_error(err, EINVAL, "itself",
	    "rename of a directory into itself fails with EINVAL");

	f = writer("optim/state/t2/exp_avg", false);
	is_int(take("optim/state/t2", "exp_avg", false), 0,
	    "remove an open file");
	ok(!listing_has(s.fs, "optim/state/t2/exp_avg"),
	    "a removed file is gone from the tree");
	is_int((int)optimfs_file_read(f, buf, 4, 0, &err), 4,
	    "an open removed file can be read");
	is_int(optimfs_file_write(f, "qq", 2, 0, &err), 0,
	    "an open removed file can be written");
	optimfs_file_close(f);
	is_int(take("optim/state", "t2", true), 0, "remove an empty directory");
	is_str(changes(), "value optim/param_groups/0/params\n",
	    "a removed new state is no change except in params");
	optimfs_abort(s.fs, NULL);

	is_int(move("model", "w", "model", "v"), 0, "rename a tensor");
	shows("model/v", s.w, 60, "a renamed tensor keeps its bytes");
	ok(!listing_has(s.fs, "model/w") &&
		listing_has(s.fs, ".optimfs/npy/model/v.npy"),
	    "a renamed tensor is renamed in npy, too");
	is_int(put_at("model/v", "abc", 3, 5, false), 0,
	    "write into a renamed tensor");
	is_str(changes(),
	    "add model/v\nremove model/w\nvalue optim/param_groups/0/params\n",
	    "a written and renamed tensor is three changes");
	says("optim/param_groups/0/params", "v\nt\n",
	    "params lists the renamed parameter");
	is_int(move("model", "v", "model", "w"), 0, "rename a tensor back");
	is_str(changes(), "data model/w\nvalue optim/param_groups/0/params\n",
	    "a tensor renamed back is a write again");
	says("optim/param_groups/0/params", "w\nt\n",
	    "params lists the tensor by its old name again");
	optimfs_abort(s.fs, NULL);

	f = writer("optim/param_groups/0/params", true);
	is_int(optimfs_file_write(f, "w\n", 2, 0, &err), 0,
	    "write the first line of a group's list");
	is_int(move("model", "w", "model", "v"), -1,
	    "rename of a parameter in an unfinished list fails");
	is_error(err, EBUSY, "OFS257",
	    "rename of a parameter in an unfinished list fails with EBUSY");
	ok(listing_has(s.fs, "model/w"),
	    "a rename refused for an unfinished list leaves the tensor");
	is_int(optimfs_file_write(f, "t\n", 2, 2, &err), 0,
	    "write the second line of the list");
	optimfs_file_close(f);
	is_int(move("model", "w", "model", "v"), 0,
	    "rename of a parameter after the list is complete");
	says("optim/param_groups/0/params", "v\nt\n",
	    "params lists the parameter by its new name");
	optimfs_abort(s.fs, NULL);

	is_int(move("model", "w", "model", "t"), 0,
	    "rename a tensor onto another");
	is_str(changes(), "remove model/t\nadd model/t\nremove model/w\n",
	    "rename onto a tensor replaces it and removes the source");
	optimfs_abort(s.fs, NULL);
	is_int(optimfs_getattr(s.fs, sample_node(&s, "model/w"), &a, &err), 0,
	    "abort restores a renamed tensor");
	shows("model/t", s.t, 16, "abort restores a replaced tensor");
}

/* rsync, editors and tar write another file and rename it. */
static void replaced(void)
{
	uint8_t bytes[60], *last;
	size_t len;

	handmade_fill(bytes, sizeof(bytes), 10);
	is_int(make("model", ".w.Xy12", false), 0,
	    "create a file with a temporary name");
	is_int(put_at("model/.w.Xy12", bytes, 60, 0, false), 0,
	    "write the file with the temporary name");
	is_int(move("model", ".w.Xy12", "model", "w"), 0,
	    "rename the temporary file onto a tensor");
	shows("model/w", bytes, 60, "the replaced tensor has the new bytes");
	is_str(changes(), "data model/w\n",
	    "a tensor replaced by rename is a write to it");
	last =
	    (uint8_t *)sample_read(&s, ".optimfs/npy/model/w.npy", &len, &err);
	ok(last != NULL && len > 60 && memcmp(last + len - 60, bytes, 60) == 0,
	    "the .npy file of the replaced tensor has the new bytes");
	free(last);
	is_int(take("model", "t", false), 0, "remove a tensor, as tar does");
	is_int(make("model", "t", false), 0, "create the removed tensor again");
	is_int(put_at("model/t", bytes, 17, 0, false), -1,
	    "a tensor that is created again cannot become larger");
	is_error(err, EFBIG, "OFS813",
	    "a tensor that is created again and too large fails with EFBIG");
	is_int(put_at("model/t", bytes, 16, 0, false), 0,
	    "write the tensor that was created again");
	is_str(changes(), "data model/t\ndata model/w\n",
	    "a tensor removed and created again is a write to it");
	is_int(make("optim/param_groups/0", "lr~", false), 0,
	    "create an editor's backup file");
	is_int(put_at("optim/param_groups/0/lr~", "x\n", 2, 0, false), 0,
	    "a new file of no known type takes any text");
	is_int(move("optim/param_groups/0", "lr~", "optim/param_groups/0",
		   "lr"),
	    -1, "rename of a file that is not a number onto lr fails");
	is_error(err, EINVAL, "OFS806",
	    "rename of a file that is not a number fails with EINVAL");
	is_int(put_at("optim/param_groups/0/lr~", "2\n", 2, 0, true), 0,
	    "write a number to the new file");
	is_int(move("optim/param_groups/0", "lr~", "optim/param_groups/0",
		   "lr"),
	    0, "rename of a file with a number onto lr");
	is_str(changes(),
	    "data model/t\ndata model/w\nvalue optim/param_groups/0/lr\n",
	    "a value replaced by rename is a change of the value");
	optimfs_abort(s.fs, NULL);
}

static uint64_t dirty_files(void)
{
	struct optimfs_status status;

	optimfs_status(s.fs, &status);
	return status.files;
}

static void counted(void)
{
	is_int(take("model", "t", false), 0, "remove a tensor to count it");
	is_u64(dirty_files(), 1, "a removed file counts");
	is_int(make("model", "t", false), 0, "create it again to count it");
	is_int(put_at("model/t", s.t, 16, 0, false), 0, "write it to count it");
	is_u64(dirty_files(), 1, "a file removed and created again is one");
	optimfs_abort(s.fs, NULL);
	is_int(move("model", "w", "model", "t2"), 0,
	    "rename a tensor to count");
	is_int(make("model", "w", false), 0, "create a file at its old name");
	is_u64(dirty_files(), 3,
	    "a renamed tensor, a new one, and the list of parameters count");
	optimfs_abort(s.fs, NULL);
	is_int(take("optim/state/w", "exp_avg", false), 0,
	    "remove a directory's first file");
	is_int(take("optim/state/w", "step", false), 0,
	    "remove a directory's last file");
	is_int(take("optim/state", "w", true), 0, "remove the directory");
	is_u64(dirty_files(), 2, "a directory that was removed does not count");
	optimfs_abort(s.fs, NULL);
}

static void forms(void)
{
	struct ofs_changes c;

	is_int(set("model/w", "user.optimfs.shape", "5,3"), 0,
	    "set a tensor's shape to the one it has");
	is_str(changes(), "", "setting the same shape is no change");
	is_int(set("model/w", "user.optimfs.shape", "5,x"), -1,
	    "setting an invalid shape fails");
	is_error(err, EINVAL, "OFS816",
	    "setting an invalid shape fails with EINVAL");
	is_int(set("model/w", "user.optimfs.dtype", "float31"), -1,
	    "setting an unknown dtype fails");
	is_int(set("model/w", "user.something", "x"), -1,
	    "setting an unknown attribute fails");
	is_error(err, EOPNOTSUPP, "user.something",
	    "setting an unknown attribute fails with EOPNOTSUPP");
	is_int(set("model/w", "user.optimfs.shape", "3,5"), 0,
	    "set another shape with the same number of elements");
	is_int(ofs_overlay_changes(s.fs->now->overlay, &c, &err), 0,
	    "list the changes of a reshaped tensor");
	is_u64(c.n, 2, "a reshaped tensor is removed and added");
	ok(c.v[1].kind == OFS_CHANGE_ADD && c.v[1].from == c.v[0].entry &&
		c.v[1].ndim == 2 && c.v[1].shape[0] == 3,
	    "a reshaped tensor is added with the old bytes");
	ofs_changes_free(&c);
	is_int(set("model/w", "user.optimfs.shape", "4,3"), 0,
	    "set a smaller shape");
	is_str(changes(), "remove model/w\n!add model/w\n",
	    "a tensor longer than its shape cannot be committed");
	is_int(optimfs_truncate(s.fs, sample_node(&s, "model/w"), 48, &err), 0,
	    "truncate the tensor to its new shape");
	is_str(changes(), "remove model/w\nadd model/w\n",
	    "a tensor truncated to its new shape can be committed");
	optimfs_abort(s.fs, NULL);
}

static void npy(void)
{
	uint8_t file[200], t[16];
	struct optimfs_file *f;
	struct optimfs_attr a;
	size_t len, head;
	char *got = sample_read(&s, ".optimfs/npy/model/t.npy", &len, &err);
	static const char header[] =
	    "\x93NUMPY\x01\x00\x3e\x00{'descr': '<f4', 'fortran_order': False, "
	    "'shape': (2, 1), }  \n";
	static const char *const refused[][3] = {
		{ "NUMPY", "NUMBY", "a file that is no .npy" },
		{ "False", "True ", "a .npy in Fortran order" },
		{ "<f4", ">f4", "a .npy of big-endian elements" },
		{ "<f4", "<V4", "a .npy of bytes without a type" },
		{ "(2,", "(2 ", "a .npy with a damaged header" },
	};

	memcpy(file, got, len);
	free(got);
	head = len - 16;
	handmade_fill(t, sizeof(t), 3);
	memcpy(file + head, t, 16);
	is_int(put_at(".optimfs/npy/model/t.npy", file, len, 0, true), 0,
	    "write a whole .npy file, as numpy.save does");
	shows("model/t", t, 16, "the tensor has the bytes of the .npy file");
	is_int(put_at(".optimfs/npy/model/t.npy", "zz", 2, head + 4, false), 0,
	    "write data of a .npy file in place");
	memcpy(t + 4, "zz", 2);
	shows("model/t", t, 16, "the tensor has the bytes written in place");
	file[len - 16 - 1] = 'x';
	is_int(put_at(".optimfs/npy/model/t.npy", file, 20, 0, false), 0,
	    "the same .npy header may be written again");
	is_int(put_at(".optimfs/npy/model/t.npy", "x", 1, 20, false), -1,
	    "writing another byte into a .npy header fails");
	is_error(err, EINVAL, "OFS816",
	    "writing another byte into a .npy header fails with EINVAL");
	is_int(put_at(".optimfs/npy/model/w.npy", header, sizeof(header) - 1, 0,
		   true),
	    -1, "a .npy header with another shape is refused");
	is_error(err, EINVAL, "OFS816",
	    "a .npy header with another shape fails with EINVAL");
	for (size_t i = 0; i < sizeof(refused) / sizeof(*refused); i++) {
		memcpy(file, header, sizeof(header) - 1);
		memcpy(memmem(file, sizeof(header), refused[i][0],
			   strlen(refused[i][0])),
		    refused[i][1], strlen(refused[i][1]));
		is_int(put_at(".optimfs/npy/model/w.npy", file,
			   sizeof(header) - 1, 0, true),
		    -1, "%s is refused", refused[i][2]);
		is_error(err, EINVAL, "OFS816", "%s fails with EINVAL",
		    refused[i][2]);
	}
	shows("model/w", s.w, 60,
	    "a refused .npy header leaves the tensor unchanged");
	is_int(optimfs_create(s.fs, sample_node(&s, ".optimfs/npy/model"),
		   "new.npy", false, &a, &err),
	    0, "create a new .npy file");
	is_int(optimfs_file_open_write(s.fs, a.node, true, &f, &err), 0,
	    "open the new .npy file");
	memcpy(file, header, sizeof(header) - 1);
	memcpy(file + sizeof(header) - 1, "12345678", 8);
	file[strstr((char *)file + 10, "(2,") - (char *)file + 1] = '9';
	is_int(optimfs_file_write(f, file, sizeof(header) - 1 + 8, 0, &err), 0,
	    "write a new .npy file with too few elements");
	is_int(optimfs_file_flush(f, &err), -1,
	    "flush of a .npy file with too few elements fails");
	is_error(err, EINVAL, "OFS816",
	    "a .npy file with too few elements fails with EINVAL");
	is_int(optimfs_file_write(f, header, sizeof(header) - 1, 0, &err), 0,
	    "write a header that fits the elements");
	is_int(optimfs_file_flush(f, &err), 0,
	    "flush of a complete .npy file succeeds");
	is_int(optimfs_file_truncate(f, sizeof(header), &err), 0,
	    "truncate the .npy file that was accepted");
	is_int(optimfs_file_flush(f, &err), -1,
	    "flush of a truncated .npy file fails");
	is_error(err, EINVAL, "OFS816",
	    "a truncated .npy file fails with EINVAL");
	optimfs_file_close(f);
	says("model/new", "12345678",
	    "a new .npy file is a tensor of the tree");
	is_int(optimfs_getxattr(s.fs, sample_node(&s, "model/new"),
		   "user.optimfs.shape", &got, &len, &err),
	    0, "a tensor made from a .npy file has a shape");
	is_str(got, "2,1",
	    "a tensor made from a .npy file has the header's shape");
	free(got);
	is_str(changes(), "add model/new\ndata model/t\n",
	    "a tensor made from a .npy file can be committed");
	is_int(make(".optimfs/npy/model", "new", false), -1,
	    "a new file in npy must have the suffix .npy");
	optimfs_abort(s.fs, NULL);
}

/* Views of a checkpoint of FSDP2 show what is staged. */
static void views(void)
{
	static const char *const files[] = {
		".optimfs/view/safetensors/model.safetensors",
		".optimfs/view/torch/model.pt",
		".optimfs/view/dcp@1/__0_0.distcp",
	};
	const struct optimfs_options o = { .rw = true, .scratch = true };
	const char *top = getenv("TOP_SRCDIR");
	char path[500];
	uint8_t *bytes;
	size_t n, len;
	char *got;

	snprintf(path, sizeof(path), "%s/tests/data/pytorch/dcp_fsdp2_w2/ckpt",
	    top != NULL ? top : ".");
	s.fs = optimfs_open(path, &o, &err);
	if (s.fs == NULL)
		bail_out("%s", err.text);
	bytes = (uint8_t *)sample_read(&s, "model/output.weight", &n, &err);
	handmade_fill(bytes, n, 123);
	is_int(put_at("model/output.weight", bytes, n, 0, true), 0,
	    "write a tensor of an FSDP2 checkpoint");
	for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++) {
		got = sample_read(&s, files[i], &len, &err);
		ok(got != NULL && memmem(got, len, bytes, n) != NULL,
		    "%s has the written tensor", files[i]);
		free(got);
	}
	got = sample_read(&s, ".optimfs/view/dcp@2/__1_0.distcp", &len, &err);
	ok(got != NULL && memmem(got, len, bytes + n - n / 4, n / 4) != NULL,
	    "a view for two ranks has the written rows of rank 1");
	free(got);
	free(bytes);
	is_int(optimfs_commit(s.fs, NULL, NULL, &err), -1,
	    "commit of a scratch mount fails");
	is_error(err, EROFS, "OFS819",
	    "commit of a scratch mount fails with EROFS");
	optimfs_close(s.fs);
}

static bool in_view(const char *path, float element)
{
	size_t len = 0;
	char *got = sample_read(&s, path, &len, &err);
	bool has =
	    got != NULL && memmem(got, len, &element, sizeof(element)) != NULL;

	free(got);
	return has;
}

/* A new tensor without dimensions is a text in the tree and an element in
 * views. */
static void added_scalar(void)
{
	static const char dir[] = "optim/state/adapter.bias";
	static const char step[] = "optim/state/adapter.bias/step";
	static const char *const states[] = { "exp_avg", "exp_avg_sq" };
	const struct optimfs_options o = { .rw = true, .scratch = true };
	const char *top = getenv("TOP_SRCDIR");
	struct optimfs_attr attr;
	char path[500];

	snprintf(path, sizeof(path), "%s/tests/data/pytorch/dcp_fsdp2_w2/ckpt",
	    top != NULL ? top : ".");
	s.fs = optimfs_open(path, &o, &err);
	if (s.fs == NULL)
		bail_out("%s", err.text);
	is_int(make("optim/state", "adapter.bias", true), 0,
	    "create the states of a parameter");
	is_int(make(dir, "step", false), 0, "create its step");
	is_int(set(step, "user.optimfs.dtype", "float32"), 0,
	    "the step gets a dtype");
	is_int(set(step, "user.optimfs.shape", ""), 0,
	    "the step has no dimensions");
	is_int(say(step, "1234.5\n"), 0, "write the step");
	for (int i = 0; i < 2; i++) {
		is_int(make(dir, states[i], false), 0, "create %s", states[i]);
		snprintf(path, sizeof(path), "%s/%s", dir, states[i]);
		is_int(put_at(path, "1234567890123456789012345678", 28, 0,
			   true),
		    0, "write %s", states[i]);
	}
	ok(in_view(".optimfs/view/dcp@1/__0_0.distcp", 1234.5f),
	    "a view has the element that the text of an added step says");
	is_int(say(step, "3.0\n"), 0, "write the step again");
	ok(!in_view(".optimfs/view/dcp@1/__0_0.distcp", 1234.5f),
	    "a view does not have the old element of an added step");
	ok(optimfs_resolve(s.fs, ".optimfs/view/zero1@2/latest", &attr, &err) ==
		0,
	    "a view for ZeRO finds the step equal to the others: %s", err.text);
	optimfs_close(s.fs);
}

/* Its size is known from the first read on, so its lines may not change. */
static void table(void)
{
	char *before, *after;
	size_t n, m;

	before = sample_read(&s, ".optimfs/tensors.tsv", &n, &err);
	is_int(move("model", "swap", "model", "s"), 0, "shorten a name");
	after = sample_read(&s, ".optimfs/tensors.tsv", &m, &err);
	ok(before != NULL && after != NULL && n == m &&
		memcmp(before, after, n) == 0,
	    "tensors.tsv has the names of the checkpoint until the commit");
	free(before);
	free(after);
}

/* A view keeps the staged state of its time only while it is in use. Eight
 * further views displace the first. */
static void old_view(void)
{
	const struct optimfs_options o = { .rw = true, .scratch = true };
	const char *top = getenv("TOP_SRCDIR");
	struct optimfs_file *f;
	uint64_t node;
	char path[500];

	snprintf(path, sizeof(path), "%s/tests/data/pytorch/dcp_fsdp2_w2/ckpt",
	    top != NULL ? top : ".");
	s.fs = optimfs_open(path, &o, &err);
	if (s.fs == NULL)
		bail_out("%s", err.text);
	is_int(say("optim/param_groups/0/lr", "0.25\n"), 0, "write a value");
	node = sample_node(&s, ".optimfs/view/dcp@1/.metadata");
	is_int(say("optim/param_groups/0/lr", "0.125\n"), 0,
	    "write another value");
	for (int i = 2; i < 10; i++) {
		snprintf(path, sizeof(path), ".optimfs/view/dcp@%d/.metadata",
		    i);
		sample_node(&s, path);
	}
	is_int(optimfs_file_open(s.fs, node, &f, &err), -1,
	    "a displaced view of an old state does not open");
	is_error(err, ESTALE, "OFS776",
	    "a displaced view of an old state fails with ESTALE");
	node = sample_node(&s, ".optimfs/view/dcp@1/.metadata");
	is_int(optimfs_file_open(s.fs, node, &f, &err), 0,
	    "a displaced view opens after a new lookup");
	optimfs_file_close(f);
	optimfs_close(s.fs);
}

static unsigned open_descriptors(void)
{
	DIR *d = opendir("/proc/self/fd");
	unsigned n = 0;

	if (d == NULL)
		bail_out("/proc/self/fd");
	while (readdir(d) != NULL)
		n++;
	closedir(d);
	return n;
}

static void *truncate_npy(void *file)
{
	struct optimfs_error own;

	return optimfs_file_truncate(file, 0, &own) == 0 ? file : NULL;
}

/* Several threads may use one file. */
static void truncated_at_once(void)
{
	unsigned before = open_descriptors(), failed = 0;

	for (int i = 0; i < 500; i++) {
		struct optimfs_file *f =
		    writer(".optimfs/npy/model/t.npy", false);
		pthread_t other;
		void *done;

		if (pthread_create(&other, NULL, truncate_npy, f) != 0)
			bail_out("no thread");
		failed += truncate_npy(f) == NULL;
		pthread_join(other, &done);
		failed += done == NULL;
		optimfs_file_close(f);
	}
	is_int((int)failed, 0, "two threads truncate one .npy file");
	is_int((int)open_descriptors(), (int)before,
	    "a .npy file that two threads truncate leaves nothing open");
}

/* Writes every second byte, so that their ranges do not join. */
static void *write_apart(void *file)
{
	struct optimfs_error own;
	int ret = 0;

	for (int i = 0; i < 100; i++)
		for (uint64_t off = 0; off < 16; off += 2)
			ret |= optimfs_file_write(file, "x", 1, off, &own);
	return ret == 0 ? file : NULL;
}

static void status_at_once(void)
{
	struct optimfs_file *f = writer("model/t", false);
	struct optimfs_status status;
	unsigned wrong = 0;
	pthread_t other;
	void *done;

	if (pthread_create(&other, NULL, write_apart, f) != 0)
		bail_out("no thread");
	for (int i = 0; i < 200; i++) {
		optimfs_status(s.fs, &status);
		wrong += status.bytes > 8;
	}
	pthread_join(other, &done);
	optimfs_file_close(f);
	ok(done != NULL, "a thread writes while another asks for the status");
	is_int((int)wrong, 0, "the status never has more bytes than written");
}

int main(void)
{
	begin();
	every_mirror();
	repair();
	sizes();
	texts();
	names();
	replaced();
	counted();
	forms();
	npy();
	truncated_at_once();
	sample_fini(&s);
	begin();
	status_at_once();
	sample_fini(&s);
	begin();
	table();
	sample_fini(&s);
	views();
	old_view();
	added_scalar();
	return done_testing();
}
