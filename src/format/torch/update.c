/* update.c - commits to values and tensors in torch.save's pickles */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "format/torch/update.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/str.h"
#include "format/part.h"
#include "pickle/splice.h"
#include "pickle/write.h"
#include "rewrite/archive.h"
#include "rewrite/route.h"

/* Each change becomes an edit of an item of a container. The pickle is spliced,
 * and its archive or legacy stream, if any, is laid out anew. */

struct edit {
	struct ofs_pk_splice splice;
	struct ofs_buf bytes;
};

struct rewrite {
	struct ofs_commit *c;
	const struct ofs_commit_source *s;
	struct ofs_commit_archive in;
	const struct ofs_pickle *doc;
	struct edit *edit;
	size_t nedits, cap;
	struct ofs_commit_storage *storage; /* new storages */
	size_t nstorages, storage_cap;
	uint64_t next_key;
	struct ofs_routes routes;
	struct optimfs_error *err;
};

static struct edit *new_edit(struct rewrite *w, uint32_t node, uint32_t item,
    enum ofs_pk_splice_op op)
{
	struct edit *e;

	if (ofs_grow(w->edit, w->nedits, w->cap, w->err) == -1)
		return NULL;
	e = &w->edit[w->nedits++];
	*e =
	    (struct edit){ .splice = { .node = node, .item = item, .op = op } };
	return e;
}

/* Opcodes. */

static int put_doc(struct ofs_pkw *w, const struct ofs_pickle *doc,
    struct optimfs_error *err)
{
	return ofs_pkw_node(w, doc, ofs_pickle_root(doc), err);
}

/* Write a key of the same kind as the others of its dict. */
static void put_key(struct rewrite *w, struct ofs_pkw *out, uint32_t dict,
    const struct ofs_key *key)
{
	uint32_t n = ofs_pk_len(w->doc, dict);
	uint32_t v = 0;
	bool numbers = n > 0 && ofs_str_digits(key->s, &v);

	for (uint32_t i = 0; i < n && numbers; i++)
		numbers = ofs_pk_kind(w->doc, ofs_pk_key(w->doc, dict, i)) ==
		    OFS_PK_INT;
	if (numbers)
		ofs_pkw_int(out, v);
	else
		ofs_pkw_str(out, key->s.p, key->s.len);
}

static int put_tensor(struct rewrite *w, struct ofs_pkw *out,
    const struct ofs_commit_task *t)
{
	struct ofs_commit_storage *s;

	if (!w->in.zip)
		return ofs_commit_no_place(t,
		    "a file of this kind takes no further tensor", w->err);
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
	if (t->npath <= s->nprefix)
		return NULL;
	for (uint32_t i = 0; i < s->nprefix; i++)
		if (!ofs_str_equal(t->path[i].s, s->prefix[i].s))
			return NULL;
	*n = t->npath - s->nprefix;
	return t->path + s->nprefix;
}

static struct ofs_pkw writer(const struct rewrite *w, struct edit *e)
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
	struct edit *e;

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
	e = new_edit(w, r.node, r.item,
	    t->op == OFS_TASK_SET ? OFS_PK_REPLACE : OFS_PK_DROP);
	if (e == NULL)
		return -1;
	t->done = true;
	out = writer(w, e);
	return t->op == OFS_TASK_SET ? put_doc(&out, t->doc, w->err) : 0;
}

/* A value that is renamed within its dict keeps its place. */
static int rename_one(struct rewrite *w, struct ofs_commit_task *drop,
    struct ofs_commit_task *add)
{
	uint32_t n, m;
	const struct ofs_key *from = inside(w, drop, &n);
	const struct ofs_key *to = inside(w, add, &m);
	struct ofs_route r;
	struct ofs_pkw out;
	struct edit *e;

