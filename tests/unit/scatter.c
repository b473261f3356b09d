/* scatter.c - writing of elements in place, into real checkpoints */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "archive/zip_sums.h"
#include "base/copy.h"
#include "base/crc.h"
#include "base/cursor.h"
#include "base/io.h"
#include "base/memory.h"
#include "base/ranges.h"
#include "fs/fs.h"
#include "plan/fix.h"
#include "random.h"
#include "read/copies.h"
#include "read/patch.h"
#include "support/staged.h"
#include "support/truth.h"
#include "tap.h"

/* What an edit of a checkpoint in place would do, to compare with: a write
 * reverses the segments of the plan for a read. */

/* The file to which a segment is written. delta is added to a source offset of
 * the segment to get an offset in the file; the source is the object, or with a
 * codec the decoded extent. */
struct target {
	int (*at)(void *ctx, const struct ofs_segment *seg, int *fd,
	    int64_t *delta, struct optimfs_error *err);
	void *ctx;
};

static int write_runs(int fd, int64_t delta, const struct ofs_segment *seg,
    const uint8_t *buf, struct optimfs_error *err)
{
	uint64_t len = seg->len, n = seg->n;
	int ret = 0;

	if (n > 1 && seg->src_pitch == (int64_t)len &&
	    seg->dst_pitch == (int64_t)len) {
		len *= n;
		n = 1;
	}
	for (uint64_t i = 0; i < n && ret == 0; i++)
		ret = ofs_write_all(fd,
		    buf + seg->dst + (int64_t)i * seg->dst_pitch, len,
		    seg->src + (uint64_t)((int64_t)i * seg->src_pitch + delta),
		    err);
	return ret;
}

static int write_to(const struct target *target, const struct ofs_segment *seg,
    const void *buf, struct optimfs_error *err)
{
	int64_t delta = 0;
	int fd = -1;

	return target->at(target->ctx, seg, &fd, &delta, err) == -1
	    ? -1
	    : write_runs(fd, delta, seg, buf, err);
}

/* Convert elements to their stored form: every fix is its own inverse. */
static int write_fixed(const struct target *target,
    const struct ofs_segment *seg, const void *buf, uint64_t size,
    struct optimfs_error *err)
{
	uint8_t *copy;
	int ret;

	if (seg->fix == OFS_FIX_NONE)
		return write_to(target, seg, buf, err);
	if ((seg->fix & OFS_FIX_ROUND) != 0)
		return optimfs_fail(err, EOPNOTSUPP, "rounded");
	copy = malloc(size + 1);
	if (copy == NULL)
		return ofs_no_memory(err);
	memcpy(copy, buf, size);
	ofs_fix_segment(seg, copy);
	ret = write_to(target, seg, copy, err);
	free(copy);
	return ret;
}

static int scatter(struct ofs_reader *r, const struct ofs_tensor *t,
    uint64_t first, uint64_t count, const void *buf,
    const struct target *target, struct optimfs_error *err)
{
	uint64_t size = count * ofs_dtype_size(t->dtype);
	struct ofs_plan plan = { 0 };
	int ret = ofs_plan_copies(r, t, first, count, &plan, err);

	for (size_t i = 0; i < plan.n && ret == 0; i++)
		ret = write_fixed(target, &plan.seg[i], buf, size, err);
	ofs_plan_fini(&plan);
	return ret;
}

static char top[64];
static uint64_t seed = 88172645463325252u;

static uint64_t rnd(uint64_t n)
{
	return tap_below(&seed, n);
}

/* A copy of a checkpoint in top, whose files are written with the catalog of
 * the original. */
struct copy {
	struct optimfs *fs;
	int *fd;
	struct ofs_ranges *touched; /* written ranges of each object */
	uint8_t **want;             /* expected bytes of each written tensor */
	struct ofs_patches patches; /* the same edits */
	bool overlaps; /* the range was already written, for another tensor */
	bool dry;
};

