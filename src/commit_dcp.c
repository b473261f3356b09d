/* commit_dcp.c - changed items of a DCP checkpoint go to new data files */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "commit_dcp.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "copy.h"
#include "dtype.h"
#include "format/dcp.h"
#include "format/pickle_write.h"
#include "format/torch_write.h"

/* No data file is touched. An item with changed bytes is copied to a new file
 * of the same rank, changed there, and the index points to it; its old bytes
 * stay until no item of their file is in use. A safetensors blob has one header
 * for many items, so that its file is copied as a whole. An encoded item is
 * decoded to a file without a name, changed, and encoded again. */

static int no_memory(struct optimfs_error *err)
{
	return optimfs_fail(err, ENOMEM, "items of a commit");
}

/* New files. */

/* The highest N of names "__R_N.distcp". */
static int next_number(struct ofs_commit_dcp *d, int rank,
    struct optimfs_error *err)
{
	struct ofs_names names;
	struct ofs_dir sub = d->c->cat->dir;
	int next = 0, r, n, end;

	if (*d->part->rel != '\0' &&
	    ofs_dir_open_sub(&d->c->cat->dir, d->part->rel, &sub, err) == -1)
		return -1;
	if (ofs_dir_list(&sub, &names, err) == -1)
		next = -1;
	if (*d->part->rel != '\0')
		ofs_dir_close(&sub);
	if (next == -1)
		return -1;
	for (size_t i = 0; i < names.n; i++) {
		const char *at = strstr(names.name[i], "__");

		if (at != NULL &&
		    sscanf(at, "__%d_%d.distcp%n", &r, &n, &end) == 2 &&
		    r == rank && n >= next && n < INT32_MAX - 1)
			next = n + 1;
	}
	ofs_names_free(&names);
	for (size_t i = 0; i < d->nout; i++)
		next += d->out[i].rank == rank;
	return next;
}

static char *full_path(const struct ofs_commit_dcp *d, const char *path)
{
	return ofs_dcp_join(d->part->rel, path);
}

/* Begin a file for rank; *out is its index. like is a file of the checkpoint
 * whose mode it gets. */
static int new_out(struct ofs_commit_dcp *d, int rank, const char *like,
    uint32_t *out, struct optimfs_error *err)
{
	struct ofs_commit_out o = { .rank = rank < 0 ? 0 : rank };
	int number = next_number(d, o.rank, err), ret = -1;
	char *path = NULL;

	if (number == -1)
		return -1;
	if (asprintf(&o.path, "__%d_%d.distcp", o.rank, number) == -1)
		return no_memory(err);
	path = full_path(d, o.path);
	if (path == NULL ||
	    ofs_commit_grow(&d->out, &d->out_cap, d->nout, sizeof(*d->out),
		err) == -1)
		no_memory(err);
	else
		ret = like == NULL
		    ? 0
		    : ofs_publish_file(d->c->publish, path, like, &o.fd, err);
	free(path);
	if (ret == -1) {
		free(o.path);
		return -1;
	}
	*out = (uint32_t)d->nout;
	d->out[d->nout++] = o;
	return 0;
}

/* The file that items of rank go to. */
static int out_for(struct ofs_commit_dcp *d, int rank, const char *like,
    uint32_t *out, struct optimfs_error *err)
{
	if (rank < 0)
		rank = 0;
	for (size_t i = 0; i < d->nout; i++)
		if (d->out[i].rank == rank && d->out[i].fd != -1) {
			*out = (uint32_t)i;
			return 0;
		}
	return new_out(d, rank, like, out, err);
}

static int note_item(struct ofs_commit_dcp *d,
    const struct ofs_commit_item *item, struct optimfs_error *err)
{
	if (ofs_commit_grow(&d->item, &d->item_cap, d->nitems, sizeof(*d->item),
		err) == -1)
		return -1;
	d->item[d->nitems++] = *item;
	d->gone[item->item] = true;
	return 0;
}

/* All items at a place go to one. */
static int note_items(struct ofs_commit_dcp *d, uint32_t first, uint32_t n,
    uint32_t out, uint64_t off, uint64_t len, bool plain,
    struct optimfs_error *err)
{
	for (uint32_t i = first; i < first + n; i++) {
		struct ofs_commit_item item = { .item = d->by_place[i],
			.out = out,
			.off = off,
			.len = len,
			.plain = plain };

		if (!d->gone[item.item] && note_item(d, &item, err) == -1)
			return -1;
	}
	return 0;
}

