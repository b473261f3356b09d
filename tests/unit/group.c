/* group.c - ranks that agree on files, fetch from each other and leave */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "optimfs/optimfs.h"

#include "api/api.h"
#include "base/buf.h"
#include "cluster/commit/coordinator_impl.h"
#include "cluster/commit/locks.h"
#include "cluster/manifest.h"
#include "cluster/wire.h"
#include "handmade.h"
#include "journal/publish.h"
#include "journal/stage.h"
#include "support/group_job.h"
#include "tap.h"

/* Agreement on files. */

static void expect(struct job *j, int code, const char *part, const char *what)
{
	unsigned bad = 0;

	run(j);
	for (int r = 0; r < j->size; r++)
		bad += j->err[r].code != code ||
		    (part != NULL && strstr(j->err[r].text, part) == NULL);
	if (!is_u64(bad, 0, "%s: all ranks get the expected result", what))
		diag("%d %s", j->err[0].code, j->err[0].text);
}

static void two_files(const char *name, const char *a, size_t na, const char *b,
    size_t nb)
{
	clear();
	make_dirs(3);
	put(path_of("0/other"), "x", 1);
	put(path_of("1/%s", name), a, na);
	put(path_of("2/%s", name), b, nb);
	/* The mtimes must differ, whatever the clock does. */
	if (utimensat(AT_FDCWD, path_of("2/%s", name),
		(struct timespec[]){ { 1, 0 }, { 1, 0 } }, 0) == -1)
		bail_out("utimensat");
}

static void test_agreement(void)
{
	struct job j = { .size = 3, .path = each_rank };
	char state[64];

	two_files("data", "1234", 4, "12345", 5);
	expect(&j, EPROTO, "4 bytes on rank 1 (odd), 5 on rank 2 (even)",
	    "a file with two lengths");
	two_files("data", "1234", 4, "1235", 4);
	expect(&j, EPROTO, "ranks 1 (odd) and 2 (even) have different files",
	    "a file with two contents");
	two_files("data", "1234", 4, "1234", 4);
	expect(&j, 0, NULL, "a file that two ranks have");
	two_files("data", "", 0, "", 0);
	expect(&j, 0, NULL, "an empty file that two ranks have");
	put(path_of("0/state"), "x", 1);
	snprintf(state, sizeof(state), "%s", path_of("0/state%%r"));
	j.path = state;
	expect(&j, ENOENT, "on any of 3 ranks", "a file that no rank has");
	put(path_of("0/state0"), "x", 1);
	expect(&j, 0, NULL, "a file that one rank has");
	if (mkdir(path_of("0/state1"), 0755) == -1)
		bail_out("mkdir");
	expect(&j, EPROTO, "not the same file or directory",
	    "a path that is a file on one rank, a directory on another");
	j.path = each_rank;
	j.first = true;
	two_files("data", "1234", 4, "1235", 4);
	expect(&j, 0, NULL, "different files where only rank 0 is asked");
}

/* A large file that other ranks have. */

#define NLARGE ((size_t)(9 * OFS_GROUP_ANSWER_MAX + 12345))

static uint8_t *large;

struct trial {
	unsigned bad;
	int code;
	uint64_t asks, largest, spread;
};

static int read_there(const struct ofs_manifest *s,
    const struct ofs_segment *seg, size_t n, uint8_t *buf,
    struct optimfs_error *err)
{
	return ofs_remote_fetch(s, seg, n, buf, err);
}

static uint32_t find_file(const struct ofs_manifest *s, const char *name)
{
	struct ofs_dir dir;
	uint32_t file = OFS_NONE;
	char *rel;

	if (ofs_manifest_dir(s, &dir, &rel, NULL) == 0) {
		(void)ofs_dir_remote(&dir, name, &file);
		ofs_dir_close(&dir);
		free(rel);
	}
	return file;
}

