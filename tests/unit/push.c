/* push.c - checkpoints copied into templates of each layout, with
 * failures during the commit */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "optimfs/optimfs.h"

#include "base/sys.h"
#include "mktorch.h"
#include "random.h"
#include "support/scratch.h"
#include "support/truth.h"
#include "tap.h"

static uint64_t seed;

static uint64_t rnd(uint64_t n)
{
	return tap_below(&seed, n);
}

/* A copy of a tree by the calls that a mount makes. */
struct copy {
	struct optimfs *from, *to;
	uint64_t node; /* of the directory in to */
	struct optimfs_error *err;
	bool pieces; /* write tensors in pieces of any length and order */
};

/* Writes [off, end) of a file in random pieces, in random order. */
static int write_pieces(struct optimfs_file *f, const uint8_t *buf,
    uint64_t off, uint64_t end, struct optimfs_error *err)
{
	uint64_t mid;
	bool first;

	if (end - off < 8 || rnd(4) == 0)
		return optimfs_file_write(f, buf + off, end - off, off, err);
	mid = off + 1 + rnd(end - off - 1);
	first = rnd(2) == 0;
	if (write_pieces(f, buf, first ? off : mid, first ? mid : end, err) ==
	    -1)
		return -1;
	return write_pieces(f, buf, first ? mid : off, first ? end : mid, err);
}

static bool is_text(struct optimfs *fs, uint64_t node)
{
	char *shape;
	size_t n;
	bool tensor = optimfs_getxattr(fs, node, "user.optimfs.shape", &shape,
			  &n, NULL) == 0;

	if (tensor)
		free(shape);
	return !tensor || n == 0;
}

static int copy_file(const struct copy *c, const struct optimfs_dirent *e,
    uint64_t to)
{
	struct optimfs_file *in, *out;
	uint8_t *buf;
	ssize_t n;
	int ret = -1;

	if (optimfs_file_open(c->from, e->attr->node, &in, c->err) == -1)
		return -1;
	n = (ssize_t)optimfs_file_size(in);
	buf = malloc((size_t)n + 1);
	if (optimfs_file_read(in, buf, (size_t)n, 0, c->err) == n &&
	    optimfs_file_open_write(c->to, to, false, &out, c->err) == 0) {
		if (n == 0)
			ret = 0;
		else if (c->pieces && !is_text(c->from, e->attr->node))
			ret = write_pieces(out, buf, 0, (uint64_t)n, c->err);
		else
			ret =
			    optimfs_file_write(out, buf, (size_t)n, 0, c->err);
		if (ret == 0)
			ret = optimfs_file_flush(out, c->err);
		optimfs_file_close(out);
	}
	free(buf);
	optimfs_file_close(in);
	return ret;
}

static int copy_one(void *ctx, const struct optimfs_dirent *e)
{
	struct copy *c = ctx, below = *c;
	struct optimfs_attr made;
	bool dir = S_ISDIR(e->mode);

	if (optimfs_create(c->to, c->node, e->name, dir, &made, c->err) == -1)
		return -1;
	if (!dir)
		return copy_file(c, e, made.node);
	below.node = made.node;
	return optimfs_readdir(c->from, e->attr->node, 0, true, copy_one,
	    &below, c->err);
}

static int copy_tree(struct optimfs *from, struct optimfs *to, bool pieces,
    struct optimfs_error *err)
{
	struct copy c = { from, to, OPTIMFS_ROOT, err, pieces };

	return optimfs_readdir(from, OPTIMFS_ROOT, 0, true, copy_one, &c, err);
}

static bool same_trees(const char *a, const char *b)
{
	char command[512];

	snprintf(command, sizeof(command), "diff -r '%s' '%s'", a, b);
	return scratch_shell(command);
}

/* Copies checkpoint name into a template of this layout, directory to. */
static bool copy_into(const char *name, const struct optimfs_options *how,
    const char *layout, const char *to)
{
	struct optimfs_options o = { .rw = true };
	struct optimfs_error err = { 0 };
	struct optimfs *from = optimfs_open(name, how, &err), *fs = NULL;
	bool good = from != NULL &&
	    optimfs_mkfs(from, layout, in_scratch(to), &err) == 0;

	if (good)
		fs = optimfs_open(in_scratch(to), &o, &err);
	good = fs != NULL && copy_tree(from, fs, true, &err) == 0 &&
	    optimfs_commit(fs, NULL, NULL, &err) == 0;
	if (!good)
		diag("%s to %s: %s", name, layout, err.text);
	optimfs_close(fs);
	optimfs_close(from);
	return good;
}

