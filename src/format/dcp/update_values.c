/* update_values.c - changed, added and removed values of a DCP checkpoint */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "base/memory.h"
#include "base/str.h"
#include "format/dcp/dcp.h"
#include "format/dcp/update.h"
#include "format/torch/update.h"
#include "layout/archive.h"
#include "pickle/write.h"

/* The flat key of the first n components, without those of the part's
 * prefix. */
static void flat_key(const struct ofs_dcp_commit *d,
    const struct ofs_commit_task *t, uint32_t n, struct ofs_buf *out)
{
	out->len = 0;
	for (uint32_t i = d->nprefix; i < n; i++) {
		if (i > d->nprefix)
			ofs_buf_putc(out, '.');
		ofs_buf_put(out, t->path[i].s.p, t->path[i].s.len);
	}
}

static struct ofs_str text_of(const struct ofs_buf *b)
{
	return (struct ofs_str){ (const char *)b->data, (uint32_t)b->len };
}

/* Do the first n components of a path make a key of this index? It is written
 * to key. */
static bool is_key(const struct ofs_dcp_commit *d, const uint32_t *c,
    uint32_t n, struct ofs_buf *key)
{
	const struct ofs_catalog *cat = d->c->cat;

	if (n <= d->nprefix)
		return false;
	for (uint32_t i = 0; i < d->nprefix; i++)
		if (!ofs_str_equal(ofs_catalog_string(cat, c[i]),
			d->prefix[i].s))
			return false;
	key->len = 0;
	ofs_catalog_join(cat, c + d->nprefix, n - d->nprefix, key);
	return ofs_pk_names_pair(&d->keys, text_of(key)) != OFS_NONE;
}

/* Is the entry a key of this index, or inside the value of one? */
static bool is_here(const struct ofs_dcp_commit *d, const struct ofs_entry *e,
    struct ofs_buf *key)
{
	bool here = false;
	uint32_t n;
	const uint32_t *c = ofs_catalog_components(d->c->cat, e->path, &n);

	for (; n > 0 && !here; n--)
		here = is_key(d, c, n, key);
	return here;
}

/* Several indexes may have the same prefix. What is new goes to that of the
 * entry it is named after. */
static int find_ours(struct ofs_dcp_commit *d, struct optimfs_error *err)
{
	struct ofs_buf key = { 0 };
	bool bad;

	d->ours = calloc(d->c->ntasks + 1, sizeof(*d->ours));
	if (d->ours == NULL)
		return ofs_no_memory(err);
	for (size_t i = 0; i < d->c->ntasks; i++) {
		const struct ofs_commit_task *t = &d->c->task[i];

		d->ours[i] = ofs_commit_below(t, d->prefix, d->nprefix) &&
		    (t->named_after == NULL ||
			is_here(d, t->named_after, &key));
	}
	bad = key.bad;
	ofs_buf_fini(&key);
	return bad ? ofs_no_memory(err) : 0;
}

static bool is_ours(const struct ofs_dcp_commit *d,
    const struct ofs_commit_task *t)
{
	return d->ours[t - d->c->task];
}

/* The item of a value that contains t; OFS_NONE. *depth is the number of
 * components of its path. */
static uint32_t holder(const struct ofs_dcp_commit *d,
    const struct ofs_commit_task *t, uint32_t *depth)
{
	struct ofs_buf key = { 0 };
	uint32_t first = 0, n = 0, found = OFS_NONE;

	for (uint32_t k = t->npath;
	     k-- > d->nprefix + 1 && found == OFS_NONE;) {
		flat_key(d, t, k, &key);
		ofs_dcp_commit_named(d, text_of(&key), &first, &n);
		if (n == 1 &&
		    d->index.item[d->by_name[first]].offset == OFS_NONE) {
			found = d->by_name[first];
			*depth = k;
		}
	}
	ofs_buf_fini(&key);
	return found;
}

/* The destination for changed elements of an item. */
struct target {
	struct ofs_dcp_commit *d;
	uint32_t object, place;
};

static struct ofs_composition *open_out(void *ctx, struct optimfs_error *err)
{
	struct target *t = ctx;
	const struct ofs_object *o = ofs_dcp_commit_object(t->d, t->object);

	return ofs_dcp_commit_begin(t->d, o->rank, false, o->path, &t->place,
	    err);
}