/* Fetches segments of many shapes in one call, some larger than a message. */
static void check_segments(const struct ofs_manifest *s, uint32_t file,
    struct trial *t)
{
	static const struct ofs_segment shape[] = {
		{ .src = 5, .len = NLARGE - 10, .n = 1 },
		{ .src = 17, .len = 3, .n = 100000, .src_pitch = 41 },
		{ .src = NLARGE - 200,
		    .len = 64,
		    .n = 5000,
		    .src_pitch = -4096 },
		{ .src = 100,
		    .len = OFS_GROUP_ANSWER_MAX + 7,
		    .n = 3,
		    .src_pitch = 5000000 },
		{ .src = 9, .len = 1 << 20, .n = 11, .src_pitch = 3 << 20 },
		{ .src = 1, .len = 1, .n = 1 },
		{ .src = 1, .len = 0, .n = 7 },
	};
	enum { N = sizeof(shape) / sizeof(*shape) };
	struct ofs_segment seg[N];
	struct optimfs_error err;
	uint64_t total = 0;
	uint8_t *buf;

	for (size_t i = 0; i < N; i++) {
		seg[i] = shape[i];
		seg[i].object = file;
		seg[i].dst = total;
		seg[i].dst_pitch = (int64_t)seg[i].len + 1;
		total += seg[i].n * (seg[i].len + 1);
	}
	buf = calloc(total, 1);
	if (buf == NULL || read_there(s, seg, N, buf, &err) == -1) {
		diag("%s", buf == NULL ? "memory" : err.text);
		free(buf);
		t->bad++;
		t->code = err.code;
		return;
	}
	for (size_t i = 0; i < N; i++)
		for (uint64_t k = 0; k < seg[i].n; k++) {
			const uint8_t *p =
			    buf + seg[i].dst + k * (seg[i].len + 1);
			const uint8_t *want =
			    large + seg[i].src + (int64_t)k * seg[i].src_pitch;

			t->bad += memcmp(p, want, seg[i].len) != 0 ||
			    p[seg[i].len] != 0;
		}
	free(buf);
}

/* A zstd frame of four bytes, stored without compression. */
static const uint8_t frame[] = { 0x28, 0xb5, 0x2f, 0xfd, 0x20, 4, 0x21, 0, 0,
	'a', 'b', 'c', 'd' };

static void check_length(struct job *j, const struct ofs_manifest *s)
{
#ifdef HAVE_ZSTD
	struct optimfs_error err;

	for (int rank_of = 1; rank_of <= 2; rank_of++) {
		struct ofs_extent at = { .len = sizeof(frame),
			.object = find_file(s, "frame"),
			.codec = OFS_ZSTD };
		uint64_t len = 0;

		fakegroup_mute(j->f, rank_of, 1);
		is_int(ofs_remote_length(s, &at, 100, &len, &err), 0,
		    "an item's decoded length is found while rank %d is silent",
		    rank_of);
		is_u64(len, 4,
		    "the decoded length is right while rank %d is silent",
		    rank_of);
		fakegroup_mute(j->f, rank_of, 0);
	}
#else
	(void)j;
	(void)s;
	skip(4, "no zstd");
#endif
}

/* More requests fail at once than ranks are remembered. */
static void check_many(struct job *j, const struct ofs_manifest *s,
    uint32_t file)
{
	enum { MANY = OFS_AVOID_MAX + 4, LEN = 5 << 19 };
	uint8_t *buf = malloc((size_t)MANY * LEN);
	struct ofs_segment seg[MANY];
	struct optimfs_error err;

	if (buf == NULL)
		bail_out("out of memory");
	for (size_t i = 0; i < MANY; i++)
		seg[i] = (struct ofs_segment){
			.object = file, .len = LEN, .n = 1, .dst = i * LEN
		};
	for (int rank = 1; rank <= 2; rank++) {
		fakegroup_mute(j->f, rank, 1);
		is_int(ofs_remote_fetch(s, seg, MANY, buf, &err), 0,
		    "%d requests are repeated if rank %d is silent", MANY,
		    rank);
		fakegroup_mute(j->f, rank, 0);
	}
	free(buf);
}