/* reshard of name to the same layout gives the same bytes as made. */
static bool as_reshard(const char *name, const struct optimfs_options *how,
    const char *layout, const char *made)
{
	struct optimfs_reshard to = { .to = layout };
	struct optimfs_error err = { 0 };
	struct optimfs *from = optimfs_open(name, how, &err);
	bool good = from != NULL && scratch_shell("rm -rf want") &&
	    optimfs_reshard(from, in_scratch("want"), &to, &err) == 0;

	if (!good)
		diag("%s to %s: %s", name, layout, err.text);
	optimfs_close(from);
	return good && same_trees("want", made);
}

/* A -> B -> A: each equals the output of reshard. The last also equals the
 * first if B keeps the keys of A. */
static void there_and_back(const char *name, const struct optimfs_options *how,
    size_t n)
{
	static const char *const layouts[] = { "dcp@1", "dcp@2", "dcp@3",
		"dcp@5", "dcp@2x2", "dcp@16", "torch", "dcp@2,zstd",
		"dcp-st@3" };
	char path[512];

	snprintf(path, sizeof(path), "%s", data_path(name));
	for (unsigned i = 0; i < 2; i++) {
		const char *a = layouts[rnd(n)], *b = layouts[rnd(n)];

		scratch_shell("rm -rf * .??*");
		ok(copy_into(path, how, a, "a") &&
			as_reshard(path, how, a, "a"),
		    "%s as %s equals the output of reshard", name, a);
		ok(copy_into(in_scratch("a"), NULL, b, "b") &&
			as_reshard(in_scratch("a"), NULL, b, "b"),
		    "%s as %s, then %s, equals the output of reshard", name, a,
		    b);
		ok(copy_into(in_scratch("b"), NULL, a, "back") &&
			as_reshard(in_scratch("b"), NULL, a, "back"),
		    "%s as %s, %s and %s equals the output of reshard", name, a,
		    b, a);
		if (strncmp(a, "dcp", 3) == 0 && strncmp(b, "dcp", 3) == 0)
			ok(same_trees("a", "back"),
			    "%s as %s, %s and %s equals the first", name, a, b,
			    a);
	}
}

/* Do both checkpoints show the same files? */
struct same {
	struct optimfs *a, *b;
	char path[1024];
	struct optimfs_error *err;
};

static int same_file(const struct same *s, uint64_t one, uint64_t other)
{
	struct optimfs_file *a, *b;
	uint8_t *p, *q;
	ssize_t n, k;
	bool same = false;

	if (optimfs_file_open(s->a, one, &a, s->err) == -1)
		return -1;
	if (optimfs_file_open(s->b, other, &b, s->err) == -1) {
		optimfs_file_close(a);
		return -1;
	}
	n = (ssize_t)optimfs_file_size(a);
	k = (ssize_t)optimfs_file_size(b);
	p = malloc((size_t)n + 1);
	q = malloc((size_t)k + 1);
	same = n == k && optimfs_file_read(a, p, (size_t)n, 0, s->err) == n &&
	    optimfs_file_read(b, q, (size_t)k, 0, s->err) == k &&
	    memcmp(p, q, (size_t)n) == 0;
	free(p);
	free(q);
	optimfs_file_close(a);
	optimfs_file_close(b);
	return same ? 0 : optimfs_fail(s->err, EINVAL, "%s differs", s->path);
}

static int same_one(void *ctx, const struct optimfs_dirent *e)
{
	struct same below = *(struct same *)ctx;
	struct optimfs_attr other;
	size_t n = strlen(below.path);

	snprintf(below.path + n, sizeof(below.path) - n, "%s%s",
	    n == 0 ? "" : "/", e->name);
	if (optimfs_resolve(below.b, below.path, &other, below.err) == -1)
		return -1;
	if (S_ISDIR(e->mode) != S_ISDIR(other.mode))
		return optimfs_fail(below.err, EINVAL, "%s: kinds", below.path);
	if (!S_ISDIR(e->mode))
		return same_file(&below, e->attr->node, other.node);
	return optimfs_readdir(below.a, e->attr->node, 0, true, same_one,
	    &below, below.err);
}