/* Bytes that move. */

static const struct ofs_object *object_at(const struct ofs_commit_dcp *d,
    uint32_t object)
{
	return &d->c->cat->objects[object];
}

/* Copy the item at [off, off + len) of an object. */
static int copy_item(struct ofs_commit_dcp *d, uint32_t object, uint64_t off,
    uint64_t len, uint32_t *out, uint64_t *to, struct optimfs_error *err)
{
	const struct ofs_object *o = object_at(d, object);
	int in, ret;

	if (out_for(d, o->rank, o->path, out, err) == -1 ||
	    ofs_commit_open(d->c, object, &in, err) == -1)
		return -1;
	*to = d->out[*out].at;
	ret = ofs_copy_range(in, off, d->out[*out].fd, *to, len, err);
	close(in);
	d->out[*out].at += len;
	return ret;
}

/* The file of a blob, copied under a new name. */
static int move_blob(struct ofs_commit_dcp *d, uint32_t object,
    struct optimfs_error *err)
{
	const struct ofs_object *o = object_at(d, object);
	struct ofs_commit_item item = { .same = true };
	char *path;
	int ret;

	if (new_out(d, o->rank, NULL, &item.out, err) == -1)
		return -1;
	d->out[item.out].fd = -1; /* nothing else goes there */
	path = full_path(d, d->out[item.out].path);
	ret = path == NULL ? no_memory(err)
			   : ofs_commit_clone(d->c, object, path, err);
	free(path);
	for (uint32_t i = 0; i < d->index.nitems && ret == 0; i++) {
		item.item = i;
		if (d->object[i] == object && !d->gone[i])
			ret = note_item(d, &item, err);
	}
	return ret;
}

/* The extent decoded, in a file that goes when it is closed. */
static int decode(struct ofs_commit_dcp *d, size_t moved,
    struct optimfs_error *err)
{
	struct ofs_commit *c = d->c;
	struct ofs_moved *m = &c->moved[moved];
	struct ofs_extent at = { .object = m->object,
		.off = m->off,
		.len = m->len,
		.codec = m->codec };
	struct ofs_commit_coded *x;
	uint8_t *buf;
	int ret = 0;

	if (ofs_commit_grow(&d->coded, &d->coded_cap, d->ncoded,
		sizeof(*d->coded), err) == -1)
		return -1;
	x = &d->coded[d->ncoded];
	*x = (struct ofs_commit_coded){ .moved = moved };
	x->fd = openat(ofs_publish_new(c->publish), ".",
	    O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (x->fd == -1)
		return optimfs_fail(err, errno, "OFS821 temporary file: %m");
	d->ncoded++;
	buf = malloc(1 << 20);
	if (buf == NULL)
		return no_memory(err);
	if (ofs_transport_length(c->fs->transport, &at, &x->len, err) == -1)
		ret = -1;
	for (uint64_t off = 0; off < x->len && ret == 0; off += 1 << 20) {
		uint64_t n = x->len - off < 1 << 20 ? x->len - off : 1 << 20;

		ret =
		    ofs_transport_read(c->fs->transport, &at, off, n, buf, err);
		if (ret == 0)
			ret = ofs_write_all(x->fd, buf, n, off, err);
	}
	free(buf);
	m->fd = x->fd;
	if (ret == 0 && m->encoding == OFS_TORCH_ITEM)
		ret = ofs_commit_mend(c, x->fd, 0, x->len, false, err);
	return ret;
}

/* Does the index name this file? */
static bool is_item_file(const struct ofs_commit_dcp *d, uint32_t object)
{
	for (uint32_t i = 0; i < d->index.nitems; i++)
		if (d->object[i] == object)
			return true;
	return false;
}

/* An extent that is an item, or lies in one. */
static int move_extent(struct ofs_commit_dcp *d, size_t moved,
    struct optimfs_error *err)
{
	struct ofs_moved *m = &d->c->moved[moved];
	uint32_t around = ofs_commit_dcp_around(d, m->object, m->off);
	const struct ofs_dcp_item *item;
	uint32_t first, n, out;
	uint64_t to;