static void check_large(struct job *j, int rank, struct optimfs_group *w)
{
	struct fakegroup_counts *c = fakegroup_counts(j->f);
	struct optimfs_error err = { 0 };
	struct trial *t = j->ctx;
	struct ofs_manifest *s;
	struct ofs_segment seg = { .len = 100, .n = 1 };
	uint8_t buf[100];

	if (rank != 0)
		return;
	s = ofs_group_manifest(w, j->path, NULL);
	seg.object = find_file(s, "large");
	check_segments(s, seg.object, t);
	is_u64(t->bad, 0,
	    "segments of all shapes are fetched from other ranks");
	is_u64(atomic_load(&c->largest), OFS_GROUP_ANSWER_MAX,
	    "no message is larger than OFS_GROUP_ANSWER_MAX");
	ok(atomic_load(&c->answered[1]) > 5 && atomic_load(&c->answered[2]) > 5,
	    "both ranks that have the file answer requests");

	check_length(j, s);
	check_many(j, s, seg.object);
	fakegroup_mute(j->f, 1, 1);
	t->bad = 0;
	check_segments(s, seg.object, t);
	is_u64(t->bad, 0, "a fetch succeeds while one of two owners is silent");
	fakegroup_mute(j->f, 2, 1);
	is_int(read_there(s, &seg, 1, buf, &err), -1,
	    "a fetch fails while both owners are silent");
	is_error(err, ETIMEDOUT, "rank ",
	    "a fetch from silent owners fails with ETIMEDOUT");
	fakegroup_mute(j->f, 1, 0);
	is_int(read_there(s, &seg, 1, buf, &err), 0,
	    "a fetch succeeds when an owner answers again");
	fakegroup_mute(j->f, 2, 0);

	/* errors that an owner finds carry its name */
	seg.src = NLARGE - 50;
	is_int(read_there(s, &seg, 1, buf, &err), -1,
	    "a fetch past the end of the file fails");
	is_error(err, EIO, "OFS603 rank ",
	    "a fetch past the end fails with OFS603 and the owner's rank");

	fakegroup_kill(j->f, 1, 1);
	t->bad = 0;
	check_segments(s, seg.object, t);
	is_u64(t->bad, 0, "a fetch succeeds after one of two owners died");
	fakegroup_kill(j->f, 2, 1);
	seg.src = 0;
	is_int(read_there(s, &seg, 1, buf, &err), -1,
	    "a fetch fails after both owners died");
	is_error(err, EHOSTDOWN, "rank ",
	    "a fetch from dead owners fails with EHOSTDOWN");
}

static void test_large(void)
{
	struct trial t = { 0 };
	struct job j = {
		.size = 3, .path = each_rank, .work = check_large, .ctx = &t
	};

	clear();
	make_dirs(3);
	large = malloc(NLARGE);
	if (large == NULL)
		bail_out("out of memory");
	handmade_fill(large, NLARGE, 3);
	put(path_of("1/large"), large, NLARGE);
	put(path_of("2/large"), large, NLARGE);
	put(path_of("1/frame"), frame, sizeof(frame));
	put(path_of("2/frame"), frame, sizeof(frame));
	put(path_of("0/here"), "x", 1);
	run(&j);
	free(large);
}

/* A tensor of another rank that is read from beginning to end. Sequential reads
 * fetch ahead, random reads do not. */

#define NTENSOR (4u << 20)
#define READ    (256u << 10)

static void put_tensor(const char *path)
{
	uint8_t *p = malloc(128 + NTENSOR);
	int n;

	if (p == NULL)
		bail_out("out of memory");
	memset(p, ' ', 128);
	memcpy(p, "\x93NUMPY\1\0\x76", 10);
	p[9] = 0;
	n = snprintf((char *)p + 10, 118,
	    "{'descr': '|u1', 'fortran_order': False, 'shape': (%u,), }",
	    NTENSOR);
	p[10 + n] = ' ';
	p[127] = '\n';
	memcpy(p + 128, large, NTENSOR);
	put(path, p, 128 + NTENSOR);
	free(p);
}