static bool same_shown(const char *one, const char *other)
{
	struct optimfs_error err = { 0 };
	struct optimfs *a = optimfs_open(one, NULL, &err);
	struct optimfs *b = a == NULL ? NULL : optimfs_open(other, NULL, &err);
	struct same there = { a, b, "", &err }, back = { b, a, "", &err };
	bool same = b != NULL &&
	    optimfs_readdir(a, OPTIMFS_ROOT, 0, true, same_one, &there, &err) ==
		0 &&
	    optimfs_readdir(b, OPTIMFS_ROOT, 0, true, same_one, &back, &err) ==
		0;

	if (!same)
		diag("%s and %s: %s", one, other, err.text);
	optimfs_close(a);
	optimfs_close(b);
	return same;
}

/* A random tree as torch.save would write it. */
#define STORAGE 16384u /* bytes */
#define SCALARS \
 7u /* the storage for 0-dimensional tensors: its numbers have short texts */

struct making {
	struct mktorch *m;
	uint64_t used[8]; /* elements */
	struct mk_tensor last;
};

static const struct {
	const char *type;
	unsigned size;
} types[] = {
	{ "FloatStorage", 4 },
	{ "BFloat16Storage", 2 },
	{ "DoubleStorage", 8 },
	{ "HalfStorage", 2 },
	{ "LongStorage", 8 },
	{ "ByteStorage", 1 },
	{ "IntStorage", 4 },
	{ "FloatStorage", 4 },
};
static const char *const keys[] = { "0", "1", "2", "3", "4", "5", "6", "7" };

static void put_float(struct ofs_buf *b, double v)
{
	uint64_t bits;

	memcpy(&bits, &v, sizeof(bits));
	ofs_buf_putc(b, 'G');
	for (unsigned i = 8; i-- > 0;)
		ofs_buf_putc(b, (int)(bits >> 8 * i & 0xff));
}

/* A tensor of storage i. One in eight repeats the previous tensor. */
static void put_tensor(struct making *x, unsigned i, size_t ndim)
{
	struct mk_tensor t = { .type = types[i].type,
		.key = keys[i],
		.numel = STORAGE / types[i].size,
		.offset = (int64_t)x->used[i],
		.ndim = ndim };
	uint64_t n = 1;

	for (size_t d = 0; d < ndim; d++) {
		t.shape[d] = (int64_t)(rnd(20) == 0 ? 0 : 1 + rnd(7));
		n *= (uint64_t)t.shape[d];
	}
	for (size_t d = ndim, step = 1; d-- > 0;) {
		t.stride[d] = (int64_t)step;
		step *= (size_t)t.shape[d];
	}
	if (ndim == 2 && rnd(4) == 0) { /* transposed */
		t.stride[0] = 1;
		t.stride[1] = t.shape[0];
	}
	if (x->used[i] + n > STORAGE / types[i].size)
		x->used[i] = 0,
		t.offset = 0; /* it overlaps other tensors then */
	if (ndim > 0 && x->last.type != NULL && rnd(8) == 0) {
		mk_tensor(&x->m->pickle, &x->last);
		return;
	}
	mk_tensor(&x->m->pickle, &t);
	x->used[i] += n;
	if (ndim > 0)
		x->last = t;
}

static void put_leaf(struct making *x)
{
	static const char *const words[] = { "", "adam", "a\nb", "\xc3\xa9",
		"true" };
	struct ofs_buf *b = &x->m->pickle;

	switch (rnd(7)) {
	case 0:
		mk_int(b, (int64_t)rnd(1u << 20) - 1000);
		break;
	case 1:
		put_float(b, (double)rnd(1000) / 7);
		break;
	case 2:
		mk_str(b, words[rnd(5)]);
		break;
	case 3:
		mk_ops(b, rnd(2) == 0 ? "\x88" : "\x89");
		break;
	case 4:
		mk_ops(b, "N");
		break;
	case 5:
		put_tensor(x, SCALARS, 0);
		break;
	default:
		put_tensor(x, (unsigned)rnd(7), 1 + rnd(3));
	}
}

static void put_any(struct making *x, unsigned depth)
{
	struct ofs_buf *b = &x->m->pickle;
	unsigned n = (unsigned)rnd(4);
	char key[40];

	if (depth == 3 || rnd(3) > 0) {
		put_leaf(x);
		return;
	}
	mk_ops(b, "}(");
	for (unsigned i = 0; i < n; i++) {
		snprintf(key, sizeof(key), "%s%u",
		    rnd(2) == 0 ? "k." : "a/b%c ", i);
		mk_str(b, key);
		put_any(x, depth + 1);
	}
	mk_ops(b, "u");
}