static int target(void *ctx, const struct ofs_segment *seg, int *fd,
    int64_t *delta, struct optimfs_error *err)
{
	struct copy *c = ctx;
	uint64_t lo = seg->src, hi = seg->src;
	int64_t reach = (int64_t)(seg->n - 1) * seg->src_pitch;

	/* An expanded tensor stores several elements in one location. */
	if (seg->codec != OFS_PLAIN || (seg->n > 1 && seg->src_pitch == 0)) {
		c->overlaps = true;
		return 0;
	}
	if (reach < 0)
		lo -= (uint64_t)-reach;
	else
		hi += (uint64_t)reach;
	hi += seg->len;
	if (c->dry) {
		c->overlaps = c->overlaps ||
		    ofs_ranges_meet(&c->touched[seg->object], lo, hi);
		return 0;
	}
	*fd = c->fd[seg->object];
	*delta = 0;
	return ofs_ranges_add(&c->touched[seg->object], lo, hi, err);
}

static void open_copy(struct copy *c, const char *name)
{
	struct optimfs_error err = { 0 };
	struct ofs_catalog *cat;
	char command[512], path[4500];

	snprintf(command, sizeof(command),
	    "rm -rf '%s' && cp -r '%s' '%s' && chmod -R u+w '%s'", top,
	    data_path(name), top, top);
	if (system(command) != 0)
		bail_out("%s", command);
	c->fs = optimfs_open(data_path(name), NULL, &err);
	if (c->fs == NULL)
		bail_out("%s: %s", name, err.text);
	cat = c->fs->now->cat;
	c->fd = calloc(cat->nobjects + 1, sizeof(*c->fd));
	c->touched = calloc(cat->nobjects + 1, sizeof(*c->touched));
	c->want = calloc(cat->ntensors + 1, sizeof(*c->want));
	for (uint32_t i = 0; i < cat->nobjects; i++) {
		snprintf(path, sizeof(path), "%s/%s", top,
		    cat->objects[i].path);
		c->fd[i] = open(path, O_RDWR);
	}
}

static void close_copy(struct copy *c)
{
	struct ofs_catalog *cat = c->fs->now->cat;

	for (uint32_t i = 0; i < cat->nobjects; i++) {
		close(c->fd[i]);
		ofs_ranges_fini(&c->touched[i]);
	}
	for (size_t i = 0; i < c->patches.nedits; i++)
		close(staged_fd(&c->patches.edit[i].staged));
	ofs_patches_fini(&c->patches);
	for (uint32_t i = 0; i < cat->ntensors; i++)
		free(c->want[i]);
	free(c->fd);
	free(c->touched);
	free(c->want);
	optimfs_close(c->fs);
}

static uint8_t *read_tensor(struct optimfs *fs, const struct ofs_tensor *t,
    struct optimfs_error *err)
{
	uint8_t *buf = calloc(1, ofs_tensor_bytes(fs->now->cat, t) + 1);

	if (ofs_fetch_elements(&fs->now->reader, t, 0,
		ofs_tensor_numel(fs->now->cat, t), buf, err) == 0)
		return buf;
	free(buf);
	return NULL;
}

/* Adds the same bytes as an edit. */
static int add_patch(struct copy *c, uint32_t i, uint64_t off, uint64_t end)
{
	int fd = memfd_create("staged", 0);
	struct ofs_edit edit = { .tensor = i, .staged = staged_in(fd) };
	struct optimfs_error err = { 0 };
	int ret = -1;

	if (fd != -1 &&
	    pwrite(fd, c->want[i] + off, end - off, (off_t)off) ==
		(ssize_t)(end - off) &&
	    ofs_ranges_add(&edit.written, off, end, &err) == 0)
		ret = ofs_patches_add(&c->patches, &c->fs->now->reader, &edit,
		    &err);
	if (ret == -1)
		diag("%s", err.text);
	ofs_ranges_fini(&edit.written);
	return ret;
}

/* Does each window of each file, read with the edits, have the bytes of the
 * copy that they were written to? */
static bool patched(const struct copy *c)
{
	static uint8_t want[1 << 16], got[1 << 16];
	const struct ofs_catalog *cat = c->fs->now->cat;
	struct optimfs_error err = { 0 };

	for (uint32_t i = 0; i < cat->nobjects; i++) {
		struct ofs_extent at = { .object = i,
			.len = cat->objects[i].size };

		for (uint64_t off = 0, n; off < at.len; off += n) {
			n = 1 + rnd(sizeof(want));
			n = n < at.len - off ? n : at.len - off;
			if (pread(c->fd[i], want, n, (off_t)off) !=
				(ssize_t)n ||
			    ofs_patches_read(&c->patches, &at, off, n, got,
				&err) == -1 ||
			    memcmp(want, got, n) != 0) {
				diag("%s at %" PRIu64 ": %s",
				    cat->objects[i].path, off, err.text);
				return false;
			}
		}
	}
	return true;
}