static void is_read(struct optimfs_file *file, uint64_t off, const char *what)
{
	static uint8_t buf[READ];
	struct optimfs_error err = { 0 };
	size_t want = off + READ > NTENSOR ? NTENSOR - off : READ;

	if (!is_int(optimfs_file_read(file, buf, READ, off, &err),
		(int64_t)want, "%s succeeds", what))
		diag("%s", err.text);
	else
		is_mem(buf, large + off, want, "bytes of %s", what);
}

static void check_ahead(struct job *j, int rank, struct optimfs_group *w)
{
	struct fakegroup_counts *c = fakegroup_counts(j->f);
	struct optimfs_options o = { .group = w };
	struct optimfs_file *file;
	struct optimfs_attr attr;
	struct optimfs_error err;
	uint64_t before, three;
	struct optimfs *fs;
	uint8_t buf[8];

	fs = optimfs_open(j->path, &o, &err);
	if (fs == NULL || optimfs_resolve(fs, "model/x", &attr, &err) == -1 ||
	    optimfs_file_open(fs, attr.node, &file, &err) == -1)
		bail_out("%s", err.text);
	fakegroup_meet(j->f);
	if (rank != 0)
		goto out;
	is_int(optimfs_file_read(file, buf, 8, 0, &err), 8,
	    "a first read of 8 bytes succeeds");
	before = atomic_load(&c->bytes);
	is_read(file, 5 * READ, "a read in the middle");
	is_read(file, 11 * READ, "a read elsewhere");
	is_u64(atomic_load(&c->bytes) - before, 2 * READ,
	    "random reads fetch only the bytes that are read");
	before = atomic_load(&c->bytes);
	for (unsigned i = 0; i < 3; i++)
		is_read(file, i * READ, "a sequential read");
	three = atomic_load(&c->bytes) - before;
	ok(three > 3 * READ && three <= 7 * READ,
	    "sequential reads fetch some bytes ahead");
	for (unsigned i = 3; i < NTENSOR / READ; i++)
		is_read(file, i * READ, "a further sequential read");
	is_u64(atomic_load(&c->bytes) - before, NTENSOR,
	    "sequential reads fetch each byte once");
	for (unsigned i = 0; i < 3; i++)
		is_read(file, i * READ + 1,
		    "a second sequential read at another offset");
	fakegroup_kill(j->f, 1, 1);
	is_read(file, 3 * READ + 1,
	    "a read of fetched bytes after the owner died");
	is_int(optimfs_file_read(file, buf, 8, NTENSOR - 8, &err), -1,
	    "a read of other bytes fails after the owner died");
	is_error(err, EHOSTDOWN, "rank 1",
	    "a read of other bytes fails with EHOSTDOWN and the rank");
	fakegroup_kill(j->f, 1, 0);
out:
	optimfs_file_close(file);
	optimfs_close(fs);
}

static void test_ahead(void)
{
	char path[64];
	struct job j = { .size = 2, .path = path, .work = check_ahead };

	clear();
	make_dirs(2);
	large = malloc(NTENSOR);
	if (large == NULL)
		bail_out("out of memory");
	handmade_fill(large, NTENSOR, 5);
	put_tensor(path_of("1/x.npy"));
	snprintf(path, sizeof(path), "%s/x.npy", each_rank);
	run(&j);
	free(large);
}

/* Malformed requests. */

static void put_fetch(struct ofs_buf *b, uint32_t share, uint32_t n,
    const struct ofs_segment *seg)
{
	b->len = 0;
	ofs_wire_u8(b, OFS_WIRE_FETCH);
	ofs_wire_u32(b, share);
	ofs_wire_u32(b, n);
	if (seg != NULL)
		ofs_wire_segment(b, seg);
}

static void refuse(struct job *j, const struct ofs_buf *b, size_t n,
    uint64_t want, const char *what)
{
	struct optimfs_error err = { 0 };
	uint8_t out[64];

	is_int(fakegroup_ask(j->f, 1, b->data, n, out, want, &err), -1,
	    "%s is refused", what);
	ok(err.code == EPROTO || err.code == EIO, "%s fails with EPROTO or EIO",
	    what);
}

