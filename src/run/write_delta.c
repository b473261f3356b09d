/* write_delta.c - write what a checkpoint has other than another one */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "optimfs/run.h"

#include "base/buf.h"
#include "base/copy.h"
#include "base/cursor.h"
#include "base/error.h"
#include "base/json_write.h"
#include "base/memory.h"
#include "base/sys.h"
#include "fs/fs.h"
#include "read/fetch.h"
#include "run/step.h"
#include "store/encode.h"

/* The form is that of slime (docs/formats/delta.md), which names tensors as the
 * model does, and has one frame for each that changes. Lengths of frames come
 * first in a file, so frames are written to a file of their own, and copied
 * behind the header. The version appears with a rename, or not at all. */

#define BLOCK      (UINT64_C(1) << 20)
#define DATA_FILE  "frames"
#define MODEL_FILE "model-00000-of-00001.safetensors"
#define NEW        "new"
#define INDEX_FILE "model.safetensors.index.json"

/* A tensor of the model in both checkpoints. */
struct pair {
	const char *name;
	const struct ofs_tensor *now, *before;
	uint64_t numel, item;
};

struct writing {
	struct ofs_snapshot *snap, *base;
	struct optimfs_delta *how;
	uint64_t version, base_version;
	char *temp;         /* a directory beside it */
	int top, dir, data; /* temp, the version in it, its frames */
	struct ofs_encoder frames;
	struct ofs_buf sums, tensors, map;
	uint8_t *now, *before; /* blocks of both */
	uint8_t *list;         /* of a block */
	/* of the current tensor */
	XXH3_state_t *sum;
	uint64_t changed; /* bytes */
	uint64_t done, total;
	struct optimfs_error *err;
};

/* A pass over both tensors: gets n bytes of each, from byte at on. */
typedef int pass_fn(struct writing *x, uint64_t at, size_t n);

static int step(struct writing *x, const struct pair *p, uint64_t n)
{
	const struct optimfs_watch *w = &x->how->watch;

	x->done += n;
	if (w->progress != NULL)
		w->progress(w->ctx, x->done, x->total, p->name);
	if (w->stop != NULL && w->stop(w->ctx))
		return optimfs_fail(x->err, ECANCELED, "stopped");
	return 0;
}

static int run_pass(struct writing *x, const struct pair *p, pass_fn *pass)
{
	uint64_t most = BLOCK / p->item, k;

	for (uint64_t i = 0; i < p->numel; i += k) {
		k = p->numel - i < most ? p->numel - i : most;
		if (ofs_fetch_elements(&x->snap->reader, p->now, i, k, x->now,
			x->err) == -1)
			return optimfs_fail_in(x->err, "%s: model/%.200s",
			    x->snap->fs->source, p->name);
		if (ofs_fetch_elements(&x->base->reader, p->before, i, k,
			x->before, x->err) == -1)
			return optimfs_fail_in(x->err, "%s: model/%.200s",
			    x->base->fs->source, p->name);
		if (pass(x, i * p->item, (size_t)(k * p->item)) == -1)
			return -1;
	}
	return 0;
}

static int measure(struct writing *x, uint64_t at, size_t n)
{
	(void)at;
	XXH3_128bits_update(x->sum, x->now, n);
	if (memcmp(x->now, x->before, n) != 0)
		for (size_t i = 0; i < n; i++)
			x->changed += x->now[i] != x->before[i];
	return 0;
}

static int put_mask(struct writing *x, uint64_t at, size_t n)
{
	(void)at;
	for (size_t i = 0; i < n; i++)
		x->before[i] ^= x->now[i];
	return ofs_encode(&x->frames, x->before, n, false, x->err);
}

static int put_positions(struct writing *x, uint64_t at, size_t n)
{
	size_t len = 0;

	for (size_t i = 0; i < n; i++)
		if (x->now[i] != x->before[i]) {
			ofs_put_le(x->list + len, at + i, 4);
			len += 4;
		}
	return ofs_encode(&x->frames, x->list, len, false, x->err);
}

static int put_values(struct writing *x, uint64_t at, size_t n)
{
	size_t len = 0;

	(void)at;
	for (size_t i = 0; i < n; i++)
		if (x->now[i] != x->before[i])
			x->list[len++] = x->now[i];
	return ofs_encode(&x->frames, x->list, len, false, x->err);
}

/* One frame for the changes of a tensor. */

static int put_list(struct writing *x, const struct pair *p)
{
	uint8_t count[4];

	ofs_put_le(count, x->changed, 4);
	if (ofs_encoder_size(&x->frames, 4 + 5 * x->changed, x->err) == -1 ||
	    ofs_encode(&x->frames, count, 4, false, x->err) == -1 ||
	    run_pass(x, p, put_positions) == -1)
		return -1;
	return run_pass(x, p, put_values);
}