/* Increments some elements of a tensor, so that their checksums differ. */
static int write_some(struct copy *c, uint32_t i, unsigned *written)
{
	struct ofs_catalog *cat = c->fs->now->cat;
	const struct ofs_tensor *t = &cat->tensors[i];
	struct target to = { .at = target, .ctx = c };
	uint64_t n = ofs_tensor_numel(cat, t), first = rnd(n),
		 count = 1 + rnd(n - first);
	size_t item = ofs_dtype_size(t->dtype);
	struct ofs_plan plan = { 0 };
	struct optimfs_error err = { 0 };
	uint8_t *bytes;
	int ret = 0, fd;
	int64_t delta;

	if (t->error != OFS_NONE || n == 0)
		return 0;
	c->overlaps = false;
	c->dry = true;
	if (ofs_plan_copies(&c->fs->now->reader, t, 0, n, &plan, &err) == -1)
		return 0; /* elements are missing */
	for (size_t k = 0; k < plan.n; k++)
		target(c, &plan.seg[k], &fd, &delta, &err);
	c->dry = false;
	/* Claims the ranges, so that tensors which share them are not
	 * written. */
	for (size_t k = 0; k < plan.n && !c->overlaps && ret == 0; k++)
		ret = target(c, &plan.seg[k], &fd, &delta, &err);
	ofs_plan_fini(&plan);
	if (c->overlaps || ret == -1)
		return ret;
	c->want[i] = read_tensor(c->fs, t, &err);
	if (c->want[i] == NULL)
		return 0;
	bytes = c->want[i] + first * item;
	for (uint64_t k = 0; k < count * item; k++)
		bytes[k] =
		    t->dtype == OFS_BOOL ? !bytes[k] : (uint8_t)(bytes[k] + 1);
	ret = scatter(&c->fs->now->reader, t, first, count, bytes, &to, &err);
	if (ret == -1)
		diag("%s", err.text);
	(*written)++;
	return ret == -1
	    ? -1
	    : add_patch(c, i, first * item, (first + count) * item);
}

/* An archive in a file. */
struct archive {
	int fd;
	uint64_t off;
};

static int read_archive(void *ctx, uint64_t off, uint64_t len, void *buf,
    struct optimfs_error *err)
{
	const struct archive *a = ctx;

	return ofs_pread_all(a->fd, buf, len, a->off + off, err);
}

/* Writes new checksums of the records with bytes of touched to an archive. */
static int fix_archive(struct copy *c, const struct ofs_extent *at,
    struct optimfs_error *err)
{
	struct archive a = { c->fd[at->object], at->off };
	const struct ofs_ranges *all = &c->touched[at->object];
	struct ofs_zip_sums sums = { 0 };
	struct ofs_ranges own = { 0 };
	int ret = 0;

	for (size_t i = ofs_ranges_find(all, at->off);
	     i < all->n && all->v[i].off < at->off + at->len && ret == 0; i++)
		ret = ofs_ranges_add(&own, all->v[i].off - at->off,
		    all->v[i].end - at->off, err);
	if (ret == 0)
		ret = ofs_zip_sums_find(&sums, at->len, &own, read_archive, &a,
		    err);
	for (size_t i = 0; i < sums.n && ret == 0; i++) {
		const struct ofs_zip_sum *s = &sums.v[i];
		uint8_t *bytes = malloc(s->n + 1), le[4];

		ret = read_archive(&a, s->from, s->n, bytes, err);
		ofs_put_le(le, ofs_crc32(0, bytes, s->n), sizeof(le));
		if (ret == 0 &&
		    pwrite(a.fd, le, 4, (off_t)(a.off + s->at)) != 4)
			ret = -1;
		free(bytes);
	}
	ofs_ranges_fini(&own);
	free(sums.v);
	return ret;
}