static void check_requests(struct job *j, int rank, struct optimfs_group *w)
{
	struct ofs_segment seg = { .len = 4, .n = 1 }, bad = seg;
	struct optimfs_error err;
	struct ofs_buf b = { 0 };
	uint8_t out[64];

	(void)w;
	if (rank != 0)
		return;
	put_fetch(&b, 0, 1, &seg);
	is_int(fakegroup_ask(j->f, 1, b.data, b.len, out, 4, &err), 0,
	    "a valid request is answered");
	is_mem(out, "abcd", 4, "the answer has the requested bytes");
	for (size_t n = 0; n < b.len; n++)
		if (fakegroup_ask(j->f, 1, b.data, n, out, 4, NULL) != -1)
			ok(false,
			    "a request of %zu bytes of a longer one is refused",
			    n);
	refuse(j, &b, b.len, 5, "a request for an answer of another length");
	put_fetch(&b, 1, 1, &seg);
	refuse(j, &b, b.len, 4, "a request for a manifest that does not exist");
	put_fetch(&b, 0, UINT32_MAX, &seg);
	refuse(j, &b, b.len, 4, "a request with fewer segments than it says");
	bad.object = 7;
	put_fetch(&b, 0, 1, &bad);
	refuse(j, &b, b.len, 4, "a request for a file that does not exist");
	bad = seg;
	bad.len = UINT64_MAX / 2 + 3;
	bad.n = 2;
	put_fetch(&b, 0, 1, &bad);
	refuse(j, &b, b.len, 4, "a request whose length overflows");
	bad = seg;
	bad.src = UINT64_MAX - 1;
	put_fetch(&b, 0, 1, &bad);
	refuse(j, &b, b.len, 4, "a request whose offset overflows");
	bad = seg;
	bad.n = 4;
	bad.len = 1;
	bad.src_pitch = INT64_MIN;
	put_fetch(&b, 0, 1, &bad);
	refuse(j, &b, b.len, 4, "a request whose pitch overflows");
	b.data[0] = 200;
	refuse(j, &b, b.len, 4, "a request of an unknown kind");
	ofs_buf_fini(&b);
}

static void test_requests(void)
{
	struct job j = { .size = 2, .path = each_rank, .work = check_requests };

	clear();
	make_dirs(2);
	put(path_of("1/file"), "abcdef", 6);
	run(&j);
}

static void test_expand(void)
{
	struct fakegroup *f = fakegroup_new(1);
	bool worker = true;
	struct optimfs_group *w;
	char *path;

	fakegroup_be(f, 0);
	w = ofs_group_new(&fakegroup_ops, 1, ofs_group_services, NULL);
	path = optimfs_group_expand(w, "/a/%r/%h/%%/%x/%", NULL);
	is_str(path, "/a/0/even/%/%x/%", "%%r, %%h and %%%% are expanded");
	free(path);
	optimfs_group_leave(w, &worker);
	fakegroup_free(f);
}

/* Ranks that see the directory of another: the lowest writes there, although the
 * highest takes its lock first. */
static void join_shared(struct job *j, int rank, struct optimfs_group *w)
{
	struct ofs_manifest *s = ofs_group_manifest(w, j->path, NULL);
	const struct ofs_coordinator *c;

	((bool *)j->ctx)[rank] = s->participant != NULL;
	if (rank != 0)
		return;
	c = s->writing->coordinator;
	is_u64(c->n, 3, "six ranks see three directories");
	is_int(c->of_rank[5], c->of_rank[1], "rank 5 sees that of rank 1");
	is_int(c->of_rank[4], c->of_rank[0], "rank 4 sees that of rank 0");
}

static void test_shared(void)
{
	static const bool want[6] = { true, true, false, true, false, false };
	bool has[6] = { false };
	struct job j = { .size = 6,
		.path = each_rank,
		.options.rw = true,
		.work = join_shared,
		.ctx = has };

	clear();
	make_dirs(4);
	if (rmdir(path_of("2")) == -1 || symlink("1", path_of("2")) == -1 ||
	    symlink("0", path_of("4")) == -1 ||
	    symlink("1", path_of("5")) == -1)
		bail_out("symlink");
	put(path_of("0/a"), "a", 1);
	run(&j);
	is_mem(has, want, sizeof(has),
	    "the lowest rank that sees a directory has its lock");
}