	if (from == NULL || to == NULL || n != m || from[n - 1].index)
		return 0;
	for (uint32_t i = 0; i + 1 < n; i++)
		if (from[i].index != to[i].index ||
		    from[i].s.len != to[i].s.len ||
		    memcmp(from[i].s.p, to[i].s.p, to[i].s.len) != 0)
			return 0;
	r = ofs_route(&w->routes, from, n);
	if (r.depth != n || ofs_pk_kind(w->doc, r.node) != OFS_PK_DICT)
		return 0;
	e = new_edit(w, r.node, r.item, OFS_PK_RENAME);
	if (e == NULL)
		return -1;
	out = writer(w, e);
	put_key(w, &out, r.node, &to[n - 1]);
	drop->done = add->done = true;
	return 0;
}

/* Do all renames; bytes written to a tensor follow it. */
static int rename_all(struct rewrite *w)
{
	struct ofs_commit *c = w->c;

	for (size_t i = 0; i < c->ntasks; i++) {
		struct ofs_commit_task *add = &c->task[i];
		uint32_t k;

		if (add->op != OFS_TASK_ADD || add->from == NULL ||
		    (add->change->text != NULL) ||
		    (add->doc == NULL &&
			ofs_commit_tensor(c, add->change) == NULL))
			continue;
		k = c->drop[add->from - c->cat->entries];
		if (k != OFS_NONE && rename_one(w, &c->task[k], add) == -1)
			return -1;
	}
	return 0;
}

/* Does b add to the same new container as a, which is depth steps below? */
static bool together(struct rewrite *w, const struct ofs_key *a, uint32_t depth,
    const struct ofs_commit_task *b, uint32_t *n)
{
	const struct ofs_key *key =
	    b->op == OFS_TASK_ADD && !b->done ? inside(w, b, n) : NULL;

	if (key == NULL || *n <= depth + 1)
		return false;
	for (uint32_t i = 0; i <= depth; i++)
		if (key[i].s.len != a[i].s.len ||
		    memcmp(key[i].s.p, a[i].s.p, a[i].s.len) != 0)
			return false;
	return true;
}

