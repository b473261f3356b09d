/* writethrough.c - write tensors to their places in a template */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "push/writethrough.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/crc.h"
#include "base/dtype.h"
#include "base/fds.h"
#include "base/memory.h"
#include "base/search.h"
#include "overlay/overlay_impl.h"
#include "plan/sums.h"
#include "push/template.h"
#include "read/scatter.h"

#define ZEROS ((uint64_t)1 << 20)
/* Write-back of a file is started whenever this much was written, so that the
 * commit has little left to wait for. */
#define BEHIND ((uint64_t)8 << 20)
/* Checksums of a file that are kept, for writers that jump about. */
#define SUMS 4096

struct ofs_writethrough {
	struct ofs_snapshot *snap;
	struct ofs_fds *fds; /* open for writing, by object */
	/* By object. A range whose checksum is not known only costs a read at
	 * the commit. */
	struct filled {
		struct ofs_sums sums;    /* of what was written */
		_Atomic uint64_t behind; /* bytes since the last write-back */
	} * file;
	/* Texts that belong to the layout, by node (push/template.h). */
	struct own {
		uint32_t node, model;
		bool provided;
		uint64_t hash;
	} * own;
	uint32_t nown;
	uint32_t *alias; /* writethrough_same.c */
	char *destination;
};

static struct ofs_writethrough *of(const struct ofs_overlay *o)
{
	return o->ops_ctx;
}

struct ofs_snapshot *ofs_writethrough_snapshot(const struct ofs_overlay *o)
{
	return of(o)->snap;
}

const char *ofs_writethrough_destination(const struct ofs_overlay *o)
{
	return of(o)->destination;
}

OFS_COMPARE_BY(by_node, struct own, node)

/* The node of a path, which is modified; OFS_NONE: none. */
static uint32_t node_of(const struct ofs_tree *tree, char *path)
{
	uint32_t node = 0;
	char *rest, *name = strtok_r(path, "/", &rest);

	for (; name != NULL && node != OFS_NONE;
	     name = strtok_r(NULL, "/", &rest))
		node = ofs_tree_lookup(tree, node, name);
	return node;
}

static int add_own(struct ofs_writethrough *d, const struct ofs_snapshot *snap,
    const struct ofs_template_own *from, struct optimfs_error *err)
{
	struct own own = { node_of(&snap->tree, from->path), OFS_NONE,
		from->provided, from->hash };

	if (from->derived && own.node != OFS_NONE)
		own.model = ofs_template_model(snap, own.node);
	if (from->derived && own.model == OFS_NONE)
		return optimfs_fail(err, EUCLEAN,
		    "OFS831 %s: a file that the commit has to compute is "
		    "missing",
		    OFS_TEMPLATE_INFO);
	d->own[d->nown++] = own;
	return 0;
}

static int load_own(struct ofs_writethrough *d, const struct ofs_snapshot *snap,
    struct optimfs_error *err)
{
	struct ofs_template s;
	int ret = 0;

	if (ofs_template_load(ofs_stage_beside(snap->overlay->stage), &s,
		err) == -1)
		return -1;
	d->own = calloc((size_t)s.nown + 1, sizeof(*d->own));
	if (d->own == NULL)
		ret = ofs_no_memory(err);
	for (uint32_t i = 0; i < s.nown && ret == 0; i++)
		ret = add_own(d, snap, &s.own[i], err);
	ofs_template_fini(&s);
	if (ret == 0)
		qsort(d->own, d->nown, sizeof(*d->own), by_node);
	return ret;
}

static int open_object(void *ctx, uint32_t object, struct optimfs_error *err)
{
	const struct ofs_catalog *cat = ctx;
	int fd = openat(cat->dir.fd, cat->objects[object].path,
	    O_RDWR | O_NOFOLLOW | O_CLOEXEC);

	if (fd == -1)
		return optimfs_fail(err, errno, "OFS801 %s: %m",
		    cat->objects[object].path);
	return fd;
}

static void through_free(void *ctx)
{
	struct ofs_writethrough *d = ctx;

	ofs_fds_free(d->fds);
	for (uint32_t i = 0; i < d->snap->cat->nobjects; i++)
		ofs_sums_fini(&d->file[i].sums);
	free(d->file);
	free(d->destination);
	free(d->alias);
	free(d->own);
	free(d);
}