/* A commit to many directories takes as many rounds as one to few: rank 0 asks
 * all ranks at once. */
struct commit {
	unsigned files; /* file i is in the directory of rank i % size */
	int digits;     /* of the numbers in their names */
	uint64_t rounds[2];
};

static const char *name_of(const struct commit *c, unsigned i)
{
	static _Thread_local char name[2][256];

	snprintf(name[i % 2], sizeof(name[0]), "f%0*u", c->digits, i);
	return name[i % 2];
}

static void commit_each(struct job *j, int rank, struct optimfs_group *w)
{
	struct ofs_manifest *s = ofs_group_manifest(w, j->path, NULL);
	struct fakegroup_counts *c = fakegroup_counts(j->f);
	struct commit *commit = j->ctx;
	char like[256], text[16];
	struct optimfs_error err;
	struct ofs_publish *p;
	int fd;

	if (rank != 0)
		return;
	is_u64(atomic_load(&c->rounds_of[OFS_WIRE_PARTICIPANT]), 1,
	    "%d ranks join in one round", j->size);
	p = ofs_publish_begin_all(s->writing->coordinator,
	    ofs_stage_beside(s->writing->stage), &err);
	for (unsigned i = 0; i < commit->files; i++) {
		int n = snprintf(text, sizeof(text), "new %u", i);

		snprintf(like, sizeof(like), "%s",
		    name_of(commit, i % (unsigned)j->size));
		if (p == NULL ||
		    ofs_publish_file(p, name_of(commit, i), like, &fd, &err) ==
			-1 ||
		    write(fd, text, (size_t)n) != n)
			bail_out("%s", err.text);
	}
	if (ofs_publish_commit(p, &err) != 0 ||
	    ofs_coordinator_forget(s->writing->coordinator, &err) != 0)
		diag("%s", err.text);
	ofs_publish_free(p);
	commit->rounds[0] = atomic_load(&c->rounds_of[OFS_WIRE_PARTICIPANT]);
	commit->rounds[1] = atomic_load(&c->rounds_of[OFS_WIRE_CALL]);
	ofs_stage_close(s->writing->stage, false);
	s->writing->stage = NULL;
}

static void commit_with(int size, struct commit *c)
{
	struct job j = { .size = size,
		.path = each_rank,
		.options.rw = true,
		.work = commit_each,
		.ctx = c };
	unsigned bad = 0;
	char text[16];

	clear();
	make_dirs(size);
	for (int r = 0; r < size; r++)
		put(path_of("%d/%s", r, name_of(c, (unsigned)r)), "old", 3);
	run(&j);
	for (unsigned i = 0; i < c->files; i++) {
		size_t n = (size_t)snprintf(text, sizeof(text), "new %u", i);
		struct ofs_buf b = { 0 };

		load(path_of("%u/%s", i % (unsigned)size, name_of(c, i)), &b);
		bad += b.len != n || memcmp(b.data, text, n) != 0;
		ofs_buf_fini(&b);
	}
	is_u64(bad, 0, "a commit of %u files to %d directories reaches all",
	    c->files, size);
}

/* Requests of an attempt that was given up, which come when the next has begun. */
static int ask_of(struct ofs_coordinator *c, enum ofs_participant_op op,
    uint32_t attempt, struct ofs_buf *rest)
{
	struct ofs_buf b[2] = { { 0 } };
	struct optimfs_error err;
	int ret;

	c->attempt = attempt;
	ofs_coordinator_request(c, op, &b[1]);
	ofs_buf_put(&b[1], rest->data, rest->len);
	ret = ofs_coordinator_ask(c, b, false, &err);
	ofs_buf_fini(&b[1]);
	rest->len = 0;
	return ret;
}