static void put_model(struct making *x, unsigned n)
{
	char key[40];

	mk_ops(&x->m->pickle, "}(");
	for (unsigned i = 0; i < n; i++) {
		snprintf(key, sizeof(key), "layers.%u.weight", i);
		mk_str(&x->m->pickle, key);
		put_tensor(x, (unsigned)rnd(7), 1 + rnd(3));
	}
	mk_ops(&x->m->pickle, "u");
}

static void put_optimizer(struct making *x, unsigned n)
{
	static const char *const states[] = { "exp_avg", "exp_avg_sq", "max" };
	struct ofs_buf *b = &x->m->pickle;

	mk_ops(b, "}(");
	mk_str(b, "state");
	mk_ops(b, "}(");
	for (unsigned i = 0; i < n; i++) {
		mk_int(b, i);
		mk_ops(b, "}(");
		mk_str(b, "step");
		put_tensor(x, SCALARS, 0);
		for (unsigned k = 0; k < 3; k++) {
			mk_str(b, states[k]);
			put_tensor(x, 0, 1 + rnd(3));
		}
		mk_ops(b, "u");
	}
	mk_ops(b, "u");
	mk_str(b, "param_groups");
	mk_ops(b, "](}(");
	mk_str(b, "lr");
	put_float(b, 1e-3);
	mk_str(b, "params");
	mk_ops(b, "](");
	for (unsigned i = 0; i < n; i++)
		mk_int(b, i);
	mk_ops(b, "eueu");
}

static void make_tree(struct mktorch *m)
{
	static uint8_t bytes[8][STORAGE];
	struct making x = { .m = m };
	unsigned n = 1 + (unsigned)rnd(6);
	struct optimfs_error err;

	mktorch_init(m);
	for (unsigned i = 0; i < 8; i++) {
		handmade_fill(bytes[i], STORAGE, rnd(1u << 30));
		m->storage[i] = bytes[i];
		m->size[i] = STORAGE;
	}
	for (unsigned i = 0; i < STORAGE / 4; i++) {
		float v = (float)rnd(4096) / 16;

		memcpy(bytes[SCALARS] + 4 * i, &v, 4);
	}
	mk_ops(&m->pickle, "}(");
	mk_str(&m->pickle, "model");
	put_model(&x, n);
	mk_str(&m->pickle, "optimizer");
	put_optimizer(&x, n);
	mk_str(&m->pickle, "epoch");
	mk_int(&m->pickle, (int64_t)rnd(100));
	mk_str(&m->pickle, "more");
	put_any(&x, 0);
	mk_ops(&m->pickle, "u");
	mk_end(&m->pickle);
	if (mktorch_read(m, NULL, &err) == -1)
		bail_out("%s", err.text);
}

static const char *any_layout(char name[32])
{
	switch (rnd(6)) {
	case 0:
		return "torch";
	case 1:
		snprintf(name, 32, "dcp-st@%u", 1 + (unsigned)rnd(9));
		break;
	case 2:
		snprintf(name, 32, "dcp@%u,zstd", 1 + (unsigned)rnd(5));
		break;
	case 3:
		snprintf(name, 32, "dcp@%ux%u", 1 + (unsigned)rnd(3),
		    1 + (unsigned)rnd(4));
		break;
	default:
		snprintf(name, 32, "dcp@%u", 1 + (unsigned)rnd(20));
	}
	return name;
}

/* A tree in layouts A, B and again A shows the same files. */
static void random_trees(unsigned n)
{
	char one[32], other[32], path[512];

	for (unsigned i = 0; i < n; i++) {
		uint64_t began = seed;
		const char *a = any_layout(one), *b = any_layout(other);
		struct mktorch m;
		bool good;

		make_tree(&m);
		snprintf(path, sizeof(path), "%s", handmade_path(&m.h, "x.pt"));
		scratch_shell("rm -rf * .??*");
		good = copy_into(path, NULL, a, "a") &&
		    same_shown(path, in_scratch("a"));
		good = good && copy_into(in_scratch("a"), NULL, b, "b") &&
		    same_shown(path, in_scratch("b"));
		good = good && copy_into(in_scratch("b"), NULL, a, "back") &&
		    same_shown(path, in_scratch("back"));
		if (strcmp(a, "torch") != 0 && strcmp(b, "torch") != 0)
			good = good && same_trees("a", "back");
		if (!ok(good,
			"a random tree as %s, %s and %s shows the same files",
			a, b, a))
			diag("OPTIMFS_SEED=%llu", (unsigned long long)began);
		mktorch_fini(&m);
	}
}

