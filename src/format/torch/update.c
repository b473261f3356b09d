/* update.c - commits to values and tensors in torch.save's pickles */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "format/torch/update.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "base/memory.h"
#include "base/str.h"
#include "format/part.h"
#include "format/torch/moves.h"
#include "pickle/splice.h"
#include "pickle/write.h"
#include "rewrite/archive.h"
#include "rewrite/route.h"
#include "text/parse.h"

/* Each change becomes an edit of an item of a container. The pickle is spliced,
 * and its archive or legacy stream, if any, is laid out again. */

/* The tasks of a move; add NULL: a removal. */
struct pair {
	struct ofs_commit_task *drop, *add;
};

struct rewrite {
	struct ofs_commit *c;
	const struct ofs_commit_source *s;
	struct ofs_commit_archive in;
	const struct ofs_pickle *doc;
	struct ofs_pk_edits edits;
	struct ofs_commit_storage *storage; /* new storages */
	size_t nstorages, storage_cap;
	uint64_t next_key;
	struct ofs_routes routes;
	struct ofs_torch_move *move;
	struct pair *pair; /* of each move */
	size_t nmoves, move_cap, pair_cap;
	struct optimfs_error *err;
};

/* Opcodes. */

static int put_doc(struct ofs_pkw *w, const struct ofs_pickle *doc,
    struct optimfs_error *err)
{
	return ofs_pkw_node(w, doc, ofs_pickle_root(doc), err);
}

static int put_tensor(struct rewrite *w, struct ofs_pkw *out,
    const struct ofs_commit_task *t)
{
	struct ofs_commit_storage *s;

	if (!w->in.zip)
		return ofs_commit_no_place(t,
		    "no tensor can be added to a file of this kind", w->err);
	if (ofs_grow(w->storage, w->nstorages, w->storage_cap, w->err) == -1)
		return -1;
	s = &w->storage[w->nstorages++];
	*s = (struct ofs_commit_storage){ .key = w->next_key++, .task = t };
	return ofs_pkw_tensor(out, t->dtype, s->key, t->shape, t->ndim, w->err);
}

static int put_value(struct rewrite *w, struct ofs_pkw *out,
    const struct ofs_commit_task *t)
{
	if (t->doc != NULL)
		return put_doc(out, t->doc, w->err);
	return put_tensor(w, out, t);
}

/* The tasks. */

/* The part of a task's path inside this pickle; NULL when it is not inside. */
static const struct ofs_key *inside(const struct rewrite *w,
    const struct ofs_commit_task *t, uint32_t *n)
{
	const struct ofs_commit_source *s = w->s;

	if (s->path != NULL) {
		*n = s->path[t - w->c->task].n;
		return s->path[t - w->c->task].key;
	}
	if (!ofs_commit_below(t, s->prefix, s->nprefix))
		return NULL;
	*n = t->npath - s->nprefix;
	return t->path + s->nprefix;
}

static struct ofs_pkw writer(const struct rewrite *w, struct ofs_pk_splice *e)
{
	return (struct ofs_pkw){
		.out = &e->bytes,
		.plain = true,
		.modern = w->in.modern,
	};
}

/* Is the next step of the path the rank of this file, where each rank has its
 * own value (docs/formats/ranks.md)? */
static bool says_rank(const struct rewrite *w, const struct ofs_key *key)
{
	char name[32];
	int n = snprintf(name, sizeof(name), "rank%d", w->s->rank);

	return w->s->rank >= 0 && !key->index && key->s.len == (uint32_t)n &&
	    memcmp(key->s.p, name, (size_t)n) == 0;
}