static struct ofs_writethrough *through_new(struct ofs_snapshot *snap,
    struct optimfs_error *err)
{
	struct ofs_writethrough *d = calloc(1, sizeof(*d));

	if (d != NULL)
		d->file =
		    calloc((size_t)snap->cat->nobjects + 1, sizeof(*d->file));
	if (d == NULL || d->file == NULL) {
		free(d);
		ofs_no_memory(err);
		return NULL;
	}
	d->snap = snap;
	for (uint32_t i = 0; i < snap->cat->nobjects; i++) {
		ofs_sums_init(&d->file[i].sums);
		d->file[i].sums.most = SUMS;
	}
	d->destination = realpath(snap->fs->source, NULL);
	if (d->destination == NULL)
		optimfs_fail(err, errno, "OFS809 %s: %m", snap->fs->source);
	else
		/* the transport uses the other half */
		d->fds = ofs_fds_new(snap->cat->nobjects, ofs_fds_limit() / 2,
		    open_object, (void *)(uintptr_t)snap->cat, err);
	if (d->fds != NULL && load_own(d, snap, err) == 0 &&
	    ofs_writethrough_aliases(snap, &d->alias, err) == 0)
		return d;
	through_free(d);
	return NULL;
}

static const struct own *find_own(const struct ofs_overlay *o, uint32_t node)
{
	const struct own key = { .node = node };

	return ofs_search(&key, of(o)->own, of(o)->nown, sizeof(key), by_node);
}

bool ofs_writethrough_provided(const struct ofs_overlay *o, uint32_t index)
{
	const struct own *own = find_own(o, index);

	return own != NULL && own->provided;
}

uint32_t ofs_writethrough_model(const struct ofs_overlay *o, uint32_t node)
{
	const struct own *own = find_own(o, node);

	return own == NULL ? OFS_NONE : own->model;
}

uint32_t ofs_writethrough_next(const struct ofs_overlay *o, uint32_t node)
{
	return of(o)->alias[node];
}

uint32_t ofs_writethrough_primary(const struct ofs_overlay *o, uint32_t node)
{
	uint32_t primary = node;

	for (uint32_t i = ofs_writethrough_next(o, node); i != node;
	     i = ofs_writethrough_next(o, i))
		if (i < primary)
			primary = i;
	return primary;
}

/* The file that a thread writes to stays open until it writes to another
 * one. */
struct writing {
	struct ofs_writethrough *d;
	uint32_t object; /* OFS_NONE: none */
	int fd;
};

static void let_go(struct writing *w)
{
	if (w->object != OFS_NONE)
		ofs_fds_put(w->d->fds, w->object);
	w->object = OFS_NONE;
}

static void forget(struct ofs_writethrough *d, const struct ofs_segment *seg)
{
	int64_t reach = (int64_t)(seg->n - 1) * seg->src_pitch;
	uint64_t from = seg->src - (uint64_t)(reach < 0 ? -reach : 0);

	ofs_sums_forget(&d->file[seg->object].sums, from,
	    seg->len + (uint64_t)(reach < 0 ? -reach : reach));
}

static int target(void *ctx, const struct ofs_segment *seg, int *fd,
    int64_t *delta, struct optimfs_error *err)
{
	struct writing *w = ctx;

	if (seg->codec != OFS_PLAIN)
		return optimfs_fail(err, EOPNOTSUPP,
		    "OFS831 a template is not compressed");
	let_go(w);
	*delta = 0;
	*fd = ofs_fds_get(w->d->fds, seg->object, err);
	if (*fd == -1)
		return -1;
	w->object = seg->object;
	w->fd = *fd;
	forget(w->d, seg);
	return 0;
}

/* The checksum of a segment that is one run of the file. */
static uint32_t sum_of(const struct ofs_segment *seg, const uint8_t *buf)
{
	uint32_t crc = 0;

	for (uint64_t i = 0; i < seg->n; i++)
		crc = ofs_crc32(crc,
		    buf + seg->dst + (int64_t)i * seg->dst_pitch, seg->len);
	return crc;
}