static int put_frame(struct writing *x, const struct pair *p)
{
	if (x->how->overwrite) {
		if (put_list(x, p) == -1)
			return -1;
	} else if (ofs_encoder_size(&x->frames, p->numel * p->item, x->err) ==
		-1 ||
	    run_pass(x, p, put_mask) == -1) {
		return -1;
	}
	return ofs_encode(&x->frames, NULL, 0, true, x->err);
}

static void put_name(struct ofs_buf *b, const char *name)
{
	ofs_buf_puts(b, b->len == 0 ? "" : ",");
	ofs_json_quote(b, name, strlen(name));
}

static void put_sum(struct writing *x, const char *name)
{
	XXH128_canonical_t c;

	XXH128_canonicalFromHash(&c, XXH3_128bits_digest(x->sum));
	put_name(&x->sums, name);
	ofs_buf_puts(&x->sums, ":\"");
	for (size_t i = 0; i < sizeof(c.digest); i++)
		ofs_buf_printf(&x->sums, "%02x", c.digest[i]);
	ofs_buf_putc(&x->sums, '"');
}

static int put_tensor(struct writing *x, const struct pair *p)
{
	uint64_t start = x->frames.at;

	x->changed = 0;
	XXH3_128bits_reset(x->sum);
	if (run_pass(x, p, measure) == -1)
		return -1;
	x->how->tensors++;
	x->how->bytes += p->numel * p->item;
	if (x->changed > 0) {
		if (put_frame(x, p) == -1)
			return -1;
		put_sum(x, p->name);
		put_name(&x->tensors, p->name);
		ofs_buf_printf(&x->tensors,
		    ":{\"dtype\":\"U8\",\"shape\":[%" PRIu64
		    "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}",
		    x->frames.at - start, start, x->frames.at);
		put_name(&x->map, p->name);
		ofs_buf_puts(&x->map, ":\"" MODEL_FILE "\"");
		x->how->changed++;
	}
	return step(x, p, p->numel * p->item);
}

/* The tensors. */

static const struct ofs_entry *entry_at(struct ofs_snapshot *snap,
    const char *path)
{
	struct ofs_at at;

	if (ofs_resolve(snap, path, &at, NULL) == -1 ||
	    at.space != OFS_SPACE_TREE || at.index >= snap->tree.n)
		return NULL;
	return ofs_tree_entry(&snap->tree, snap->cat, at.index);
}

static int refuse(const struct writing *x, const char *path, const char *what)
{
	return optimfs_fail(x->err, EINVAL,
	    "OFS873 %.200s %s: a version can only change tensors of the same "
	    "names, types and shapes",
	    path, what);
}

/* The tensor of an entry that both must have alike. */
static int make_pair(const struct writing *x, const char *path,
    const struct ofs_entry *e, struct pair *p)
{
	const struct ofs_entry *old = entry_at(x->base, path);

	p->name = path + strlen("model/");
	p->now = ofs_entry_tensor(x->snap->cat, e);
	p->before = old == NULL ? NULL : ofs_entry_tensor(x->base->cat, old);
	if (p->now == NULL)
		return refuse(x, path, "is no tensor");
	if (p->before == NULL)
		return refuse(x, path, "is not in the base");
	if (p->now->dtype != p->before->dtype ||
	    !ofs_tensor_has_shape(x->base->cat, p->before,
		ofs_tensor_shape(x->snap->cat, p->now), p->now->ndim))
		return refuse(x, path, "has another type or shape in the base");
	p->numel = ofs_tensor_numel(x->snap->cat, p->now);
	p->item = ofs_dtype_size(p->now->dtype);
	if (x->how->overwrite && p->numel * p->item > UINT32_MAX)
		return optimfs_fail(x->err, EFBIG,
		    "OFS875 %.200s has more than 4 GiB, and overwrite has "
		    "positions of 32 bits: use xor",
		    path);
	if (p->now->error != OFS_NONE)
		return ofs_catalog_fail(x->snap->cat, p->now->error, x->err);
	return 0;
}

/* Calls each for every entry of the model in snap; others are refused unless
 * they are left out. */
static int each_entry(struct writing *x, struct ofs_snapshot *snap,
    int (*each)(struct writing *x, const char *path, const struct ofs_entry *e))
{
	char path[PATH_MAX];
	int ret = 0;

	for (uint32_t i = 0; i < snap->tree.n && ret == 0; i++) {
		const struct ofs_entry *e =
		    ofs_tree_entry(&snap->tree, snap->cat, i);

		if (e == NULL)
			continue;
		if (!ofs_tree_path(&snap->tree, i, path, sizeof(path)))
			ret = optimfs_fail(x->err, ENAMETOOLONG, "%s: too long",
			    path);
		else if (strncmp(path, "model/", 6) == 0)
			ret = each(x, path, e);
		else if (!x->how->only_model)
			ret = optimfs_fail(x->err, EOPNOTSUPP,
			    "OFS874 %s: the form of slime has weights only, "
			    "and %.200s is none: only=model leaves out what is "
			    "not of the model",
			    snap->fs->source, path);
	}
	return ret;
}