static int change_one(struct rewrite *w, struct ofs_commit_task *t)
{
	uint32_t n;
	const struct ofs_key *key = inside(w, t, &n);
	struct ofs_route r;
	struct ofs_pkw out;
	struct ofs_pk_splice *e;

	if (key == NULL)
		return 0;
	r = ofs_route(&w->routes, key, n);
	if (n > 1 && r.depth == n - 1 && says_rank(w, &key[n - 1]))
		n--;
	if (r.depth != n || (n == 0 && t->op == OFS_TASK_DROP))
		return 0;
	if (t->op == OFS_TASK_DROP &&
	    ofs_pk_kind(w->doc, r.node) == OFS_PK_TUPLE)
		return ofs_commit_no_place(t, "it is an item of a tuple",
		    w->err);
	e = ofs_pk_edits_add(&w->edits, r.node, r.item,
	    t->op == OFS_TASK_SET ? OFS_PK_REPLACE : OFS_PK_DROP, w->err);
	if (e == NULL)
		return -1;
	t->done = true;
	out = writer(w, e);
	return t->op == OFS_TASK_SET ? put_doc(&out, t->doc, w->err) : 0;
}

/* Moves. */

/* The task that moves each entry, with the bytes that it has, or NULL. */
static struct ofs_commit_task **find_adds(struct rewrite *w)
{
	struct ofs_commit *c = w->c;
	struct ofs_commit_task **to =
	    calloc(c->ntasks + 1, sizeof(struct ofs_commit_task *));

	for (size_t i = 0; to != NULL && i < c->ntasks; i++) {
		struct ofs_commit_task *add = &c->task[i];
		uint32_t drop;

		if (add->op != OFS_TASK_ADD || add->from == NULL ||
		    add->change->text != NULL ||
		    (add->doc == NULL &&
			ofs_commit_tensor(c, add->change) == NULL))
			continue;
		drop = c->drop[add->from - c->cat->entries];
		if (drop != OFS_NONE)
			to[drop] = add;
	}
	return to;
}

/* The path in this file of what all ranks show, or this one. */
static const struct ofs_key *own_path(const struct rewrite *w,
    const struct ofs_commit_task *t, uint32_t *n)
{
	const struct ofs_key *key = inside(w, t, n);

	if (key != NULL && *n > 1 && says_rank(w, &key[*n - 1]))
		--*n;
	return key;
}

static int add_move(struct rewrite *w, struct ofs_commit_task *drop,
    struct ofs_commit_task *add)
{
	uint32_t n, m = 0;
	const struct ofs_key *from = own_path(w, drop, &n);
	const struct ofs_key *to = add == NULL ? NULL : own_path(w, add, &m);

	if (from == NULL || n == 0 || ofs_route(&w->routes, from, n).depth != n)
		return 0;
	if (ofs_grow(w->move, w->nmoves, w->move_cap, w->err) == -1 ||
	    ofs_grow(w->pair, w->nmoves, w->pair_cap, w->err) == -1)
		return -1;
	w->move[w->nmoves] = (struct ofs_torch_move){
		.from = from, .to = m == n ? to : NULL, .n = n
	};
	w->pair[w->nmoves++] = (struct pair){ drop, add };
	return 0;
}

static int collect_moves(struct rewrite *w)
{
	struct ofs_commit_task **to = find_adds(w);
	int ret = to == NULL ? ofs_no_memory(w->err) : 0;

	for (size_t i = 0; i < w->c->ntasks && ret == 0; i++)
		if (w->c->task[i].op == OFS_TASK_DROP)
			ret = add_move(w, &w->c->task[i], to[i]);
	free(to);
	return ret;
}

/* What keeps its place gets its new key. Bytes written to a tensor follow it.
 * Equal edits of one pair are one. */
static int rename_all(struct rewrite *w)
{
	if (collect_moves(w) == -1 ||
	    ofs_torch_moves(&w->routes, w->move, w->nmoves, w->err) == -1)
		return -1;
	for (size_t i = 0; i < w->nmoves; i++) {
		const struct ofs_torch_move *m = &w->move[i];
		struct ofs_pkw out;
		struct ofs_pk_splice *e;

		if (!m->renamed && !m->covered)
			continue;
		e = ofs_pk_edits_add(&w->edits, m->node, m->item,
		    m->renamed ? OFS_PK_RENAME : OFS_PK_DROP, w->err);
		if (e == NULL)
			return -1;
		w->pair[i].drop->done = true;
		if (!m->renamed)
			continue;
		w->pair[i].add->done = true;
		out = writer(w, e);
		ofs_value_put_key(&out, w->doc, m->node, m->to[m->at].s);
	}
	return 0;
}