	if (around == OFS_NONE && !is_item_file(d, m->object))
		return 0; /* another part's */
	if (m->codec != OFS_PLAIN)
		return decode(d, moved, err);
	/* what is in a blob is not where the index says */
	if (around == OFS_NONE || m->encoding == OFS_RAW)
		return move_blob(d, m->object, err);
	item = &d->index.item[around];
	if (copy_item(d, m->object, item->off, item->len, &out, &to, err) == -1)
		return -1;
	/* and whatever else is in the same item */
	for (size_t i = moved; i < d->c->nmoved; i++) {
		struct ofs_moved *x = &d->c->moved[i];

		if (x->object != m->object || x->off - item->off >= item->len)
			break;
		x->fd = d->out[out].fd;
		x->to = x->off - item->off + to;
	}
	ofs_commit_dcp_at(d, m->object, item->off, &first, &n);
	if (note_items(d, first, n, out, to, item->len, false, err) == -1)
		return -1;
	return ofs_commit_mend(d->c, d->out[out].fd, to, item->len, false, err);
}

static int move_extents(struct ofs_commit_dcp *d, struct optimfs_error *err)
{
	for (size_t i = 0; i < d->c->nmoved; i++)
		if (d->c->moved[i].fd == -1 && move_extent(d, i, err) == -1)
			return -1;
	return 0;
}

/* Values and names. */

/* The flat key of the first n components behind the part's prefix. */
static void flat_key(const struct ofs_commit_dcp *d, const struct ofs_todo *t,
    uint32_t n, struct ofs_buf *out)
{
	out->len = 0;
	for (uint32_t i = d->nprefix; i < n; i++) {
		if (i > d->nprefix)
			ofs_buf_putc(out, '.');
		ofs_buf_put(out, t->path[i].s.p, t->path[i].s.len);
	}
}

static bool in_part(const struct ofs_commit_dcp *d, const struct ofs_todo *t)
{
	if (t->npath <= d->nprefix)
		return false;
	for (uint32_t i = 0; i < d->nprefix; i++)
		if (t->path[i].s.len != d->prefix[i].s.len ||
		    memcmp(t->path[i].s.p, d->prefix[i].s.p,
			t->path[i].s.len) != 0)
			return false;
	return true;
}

static bool is_ours(const struct ofs_commit_dcp *d, const struct ofs_todo *t)
{
	return !t->done && in_part(d, t);
}

/* The item of a value in which t is; OFS_NONE. *depth components lead there. */
static uint32_t holder(const struct ofs_commit_dcp *d, const struct ofs_todo *t,
    uint32_t *depth)
{
	struct ofs_buf key = { 0 };
	uint32_t first = 0, n = 0, found = OFS_NONE;

	for (uint32_t k = t->npath;
	     k-- > d->nprefix + 1 && found == OFS_NONE;) {
		flat_key(d, t, k, &key);
		ofs_commit_dcp_named(d,
		    (struct ofs_str){ (char *)key.data, (uint32_t)key.len },
		    &first, &n);
		if (n == 1 &&
		    d->index.item[d->by_name[first]].offset == OFS_NONE) {
			found = d->by_name[first];
			*depth = k;
		}
	}
	ofs_buf_fini(&key);
	return found;
}

/* Where what was written of an item goes. */
struct target {
	struct ofs_commit_dcp *d;
	uint32_t object, out;
};

static int open_out(void *ctx, int *fd, uint64_t *off,
    struct optimfs_error *err)
{
	struct target *t = ctx;
	const struct ofs_object *o = object_at(t->d, t->object);