/* Change all values in an item with parts. */
static int change_inside(struct ofs_dcp_commit *d, uint32_t item,
    const struct ofs_commit_task *t, uint32_t depth, struct optimfs_error *err)
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
	uint64_t size;

	if (ofs_torch_commit_pickle(d->c, &s, open_out, &to, &size, err) == -1)
		return -1;
	if (size == 0)
		return 0;
	ofs_dcp_commit_end(d, to.place);
	ofs_dcp_commit_note(d, item, to.place);
	return 0;
}

/* Append a torch.save archive of one value or tensor. */
static int put_archive(struct ofs_dcp_commit *d,
    const struct ofs_commit_task *t, struct ofs_composition *to,
    struct optimfs_error *err)
{
	struct ofs_torch_new a = { .crc = true, .base = to->size };
	struct ofs_torch_part data = { 0 };
	struct ofs_buf pickle = { 0 };
	struct ofs_pkw w = { .out = &pickle };
	int ret = 0;

	ofs_pkw_begin(&w);
	if (t->doc != NULL) {
		ret = ofs_pkw_node(&w, t->doc, ofs_pickle_root(t->doc), err);
	} else {
		data.tensor = ofs_commit_added(d->c, t, err);
		ret = data.tensor == OFS_NONE
		    ? -1
		    : ofs_pkw_tensor(&w, t->dtype, 0, t->shape, t->ndim, err);
		data.count = ofs_commit_bytes(t) / ofs_dtype_size(t->dtype);
	}
	ofs_pkw_op(&w, OFS_PKW_STOP);
	if (ret == 0)
		ret = ofs_torch_new_item(&a, d->c->added, &pickle,
		    t->doc == NULL ? &data : NULL, err);
	if (ret == 0)
		ret = ofs_torch_new_put(&a, d->c->added, to, err);
	ofs_torch_new_fini(&a);
	ofs_buf_fini(&pickle);
	return ret;
}

static int lay_new(struct ofs_dcp_commit *d, const struct ofs_commit_task *t,
    int rank, const char *like, uint32_t *place, struct optimfs_error *err)
{
	struct ofs_composition *to =
	    ofs_dcp_commit_begin(d, rank, false, like, place, err);

	if (to == NULL || put_archive(d, t, to, err) == -1)
		return -1;
	ofs_dcp_commit_end(d, *place);
	return 0;
}

/* Change a value that has its own item, in one of its places. */
static int set_place(struct ofs_dcp_commit *d, struct ofs_commit_task *t,
    uint32_t object, uint64_t off, struct optimfs_error *err)
{
	const struct ofs_object *o;
	uint32_t first, n, place;

	if (!ofs_dcp_commit_at(d, object, off, &first, &n))
		return 0;
	t->done = true;
	o = ofs_dcp_commit_object(d, object);
	if (lay_new(d, t, o->rank, o->path, &place, err) == -1)
		return -1;
	ofs_dcp_commit_note_all(d, first, n, place);
	return 0;
}

static int set_item(struct ofs_dcp_commit *d, struct ofs_commit_task *t,
    struct optimfs_error *err)
{
	const struct ofs_item *item = &d->c->cat->items[t->entry->ref];

	for (;; item = &d->c->cat->items[item->same - 1]) {
		if (set_place(d, t, item->at.object, item->at.off, err) == -1)
			return -1;
		if (item->same == 0)
			return 0;
	}
}

/* The same for the list of a group, which was read with the index
 * (items.c). */
static int set_list(struct ofs_dcp_commit *d, struct ofs_commit_task *t,
    struct optimfs_error *err)
{
	struct ofs_buf key = { 0 };
	uint32_t first = 0, n = 0;
	int ret = 0;

	flat_key(d, t, t->npath, &key);
	ofs_dcp_commit_named(d, text_of(&key), &first, &n);
	ofs_buf_fini(&key);
	for (uint32_t i = first; i < first + n && ret == 0; i++)
		ret = set_place(d, t, d->object[d->by_name[i]],
		    d->index.item[d->by_name[i]].off, err);
	return ret;
}

/* Without its optimizer. Of torch_dist and fsdp_dtensor names in the tree are no
 * keys of the index: a stack is many tensors, a bucket has parts of many, options
 * are those of groups. But every key of an optimizer begins in the same way, so
 * that all of them can be removed together. */