/* New containers. */

/* Does t add to the new container that is called as the first depth + 1
 * components of key? */
static const struct ofs_key *together(struct rewrite *w,
    const struct ofs_key *key, uint32_t depth, const struct ofs_commit_task *t,
    uint32_t *n)
{
	const struct ofs_key *own =
	    t->op == OFS_TASK_ADD && !t->done ? inside(w, t, n) : NULL;

	if (own == NULL || *n <= depth + 1)
		return NULL;
	for (uint32_t i = 0; i <= depth; i++)
		if (!ofs_str_equal(own[i].s, key[i].s))
			return NULL;
	return own;
}

/* The number of components that two paths to new items have in common; of the
 * last ones each has its own. */
static uint32_t common(const struct ofs_key *a, uint32_t n,
    const struct ofs_key *b, uint32_t m)
{
	uint32_t i = 0;

	while (i + 1 < n && i + 1 < m && ofs_str_equal(a[i].s, b[i].s))
		i++;
	return i;
}

static void open_dict(struct ofs_pkw *out)
{
	ofs_pkw_op(out, OFS_PKW_DICT);
	ofs_pkw_op(out, OFS_PKW_MARK);
}

/* Writes a new dict, and those in it, with the items of all tasks from first
 * on. Changes are sorted by path, so those of a dict are together. */
static int put_new_dict(struct rewrite *w, struct ofs_pkw *out, size_t first,
    const struct ofs_key *key, uint32_t depth)
{
	const struct ofs_key *last = key, *own;
	uint32_t open = depth + 1, n, nlast = depth + 2;

	open_dict(out);
	for (size_t i = first; i < w->c->ntasks; i++) {
		struct ofs_commit_task *t = &w->c->task[i];
		uint32_t same;

		own = together(w, key, depth, t, &n);
		if (own == NULL)
			continue;
		same = common(last, nlast, own, n);
		for (; open > same; open--)
			ofs_pkw_op(out, OFS_PKW_SETITEMS);
		for (; open + 1 < n; open++) {
			ofs_pkw_str(out, own[open].s.p, own[open].s.len);
			open_dict(out);
		}
		ofs_pkw_str(out, own[n - 1].s.p, own[n - 1].s.len);
		t->done = true;
		if (put_value(w, out, t) == -1)
			return -1;
		last = own;
		nlast = n;
	}
	for (; open > depth; open--)
		ofs_pkw_op(out, OFS_PKW_SETITEMS);
	return 0;
}

/* Of the files of several ranks, does this one take the new value? Those with a
 * similar tensor do. */
static bool takes(struct rewrite *w, const struct ofs_commit_task *t)
{
	const struct ofs_tensor *like;

	if (w->s->rank < 0 || t->doc != NULL)
		return true;
	if (t->like == NULL || t->like->kind != OFS_ENTRY_TENSOR)
		return false;
	/* the whole of it is in each file, or in one */
	like = &w->c->cat->tensors[t->like->ref];
	return like->nshards == 1 &&
	    w->c->cat->shards[like->shard].box == OFS_NONE;
}

/* The place of a new item in the pickle as it was: where a container has got
 * another name, by its old one. NULL: no memory. */
static const struct ofs_key *old_path(struct rewrite *w,
    const struct ofs_key *key, uint32_t n)
{
	struct ofs_key *old;

	for (size_t i = 0; i < w->nmoves; i++) {
		const struct ofs_torch_move *m = &w->move[i];
		uint32_t same = 0;

		if (!m->renamed || m->at + 1 >= n || m->at + 1 >= m->n)
			continue;
		while (same <= m->at &&
		    ofs_str_equal(key[same].s, m->to[same].s))
			same++;
		if (same <= m->at)
			continue;
		old = ofs_arena_alloc(&w->c->arena, n * sizeof(*old));
		if (old == NULL)
			return NULL;
		memcpy(old, key, n * sizeof(*old));
		old[m->at] = m->from[m->at];
		return old;
	}
	return key;
}