static int check_entry(struct writing *x, const char *path,
    const struct ofs_entry *e)
{
	struct pair p;

	if (make_pair(x, path, e, &p) == -1)
		return -1;
	x->total += p.numel * p.item;
	return 0;
}

static int check_base(struct writing *x, const char *path,
    const struct ofs_entry *e)
{
	(void)e;
	return entry_at(x->snap, path) != NULL
	    ? 0
	    : refuse(x, path, "is only in the base");
}

static int put_entry(struct writing *x, const char *path,
    const struct ofs_entry *e)
{
	struct pair p;

	return make_pair(x, path, e, &p) == -1 ? -1
	    : p.numel == 0                     ? 0
					       : put_tensor(x, &p);
}

/* The files. */

/* The mode of what is made from both; the umask counts, too. */
static mode_t made_mode(const struct writing *x, mode_t mode)
{
	return ofs_snapshot_made_mode(x->snap, mode) &
	    ofs_snapshot_made_mode(x->base, mode);
}

static int create(struct writing *x, const char *name)
{
	int fd = openat(x->dir, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC,
	    made_mode(x, 0666));

	if (fd == -1)
		optimfs_fail(x->err, errno, "%s/%s: %m", x->temp, name);
	return fd;
}

static int finish_file(const struct writing *x, int fd, int ret,
    const char *name)
{
	if (ret == 0 && ofs_sys_fsync(fd) == -1)
		ret = optimfs_fail(x->err, errno, "%s/%s: %m", x->temp, name);
	close(fd);
	return ret;
}

static int write_text(struct writing *x, int fd, const struct ofs_buf *b)
{
	return b->bad ? ofs_no_memory(x->err)
		      : ofs_write_all(fd, b->data, b->len, 0, x->err);
}

static void append(struct ofs_buf *b, const struct ofs_buf *other)
{
	ofs_buf_put(b, other->data, other->len);
	b->bad = b->bad || other->bad;
}

static int write_model(struct writing *x)
{
	int fd = create(x, MODEL_FILE), ret = -1;
	struct ofs_buf b = { 0 };
	uint8_t len[8] = { 0 };

	if (fd == -1)
		return -1;
	ofs_buf_put(&b, len, sizeof(len));
	ofs_buf_puts(&b, "{\"__metadata__\":{");
	append(&b, &x->sums);
	ofs_buf_puts(&b, "},");
	append(&b, &x->tensors);
	ofs_buf_putc(&b, '}');
	while (!b.bad && b.len % 8 != 0)
		ofs_buf_putc(&b, ' ');
	if (!b.bad)
		ofs_put_le(b.data, b.len - 8, 8);
	if (write_text(x, fd, &b) == 0)
		ret =
		    ofs_copy_range(x->data, 0, fd, b.len, x->frames.at, x->err);
	ofs_buf_fini(&b);
	return finish_file(x, fd, ret, MODEL_FILE);
}

static int write_index(struct writing *x)
{
	int fd = create(x, INDEX_FILE), ret;
	struct ofs_buf b = { 0 };

	if (fd == -1)
		return -1;
	ofs_buf_printf(&b,
	    "{\"metadata\":{\"version\":\"%06" PRIu64
	    "\",\"base_version\":\"%06" PRIu64
	    "\",\"delta_encoding\":\"%s\",\"compression_format\":\"zstd\","
	    "\"checksum_format\":\"xxh3-128\"},\"weight_map\":{",
	    x->version, x->base_version,
	    x->how->overwrite ? "overwrite" : "xor");
	append(&b, &x->map);
	ofs_buf_puts(&b, "}}\n");
	ret = write_text(x, fd, &b);
	ofs_buf_fini(&b);
	return finish_file(x, fd, ret, INDEX_FILE);
}

static int write_files(struct writing *x)
{
	if (each_entry(x, x->snap, check_entry) == -1 ||
	    each_entry(x, x->base, check_base) == -1)
		return -1;
	x->data = create(x, DATA_FILE);
	if (x->data == -1)
		return -1;
	(void)ofs_sys_unlink(x->dir, DATA_FILE);
	x->frames.fd = x->data;
	if (each_entry(x, x->snap, put_entry) == -1 ||
	    (x->map.len > 0 && write_model(x) == -1) || write_index(x) == -1)
		return -1;
	x->how->stored = x->frames.at;
	return ofs_sys_fsync(x->dir) == 0
	    ? 0
	    : optimfs_fail(x->err, errno, "%s: %m", x->temp);
}