static void written(void *ctx, const struct ofs_segment *seg,
    const uint8_t *buf)
{
	const struct writing *w = ctx;
	struct filled *f = &w->d->file[seg->object];
	struct ofs_sum sum = { .from = seg->src, .len = seg->len * seg->n };

	if (seg->n == 1 || seg->src_pitch == (int64_t)seg->len) {
		sum.crc = sum_of(seg, buf);
		ofs_sums_add(&f->sums, &sum);
	}
	if (atomic_fetch_add(&f->behind, sum.len) + sum.len < BEHIND)
		return;
	atomic_store(&f->behind, 0);
	(void)sync_file_range(w->fd, 0, 0, SYNC_FILE_RANGE_WRITE);
}

bool ofs_writethrough_sum(const struct ofs_overlay *o, uint32_t object,
    uint64_t from, uint64_t n, uint32_t *crc)
{
	return ofs_sums_get(&of(o)->file[object].sums, from, n, crc, NULL) == 1;
}

static const struct ofs_tensor *tensor_of(const struct ofs_overlay *o,
    const struct ofs_overlay_file *f)
{
	return ofs_entry_tensor(o->cat, &o->cat->entries[f->entry]);
}

static int scatter(struct ofs_overlay *o, struct ofs_overlay_file *f,
    uint64_t first, uint64_t count, const void *buf, struct optimfs_error *err)
{
	struct writing w = { of(o), OFS_NONE, -1 };
	struct ofs_target to = { target, written, &w };
	int ret;

	if (count == 0)
		return 0;
	ret = ofs_scatter(&of(o)->snap->reader, tensor_of(o, f), first, count,
	    buf, &to, err);
	let_go(&w);
	return ret;
}

static int fetch(struct ofs_overlay *o, struct ofs_overlay_file *f,
    uint64_t first, uint64_t count, void *buf, struct optimfs_error *err)
{
	return ofs_fetch_elements(&of(o)->snap->reader, tensor_of(o, f), first,
	    count, buf, err);
}

int ofs_writethrough_read(struct ofs_overlay *o, struct ofs_overlay_file *f,
    void *buf, uint64_t n, uint64_t off, struct optimfs_error *err)
{
	uint64_t item = ofs_dtype_size(tensor_of(o, f)->dtype);
	uint64_t first = off / item, end = (off + n + item - 1) / item;
	uint8_t *whole = malloc((size_t)((end - first) * item) + 1);
	int ret;

	if (whole == NULL)
		return ofs_no_memory(err);
	ret = n == 0 ? 0 : fetch(o, f, first, end - first, whole, err);
	if (ret == 0)
		memcpy(buf, whole + (off - first * item), n);
	free(whole);
	return ret;
}

/* Writes some bytes of one element. */
static int write_part(struct ofs_overlay *o, struct ofs_overlay_file *f,
    const uint8_t *buf, uint64_t n, uint64_t off, uint64_t item,
    struct optimfs_error *err)
{
	uint8_t element[32];

	if (fetch(o, f, off / item, 1, element, err) == -1)
		return -1;
	memcpy(element + off % item, buf, n);
	return scatter(o, f, off / item, 1, element, err);
}

int ofs_writethrough_write(struct ofs_overlay *o, struct ofs_overlay_file *f,
    const void *buf, uint64_t n, uint64_t off, struct optimfs_error *err)
{
	uint64_t item = ofs_dtype_size(tensor_of(o, f)->dtype), k;
	const uint8_t *p = buf;

	if (off % item != 0) {
		k = item - off % item < n ? item - off % item : n;
		if (write_part(o, f, p, k, off, item, err) == -1)
			return -1;
		p += k;
		off += k;
		n -= k;
	}
	k = n - n % item;
	if (scatter(o, f, off / item, k / item, p, err) == -1)
		return -1;
	if (k == n)
		return 0;
	return write_part(o, f, p + k, n - k, off + k, item, err);
}

int ofs_writethrough_zero(struct ofs_overlay *o, struct ofs_overlay_file *f,
    uint64_t off, uint64_t end, struct optimfs_error *err)
{
	void *zeros;
	uint64_t k;
	int ret = 0;

	if (off >= end)
		return 0;
	zeros = calloc(1, ZEROS);
	if (zeros == NULL)
		return ofs_no_memory(err);
	for (; off < end && ret == 0; off += k) {
		k = end - off < ZEROS ? end - off : ZEROS;
		ret = ofs_writethrough_write(o, f, zeros, k, off, err);
	}
	free(zeros);
	return ret;
}