static bool is_dropped(const struct rewrite *w, const struct ofs_route *r)
{
	for (size_t i = 0; i < w->edits.n; i++)
		if (w->edits.v[i].op == OFS_PK_DROP &&
		    w->edits.v[i].node == r->node &&
		    w->edits.v[i].item == r->item)
			return true;
	return false;
}

/* Is the new item named after one in a container of another file? */
static bool is_elsewhere(const struct rewrite *w,
    const struct ofs_commit_task *t)
{
	const struct ofs_catalog *cat = w->c->cat;
	uint32_t at = w->s->nprefix, n;
	const uint32_t *c;

	if (w->s->path != NULL || t->named_after == NULL)
		return false;
	c = ofs_catalog_components(cat, t->named_after->path, &n);
	return n > at &&
	    ofs_str_equal(ofs_catalog_string(cat, c[at]), t->path[at].s);
}

static int add_one(struct rewrite *w, size_t i)
{
	struct ofs_commit_task *t = &w->c->task[i];
	uint32_t n, dict;
	const struct ofs_key *key = inside(w, t, &n), *old;
	struct ofs_route r;
	struct ofs_pkw out;
	struct ofs_pk_splice *e;

	if (key == NULL || !takes(w, t))
		return 0;
	old = old_path(w, key, n);
	if (old == NULL)
		return ofs_no_memory(w->err);
	r = ofs_route(&w->routes, old, n);
	dict = r.value;
	if (r.depth == n && is_dropped(w, &r)) {
		dict = r.node; /* what has its name is removed */
		r.depth--;
	}
	if (r.depth == n || ofs_pk_kind(w->doc, dict) != OFS_PK_DICT)
		return 0;
	if (r.depth == 0 &&
	    (w->s->rank >= 0 ? n > 2 : n > 1 && is_elsewhere(w, t)))
		return 0; /* it belongs to another part */
	e = ofs_pk_edits_add(&w->edits, dict, (uint32_t)i, OFS_PK_ADD, w->err);
	if (e == NULL)
		return -1;
	out = writer(w, e);
	ofs_value_put_key(&out, w->doc, dict, key[r.depth].s);
	if (n == r.depth + 1) {
		t->done = true;
		return put_value(w, &out, t);
	}
	return put_new_dict(w, &out, i, key, r.depth);
}

/* Emptied dicts. */

#define TAKES_ITEMS 0x80000000u

/* What is removed: an item of a dict that has several places once. */
struct drops {
	struct rewrite *w;
	struct ofs_map edit; /* indexes in w->edits */
	/* from each container; with TAKES_ITEMS it also gets new items */
	uint32_t *n;
};

static bool same_item(const void *ctx, uint32_t i, const void *key, size_t n)
{
	const struct rewrite *w = ctx;
	const uint32_t *item = key;

	(void)n;
	return w->edits.v[i].node == item[0] && w->edits.v[i].item == item[1];
}

/* 1: it was counted before; 0; -1. */
static int count_drop(struct drops *d, size_t edit)
{
	const struct ofs_pk_splice *e = &d->w->edits.v[edit];
	const uint32_t item[] = { e->node, e->item };
	uint32_t hash = ofs_map_hash(item, sizeof(item));

	if (ofs_map_find(&d->edit, hash, same_item, d->w, item, sizeof(item)) !=
	    UINT32_MAX)
		return 1;
	if (!ofs_map_add(&d->edit, hash, (uint32_t)edit))
		return ofs_no_memory(d->w->err);
	d->n[e->node]++;
	return 0;
}