	if (out_for(t->d, o->rank, o->path, &t->out, err) == -1)
		return -1;
	*fd = t->d->out[t->out].fd;
	*off = t->d->out[t->out].at;
	return 0;
}

/* A value with parts: all that changes in it. */
static int change_inside(struct ofs_commit_dcp *d, uint32_t item,
    const struct ofs_todo *t, uint32_t depth, struct optimfs_error *err)
{
	const struct ofs_dcp_item *x = &d->index.item[item];
	struct ofs_commit_source s = {
		.object = d->object[item],
		.off = x->off,
		.len = x->len,
		.codec = x->transforms == OFS_NONE ||
			ofs_pk_len(d->index.doc, x->transforms) == 0
		    ? OFS_PLAIN
		    : OFS_ZSTD,
		.prefix = t->path,
		.nprefix = depth,
		.rank = -1,
	};
	struct target to = { d, s.object, 0 };
	uint64_t size, at;

	if (ofs_commit_pickle(d->c, &s, open_out, &to, &size, err) == -1)
		return -1;
	if (size == 0)
		return 0;
	at = d->out[to.out].at;
	d->out[to.out].at += size;
	return note_item(d,
	    &(struct ofs_commit_item){ .item = item,
		.out = to.out,
		.off = at,
		.len = size,
		.plain = true },
	    err);
}

/* The bytes of a composition of literal ones, and of one tensor. */
static int write_pieces(struct ofs_commit_dcp *d, const struct ofs_todo *t,
    const struct ofs_composition *comp, uint32_t out, struct optimfs_error *err)
{
	int fd = d->out[out].fd, ret = 0;
	uint64_t at = d->out[out].at;

	for (size_t i = 0; i < comp->n && ret == 0; i++) {
		const struct ofs_piece *p = &comp->piece[i];

		if (p->kind == OFS_PIECE_BYTES)
			ret = ofs_write_all(fd, p->bytes, p->len, at + p->off,
			    err);
		else if (p->kind == OFS_PIECE_BOX)
			ret =
			    ofs_commit_elements(d->c, t, fd, at + p->off, err);
	}
	return ret;
}

/* A torch.save archive of one value or tensor. */
static int write_item(struct ofs_commit_dcp *d, const struct ofs_todo *t,
    uint32_t out, uint64_t *len, struct optimfs_error *err)
{
	struct ofs_buf pickle = { 0 };
	struct ofs_pkw w = { .out = &pickle };
	struct ofs_composition comp;
	struct ofs_torch_item item = { .tensor = t->doc == NULL,
		.bytes = ofs_commit_bytes(t) };
	struct ofs_tensor tensor = { .dtype = t->dtype,
		.ndim = t->ndim,
		.grid_ndim = t->ndim,
		.error = OFS_NONE };
	struct ofs_catalog fake = { .tensors = &tensor,
		.ntensors = 1,
		.dims = (uint64_t *)(uintptr_t)t->shape };
	int ret;

	ofs_pkw_begin(&w);
	ret = t->doc != NULL
	    ? ofs_pkw_node(&w, t->doc, ofs_pickle_root(t->doc), err)
	    : ofs_pkw_tensor(&w, t->dtype, 0, t->shape, t->ndim, err);
	ofs_pkw_op(&w, OFS_PKW_STOP);
	item.pickle = pickle.data;
	item.npickle = pickle.len;
	ofs_composition_init(&comp);
	if (ret == 0 && pickle.bad)
		ret = no_memory(err);
	if (ret == 0)
		ret = ofs_torch_item_make(&item, &fake, 0, 0, 0, false, &comp,
		    err);
	if (ret == 0)
		ret = write_pieces(d, t, &comp, out, err);
	*len = comp.size;
	if (ret == 0 && t->doc == NULL)
		ret = ofs_commit_mend(d->c, d->out[out].fd, d->out[out].at,
		    comp.size, true, err);
	d->out[out].at += comp.size;
	ofs_composition_fini(&comp);
	ofs_buf_fini(&pickle);
	return ret;
}

/* A value that is an item of its own. */
static int set_item(struct ofs_commit_dcp *d, struct ofs_todo *t,
    struct optimfs_error *err)
{
	const struct ofs_extent *at = &d->c->cat->items[t->entry->ref].at;
	uint32_t first, n, out;
	uint64_t off, len;

	if (!ofs_commit_dcp_at(d, at->object, at->off, &first, &n))
		return 0;
	t->done = true;
	if (out_for(d, object_at(d, at->object)->rank,
		object_at(d, at->object)->path, &out, err) == -1)
		return -1;
	off = d->out[out].at;
	if (write_item(d, t, out, &len, err) == -1)
		return -1;
	return note_items(d, first, n, out, off, len, true, err);
}

static int drop_key(struct ofs_commit_dcp *d, struct ofs_todo *t,
    struct optimfs_error *err)
{
	struct ofs_buf key = { 0 };
	struct ofs_str name;
	int ret = 0;