/* Write a new dict with the items of all tasks from first on. */
static int put_new_dict(struct rewrite *w, struct ofs_pkw *out, size_t first,
    const struct ofs_key *key, uint32_t depth)
{
	ofs_pkw_op(out, OFS_PKW_DICT);
	ofs_pkw_op(out, OFS_PKW_MARK);
	for (size_t i = first; i < w->c->ntasks; i++) {
		struct ofs_commit_task *t = &w->c->task[i];
		uint32_t n;

		if (!together(w, key, depth, t, &n))
			continue;
		if (n != depth + 2)
			return ofs_commit_no_place(t,
			    "the directories that it is in are all new",
			    w->err);
		ofs_pkw_str(out, t->path[t->npath - 1].s.p,
		    t->path[t->npath - 1].s.len);
		t->done = true;
		if (put_value(w, out, t) == -1)
			return -1;
	}
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

static int add_one(struct rewrite *w, size_t i)
{
	struct ofs_commit_task *t = &w->c->task[i];
	uint32_t n, dict;
	const struct ofs_key *key = inside(w, t, &n);
	struct ofs_route r;
	struct ofs_pkw out;
	struct edit *e;

	if (key == NULL || !takes(w, t))
		return 0;
	r = ofs_route(&w->routes, key, n);
	dict = r.value;
	if (r.depth == n || ofs_pk_kind(w->doc, dict) != OFS_PK_DICT)
		return 0;
	if (r.depth == 0 && n > 2 && w->s->rank >= 0)
		return 0; /* it belongs to another part */
	e = new_edit(w, dict, (uint32_t)i, OFS_PK_ADD);
	if (e == NULL)
		return -1;
	out = writer(w, e);
	put_key(w, &out, dict, &key[r.depth]);
	if (n == r.depth + 1) {
		t->done = true;
		return put_value(w, &out, t);
	}
	return put_new_dict(w, &out, i, key, r.depth);
}

static int collect(struct rewrite *w, bool *was_done)
{
	struct ofs_commit *c = w->c;

	/* this file may take what another rank's file took */
	for (size_t i = 0; i < c->ntasks; i++) {
		was_done[i] = c->task[i].done;
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
	for (size_t i = 0; i < c->ntasks; i++)
		c->task[i].done |= was_done[i];
	return 0;
}

/* The whole pickle is replaced by one value. */
static int whole_pickle(struct rewrite *w, const struct edit *e,
    struct ofs_buf *out)
{
	struct ofs_pkw head = { .out = out };

	ofs_pkw_begin(&head);
	ofs_buf_put(out, e->bytes.data, e->bytes.len);
	ofs_pkw_op(&head, OFS_PKW_STOP);
	return out->bad || e->bytes.bad ? ofs_no_memory(w->err) : 0;
}

static int splice_pickle(struct rewrite *w, struct ofs_buf *out)
{
	struct ofs_pk_splice *v = calloc(w->nedits + 1, sizeof(*v));
	int ret = 0;

	if (v == NULL)
		return ofs_no_memory(w->err);
	for (size_t i = 0; i < w->nedits; i++) {
		v[i] = w->edit[i].splice;
		v[i].bytes = w->edit[i].bytes.data;
		v[i].n = w->edit[i].bytes.len;
		if (w->edit[i].bytes.bad)
			ret = ofs_no_memory(w->err);
	}
	if (ret == 0)
		ret = ofs_pickle_splice(w->in.pickle, w->in.npickle, v,
		    w->nedits, out, w->err);
	free(v);
	return ret;
}

static int write_new(struct rewrite *w, ofs_torch_commit_open_fn *open,
    void *ctx, uint64_t *size)
{
	struct ofs_buf pickle = { 0 };
	const struct edit *last = &w->edit[w->nedits - 1];
	uint64_t off;
	int fd,
	    ret = last->splice.node == OFS_NONE ? whole_pickle(w, last, &pickle)
						: splice_pickle(w, &pickle);

	if (ret == 0)
		ret = open(ctx, &fd, &off, w->err);
	if (ret == 0)
		ret = ofs_commit_archive_write(w->c, &w->in, w->s, &pickle,
		    w->storage, w->nstorages, fd, off, size, w->err);
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
		if (ret == 0 && w.nedits > 0)
			ret = write_new(&w, open, ctx, size);
		ofs_commit_archive_close(&w.in);
	}
	for (size_t i = 0; i < w.nedits; i++)
		ofs_buf_fini(&w.edit[i].bytes);
	free(w.edit);
	free(w.storage);
	ofs_routes_fini(&w.routes);
	free(was_done);
	return ret;
}

/* Files. */

struct file {
	struct ofs_commit *c;
	const char *rel;
};

static int open_file(void *ctx, int *fd, uint64_t *off,
    struct optimfs_error *err)
{
	struct file *f = ctx;

	*off = 0;
	return ofs_commit_make(f->c, f->rel, NULL, fd, err);
}

uint32_t ofs_torch_commit_object(const struct ofs_commit *c, const char *rel)
{
	for (uint32_t i = 0; i < c->cat->nobjects; i++)
		if (strcmp(c->cat->objects[i].path, rel) == 0)
			return i;
	return OFS_NONE;
}

int ofs_torch_commit_file(struct ofs_commit *c, const char *rel,
    const struct ofs_commit_source *in, struct optimfs_error *err)
{
	struct ofs_commit_source s = *in;
	struct file f = { c, rel };
	uint64_t size;

	s.object = ofs_torch_commit_object(c, rel);
	if (s.object == OFS_NONE || c->cat->objects[s.object].missing)
		return 0;
	s.len = c->cat->objects[s.object].size;
	if (ofs_torch_commit_pickle(c, &s, open_file, &f, &size, err) == -1)
		return optimfs_fail_in(err, "%.200s", rel);
	return 0;
}

static int begin(struct ofs_commit *c, const struct ofs_part *part,
    void **state, struct optimfs_error *err)
{
	struct ofs_key prefix[4];
	struct ofs_commit_source s = { .prefix = prefix, .rank = -1 };
	uint32_t n = 0;

	*state = NULL;
	if (c->ntasks == 0)
		return 0;
	for (; n < 4 && part->prefix[n] != NULL; n++)
		prefix[n] = (struct ofs_key){
			{ part->prefix[n], (uint32_t)strlen(part->prefix[n]) },
			false
		};
	s.nprefix = n;
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

const struct ofs_update_ops ofs_torch_update = {
	.begin = begin,
};