static int fix(struct copy *c)
{
	struct ofs_catalog *cat = c->fs->now->cat;
	struct optimfs_error err = { 0 };
	int ret = 0;

	for (uint32_t i = 0; i < cat->nshards && ret == 0; i++) {
		const struct ofs_extent *at = &cat->shards[i].at;

		if (at->encoding == OFS_TORCH_ITEM && at->codec == OFS_PLAIN)
			ret = fix_archive(c, at, &err);
	}
	for (uint32_t i = 0; i < cat->nreplicas && ret == 0; i++) {
		const struct ofs_extent *at = &cat->replicas[i].at;

		if (at->encoding == OFS_TORCH_ITEM && at->codec == OFS_PLAIN)
			ret = fix_archive(c, at, &err);
	}
	for (uint32_t i = 0; i < cat->nobjects && ret == 0; i++) {
		const struct ofs_extent at = { .object = i,
			.len = cat->objects[i].size };
		const char *dot = strrchr(cat->objects[i].path, '.');
		char mark[4] = "";

		if (dot != NULL && strcmp(dot, ".distcp") != 0 &&
		    pread(c->fd[i], mark, 4, 0) == 4 &&
		    memcmp(mark, "PK\3\4", 4) == 0)
			ret = fix_archive(c, &at, &err);
	}
	if (ret == -1)
		diag("%s", err.text);
	return ret;
}

static uint64_t problems(struct optimfs *fs)
{
	struct optimfs_error err = { 0 };
	uint64_t n = 0;

	if (optimfs_fsck(fs, true, NULL, NULL, &n, &err) == -1)
		bail_out("%s", err.text);
	return n;
}

static void test_checkpoint(const char *name)
{
	struct copy c = { 0 };
	struct optimfs_error err = { 0 };
	struct optimfs *again;
	unsigned written = 0, wrong = 0;
	int ret = 0;

	open_copy(&c, name);
	for (uint32_t i = 0; i < c.fs->now->cat->ntensors && ret == 0; i++)
		ret = write_some(&c, i, &written);
	ok(ret == 0 && written > 0, "%s: elements of %u tensors are written",
	    name, written);
	ofs_patches_seal(&c.patches);
	ok(patched(&c), "%s: a read with these edits gives the same", name);
	is_int(fix(&c), 0, "%s: checksums are updated", name);
	again = optimfs_open(top, NULL, &err);
	if (again == NULL)
		bail_out("%s: %s", name, err.text);
	for (uint32_t i = 0; i < again->now->cat->ntensors; i++) {
		uint64_t n = ofs_tensor_bytes(again->now->cat,
		    &again->now->cat->tensors[i]);
		uint8_t *got;

		if (c.want[i] == NULL)
			continue;
		got = read_tensor(again, &again->now->cat->tensors[i], &err);
		if (got == NULL || memcmp(got, c.want[i], n) != 0) {
			uint64_t k = 0;

			while (got != NULL && got[k] == c.want[i][k])
				k++;
			diag("tensor %u (%s) differs at byte %" PRIu64
			     " of %" PRIu64 ": %s",
			    i,
			    ofs_dtype_name(again->now->cat->tensors[i].dtype),
			    k, n, err.text);
			wrong++;
		}
		free(got);
	}
	is_int(wrong, 0, "%s: written tensors read back as expected", name);
	is_u64(problems(again), problems(c.fs),
	    "%s: fsck finds no new problems", name);
	optimfs_close(again);
	close_copy(&c);
}

int main(void)
{
	static const char *const names[] = { "pytorch/dcp_dtypes/ckpt",
		"pytorch/dcp_tp_fsdp_w4/ckpt", "pytorch/dcp_hsdp_w4/ckpt",
		"pytorch/dcp_3d_w8/ckpt",
		"pytorch/dcp_fsdp2_safetensors_w2/ckpt",
		"pytorch/torchsave_full/ckpt", "pytorch/safetensors_plain/ckpt",
		"pytorch/hf_storage_w2/ckpt",
		"pytorch/fsdp1_sharded_orig_hybridshard_w4/ckpt_rankfiles",
		"pytorch/dcp_fsdp2_w3/ckpt" };

	snprintf(top, sizeof(top), "%s/optimfs-scatter-XXXXXX", tap_tmpdir());
	if (mkdtemp(top) == NULL)
		bail_out("%s: %s", top, strerror(errno));
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		test_checkpoint(names[i]);
	if (chdir("/") == 0) {
		char command[128];

		snprintf(command, sizeof(command), "rm -rf '%s'", top);
		if (system(command) != 0)
			diag("%s", command);
	}
	return done_testing();
}