	flat_key(d, t, t->npath, &key);
	name = (struct ofs_str){ (char *)key.data, (uint32_t)key.len };
	if (ofs_commit_dcp_key(d, name) != OFS_NONE) {
		t->done = true;
		ret = ofs_commit_dcp_drop(d, name, err);
	}
	ofs_buf_fini(&key);
	return ret;
}

/* A file whose mode and rank new ones get. */
static uint32_t some_object(const struct ofs_commit_dcp *d)
{
	for (uint32_t i = 0; i < d->index.nitems; i++)
		if (d->object[i] != OFS_NONE &&
		    !object_at(d, d->object[i])->missing)
			return d->object[i];
	return OFS_NONE;
}

static int add_new(struct ofs_commit_dcp *d, struct ofs_todo *t,
    struct ofs_str name, struct optimfs_error *err)
{
	uint32_t object = some_object(d), out;
	uint64_t off, len;

	if (out_for(d, 0,
		object == OFS_NONE ? d->name : object_at(d, object)->path, &out,
		err) == -1)
		return -1;
	off = d->out[out].at;
	if (write_item(d, t, out, &len, err) == -1)
		return -1;
	return ofs_commit_dcp_add(d, t, name, out, off, len, err);
}

/* What is moved within the index keeps its items; so do those of its chunks
 * that are rewritten, which is why this comes after them. */
static bool keeps_items(const struct ofs_commit_dcp *d,
    const struct ofs_todo *t)
{
	return t->doc == NULL && t->from != NULL &&
	    ofs_commit_tensor(d->c, t->change) != NULL;
}

static void source_name(const struct ofs_commit_dcp *d,
    const struct ofs_entry *e, struct ofs_buf *out)
{
	uint32_t n;
	const uint32_t *c = ofs_catalog_components(d->c->cat, e->path, &n);

	for (uint32_t i = d->nprefix; i < n; i++) {
		struct ofs_str s =
		    ofs_catalog_string(d->c->cat, OFS_PATH_STR(c[i]));

		if (i > d->nprefix)
			ofs_buf_putc(out, '.');
		ofs_buf_put(out, s.p, s.len);
	}
}

/* Are tensors parts of safetensors blobs, which name them? */
static bool has_blobs(const struct ofs_commit_dcp *d)
{
	const struct ofs_catalog *cat = d->c->cat;

	for (uint32_t i = 0; i < cat->nshards; i++) {
		const struct ofs_extent *at = &cat->shards[i].at;

		if (at->encoding == OFS_RAW && at->codec == OFS_PLAIN)
			return true;
	}
	return false;
}

static int add_key(struct ofs_commit_dcp *d, struct ofs_todo *t, bool moved,
    struct optimfs_error *err)
{
	struct ofs_buf key = { 0 }, from = { 0 };
	struct ofs_str name;
	int ret = 0;

	if (t->doc == NULL && has_blobs(d))
		return ofs_commit_no_place(t,
		    "tensors are stored in safetensors files, which are not "
		    "laid out anew",
		    err);
	if (keeps_items(d, t) != moved) {
		t->done = true; /* at the end */
		return 0;
	}
	flat_key(d, t, t->npath, &key);
	name = (struct ofs_str){ (char *)key.data, (uint32_t)key.len };
	t->done = true;
	if (moved) {
		source_name(d, t->from, &from);
		ret = ofs_commit_dcp_rename(d, t,
		    (struct ofs_str){ (char *)from.data, (uint32_t)from.len },
		    name, err);
	} else {
		ret = add_new(d, t, name, err);
	}
	ofs_buf_fini(&key);
	ofs_buf_fini(&from);
	return ret == -1 ? optimfs_fail_in(err, "%.200s", t->change->path) : 0;
}

static int change_one(struct ofs_commit_dcp *d, struct ofs_todo *t,
    struct optimfs_error *err)
{
	uint32_t depth = 0, item = OFS_NONE;