static int count_drops(struct drops *d)
{
	const struct rewrite *w = d->w;

	d->n = calloc(ofs_pickle_nodes(w->doc), sizeof(*d->n));
	if (d->n == NULL)
		return ofs_no_memory(w->err);
	for (size_t i = 0; i < w->edits.n; i++) {
		const struct ofs_pk_splice *e = &w->edits.v[i];

		if (e->op == OFS_PK_ADD)
			d->n[e->node] |= TAKES_ITEMS;
		else if (e->op == OFS_PK_DROP && count_drop(d, i) == -1)
			return -1;
	}
	return 0;
}

/* Does the dict go that the first n components of key lead to? An empty one would
 * be a value (walk.h), but that of an optimizer's state is not. */
static bool goes(const struct drops *d, const struct ofs_route *r,
    const struct ofs_key *key, uint32_t n)
{
	const struct ofs_pickle *doc = d->w->doc;

	return r->depth == n && ofs_pk_kind(doc, r->node) == OFS_PK_DICT &&
	    ofs_pk_kind(doc, r->value) == OFS_PK_DICT &&
	    d->n[r->value] == ofs_pk_len(doc, r->value) &&
	    !ofs_str_is(key[n - 1].s, "state") &&
	    !(n > 1 && ofs_str_is(key[n - 2].s, "state"));
}

/* Removes the dicts that t has emptied. */
static int drop_above(struct drops *d, const struct ofs_commit_task *t)
{
	struct rewrite *w = d->w;
	uint32_t n;
	const struct ofs_key *key = inside(w, t, &n);
	struct ofs_route r;
	int ret = 0;

	if (key == NULL)
		return 0;
	n = ofs_route(&w->routes, key, n).depth; /* without says_rank */
	while (n-- > 1 && ret == 0) {
		r = ofs_route(&w->routes, key, n);
		if (!goes(d, &r, key, n))
			break;
		ret = ofs_pk_edits_add(&w->edits, r.node, r.item, OFS_PK_DROP,
			  w->err) == NULL
		    ? -1
		    : count_drop(d, w->edits.n - 1);
	}
	return ret == -1 ? -1 : 0;
}

/* A dict of which all items are removed is removed with them. */
static int drop_emptied(struct rewrite *w)
{
	struct drops d = { .w = w };
	int ret = count_drops(&d);

	for (size_t i = 0; i < w->c->ntasks && ret == 0; i++)
		if (w->c->task[i].op == OFS_TASK_DROP && w->c->task[i].done)
			ret = drop_above(&d, &w->c->task[i]);
	ofs_map_fini(&d.edit);
	free(d.n);
	return ret;
}

static int collect(struct rewrite *w, bool *was_done)
{
	struct ofs_commit *c = w->c;

	/* a rank's file may take what another rank's file took */
	for (size_t i = 0; i < c->ntasks; i++) {
		was_done[i] = c->task[i].done;
		if (w->s->rank >= 0 || w->s->path != NULL)
			c->task[i].done = false;
	}
	if (rename_all(w) == -1)
		return -1;
	for (size_t i = 0; i < c->ntasks; i++)
		if (c->task[i].op != OFS_TASK_ADD && !c->task[i].done &&
		    change_one(w, &c->task[i]) == -1)
			return -1;
	for (size_t i = 0; i < c->ntasks; i++)
		if (c->task[i].op == OFS_TASK_ADD && !c->task[i].done &&
		    add_one(w, i) == -1)
			return -1;
	if (w->edits.n > 0 && drop_emptied(w) == -1)
		return -1;
	for (size_t i = 0; i < c->ntasks; i++)
		c->task[i].done |= was_done[i];
	return 0;
}

/* The whole pickle is replaced by one value. */
static int whole_pickle(struct rewrite *w, const struct ofs_pk_splice *e,
    struct ofs_buf *out)
{
	struct ofs_pkw head = { .out = out };