/* Unwritten bytes are already zero. */
static int through_resize(struct ofs_overlay *o, struct ofs_overlay_file *f,
    uint64_t size, struct optimfs_error *err)
{
	return ofs_writethrough_zero(o, f, f->size,
	    size < f->high ? size : f->high, err);
}

/* The objects in which a tensor and its replicas lie. */
struct syncing {
	struct ofs_writethrough *d;
	struct optimfs_error *err;
	int ret;
};

static void sync_object(struct syncing *s, uint32_t object)
{
	int fd = s->ret == -1 ? -1 : ofs_fds_get(s->d->fds, object, s->err);

	if (fd == -1) {
		s->ret = -1;
		return;
	}
	if (fdatasync(fd) == -1)
		s->ret = optimfs_fail(s->err, errno, "OFS809 %s: %m",
		    s->d->snap->cat->objects[object].path);
	ofs_fds_put(s->d->fds, object);
}

static int sync_shard(void *ctx, uint32_t shard)
{
	struct syncing *s = ctx;
	const struct ofs_catalog *cat = s->d->snap->cat;
	const struct ofs_replica *copy;
	uint32_t n;

	sync_object(s, cat->shards[shard].at.object);
	copy = ofs_replicas(cat, shard, &n);
	for (uint32_t i = 0; i < n; i++)
		sync_object(s, copy[i].at.object);
	return s->ret;
}

int ofs_writethrough_element(struct ofs_overlay *o, struct ofs_overlay_file *f,
    struct optimfs_error *err)
{
	return scatter(o, f, 0, 1, f->element, err);
}

static int through_sync(struct ofs_overlay *o, struct ofs_overlay_file *f,
    struct optimfs_error *err)
{
	const struct ofs_catalog *cat = o->cat;
	const struct ofs_tensor *t = tensor_of(o, f);
	struct syncing s = { .d = of(o), .err = err };

	ofs_plan_shards(cat, t, 0, ofs_tensor_numel(cat, t), sync_shard, &s);
	return s.ret;
}

static const struct ofs_overlay_bytes through_bytes = {
	.in_place = true,
	.write = ofs_writethrough_write,
	.read = ofs_writethrough_read,
	.resize = through_resize,
	.sync = through_sync,
};

/* Each name of a tensor has its own bytes, except for texts. */
static bool is_apart(const struct ofs_overlay *o, uint32_t node)
{
	const struct ofs_tree_node *v = o->tree->node;
	const struct ofs_entry *entry = o->cat->entries;
	uint32_t primary = ofs_writethrough_primary(o, node);

	return primary != node &&
	    entry[v[primary].entry].ref == entry[v[node].entry].ref;
}

static const struct ofs_overlay_bytes *bytes_of(const struct ofs_overlay *o,
    uint32_t node)
{
	return ofs_writethrough_primary(o, node) == node &&
		!ofs_writethrough_is_rounded(o, o->tree->node[node].entry)
	    ? &through_bytes
	    : &ofs_overlay_staged_bytes;
}

/* Is this the source's text where the layout has its own? */
static bool is_original(const struct ofs_overlay *o, uint32_t index,
    const void *text, size_t n)
{
	const struct own *own = find_own(o, index);

	return own != NULL && !own->provided && own->model == OFS_NONE &&
	    ofs_template_hash(text, n) == own->hash;
}

static const struct ofs_overlay_ops overlay_ops = {
	.hidden = true,
	.apart = is_apart,
	.bytes = bytes_of,
	.is_original = is_original,
	.reveal = ofs_writethrough_reveal,
	.rename = ofs_writethrough_rename,
	.free = through_free,
};

/* Hides all names until they are created. */
static int begin(struct ofs_snapshot *snap, struct optimfs_error *err)
{
	struct ofs_overlay *o = snap->overlay;
	struct ofs_writethrough *d = through_new(snap, err);

	if (d == NULL)
		return -1;
	o->ops = &overlay_ops;
	o->ops_ctx = d;
	return ofs_writethrough_hide(o, err);
}

const struct ofs_write_ops ofs_write_through = {
	.begin = begin,
	.commit = ofs_writethrough_commit,
	.missing = ofs_writethrough_missing,
};