static int begin_of(struct ofs_coordinator *c, uint32_t attempt)
{
	struct ofs_buf b = { 0 };
	int ret;

	ofs_wire_u64(&b, 0);
	ret = ask_of(c, OFS_PARTICIPANT_BEGIN, attempt, &b);
	ofs_buf_fini(&b);
	return ret;
}

static int names_of(struct ofs_coordinator *c, uint32_t attempt)
{
	struct ofs_buf b = { 0 };
	int ret;

	ofs_wire_u8(&b, 1);
	ofs_wire_str(&b, "f1");
	ofs_wire_str(&b, "");
	ofs_wire_u64(&b, 3);
	ofs_wire_u32(&b, 0644);
	ret = ask_of(c, OFS_PARTICIPANT_NAMES, attempt, &b);
	ofs_buf_fini(&b);
	return ret;
}

static int data_of(struct ofs_coordinator *c, uint32_t attempt,
    const char *bytes)
{
	struct ofs_buf b = { 0 };
	int ret;

	ofs_wire_u32(&b, 0);
	ofs_wire_u64(&b, 0);
	ofs_buf_put(&b, bytes, 3);
	ret = ask_of(c, OFS_PARTICIPANT_DATA, attempt, &b);
	ofs_buf_fini(&b);
	return ret;
}

static int call_of(struct ofs_coordinator *c, enum ofs_participant_op op,
    uint32_t attempt)
{
	static const bool second[2] = { false, true };
	struct optimfs_error err;

	c->attempt = attempt;
	return ofs_coordinator_call(c, op,
	    op == OFS_PARTICIPANT_PREPARE ? "an id" : NULL, second, &err);
}

static void commit_late(struct job *j, int rank, struct optimfs_group *w)
{
	struct ofs_manifest *s = ofs_group_manifest(w, j->path, NULL);
	struct ofs_buf none = { 0 };
	struct ofs_coordinator *c;

	if (rank != 0)
		return;
	c = s->writing->coordinator;
	is_u64(c->n, 2, "two directories");
	ok(begin_of(c, 1) == 0 && names_of(c, 1) == 0 &&
		data_of(c, 1, "old") == 0,
	    "an attempt begins");
	ok(begin_of(c, 2) == 0 && names_of(c, 2) == 0 &&
		data_of(c, 2, "new") == 0,
	    "the next attempt begins");
	is_int(begin_of(c, 1), -1, "a late BEGIN is refused");
	is_int(names_of(c, 1), -1, "late NAMES are refused");
	is_int(data_of(c, 1, "bad"), -1, "late DATA are refused");
	is_int(ask_of(c, OFS_PARTICIPANT_ABORT, 1, &none), -1,
	    "a late ABORT is refused");
	is_int(call_of(c, OFS_PARTICIPANT_PREPARE, 1), -1,
	    "a late PREPARE is refused");
	is_int(call_of(c, OFS_PARTICIPANT_PREPARE, 2), 0,
	    "the attempt is prepared");
	is_int(ask_of(c, OFS_PARTICIPANT_ABORT, 1, &none), -1,
	    "a late ABORT does not revert it");
	is_int(call_of(c, OFS_PARTICIPANT_COMMIT, 2), 0, "and done");
	is_int(ask_of(c, OFS_PARTICIPANT_FORGET, 2, &none), 0, "and forgotten");
	ofs_stage_close(s->writing->stage, false);
	s->writing->stage = NULL;
}

static void test_late(void)
{
	struct job j = { .size = 2,
		.path = each_rank,
		.options.rw = true,
		.work = commit_late };
	struct ofs_buf b = { 0 };

	clear();
	make_dirs(2);
	put(path_of("0/f0"), "was", 3);
	put(path_of("1/f1"), "was", 3);
	run(&j);
	load(path_of("1/f1"), &b);
	is_mem(b.data, "new", 3, "the file has the bytes of the attempt");
	ofs_buf_fini(&b);
}

