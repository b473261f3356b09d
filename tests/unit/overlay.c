/* overlay/overlay.c - a checkpoint that is written, through the public functions */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "overlay/overlay.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/fs.h"
#include "sample.h"
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

/* A write handle. */
static struct optimfs_file *writer(const char *path, bool truncate)
{
	struct optimfs_file *f;

	if (optimfs_file_open_write(s.fs, sample_node(&s, path), truncate, &f,
		&err) == -1)
		bail_out("%s: %s", path, err.text);
	return f;
}

/* The bytes are written to path; what close says. */
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

static bool exists(const char *path)
{
	struct optimfs_attr a;

	return optimfs_resolve(s.fs, path, &a, NULL) == 0;
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

/* What a commit would be told: "KIND path", one a line, problems with "!". */
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

/* model/t is (2,4) of int16, columns 0-1 on rank 0 and 2-3 on rank 1. */
static void every_mirror(void)
{
	uint8_t t[16], want[8], npy[200];
	size_t len;
	char *got;

	memcpy(t, s.t, sizeof(t));
	is_str(changes(), "", "nothing has changed");
	memcpy(t + 3, "abcdefg", 7);
	is_int(put_at("model/t", "abcdefg", 7, 3, false), 0, "write");
	shows("model/t", t, sizeof(t), "the tree");
	got = sample_read(&s, ".optimfs/npy/model/t.npy", &len, &err);
	memcpy(npy, got, len);
	ok(len > 16 && memcmp(npy + len - 16, t, 16) == 0, "npy");
	free(got);
	memcpy(want, t, 4);
	memcpy(want + 4, t + 8, 4);
	shows(".optimfs/rank/0/model/t", want, 8, "columns of rank 0");
	memcpy(want, t + 4, 4);
	memcpy(want + 4, t + 12, 4);
	shows(".optimfs/rank/1/model/t", want, 8, "columns of rank 1");
	is_str(changes(), "data model/t\n", "one change");
	is_int(optimfs_abort(s.fs, &err), 0, "abort");
	shows("model/t", s.t, 16, "takes it back");
	is_str(changes(), "", "all of it");
}

/* optim/state/w/exp_avg: half of it is in a file that is lost. */
static void repair(void)
{
	uint8_t bytes[16];
	char *got;

	memcpy(bytes, s.exp_avg, sizeof(bytes));
	handmade_fill(bytes + 8, 8, 77);
	got = sample_read(&s, "optim/state/w/exp_avg", NULL, &err);
	ok(got == NULL && err.code == EIO, "half of it is lost");
	is_int(put_at("optim/state/w/exp_avg", bytes + 9, 7, 9, false), 0,
	    "all but a byte of that is written");
	got = sample_read(&s, "optim/state/w/exp_avg", NULL, &err);
	ok(got == NULL && err.code == EIO, "the byte is missing");
	is_int(put_at("optim/state/w/exp_avg", bytes + 8, 1, 8, false), 0,
	    "and written");
	shows("optim/state/w/exp_avg", bytes, 16, "it is whole");
	optimfs_abort(s.fs, NULL);
}

static void sizes(void)
{
	uint8_t w[64] = { 0 };
	struct optimfs_file *f;
	struct optimfs_attr a;

	f = writer("model/w", true);
	is_u64(optimfs_file_size(f), 0, "cut to nothing");
	is_int(optimfs_getattr(s.fs, sample_node(&s, "model/w"), &a, &err), 0,
	    "stat");
	is_u64(a.size, 0, "says so");
	is_int(optimfs_file_write(f, s.w, 20, 0, &err), 0, "a part");
	is_int(optimfs_file_flush(f, &err), 0, "closed");
	is_str(changes(), "!data model/w\n", "it cannot be committed");
	is_int(sample_read(&s, ".optimfs/rank/1/model/w", NULL, &err) == NULL,
	    true, "what is missing is not read from below");
	is_error(err, EIO, "OFS301", "nor as zeros");
	memcpy(w, s.w, 20);
	is_int(optimfs_file_truncate(f, 8, &err), 0, "shorter");
	is_int(optimfs_file_truncate(f, 60, &err), 0, "longer");
	memset(w + 8, 0, 52);
	shows("model/w", w, 60, "what was cut off is zeros");
	is_int(optimfs_file_write(f, "xyz", 3, 57, &err), 0, "to the end");
	is_int(optimfs_file_write(f, "xyz", 3, 58, &err), -1, "past it");
	is_error(err, EFBIG, "OFS813", "is too far");
	is_int(optimfs_file_truncate(f, 61, &err), -1, "nor longer");
	is_int(optimfs_file_flush(f, &err), -1, "close tells it");
	is_int(optimfs_file_flush(f, &err), -1, "each time");
	is_error(err, EFBIG, "OFS813", "the same");
	optimfs_file_close(f);
	is_str(changes(), "data model/w\n", "complete");
	is_int(put_at("model/w", s.w, 60, 0, true), 0, "as cp does");
	shows("model/w", s.w, 60, "all of it");
	optimfs_abort(s.fs, NULL);
}

static void texts(void)
{
	struct optimfs_file *f;
	char buf[20];

	is_int(say("optim/param_groups/0/lr", "1e-5\n"), 0, "a number");
	says("optim/param_groups/0/lr", "1e-05\n", "as it will be shown");
	is_int(say("optim/param_groups/0/lr", "abc\n"), -1, "no number");
	is_error(err, EINVAL, "OFS806", "is refused");
	says("optim/param_groups/0/lr", "1e-05\n", "and the old one stays");
	is_int(say("optim/state/w/step", "7\n"), 0, "a scalar tensor");
	says("optim/state/w/step", "7.0\n", "as float32 says it");
	is_int(say("optim/state/w/step", "1e999\n"), -1, "too large");
	is_error(err, ERANGE, "OFS806", "does not fit");
	is_int(say("extra/note", "ho\n"), 0, "a string");
	is_int(say("extra/epoch", "4\n5\n"), -1, "two lines");
	f = writer("extra/epoch", true);
	is_int(optimfs_file_flush(f, &err), 0,
	    "what a shell does to a file on the way");
	is_int(optimfs_file_write(f, "1", 1, 0, &err), 0, "one digit");
	is_int(optimfs_file_write(f, "2", 1, 1, &err), 0, "another");
	is_int((int)optimfs_file_read(f, buf, 20, 0, &err), 2,
	    "who writes sees what he writes");
	says("extra/epoch", "3\n", "others see what was there");
	is_int(optimfs_file_flush(f, &err), 0, "until it is closed");
	optimfs_file_close(f);
	says("extra/epoch", "12\n", "and then that");
	f = writer("extra/epoch", false);
	is_int(optimfs_file_write(f, "x", 1, 1, &err), -1, "garbage");
	is_int(optimfs_file_flush(f, &err), -1, "is refused");
	is_int(optimfs_file_flush(f, &err), -1, "each time it is closed");
	optimfs_file_close(f);
	says("extra/epoch", "12\n", "and forgotten");
	is_str(changes(),
	    "value extra/epoch\nvalue extra/note\n"
	    "value optim/param_groups/0/lr\nvalue optim/state/w/step\n",
	    "four values");
	optimfs_abort(s.fs, NULL);
	says("extra/epoch", "3\n", "aborted");
}

static void names(void)
{
	struct optimfs_file *f;
	struct optimfs_attr a;
	char buf[4], *shape;
	size_t len;

	is_int(make("optim/state", "t", true), 0, "a directory");
	is_int(make("optim/state", "t", true), -1, "again");
	is_error(err, EEXIST, "t", "is there");
	is_int(make("", "other", true), -1, "beside the three");
	is_error(err, EPERM, "OFS814", "is no place");
	is_int(make(".optimfs/layout/model", "x", false), -1, "a mirror");
	is_error(err, EPERM, "OFS814", "neither");
	is_int(make("optim/state/t", "exp_avg", false), 0, "a file");
	is_str(changes(), "!add optim/state/t/exp_avg\n",
	    "is a change, of something that is no tensor yet");
	is_int(put_at("optim/state/t/exp_avg", s.t, 16, 0, false), 0,
	    "as long as the parameter");
	is_int(optimfs_getxattr(s.fs, sample_node(&s, "optim/state/t/exp_avg"),
		   "user.optimfs.shape", &shape, &len, &err),
	    0, "takes its shape");
	is_str(shape, "2,4", "and says so");
	free(shape);
	ok(exists(".optimfs/npy/optim/state/t/exp_avg.npy"), "npy has it");
	is_int(take("optim/state", "t", true), -1, "it is not empty");
	is_error(err, ENOTEMPTY, "t", "so it stays");
	is_int(move("optim/state", "t", "optim/state", "t2"), 0, "renamed");
	shows("optim/state/t2/exp_avg", s.t, 16, "with what is in it");
	says("optim/param_groups/0/params", "w\nt2\n", "its group knows it");
	is_int(move("optim/state", "t2", "optim/state", "w"), -1,
	    "onto another");
	says("optim/param_groups/0/params", "w\nt2\n", "which is refused");
	is_int(move("optim", "state", "optim/state/t2", "x"), -1, "a loop");
	is_error(err, EINVAL, "itself", "is none");

	f = writer("optim/state/t2/exp_avg", false);
	is_int(take("optim/state/t2", "exp_avg", false), 0, "removed");
	ok(!exists("optim/state/t2/exp_avg"), "gone");
	is_int((int)optimfs_file_read(f, buf, 4, 0, &err), 4, "but still open");
	is_int(optimfs_file_write(f, "qq", 2, 0, &err), 0, "to write, too");
	optimfs_file_close(f);
	is_int(take("optim/state", "t2", true), 0, "rmdir");
	is_str(changes(), "value optim/param_groups/0/params\n",
	    "as if it had not been, except in its group");
	optimfs_abort(s.fs, NULL);

	is_int(move("model", "w", "model", "v"), 0, "a tensor renamed");
	shows("model/v", s.w, 60, "keeps its bytes");
	ok(!exists("model/w") && exists(".optimfs/npy/model/v.npy"),
	    "everywhere");
	is_int(put_at("model/v", "abc", 3, 5, false), 0, "written");
	is_str(changes(),
	    "add model/v\nremove model/w\nvalue optim/param_groups/0/params\n",
	    "three changes");
	says("optim/param_groups/0/params", "v\nt\n", "its group knows it");
	is_int(move("model", "v", "model", "w"), 0, "back");
	is_str(changes(), "data model/w\nvalue optim/param_groups/0/params\n",
	    "two");
	says("optim/param_groups/0/params", "w\nt\n", "the group, too");
	optimfs_abort(s.fs, NULL);

	f = writer("optim/param_groups/0/params", true);
	is_int(optimfs_file_write(f, "w\n", 2, 0, &err), 0, "half a list");
	is_int(move("model", "w", "model", "v"), -1, "no renaming meanwhile");
	is_error(err, EBUSY, "OFS257", "says which group");
	ok(exists("model/w"), "nothing is renamed");
	is_int(optimfs_file_write(f, "t\n", 2, 2, &err), 0, "the other half");
	optimfs_file_close(f);
	is_int(move("model", "w", "model", "v"), 0, "now it is possible");
	says("optim/param_groups/0/params", "v\nt\n", "with the group");
	optimfs_abort(s.fs, NULL);

	is_int(move("model", "w", "model", "t"), 0, "onto another");
	is_str(changes(), "remove model/t\nadd model/t\nremove model/w\n",
	    "which makes way, and is in the group for itself");
	optimfs_abort(s.fs, NULL);
	is_int(optimfs_getattr(s.fs, sample_node(&s, "model/w"), &a, &err), 0,
	    "all is as it was");
	shows("model/t", s.t, 16, "all of it");
}

/* What rsync, editors and tar do: another file takes the name. */
static void replaced(void)
{
	uint8_t bytes[60], *last;
	size_t len;

	handmade_fill(bytes, sizeof(bytes), 10);
	is_int(make("model", ".w.Xy12", false), 0, "a temporary name");
	is_int(put_at("model/.w.Xy12", bytes, 60, 0, false), 0, "written");
	is_int(move("model", ".w.Xy12", "model", "w"), 0, "takes the place");
	shows("model/w", bytes, 60, "shown");
	is_str(changes(), "data model/w\n", "and is the same tensor");
	last =
	    (uint8_t *)sample_read(&s, ".optimfs/npy/model/w.npy", &len, &err);
	ok(last != NULL && len > 60 && memcmp(last + len - 60, bytes, 60) == 0,
	    "in npy");
	free(last);
	is_int(take("model", "t", false), 0, "tar removes");
	is_int(make("model", "t", false), 0, "and makes anew");
	is_int(put_at("model/t", bytes, 17, 0, false), -1,
	    "as large as it was");
	is_error(err, EFBIG, "OFS813", "not larger");
	is_int(put_at("model/t", bytes, 16, 0, false), 0, "the same size");
	is_str(changes(), "data model/t\ndata model/w\n", "the same tensor");
	is_int(make("optim/param_groups/0", "lr~", false), 0, "an editor");
	is_int(put_at("optim/param_groups/0/lr~", "x\n", 2, 0, false), 0,
	    "that writes what it likes");
	is_int(move("optim/param_groups/0", "lr~", "optim/param_groups/0",
		   "lr"),
	    -1, "may not put it in the place of a number");
	is_error(err, EINVAL, "OFS806", "and is told");
	is_int(put_at("optim/param_groups/0/lr~", "2\n", 2, 0, true), 0, "2");
	is_int(move("optim/param_groups/0", "lr~", "optim/param_groups/0",
		   "lr"),
	    0, "may");
	is_str(changes(),
	    "data model/t\ndata model/w\nvalue optim/param_groups/0/lr\n",
	    "is a value");
	optimfs_abort(s.fs, NULL);
}

static void forms(void)
{
	struct ofs_changes c;

	is_int(set("model/w", "user.optimfs.shape", "5,3"), 0, "as it is");
	is_str(changes(), "", "changes nothing");
	is_int(set("model/w", "user.optimfs.shape", "5,x"), -1, "no shape");
	is_error(err, EINVAL, "OFS816", "is none");
	is_int(set("model/w", "user.optimfs.dtype", "float31"), -1, "no type");
	is_int(set("model/w", "user.something", "x"), -1, "no place");
	is_error(err, EOPNOTSUPP, "user.something", "is told");
	is_int(set("model/w", "user.optimfs.shape", "3,5"), 0, "reshaped");
	is_int(ofs_overlay_changes(s.fs->now->overlay, &c, &err), 0, "changes");
	is_u64(c.n, 2, "a tensor of another shape is another");
	ok(c.v[1].kind == OFS_CHANGE_ADD && c.v[1].from == c.v[0].entry &&
		c.v[1].ndim == 2 && c.v[1].shape[0] == 3,
	    "that has the bytes of the old");
	ofs_changes_free(&c);
	is_int(set("model/w", "user.optimfs.shape", "4,3"), 0, "smaller");
	is_str(changes(), "remove model/w\n!add model/w\n", "must be cut");
	is_int(optimfs_truncate(s.fs, sample_node(&s, "model/w"), 48, &err), 0,
	    "cut");
	is_str(changes(), "remove model/w\nadd model/w\n", "then it is whole");
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

	memcpy(file, got, len);
	free(got);
	head = len - 16;
	handmade_fill(t, sizeof(t), 3);
	memcpy(file + head, t, 16);
	is_int(put_at(".optimfs/npy/model/t.npy", file, len, 0, true), 0,
	    "numpy.save");
	shows("model/t", t, 16, "is the tensor");
	is_int(put_at(".optimfs/npy/model/t.npy", "zz", 2, head + 4, false), 0,
	    "in place");
	memcpy(t + 4, "zz", 2);
	shows("model/t", t, 16, "is, too");
	file[len - 16 - 1] = 'x';
	is_int(put_at(".optimfs/npy/model/t.npy", file, 20, 0, false), 0,
	    "the header may be written again");
	is_int(put_at(".optimfs/npy/model/t.npy", "x", 1, 20, false), -1,
	    "not changed");
	is_error(err, EINVAL, "OFS816", "it says so");
	is_int(put_at(".optimfs/npy/model/w.npy", header, sizeof(header) - 1, 0,
		   true),
	    -1, "another shape");
	is_error(err, EINVAL, "OFS816", "does not fit");
	shows("model/w", s.w, 60, "and changes nothing");
	is_int(optimfs_create(s.fs, sample_node(&s, ".optimfs/npy/model"),
		   "new.npy", false, &a, &err),
	    0, "a new one");
	is_int(optimfs_file_open_write(s.fs, a.node, true, &f, &err), 0,
	    "opened");
	memcpy(file, header, sizeof(header) - 1);
	memcpy(file + sizeof(header) - 1, "12345678", 8);
	file[strstr((char *)file + 10, "(2,") - (char *)file + 1] = '9';
	is_int(optimfs_file_write(f, file, sizeof(header) - 1 + 8, 0, &err), 0,
	    "written");
	is_int(optimfs_file_flush(f, &err), -1, "with too few elements");
	is_error(err, EINVAL, "OFS816", "it says so");
	is_int(optimfs_file_write(f, header, sizeof(header) - 1, 0, &err), 0,
	    "written again");
	is_int(optimfs_file_flush(f, &err), 0, "closed");
	optimfs_file_close(f);
	says("model/new", "12345678", "is a file of the tree");
	is_int(optimfs_getxattr(s.fs, sample_node(&s, "model/new"),
		   "user.optimfs.shape", &got, &len, &err),
	    0, "that has a shape");
	is_str(got, "2,1", "the header's");
	free(got);
	is_str(changes(), "add model/new\ndata model/t\n",
	    "and can be committed");
	is_int(make(".optimfs/npy/model", "new", false), -1,
	    "files of npy are called so");
	optimfs_abort(s.fs, NULL);
}

/* A checkpoint of a trainer: views of it show what is staged. */
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
	is_int(put_at("model/output.weight", bytes, n, 0, true), 0, "write");
	for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++) {
		got = sample_read(&s, files[i], &len, &err);
		ok(got != NULL && memmem(got, len, bytes, n) != NULL, "%s",
		    files[i]);
		free(got);
	}
	got = sample_read(&s, ".optimfs/view/dcp@2/__1_0.distcp", &len, &err);
	ok(got != NULL && memmem(got, len, bytes + n - n / 4, n / 4) != NULL,
	    "rows of another layout");
	free(got);
	free(bytes);
	is_int(optimfs_commit(s.fs, NULL, NULL, &err), -1, "scratch");
	is_error(err, EROFS, "OFS819", "is not committed");
	optimfs_close(s.fs);
}

/* A view of what was staged is kept while it is used; then what was staged at
 * the time is not known any more. */
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
	is_int(say("optim/param_groups/0/lr", "0.25\n"), 0, "a value");
	node = sample_node(&s, ".optimfs/view/dcp@1/.metadata");
	is_int(say("optim/param_groups/0/lr", "0.125\n"), 0, "another one");
	for (int i = 2; i < 10; i++) {
		snprintf(path, sizeof(path), ".optimfs/view/dcp@%d/.metadata",
		    i);
		sample_node(&s, path);
	}
	is_int(optimfs_file_open(s.fs, node, &f, &err), -1,
	    "a view of before that nobody has used");
	is_error(err, ESTALE, "OFS776", "says so");
	node = sample_node(&s, ".optimfs/view/dcp@1/.metadata");
	is_int(optimfs_file_open(s.fs, node, &f, &err), 0,
	    "looked up again, it is there");
	optimfs_file_close(f);
	optimfs_close(s.fs);
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
	forms();
	npy();
	sample_fini(&s);
	views();
	old_view();
	return done_testing();
}