	ofs_pkw_begin(&head);
	ofs_buf_put(out, e->bytes.data, e->bytes.len);
	ofs_pkw_op(&head, OFS_PKW_STOP);
	return out->bad || e->bytes.bad ? ofs_no_memory(w->err) : 0;
}

static int lay_new(struct rewrite *w, ofs_torch_commit_open_fn *open, void *ctx,
    uint64_t *size)
{
	struct ofs_buf pickle = { 0 };
	const struct ofs_pk_splice *last = &w->edits.v[w->edits.n - 1];
	struct ofs_composition *to;
	uint64_t before;
	int ret = last->node == OFS_NONE
	    ? whole_pickle(w, last, &pickle)
	    : ofs_pickle_splice(w->in.pickle, w->in.npickle, &w->edits, &pickle,
		  w->err);

	to = ret == 0 ? open(ctx, w->err) : NULL;
	before = to == NULL ? 0 : to->size;
	ret = to == NULL ? -1
			 : ofs_commit_archive_lay(w->c, &w->in, &pickle,
			       w->storage, w->nstorages, to, w->err);
	if (ret == 0)
		*size = to->size - before;
	ofs_buf_fini(&pickle);
	return ret;
}

int ofs_torch_commit_pickle(struct ofs_commit *c,
    const struct ofs_commit_source *s, ofs_torch_commit_open_fn *open,
    void *ctx, uint64_t *size, struct optimfs_error *err)
{
	struct rewrite w = { .c = c, .s = s, .err = err };
	bool *was_done = calloc(c->ntasks + 1, sizeof(*was_done));
	int ret = -1;

	*size = 0;
	if (was_done == NULL)
		return ofs_no_memory(err);
	if (ofs_commit_archive_open(c, s, &w.in, err) == 0) {
		w.doc = w.routes.doc = w.in.doc;
		w.next_key = ofs_commit_archive_key(&w.in);
		ret = collect(&w, was_done);
		if (ret == 0 && w.edits.n > 0)
			ret = lay_new(&w, open, ctx, size);
		ofs_commit_archive_close(&w.in);
	}
	ofs_pk_edits_fini(&w.edits);
	free(w.storage);
	free(w.move);
	free(w.pair);
	ofs_routes_fini(&w.routes);
	free(was_done);
	return ret;
}

/* Files. */

struct file {
	struct ofs_commit *c;
	const char *rel;
};

static struct ofs_composition *open_file(void *ctx, struct optimfs_error *err)
{
	struct file *f = ctx;
	struct ofs_commit_file *new = ofs_commit_file(f->c, f->rel, NULL, err);

	return new == NULL ? NULL : &new->comp;
}

int ofs_torch_commit_file(struct ofs_commit *c, const char *rel,
    const struct ofs_commit_source *in, struct optimfs_error *err)
{
	struct ofs_commit_source s = *in;
	struct file f = { c, rel };
	uint64_t size;

	s.object = ofs_catalog_find_object(c->cat, rel);
	if (s.object == OFS_NONE || c->cat->objects[s.object].missing)
		return 0;
	s.len = c->cat->objects[s.object].size;
	if (ofs_torch_commit_pickle(c, &s, open_file, &f, &size, err) == -1)
		return optimfs_fail_in(err, "%.200s", rel);
	return 0;
}

int ofs_torch_update(struct ofs_commit *c, const struct ofs_part *part,
    struct optimfs_error *err)
{
	struct ofs_key prefix[OFS_PART_PREFIX];
	struct ofs_commit_source s = { .prefix = prefix, .rank = -1 };

	if (c->ntasks == 0)
		return 0;
	s.nprefix = ofs_part_keys(part, prefix);
	if (part->nfiles < 2)
		return ofs_torch_commit_file(c,
		    part->nfiles == 1 ? part->file[0].rel : part->rel, &s, err);
	for (size_t i = 0; i < part->nfiles; i++) {
		s.rank = part->file[i].rank;
		if (ofs_torch_commit_file(c, part->file[i].rel, &s, err) == -1)
			return -1;
	}
	return 0;
}