/* "optimizer.state.exp_avg.w", "chained_0.optimizer.distributed..." */
static bool is_optim(struct ofs_str key)
{
	struct ofs_str rest = key;
	uint64_t number;

	if (ofs_str_take(&rest, "chained_") &&
	    ofs_str_take_number(&rest, &number) && ofs_str_take(&rest, "."))
		key = rest;
	return ofs_str_take(&key, "optimizer.");
}

/* Is it "optimizer.param_to_group_meta...", the options of a parameter? */
static bool is_option(struct ofs_str key)
{
	return is_optim(key) &&
	    memmem(key.p, key.len, ".param_to_group_meta.", 21) != NULL;
}

/* Is all of optim/ removed, but for stays, and some of it has no key? */
static bool drops_optim(const struct ofs_dcp_commit *d,
    const char *const *stays)
{
	for (size_t i = 0; i < d->c->ntasks; i++)
		if (d->c->task[i].op == OFS_TASK_DROP &&
		    d->c->task[i].entry->key == OFS_KEY_FIXED)
			return ofs_commit_drops_optim(d->c, stays);
	return false;
}

/* options: those of parameters stay. */
static int drop_optim(struct ofs_dcp_commit *d, bool options,
    struct optimfs_error *err)
{
	const struct ofs_pickle *doc = d->index.doc;

	for (uint32_t i = 0; i < ofs_pk_len(doc, d->index.keys); i++) {
		struct ofs_str name =
		    ofs_pk_str(doc, ofs_pk_key(doc, d->index.keys, i));

		if (!is_optim(name) || (options && is_option(name)))
			continue;
		if (ofs_dcp_commit_drop(d, name, err) == -1)
			return -1;
		d->no_optim = true;
	}
	return 0;
}

/* Is it stored in items that drop_optim has removed? */
static bool was_dropped(const struct ofs_dcp_commit *d,
    const struct ofs_commit_task *t)
{
	const struct ofs_catalog *cat = d->c->cat;
	const struct ofs_tensor *tensor;
	const struct ofs_extent *at;
	uint32_t item;

	switch (t->entry->kind) {
	case OFS_ENTRY_VALUE:
		/* of keys with dots, and of nested ones */
		return is_optim(t->path[d->nprefix].s) ||
		    ofs_str_is(t->path[d->nprefix].s, "optimizer");
	case OFS_ENTRY_ITEM:
		at = &cat->items[t->entry->ref].at;
		break;
	default:
		tensor = &cat->tensors[t->entry->ref];
		if (tensor->nshards == 0 ||
		    cat->shards[tensor->shard].at.encoding == OFS_DERIVED)
			return true;
		at = &cat->shards[tensor->shard].at;
	}
	item = ofs_dcp_commit_around(d, at->object, at->off);
	if (item == OFS_NONE || d->dropped[item])
		return item != OFS_NONE;
	/* a step of the group, which the tree shows where there are states */
	return is_option(
		   ofs_pk_str(d->index.doc, d->index.item[item].fqn)) &&
	    strncmp(t->change->path, "optim/state/", 12) == 0;
}

static int drop_key(struct ofs_dcp_commit *d, struct ofs_commit_task *t,
    struct optimfs_error *err)
{
	struct ofs_buf key = { 0 };
	struct ofs_str name;
	int ret = 0;

	flat_key(d, t, t->npath, &key);
	name = text_of(&key);
	if (key.bad) {
		ret = ofs_no_memory(err);
	} else if (ofs_pk_names_pair(&d->keys, name) != OFS_NONE) {
		t->done = true;
		ret = ofs_dcp_commit_drop(d, name, err);
	}
	ofs_buf_fini(&key);
	return ret;
}

/* A file from which new ones take mode and rank. */
static uint32_t some_object(const struct ofs_dcp_commit *d)
{
	for (uint32_t i = 0; i < d->index.nitems; i++)
		if (d->object[i] != OFS_NONE &&
		    !ofs_dcp_commit_object(d, d->object[i])->missing)
			return d->object[i];
	return OFS_NONE;
}

static int add_new(struct ofs_dcp_commit *d, struct ofs_commit_task *t,
    struct ofs_str name, struct optimfs_error *err)
{
	uint32_t object = some_object(d), place;

	if (lay_new(d, t, 0,
		object == OFS_NONE ? d->name
				   : ofs_dcp_commit_object(d, object)->path,
		&place, err) == -1)
		return -1;
	return ofs_dcp_commit_add(d, t, name, place, err);
}