	if (t->entry == NULL || t->entry->kind == OFS_ENTRY_VALUE ||
	    t->op == OFS_TODO_DROP)
		item = holder(d, t, &depth);
	if (item != OFS_NONE && change_inside(d, item, t, depth, err) == -1)
		return -1;
	if (t->done || t->op == OFS_TODO_ADD)
		return 0;
	if (t->op == OFS_TODO_DROP)
		return drop_key(d, t, err);
	return t->entry->kind == OFS_ENTRY_ITEM ? set_item(d, t, err) : 0;
}

static int change_all(struct ofs_commit_dcp *d, struct optimfs_error *err)
{
	for (size_t i = 0; i < d->c->ntodos; i++)
		if (is_ours(d, &d->c->todo[i]) &&
		    change_one(d, &d->c->todo[i], err) == -1)
			return -1;
	return 0;
}

static int add_all(struct ofs_commit_dcp *d, bool moved,
    struct optimfs_error *err)
{
	for (size_t i = 0; i < d->c->ntodos; i++)
		if (d->c->todo[i].op == OFS_TODO_ADD &&
		    (moved ? in_part(d, &d->c->todo[i])
			   : is_ours(d, &d->c->todo[i])) &&
		    add_key(d, &d->c->todo[i], moved, err) == -1)
			return -1;
	return 0;
}

static int begin(struct ofs_commit_dcp *d, struct optimfs_error *err)
{
	if (ofs_commit_dcp_open(d, err) == -1 || change_all(d, err) == -1)
		return -1;
	/* moved tensors lose their old keys, but not their items */
	return move_extents(d, err) == -1 ? -1 : add_all(d, false, err);
}

int ofs_commit_dcp_begin(struct ofs_commit *c, const struct ofs_part *part,
    struct ofs_commit_dcp **out, struct optimfs_error *err)
{
	struct ofs_commit_dcp *d = calloc(1, sizeof(*d));
	struct stat st;

	if (d == NULL)
		return no_memory(err);
	d->c = c;
	d->part = part;
	for (; d->nprefix < 4 && part->prefix[d->nprefix] != NULL;
	     d->nprefix++) {
		const char *s = part->prefix[d->nprefix];

		d->prefix[d->nprefix] =
		    (struct ofs_key){ { s, (uint32_t)strlen(s) }, false };
	}
	d->name = ofs_dcp_join(part->rel, ".metadata");
	if (d->name == NULL) {
		ofs_commit_dcp_free(d);
		return no_memory(err);
	}
	*out = d;
	/* Without it each rank has an index of its own, which is not written;
	 * but items can change where they are. */
	if (!ofs_dir_stat(&c->cat->dir, d->name, &st))
		return 0;
	return begin(d, err);
}

/* The end: all bytes are there. */

static int encode_all(struct ofs_commit_dcp *d, struct optimfs_error *err)
{
	for (size_t i = 0; i < d->ncoded; i++) {
		const struct ofs_commit_coded *x = &d->coded[i];
		const struct ofs_moved *m = &d->c->moved[x->moved];
		const struct ofs_object *o = object_at(d, m->object);
		uint32_t out, first, n;
		uint64_t at, len;

		if (out_for(d, o->rank, o->path, &out, err) == -1)
			return -1;
		at = d->out[out].at;
		if (ofs_commit_encode(x->fd, x->len, d->out[out].fd, at, &len,
			err) == -1)
			return -1;
		d->out[out].at += len;
		ofs_commit_dcp_at(d, m->object, m->off, &first, &n);
		if (note_items(d, first, n, out, at, len, false, err) == -1)
			return -1;
	}
	return 0;
}

static int splice_index(struct ofs_commit_dcp *d, struct ofs_buf *out,
    struct optimfs_error *err)
{
	struct ofs_pk_splice *v = calloc(d->nedits + 1, sizeof(*v));
	int ret = 0;