static _Atomic unsigned countdown; /* threads write files */

static int die(const char *call)
{
	(void)call;
	if (--countdown == 0)
		_exit(9);
	return 0;
}

static int fail(const char *call)
{
	(void)call;
	return --countdown == 0 ? EIO : 0;
}

/* Opens the template and commits it. */
static int commit_it(ofs_sys_fault_fn *fault, struct optimfs_error *err)
{
	struct optimfs_options o = { .rw = true,
		.recover = OPTIMFS_RECOVER_YES };
	struct optimfs *fs = optimfs_open(in_scratch("new"), &o, err);
	int ret;

	if (fs == NULL)
		return -1;
	ofs_sys_fault = fault;
	ret = optimfs_commit(fs, NULL, NULL, err);
	ofs_sys_fault = NULL;
	optimfs_close(fs);
	return ret;
}

static int tally(const char *call)
{
	(void)call;
	countdown++;
	return 0;
}

static bool die_in_commit(unsigned at)
{
	struct optimfs_error err;
	int status;
	pid_t child = fork();

	if (child == 0) {
		countdown = at;
		_exit(commit_it(die, &err) == 0 ? 0 : 1);
	}
	waitpid(child, &status, 0);
	return WIFEXITED(status) && WEXITSTATUS(status) == 9;
}

/* Fills a template completely without committing it, and keeps a copy in the
 * directory ready. */
static void make_ready(const char *layout, const char *lr)
{
	struct optimfs_options o = { .rw = true };
	struct optimfs_error err = { 0 };
	struct optimfs *from =
	    optimfs_open(data_path("pytorch/dcp_fsdp2_w2/ckpt"), NULL, &err);
	struct optimfs *fs = NULL;
	struct optimfs_file *f;
	struct optimfs_attr attr;

	scratch_shell("rm -rf * .??*");
	if (from == NULL ||
	    optimfs_mkfs(from, layout, in_scratch("new"), &err) ||
	    (fs = optimfs_open(in_scratch("new"), &o, &err)) == NULL ||
	    copy_tree(from, fs, false, &err) == -1)
		bail_out("%s", err.text);
	if (optimfs_resolve(fs, "optim/param_groups/0/lr", &attr, &err) ||
	    optimfs_file_open_write(fs, attr.node, true, &f, &err) ||
	    optimfs_file_write(f, lr, strlen(lr), 0, &err) ||
	    optimfs_file_flush(f, &err))
		bail_out("%s", err.text);
	optimfs_file_close(f);
	optimfs_close(fs);
	optimfs_close(from);
	scratch_shell("mkdir ready && mv new .new.optimfs ready");
}

static void restore(void)
{
	scratch_shell(
	    "rm -rf new .new.optimfs && cp -r ready/new ready/.new.optimfs .");
}

/* The checkpoint is complete, and the stage is gone. */
static bool is_done(void)
{
	return same_trees("want", "new") &&
	    scratch_shell("test ! -e .new.optimfs");
}

static bool killed_at(unsigned at)
{
	struct optimfs_error err;

	restore();
	if (!die_in_commit(at)) {
		diag("the commit was not killed at %u", at);
		return false;
	}
	/* The directory is empty and the commit can be repeated, or it is
	 * complete. */
	if (commit_it(NULL, &err) == -1) {
		diag("killed at %u: %s", at, err.text);
		return false;
	}
	return is_done();
}

static bool failed_at(unsigned at, unsigned *failed)
{
	struct optimfs_error err;

	restore();
	countdown = at;
	if (commit_it(fail, &err) == 0)
		return same_trees("want", "new");
	/* A failed commit leaves the directory empty. */
	++*failed;
	if (!scratch_shell("rmdir new && mkdir new")) {
		diag("failed at %u: the directory is not empty", at);
		return false;
	}
	if (commit_it(NULL, &err) == -1) {
		diag("failed at %u: %s", at, err.text);
		return false;
	}
	return is_done();
}

/* Kills a commit before a call, and makes the call fail: for the last calls,
 * which rename, and for some before them. */