static void test_rounds(void)
{
	struct commit two = { .files = 2, .digits = 1 };
	struct commit eight = { .files = 8, .digits = 1 };
	struct commit many = { .files = 300, .digits = 250 };

	commit_with(2, &two);
	commit_with(8, &eight);
	commit_with(2, &many);
	ok(two.rounds[0] > 0 && two.rounds[1] > 0, "a commit asks other ranks");
	is_u64(eight.rounds[0], two.rounds[0],
	    "a commit to 8 directories asks as often as one to 2");
	is_u64(eight.rounds[1], two.rounds[1],
	    "a commit to 8 directories makes as many rounds of calls");
	ok(many.rounds[0] > two.rounds[0] + 1,
	    "many files are announced in several requests");
}

/* A rank whose machine is gone says neither that it leaves nor that it died.
 * The others must leave without it. */
static void leave_as(struct fakegroup *f, int rank, void *ctx)
{
	int silent = *(const int *)ctx;
	bool worker[MAX_RANKS] = { false };
	struct optimfs_group *w;

	w = ofs_group_new(&fakegroup_ops, 1, ofs_group_services, NULL);
	fakegroup_meet(f);
	memset(worker, rank != silent, sizeof(worker));
	optimfs_group_leave(w, worker);
}

struct left {
	uint64_t asked; /* to say that a rank leaves */
};

static struct left leave_all(int size, int silent)
{
	struct fakegroup *f = fakegroup_new(size);
	struct fakegroup_counts *c = fakegroup_counts(f);
	struct left left;

	if (silent != -1)
		fakegroup_mute(f, silent, 1);
	fakegroup_run(f, leave_as, &silent);
	left.asked = atomic_load(&c->asks_of[OFS_WIRE_DONE]) +
	    atomic_load(&c->asks_of[OFS_WIRE_OVER]);
	fakegroup_free(f);
	return left;
}

static void test_leave(void)
{
	struct left left = leave_all(8, -1);

	/* each tells its neighbours and rank 0, which tells all */
	ok(left.asked <= 5 * 8, "8 ranks leave with %u messages",
	    (unsigned)left.asked);
	leave_all(2, 1);
	ok(true, "a rank can leave while another is silent");
	leave_all(6, 0);
	ok(true, "five ranks can leave while rank 0 is silent");
	leave_all(6, 4);
	ok(true, "five ranks can leave while rank 4 is silent");
}

/* Variables that launchers set. */
static void test_launched(void)
{
	static const char *const names[] = { "OMPI_COMM_WORLD_SIZE", "PMI_SIZE",
		"PMIX_RANK", "SLURM_STEP_NUM_TASKS" };
	static const struct {
		const char *what;
		const char *value[4]; /* of names */
		bool launched;
	} cases[] = {
		{ "no launcher", { NULL, NULL, NULL, NULL }, false },
		{ "mpirun -n 2", { "2", NULL, NULL, NULL }, true },
		{ "mpirun -n 1", { "1", NULL, "0", NULL }, false },
		{ "mpirun -n 1 in a job of two tasks", { "1", NULL, "0", "2" },
		    false },
		{ "MPICH, or srun --mpi=pmi2", { NULL, "4", NULL, "4" }, true },
		{ "srun --mpi=pmix -n 2", { NULL, NULL, "0", "2" }, true },
		{ "srun --mpi=pmix -n 1", { NULL, NULL, "0", "1" }, false },
		{ "srun without MPI", { NULL, NULL, NULL, "2" }, false },
		{ "another launcher with PMIx", { NULL, NULL, "1", NULL },
		    true },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		for (size_t v = 0; v < 4; v++)
			if (cases[i].value[v] == NULL)
				unsetenv(names[v]);
			else
				setenv(names[v], cases[i].value[v], 1);
		is_int(optimfs_group_launched(), cases[i].launched,
		    "started as several ranks: %s", cases[i].what);
	}
	for (size_t v = 0; v < 4; v++)
		unsetenv(names[v]);
}

int main(void)
{
	begin_ranks();
	test_launched();
	test_leave();
	test_expand();
	test_requests();
	test_agreement();
	test_shared();
	test_rounds();
	test_late();
	test_large();
	test_ahead();
	end_ranks();
	return done_testing();
}