	if (v == NULL)
		return no_memory(err);
	for (size_t i = 0; i < d->nedits; i++) {
		v[i] = d->edit[i].splice;
		v[i].bytes = d->edit[i].bytes.data;
		v[i].n = d->edit[i].bytes.len;
		if (d->edit[i].bytes.bad)
			ret = no_memory(err);
	}
	if (ret == 0)
		ret =
		    ofs_pickle_splice(d->bytes, d->len, v, d->nedits, out, err);
	free(v);
	return ret;
}

static int write_index(struct ofs_commit_dcp *d, struct optimfs_error *err)
{
	struct ofs_buf index = { 0 };
	int fd, ret = splice_index(d, &index, err);

	if (ret == 0)
		ret = ofs_publish_file(d->c->publish, d->name, NULL, &fd, err);
	if (ret == 0)
		ret = ofs_write_all(fd, index.data, index.len, 0, err);
	ofs_buf_fini(&index);
	return ret;
}

/* Files of which no item is used any more. */
static int remove_unused(struct ofs_commit_dcp *d, struct optimfs_error *err)
{
	uint32_t n = d->index.nitems;

	for (uint32_t i = 0; i < n;) {
		uint32_t object = d->object[d->by_place[i]];
		bool used = false;

		for (; i < n && d->object[d->by_place[i]] == object; i++)
			used = used || !d->gone[d->by_place[i]];
		if (object == OFS_NONE || used || object_at(d, object)->missing)
			continue;
		if (ofs_publish_remove(d->c->publish,
			object_at(d, object)->path, err) == -1)
			return -1;
	}
	return 0;
}

/* Items of what was moved are dropped under one name and used under another. */
static void keep_renamed(struct ofs_commit_dcp *d)
{
	for (size_t i = 0; i < d->c->ntodos; i++) {
		const struct ofs_todo *t = &d->c->todo[i];
		struct ofs_buf from = { 0 };
		uint32_t first, n;

		if (t->op != OFS_TODO_ADD || !keeps_items(d, t))
			continue;
		source_name(d, t->from, &from);
		ofs_commit_dcp_named(d,
		    (struct ofs_str){ (char *)from.data, (uint32_t)from.len },
		    &first, &n);
		for (uint32_t k = first; k < first + n; k++) {
			bool moved = false;

			for (size_t j = 0; j < d->nitems && !moved; j++)
				moved = d->item[j].item == d->by_name[k];
			d->gone[d->by_name[k]] = moved;
		}
		ofs_buf_fini(&from);
	}
}

/* An item that was dropped is not moved as well. */
static void forget_dropped(struct ofs_commit_dcp *d)
{
	size_t n = 0;

	for (size_t i = 0; i < d->nedits; i++) {
		struct ofs_commit_edit e = d->edit[i];
		bool twice = false;

		for (size_t k = 0; e.splice.op == OFS_PK_REPLACE &&
		     e.splice.node == d->index.storage && k < d->nedits &&
		     !twice;
		     k++)
			twice = d->edit[k].splice.op == OFS_PK_DROP &&
			    d->edit[k].splice.node == e.splice.node &&
			    d->edit[k].splice.item == e.splice.item;
		if (twice)
			ofs_buf_fini(&e.bytes);
		else
			d->edit[n++] = e;
	}
	d->nedits = n;
}

int ofs_commit_dcp_end(struct ofs_commit_dcp *d, struct optimfs_error *err)
{
	if (d->bytes == NULL)
		return 0;
	if (encode_all(d, err) == -1 || add_all(d, true, err) == -1 ||
	    ofs_commit_dcp_moved(d, err) == -1)
		return -1;
	forget_dropped(d);
	if (d->nedits == 0)
		return 0;
	keep_renamed(d);
	return write_index(d, err) == -1 ? -1 : remove_unused(d, err);
}

void ofs_commit_dcp_free(struct ofs_commit_dcp *d)
{
	if (d == NULL)
		return;
	for (size_t i = 0; i < d->nedits; i++)
		ofs_buf_fini(&d->edit[i].bytes);
	for (size_t i = 0; i < d->nout; i++)
		free(d->out[i].path);
	for (size_t i = 0; i < d->ncoded; i++)
		close(d->coded[i].fd);
	if (d->bytes != NULL)
		ofs_dcp_index_fini(&d->index);
	free(d->bytes);
	free(d->name);
	free(d->object);
	free(d->by_place);
	free(d->by_name);
	free(d->by_key);
	free(d->gone);
	free(d->out);
	free(d->item);
	free(d->coded);
	free(d->edit);
	free(d);
}