static void faults(const char *layout, const char *lr)
{
	unsigned calls, tried = 0, failed = 0, killed = 0, bad = 0;
	struct optimfs_error err = { 0 };

	make_ready(layout, lr);
	restore();
	countdown = 0;
	if (!ok(commit_it(tally, &err) == 0 && scratch_shell("mv new want"),
		"%s: an undisturbed commit succeeds", layout)) {
		diag("%s", err.text);
		return;
	}
	calls = countdown;
	for (unsigned at = 1; at <= calls; at++) {
		if (at + 20 < calls && rnd(calls) > 20)
			continue;
		tried++;
		if (killed_at(at))
			killed++;
		if (!failed_at(at, &failed))
			bad++;
	}
	ok(tried >= 20 && killed == tried,
	    "%s: killed at %u of %u calls, %u are recovered", layout, tried,
	    calls, killed);
	ok(failed > 5 && bad == 0,
	    "%s: %u of %u failed calls fail the commit, %u are not recovered",
	    layout, failed, tried, bad);
}

static int take_away(const char *call)
{
	(void)call;
	if (--countdown == 0)
		scratch_shell("mv new elsewhere");
	return 0;
}

/* A template cannot be read before its commit. If the committed directory is
 * moved away, the mount cannot be written any more. */
static void before_and_after(void)
{
	struct optimfs_options o = { .rw = true,
		.recover = OPTIMFS_RECOVER_YES };
	struct optimfs_error err = { 0 };
	struct optimfs_attr attr;
	struct optimfs_file *f;
	struct optimfs *fs;

	restore();
	countdown = 0;
	if (commit_it(tally, &err) == -1)
		bail_out("%s", err.text);
	restore();
	ok(optimfs_open(in_scratch("new"), NULL, &err) == NULL,
	    "a template does not open for reading");
	is_error(err, EROFS, "OFS834",
	    "a template does not open for reading: error text");
	fs = optimfs_open(in_scratch("new"), &o, &err);
	if (fs == NULL ||
	    optimfs_resolve(fs, "optim/param_groups/0/lr", &attr, &err) == -1)
		bail_out("%s", err.text);
	ofs_sys_fault = take_away;
	ok(optimfs_commit(fs, NULL, NULL, &err) != -1,
	    "a commit whose directory is moved away does not fail: %s",
	    err.text);
	ofs_sys_fault = NULL;
	is_int(optimfs_file_open_write(fs, attr.node, true, &f, &err), -1,
	    "a mount whose checkpoint was moved away cannot be written");
	is_error(err, ESTALE, "OFS835",
	    "a mount whose checkpoint was moved away: error text");
	optimfs_close(fs);
}

static unsigned renames;

static int fail_renames(const char *call)
{
	return strcmp(call, "rename") == 0 && ++renames > 1 ? EIO : 0;
}

/* The first rename marks the template as complete. The second gives it its
 * name, and the third takes the mark back. */
static void tries_again(void)
{
	struct optimfs_options o = { .rw = true,
		.recover = OPTIMFS_RECOVER_YES };
	struct optimfs_error err = { 0 };
	struct optimfs *fs;

	restore();
	fs = optimfs_open(in_scratch("new"), &o, &err);
	if (fs == NULL)
		bail_out("%s", err.text);
	ofs_sys_fault = fail_renames;
	is_int(optimfs_commit(fs, NULL, NULL, &err), -1,
	    "a commit to a template fails when its renames fail");
	ofs_sys_fault = NULL;
	is_int((int)renames, 3,
	    "the failed commit tried to take back its mark");
	if (!is_int(optimfs_commit(fs, NULL, NULL, &err), 0,
		"another commit of the same mount succeeds"))
		diag("%s", err.text);
	optimfs_close(fs);
}

int main(void)
{
	static char units[512];
	struct optimfs_options flat = { .units = units };
	const char *given = getenv("OPTIMFS_SEED");

	seed = given == NULL ? 88172645463325252u : strtoull(given, NULL, 10);
	scratch_make(true);
	random_trees(25);
	there_and_back("pytorch/dcp_fsdp2_w3/ckpt", NULL, 9);
	there_and_back("pytorch/dcp_dtypes/ckpt", NULL, 8);
	there_and_back("pytorch/torchsave_full/ckpt/state.pt", NULL, 9);
	snprintf(units, sizeof(units), "%s",
	    data_path("pytorch/fsdp1_local_flat_fullshard_w3/units.json"));
	there_and_back("pytorch/fsdp1_local_flat_fullshard_w3/ckpt", &flat, 9);
	faults("dcp@2", "0.001\n");
	faults("dcp@1", "0.5\n");
	before_and_after();
	tries_again();
	scratch_remove();
	return done_testing();
}