/* The directory. */

/* Beside dir, for its user only; the version is made in it. */
static int make_temp(struct writing *x, const char *path)
{
	const char *name = ofs_path_last(path);

	if (asprintf(&x->temp, "%.*s.%s.XXXXXX", (int)(name - path), path,
		name) == -1) {
		x->temp = NULL;
		return ofs_no_memory(x->err);
	}
	if (mkdtemp(x->temp) == NULL) {
		optimfs_fail(x->err, errno, "%s: %m", x->temp);
		free(x->temp);
		x->temp = NULL;
		return -1;
	}
	x->top = open(x->temp, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (x->top == -1 || mkdirat(x->top, NEW, made_mode(x, 0777)) == -1)
		return optimfs_fail(x->err, errno, "%s: %m", x->temp);
	x->dir = openat(x->top, NEW, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return x->dir == -1 ? optimfs_fail(x->err, errno, "%s: %m", x->temp)
			    : 0;
}

static void drop_temp(struct writing *x)
{
	if (x->dir != -1) {
		(void)ofs_sys_unlink(x->dir, MODEL_FILE);
		(void)ofs_sys_unlink(x->dir, INDEX_FILE);
		(void)ofs_sys_rmdir(x->top, NEW);
		close(x->dir);
	}
	if (x->top != -1)
		close(x->top);
	if (x->temp != NULL)
		(void)ofs_sys_rmdir(AT_FDCWD, x->temp);
	free(x->temp);
}

static int publish(struct writing *x, const char *dir)
{
	if (ofs_sys_rename(x->top, NEW, AT_FDCWD, dir, RENAME_NOREPLACE) == -1)
		return optimfs_fail(x->err, errno, "%s: %m", dir);
	close(x->dir);
	x->dir = -1;
	if (ofs_sync_parent(dir) == 0)
		return 0;
	optimfs_fail(x->err, errno,
	    "OFS803 %s is there, but may not survive a crash of the machine: "
	    "its directory could not be synced: %m",
	    dir);
	return 1;
}

/* Which versions they are, their names tell. */
static int find_versions(struct writing *x, const char *dir)
{
	if (ofs_run_step(ofs_path_last(dir), &x->version) == OFS_RUN_NOTHING)
		return optimfs_fail(x->err, EINVAL,
		    "OFS872 %s: a version has its number in its name, as "
		    "weight_v000007",
		    dir);
	if (ofs_run_step(ofs_path_last(x->base->fs->source),
		&x->base_version) == OFS_RUN_NOTHING)
		x->base_version = 0;
	if (x->base_version < x->version)
		return 0;
	return optimfs_fail(x->err, EINVAL,
	    "OFS872 %s: version %" PRIu64
	    " cannot be made from version %" PRIu64
	    ", %s: it must be an earlier one",
	    dir, x->version, x->base_version, x->base->fs->source);
}

static int prepare(struct writing *x, const char *dir)
{
	struct stat st;

	if (lstat(dir, &st) == 0)
		return optimfs_fail(x->err, EEXIST, "%s already exists", dir);
	x->sum = XXH3_createState();
	x->now = ofs_alloc(2, BLOCK, x->err);
	x->list = ofs_alloc(4, BLOCK, x->err);
	if (x->sum == NULL)
		return ofs_no_memory(x->err);
	if (x->now == NULL || x->list == NULL)
		return -1;
	x->before = x->now + BLOCK;
	x->frames.write = ofs_write_all;
	return find_versions(x, dir);
}

int optimfs_delta(struct optimfs *fs, struct optimfs *base, const char *dir,
    struct optimfs_delta *how, struct optimfs_error *err)
{
	struct writing x = { .snap = fs->now,
		.base = base->now,
		.how = how,
		.top = -1,
		.dir = -1,
		.data = -1,
		.err = OFS_SOME_ERROR(err) };
	size_t n = strlen(dir);
	char *path;
	int ret = -1;

	while (n > 1 && dir[n - 1] == '/')
		n--;
	path = strndup(dir, n);
	if (path == NULL)
		ofs_no_memory(x.err);
	else if (prepare(&x, path) == 0 &&
	    ofs_encoder_init(&x.frames, (int)how->level, x.err) == 0 &&
	    make_temp(&x, path) == 0 && write_files(&x) == 0)
		ret = publish(&x, path);
	drop_temp(&x);
	if (x.data != -1)
		close(x.data);
	ofs_encoder_fini(&x.frames);
	XXH3_freeState(x.sum);
	ofs_buf_fini(&x.sums);
	ofs_buf_fini(&x.tensors);
	ofs_buf_fini(&x.map);
	free(x.now);
	free(x.list);
	free(path);
	return ret;
}
