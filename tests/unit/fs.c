/* fs.c - the tree and its mirrors: names, attributes, contents */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "random.h"
#include "sample.h"
#include "tap.h"

static struct sample s;

/* The names of a directory, each followed by a space. */
struct names {
	struct ofs_buf text;
	uint64_t last,
	    stop; /* position of the last name; number of names to take */
	bool types, attrs; /* false if one was wrong */
};

static int take(void *ctx, const struct optimfs_dirent *e)
{
	struct names *n = ctx;

	ofs_buf_puts(&n->text, e->name);
	ofs_buf_putc(&n->text, ' ');
	n->last = e->position;
	n->types &= e->mode == S_IFDIR || e->mode == S_IFREG;
	if (e->attr != NULL)
		n->attrs &= e->attr->ino == e->ino &&
		    (e->attr->mode & S_IFMT) == e->mode && e->attr->node != 0;
	return --n->stop == 0;
}

static const char *list(const char *path, bool attrs)
{
	static struct names n;
	struct optimfs_error err = { 0 };

	ofs_buf_fini(&n.text);
	n = (struct names){ .types = true, .attrs = true };
	if (optimfs_readdir(s.fs, sample_node(&s, path), 0, attrs, take, &n,
		&err) == -1)
		ofs_buf_puts(&n.text, err.text);
	ok(n.types && n.attrs,
	    "entries of '%s' have the right types and attributes", path);
	ofs_buf_putc(&n.text, '\0');
	return (const char *)n.text.data;
}

static void listings(void)
{
	struct names one = { .types = true };
	uint64_t at = 0;
	int ret = 0;

	is_str(list("", true), "extra model optim ",
	    "the root is listed without .optimfs");
	is_str(list("model", false), "bad conj empty odd rep swap t w ",
	    "names of a directory are sorted");
	is_str(list(".optimfs", true),
	    "README control errors f32 globals info.json layout missing npy npy32 "
	    "rank "
	    "stat stats tensors.tsv view warnings ",
	    "all files of .optimfs are listed");
	is_str(list(".optimfs/rank", true), "0 1 2 ",
	    ".optimfs/rank has a directory for each rank");
	is_str(list(".optimfs/npy/model", true),
	    "bad.npy conj.npy empty.npy odd.npy rep.npy swap.npy t.npy w.npy ",
	    ".optimfs/npy/model has a .npy file for each tensor");
	is_str(list(".optimfs/npy", true), "model optim ",
	    "a mirror has no directories without tensors");
	is_str(list(".optimfs/npy/optim", true), "state ",
	    "a mirror has no empty directory below its top either");
	is_str(list(".optimfs/layout/optim/param_groups/0", true), "lr params ",
	    ".optimfs/layout has files for values");
	is_str(list(".optimfs/rank/1/model", true), "bad odd rep t w ",
	    "a rank's mirror has tensors of which the rank holds a replica");
	is_str(list(".optimfs/rank/2", true), "optim ",
	    "a rank's mirror has only directories with tensors of the rank");
	while (ret == 0 && at < 100) {
		uint64_t before = one.text.len;

		one.stop = 1;
		ret = optimfs_readdir(s.fs,
		    sample_node(&s, ".optimfs/rank/1/model"), at, false, take,
		    &one, NULL);
		if (one.text.len == before)
			break;
		at = one.last + 1;
	}
	ofs_buf_putc(&one.text, '\0');
	is_str((char *)one.text.data, "bad odd rep t w ",
	    "a listing can continue after each entry");
	ofs_buf_fini(&one.text);
}

static void lookups(void)
{
	struct optimfs_attr a, b;
	struct optimfs_error err;
	uint64_t model = sample_node(&s, "model");

	is_int(optimfs_resolve(s.fs, "//model/./w/", &a, &err), 0,
	    "a path with extra slashes and a dot is resolved");
	is_int(optimfs_lookup(s.fs, model, "w", &b, &err), 0,
	    "a name is found in its directory");
	is_u64(a.node, b.node, "a lookup and a path give the same node");
	is_int(optimfs_lookup(s.fs, model, "x", &b, &err), -1,
	    "lookup of an absent name fails");
	is_error(err, ENOENT, "x",
	    "lookup of an absent name fails with ENOENT");
	is_int(optimfs_lookup(s.fs, a.node, "x", &b, &err), -1,
	    "lookup below a file fails");
	is_error(err, ENOTDIR, "", "lookup below a file fails with ENOTDIR");
	is_int(optimfs_resolve(s.fs, "model/w/x", &b, &err), -1,
	    "resolving a path below a file fails");
	is_error(err, ENOTDIR, "model/w/x",
	    "resolving a path below a file fails with ENOTDIR");
	is_int(optimfs_resolve(s.fs, "model/../model", &b, &err), -1,
	    "resolving a path with .. fails");
	is_error(err, ENOENT, "", "resolving a path with .. fails with ENOENT");
	is_int(optimfs_resolve(s.fs, ".optimfs/npy/model/w", &b, &err), -1,
	    "a name in npy is not found without .npy");
	is_int(optimfs_resolve(s.fs, ".optimfs/rank/2/model/w", &b, &err), -1,
	    "a tensor is not found in the mirror of a rank without it");
	is_int(optimfs_resolve(s.fs, ".optimfs/rank/02", &b, &err), -1,
	    "a rank is not found by a number with a leading zero");
	is_int(optimfs_getattr(s.fs, (uint64_t)99 << 32 | 1, &b, &err), -1,
	    "a node of an unknown space has no attributes");
	is_int(optimfs_getattr(s.fs, 100000, &b, &err), -1,
	    "a node behind the last one has no attributes");
	is_int(optimfs_getattr(s.fs, 0, &b, &err), -1,
	    "node 0 has no attributes");
	is_u64(sample_node(&s, "/"), OPTIMFS_ROOT,
	    "the root is node OPTIMFS_ROOT");
}