/* Is it a tensor renamed within the index? It keeps its items; so do rewritten
 * chunks of it, which is why renaming comes after them. from gets its key. */
static bool keeps_items(const struct ofs_dcp_commit *d,
    const struct ofs_commit_task *t, struct ofs_buf *from)
{
	const uint32_t *c;
	uint32_t depth, n;

	if (t->op != OFS_TASK_ADD || t->doc != NULL || t->from == NULL ||
	    ofs_commit_tensor(d->c, t->change) == NULL || !is_ours(d, t) ||
	    holder(d, t, &depth) != OFS_NONE)
		return false;
	c = ofs_catalog_components(d->c->cat, t->from->path, &n);
	return is_key(d, c, n, from);
}

static int add_key(struct ofs_dcp_commit *d, struct ofs_commit_task *t,
    bool moved, struct optimfs_error *err)
{
	struct ofs_buf key = { 0 }, from = { 0 };
	struct ofs_str name;
	bool keeps;
	int ret;

	if (t->doc == NULL && d->blobs)
		return ofs_commit_no_place(t,
		    "tensors are stored in safetensors files, whose layout "
		    "cannot be changed",
		    err);
	t->done = true; /* if not now, in the other pass */
	flat_key(d, t, t->npath, &key);
	name = text_of(&key);
	keeps = keeps_items(d, t, &from);
	if (key.bad || from.bad)
		ret = ofs_no_memory(err);
	else if (keeps != moved)
		ret = 0;
	else if (moved)
		ret = ofs_dcp_commit_rename(d, t, text_of(&from), name, err);
	else
		ret = add_new(d, t, name, err);
	ofs_buf_fini(&key);
	ofs_buf_fini(&from);
	return ret == -1 ? optimfs_fail_in(err, "%.200s", t->change->path) : 0;
}

static int change_one(struct ofs_dcp_commit *d, struct ofs_commit_task *t,
    struct optimfs_error *err)
{
	uint32_t depth = 0, item = OFS_NONE;

	if (d->no_optim && t->op == OFS_TASK_DROP && was_dropped(d, t)) {
		t->done = true;
		return 0;
	}
	if (t->entry == NULL || t->entry->kind == OFS_ENTRY_VALUE ||
	    t->op == OFS_TASK_DROP)
		item = holder(d, t, &depth);
	if (item != OFS_NONE && change_inside(d, item, t, depth, err) == -1)
		return -1;
	if (t->done || t->op == OFS_TASK_ADD)
		return 0;
	if (t->op == OFS_TASK_DROP)
		return drop_key(d, t, err);
	switch (t->entry->kind) {
	case OFS_ENTRY_ITEM:
		return set_item(d, t, err);
	case OFS_ENTRY_VALUE:
		return set_list(d, t, err);
	default:
		return 0;
	}
}

int ofs_dcp_commit_change(struct ofs_dcp_commit *d, struct optimfs_error *err)
{
	const char *const *stays = ofs_dcp_stays(d->c->cat);

	if (find_ours(d, err) == -1 ||
	    (drops_optim(d, stays) && drop_optim(d, stays != NULL, err) == -1))
		return -1;
	for (size_t i = 0; i < d->c->ntasks; i++)
		if (!d->c->task[i].done && d->ours[i] &&
		    change_one(d, &d->c->task[i], err) == -1)
			return -1;
	return 0;
}

int ofs_dcp_commit_put_new(struct ofs_dcp_commit *d, bool moved,
    struct optimfs_error *err)
{
	for (size_t i = 0; i < d->c->ntasks; i++)
		if (d->c->task[i].op == OFS_TASK_ADD && d->ours[i] &&
		    (moved || !d->c->task[i].done) &&
		    add_key(d, &d->c->task[i], moved, err) == -1)
			return -1;
	return 0;
}

void ofs_dcp_commit_keep_renamed(struct ofs_dcp_commit *d)
{
	for (size_t i = 0; i < d->c->ntasks; i++) {
		const struct ofs_commit_task *t = &d->c->task[i];
		struct ofs_buf from = { 0 };
		uint32_t first = 0, n = 0;

		if (keeps_items(d, t, &from))
			ofs_dcp_commit_named(d, text_of(&from), &first, &n);
		for (uint32_t k = first; k < first + n; k++)
			d->gone[d->by_name[k]] =
			    d->moved[d->by_name[k]] != OFS_NONE;
		ofs_buf_fini(&from);
	}
}