static struct optimfs_attr attr_of(const char *path)
{
	struct optimfs_attr a = { 0 };
	struct optimfs_error err;

	if (optimfs_resolve(s.fs, path, &a, &err) == -1)
		diag("%s", err.text);
	return a;
}

static void attributes(void)
{
	struct optimfs_attr a = attr_of("model/w"), b = attr_of("model");
	struct stat st;

	is_u64(a.size, 60, "the size of a tensor file is that of its elements");
	is_u64(a.stored, 60,
	    "the stored size of a tensor file is that of its elements");
	ok(a.exact && a.mode == (S_IFREG | 0444),
	    "a tensor file has mode 0444 and an exact size");
	ok(b.mode == (S_IFDIR | 0555) && b.nlink == 1,
	    "a directory has mode 0555 and one link");
	ok(stat(handmade_path(&s.h, "r1.bin"), &st) == 0 &&
		a.uid == st.st_uid && a.gid == st.st_gid,
	    "a tensor file has the owner of its source file");
	is_int(a.mtime_ns,
	    (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec,
	    "a tensor file has the latest mtime of its source files");
	ok(a.ino != attr_of(".optimfs/npy/model/w.npy").ino &&
		attr_of(".optimfs/rank/0/model/w").ino !=
		    attr_of(".optimfs/rank/1/model/w").ino,
	    "files of mirrors have inode numbers of their own");
	a = attr_of(".optimfs/rank/0/model/w");
	is_u64(a.size, 36,
	    "a file of a rank's mirror has the size of the rank's part");
	a = attr_of(".optimfs/npy/model/w.npy");
	is_u64(a.size, 128 + 60,
	    "a .npy file has the size of header and elements");
	a = attr_of("extra/note");
	ok(a.exact && a.size == 3,
	    "the size of a value in the index is exact at once");
	a = attr_of("optim/state/w/step");
	ok(!a.exact && a.size == 32,
	    "the size of a scalar tensor is a bound before it is read");
	a = attr_of("optim/param_groups/0/lr");
	ok(!a.exact && a.size == 4096,
	    "the size of a value in a data file is a bound before it is read");
	is_u64(sample_stat(&s, "local.read_bytes"), 0,
	    "asking for attributes reads no data");
	free(sample_read(&s, "optim/state/w/step", NULL, NULL));
	free(sample_read(&s, "optim/param_groups/0/lr", NULL, NULL));
	a = attr_of("optim/state/w/step");
	ok(a.exact && a.size == 4,
	    "the size of a scalar tensor is exact after it was read");
	a = attr_of("optim/param_groups/0/lr");
	ok(a.exact && a.size == 6,
	    "the size of a value in a data file is exact after it was read");
}

/* Tests that reads of random ranges of the file give these bytes. */
static void ranges(const char *path, const uint8_t *want, size_t n)
{
	struct optimfs_file *file;
	struct optimfs_error err;
	uint64_t seed = 7;
	uint8_t got[512];
	bool same = true;

	if (!ok(optimfs_file_open(s.fs, sample_node(&s, path), &file, &err) ==
		    0,
		"%s opens", path)) {
		diag("%s", err.text);
		return;
	}
	is_u64(optimfs_file_size(file), n, "size of the open file %s", path);
	for (int i = 0; i < 500 && same; i++) {
		uint64_t off = tap_random(&seed) % (n + 3);
		size_t len = tap_random(&seed) % (n + 3);
		size_t left = off >= n ? 0 : n - off;
		ssize_t k = optimfs_file_read(file, got, len, off, &err);

		same = k == (ssize_t)(len < left ? len : left) &&
		    (k <= 0 || memcmp(got, want + off, (size_t)k) == 0);
		if (!same)
			diag("%zu at %zu: %zd", len, (size_t)off, k);
	}
	ok(same, "500 random ranges of %s have the expected bytes", path);
	optimfs_file_close(file);
}

static void contents(void)
{
	static const char head[] =
	    "\x93NUMPY\x01\x00v\x00{'descr': '<i2', 'fortran_order': False, "
	    "'shape': (2, 4), }";
	uint8_t npy[128 + 16], part[8];

	ranges("model/w", s.w, sizeof(s.w));
	ranges("model/t", s.t, sizeof(s.t));
	ranges("model/conj", s.conj, sizeof(s.conj));
	ranges("model/swap", s.swap, sizeof(s.swap));
	ranges("model/rep", s.rep, sizeof(s.rep));
	ranges("model/empty", s.rep, 0);
	memset(npy, ' ', 128);
	memcpy(npy, head, sizeof(head) - 1);
	npy[127] = '\n';
	memcpy(npy + 128, s.t, 16);
	ranges(".optimfs/npy/model/t.npy", npy, sizeof(npy));
	ranges(".optimfs/rank/0/model/w", s.w, 36);
	ranges(".optimfs/rank/1/model/w", s.w + 36, 24);
	memcpy(part, s.t + 4, 4);
	memcpy(part + 4, s.t + 12, 4);
	ranges(".optimfs/rank/1/model/t", part, 8);
	ranges("optim/state/w/step", (const uint8_t *)"3.5\n", 4);
	ranges("optim/param_groups/0/lr", (const uint8_t *)"0.001\n", 6);
	ranges("optim/param_groups/0/params", (const uint8_t *)"w\nt\n", 4);
	ranges("extra/note", (const uint8_t *)"hi\n", 3);
	ranges("extra/epoch", (const uint8_t *)"3\n", 2);
	ranges(".optimfs/rank/1/optim/state/w/step", (const uint8_t *)"3.5\n",
	    4);
}

static void failures(void)
{
	struct optimfs_file *file;
	struct optimfs_error err;
	uint64_t node = sample_node(&s, "optim/state/w/exp_avg");
	uint8_t got[16];

	is_int(optimfs_file_open(s.fs, node, &file, &err), 0,
	    "a tensor with a missing shard opens");
	is_int(optimfs_file_read(file, got, 8, 0, &err), 8,
	    "the part of a tensor that is not missing can be read");
	is_mem(got, s.exp_avg, 8,
	    "the part that is not missing has the right bytes");
	is_int(optimfs_file_read(file, got, 16, 0, &err), -1,
	    "reading a missing part of a tensor fails");
	is_error(err, EIO, "OFS140 optim/state/w/exp_avg bytes 0-15: ",
	    "reading a missing part fails with path and byte range");
	ok(strstr(err.text, "gone.bin") != NULL,
	    "reading a missing part fails with the name of the file");
	is_int(optimfs_file_read(file, got, 3, 9, &err), -1,
	    "reading part of a missing element fails");
	is_error(err, EIO, "bytes 9-11",
	    "reading part of a missing element fails with the byte range");
	is_int(optimfs_file_read(file, got, 4, 4, &err), 4,
	    "after a failure the present part can still be read");
	is_int(optimfs_file_read(file, got, 1, 16, &err), 0,
	    "reading at the end of a file gives 0 bytes");
	optimfs_file_close(file);
	is_int(optimfs_file_open(s.fs, sample_node(&s, "model/bad"), &file,
		   &err),
	    -1, "opening a tensor with overlapping shards fails");
	is_error(err, EUCLEAN, "OFS610 model/bad: ",
	    "opening a tensor with overlapping shards fails with EUCLEAN");
	is_int(optimfs_file_open(s.fs, sample_node(&s, "model"), &file, &err),
	    -1, "opening a directory as a file fails");
	is_error(err, EISDIR, "",
	    "opening a directory as a file fails with EISDIR");
}

/* One of many readers of the same open file, at random offsets. */
static void *reader(void *ctx)
{
	struct optimfs_file *file = ctx;
	uint64_t seed = (uint64_t)(uintptr_t)&seed;
	uint8_t got[64];

	for (int i = 0; i < 3000; i++) {
		uint64_t off = tap_random(&seed) % 60;
		size_t len = 1 + tap_random(&seed) % (60 - off);

		if (optimfs_file_read(file, got, len, off, NULL) !=
			(ssize_t)len ||
		    memcmp(got, s.w + off, len) != 0)
			return file;
	}
	return NULL;
}

static void threads(void)
{
	struct optimfs_file *file;
	pthread_t thread[8];
	bool same = true;
	void *failed;

	optimfs_file_open(s.fs, sample_node(&s, "model/w"), &file, NULL);
	for (int i = 0; i < 8; i++)
		if (pthread_create(&thread[i], NULL, reader, file) != 0)
			bail_out("no threads");
	for (int i = 0; i < 8; i++) {
		pthread_join(thread[i], &failed);
		same &= failed == NULL;
	}
	ok(same, "8 threads read the same open file correctly");
	optimfs_file_close(file);
}

static void strict(void)
{
	struct optimfs_options o = { .strict = true };
	struct optimfs_error err;

	sample_fini(&s);
	sample_init(&s, &o, &err);
	ok(s.fs == NULL, "a damaged checkpoint does not open with strict");
	is_error(err, EIO, "OFS140",
	    "strict fails with the error of the missing file");
}

int main(void)
{
	struct optimfs_error err;

	sample_init(&s, NULL, &err);
	if (s.fs == NULL)
		bail_out("%s", err.text);
	listings();
	lookups();
	attributes();
	contents();
	failures();
	threads();
	strict();
	sample_fini(&s);
	return done_testing();
}
