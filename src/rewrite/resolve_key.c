/* resolve_key.c - the name of each change in the source */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "base/memory.h"
#include "base/str.h"
#include "layout/render.h"
#include "naming/file_name.h"
#include "pickle/write.h"
#include "read/locate.h"
#include "rewrite/new_value.h"
#include "rewrite/rewrite_impl.h"
#include "text/id_names.h"
#include "text/parse.h"
#include "text/text.h"

/* naming/ made paths of keys; a commit has to go back. For a leaf that exists
 * this is no question: its entry still has the key. A leaf that was added, or
 * moved, has only a path, and naming cannot be inverted: it dropped prefixes of
 * wrappers, split dotted keys, replaced numbers by names, and put things below
 * optim/ and extra/ that the program keeps elsewhere.
 *
 * So a new key is never made up. It is copied from an entry whose path differs
 * in one component, by exchanging what stands for this component:
 *
 *   a sibling      optim/state/w/momentum beside optim/state/w/exp_avg: the key
 *                  of exp_avg with another last component
 *   the same state optim/state/w2/exp_avg like optim/state/w/exp_avg: the key
 *   of another     with another parameter, which may be a number there (the IDs
 *   parameter      say which), or a part of a flattened key ("state.w.exp_avg")
 *   itself         below extra/, whose keys are shown as they are
 *
 * The sibling comes first: it lies in the same container, which may exist only
 * once. What no entry shows is refused (OFS826), before anything is written; the
 * commit reads the new files again, and compares the paths that come out
 * (verify.c). Entries are found by their paths without component i, in one hash
 * table for each i that is asked for, so that a thousand new states of a
 * checkpoint with a million entries are not a thousand scans.
 *
 * The kind of a new value is that of the entry it was named after: a text "1"
 * becomes an int beside ints, and a tensor where the others are 0-dim tensors.
 * Views of staged changes use the same tasks (merge.c), but skip what has no key
 * (lenient). */

int ofs_commit_no_place(const struct ofs_commit_task *t, const char *why,
    struct optimfs_error *err)
{
	return optimfs_fail(err, EINVAL,
	    "OFS826 %.200s cannot be committed: %s", t->change->path, why);
}

bool ofs_commit_below(const struct ofs_commit_task *t,
    const struct ofs_key *prefix, uint32_t n)
{
	if (t->npath <= n)
		return false;
	for (uint32_t i = 0; i < n; i++)
		if (!ofs_str_equal(t->path[i].s, prefix[i].s))
			return false;
	return true;
}

static struct ofs_str component(const struct ofs_catalog *cat, uint32_t c)
{
	return ofs_catalog_string(cat, OFS_PATH_STR(c));
}

/* The components of the path of an entry in the source, with room for one
 * more. */
static struct ofs_key *keys_of(struct ofs_commit *c, const struct ofs_entry *e,
    uint32_t *n, struct optimfs_error *err)
{
	uint32_t source = e->kind == OFS_ENTRY_VALUE
	    ? c->cat->values[e->ref].source
	    : OFS_NONE;
	const uint32_t *v = ofs_catalog_components(c->cat,
	    source == OFS_NONE ? e->path : source, n);
	struct ofs_key *k = ofs_arena_alloc(&c->arena, (*n + 1) * sizeof(*k));

	if (k == NULL) {
		ofs_no_memory(err);
		return NULL;
	}
	for (uint32_t i = 0; i < *n; i++) {
		k[i].s = component(c->cat, v[i]);
		k[i].index = v[i] & OFS_PATH_FLAGS;
	}
	return k;
}

/* Does the tree path of e equal the key of the change, except for component
 * skip? */
static bool matches(const struct ofs_commit *c, const struct ofs_entry *e,
    const struct ofs_change *ch, uint32_t skip)
{
	uint32_t n;
	const uint32_t *v;

	if (e->tree == OFS_NONE)
		return false;
	v = ofs_catalog_components(c->cat, e->tree, &n);
	if (n != ch->nkeys)
		return false;
	for (uint32_t i = 0; i < n; i++)
		if (i != skip &&
		    !ofs_str_equal(component(c->cat, v[i]),
			ofs_str_of(ch->key[i])))
			return false;
	return true;
}

/* Index of entries by tree path without one component; the first of equal
 * ones. */
struct without {
	struct ofs_commit *c;
	uint32_t skip;
	bool made;
	struct ofs_map map;
	struct ofs_buf path, other;
};

/* More than the nesting limit of pickles. */
#define DEPTH_MAX 80

struct place {
	struct ofs_commit *c;
	struct without without[DEPTH_MAX];
};

static void put_part(struct ofs_buf *path, struct ofs_str s)
{
	ofs_buf_put(path, s.p, s.len);
	ofs_buf_putc(path, '\0');
}

static bool put_entry_path(const struct without *w, const struct ofs_entry *e,
    struct ofs_buf *path)
{
	const struct ofs_catalog *cat = w->c->cat;
	const uint32_t *v;
	uint32_t n;

	if (e->tree == OFS_NONE)
		return false;
	v = ofs_catalog_components(cat, e->tree, &n);
	if (n <= w->skip)
		return false;
	path->len = 0;
	for (uint32_t i = 0; i < n; i++)
		if (i != w->skip)
			put_part(path, component(cat, v[i]));
	return true;
}

static bool same_without(const void *ctx, uint32_t i, const void *key, size_t n)
{
	struct without *w = (struct without *)(uintptr_t)ctx;

	return put_entry_path(w, &w->c->cat->entries[i], &w->other) &&
	    w->other.len == n && memcmp(w->other.data, key, n) == 0;
}

static uint32_t find_path(struct without *w)
{
	return ofs_map_find(&w->map, ofs_map_hash(w->path.data, w->path.len),
	    same_without, w, w->path.data, w->path.len);
}

static int make_without(struct without *w, struct optimfs_error *err)
{
	const struct ofs_catalog *cat = w->c->cat;
	bool done = true;

	for (uint32_t i = 0; i < cat->nentries && done; i++)
		if (put_entry_path(w, &cat->entries[i], &w->path) &&
		    find_path(w) == OFS_NONE)
			done = !w->path.bad &&
			    ofs_map_add(&w->map,
				ofs_map_hash(w->path.data, w->path.len), i);
	w->made = true;
	return done ? 0 : ofs_no_memory(err);
}

/* An entry whose path differs from that of the change in component skip only;
 * OFS_NONE. */
static int find_without(struct place *p, const struct ofs_change *ch,
    uint32_t skip, uint32_t *at, struct optimfs_error *err)
{
	struct without *w = &p->without[skip < DEPTH_MAX ? skip : 0];

	*at = OFS_NONE;
	if (skip >= DEPTH_MAX)
		return 0;
	w->c = p->c;
	w->skip = skip;
	if (!w->made && make_without(w, err) == -1)
		return -1;
	w->path.len = 0;
	for (uint32_t i = 0; i < ch->nkeys; i++)
		if (i != w->skip)
			put_part(&w->path, ofs_str_of(ch->key[i]));
	if (w->path.bad)
		return ofs_no_memory(err);
	*at = find_path(w);
	return 0;
}

/* A flattened key has the parameter and its state in one component,
 * "state.PARAMETER.exp_avg" or "state.exp_avg.PARAMETER": writes the two with a
 * dot between them. */
static bool put_flat(struct ofs_str id, struct ofs_str name, bool name_first,
    struct ofs_buf *out)
{
	struct ofs_str a = name_first ? name : id, b = name_first ? id : name;

	out->len = 0;
	ofs_buf_put(out, a.p, a.len);
	ofs_buf_putc(out, '.');
	ofs_buf_put(out, b.p, b.len);
	return !out->bad;
}

/* Replaces the end of text, which must be was behind a dot, by is. */
static bool replace_end(struct ofs_commit *c, struct ofs_str *text,
    const struct ofs_buf *was, const struct ofs_buf *is)
{
	size_t head;
	char *s;

	if (text->len <= was->len)
		return false;
	head = text->len - was->len;
	if (text->p[head - 1] != '.' ||
	    memcmp(text->p + head, was->data, was->len) != 0)
		return false;
	s = ofs_arena_alloc(&c->arena, head + is->len);
	if (s == NULL)
		return false;
	memcpy(s, text->p, head);
	memcpy(s + head, is->data, is->len);
	*text = (struct ofs_str){ s, (uint32_t)(head + is->len) };
	return true;
}

/* Derives a flattened key from that of e, a state of this or another parameter,
 * or an option of the same or another group. */
static int place_flat(struct ofs_commit *c, struct ofs_commit_task *t,
    const struct ofs_entry *e, struct optimfs_error *err)
{
	const struct ofs_change *ch = t->change;
	struct ofs_buf was = { 0 }, is = { 0 };
	uint32_t n, m;
	const uint32_t *tree = ofs_catalog_components(c->cat, e->tree, &n);
	struct ofs_key *k = keys_of(c, e, &m, err);
	bool found = false;

	if (k == NULL)
		return -1;
	for (int i = 0; i < 2 && !found && n > 3 && n == ch->nkeys && m > 0;
	     i++)
		found = put_flat(component(c->cat, tree[n - 2]),
			    component(c->cat, tree[n - 1]), i == 1, &was) &&
		    put_flat(ofs_str_of(ch->key[n - 2]),
			ofs_str_of(ch->key[n - 1]), i == 1, &is) &&
		    replace_end(c, &k[m - 1].s, &was, &is);
	ofs_buf_fini(&was);
	ofs_buf_fini(&is);
	if (!found)
		return 0;
	t->path = k;
	t->npath = m;
	return 1;
}

/* Derives the name from a sibling whose last component is its name in the
 * source. */
static int place_beside(struct ofs_commit *c, struct ofs_commit_task *t,
    const struct ofs_entry *e, struct optimfs_error *err)
{
	const struct ofs_change *ch = t->change;
	uint32_t n;
	const uint32_t *tree = ofs_catalog_components(c->cat, e->tree, &n);
	struct ofs_str name = component(c->cat, tree[n - 1]);
	struct ofs_key *k = keys_of(c, e, &n, err);

	if (k == NULL)
		return -1;
	if (n == 0 || k[n - 1].index || !ofs_str_equal(k[n - 1].s, name))
		return place_flat(c, t, e, err);
	k[n - 1].s = ofs_str_of(ch->key[ch->nkeys - 1]);
	t->path = k;
	t->npath = n;
	return 1;
}

/* The ID that e, a state, has in place of name. */
static bool id_of(const struct ofs_catalog *cat, const struct ofs_entry *e,
    struct ofs_str name, char text[16])
{
	uint32_t id;

	if (!ofs_id_of_name(cat, ofs_id_names_of(cat, e), name, &id))
		return false;
	snprintf(text, 16, "%u", id);
	return true;
}

/* What a parameter of the model was called before it was renamed to name; name
 * itself if it was not. */
static struct ofs_str old_name(const struct ofs_commit *c, struct ofs_str name)
{
	for (size_t i = 0; i < c->changes->n; i++) {
		const struct ofs_change *ch = &c->changes->v[i];
		const uint32_t *tree;
		uint32_t n;

		if (ch->kind != OFS_CHANGE_ADD || ch->from == OFS_NONE ||
		    ch->nkeys != 2 || strcmp(ch->key[0], "model") != 0 ||
		    !ofs_str_equal(ofs_str_of(ch->key[1]), name))
			continue;
		tree = ofs_catalog_components(c->cat,
		    c->cat->entries[ch->from].tree, &n);
		return component(c->cat, tree[n - 1]);
	}
	return name;
}

/* Derives the name from the same state of another parameter: the parameter's
 * name is the component in which their paths differ. */
static int place_like(struct ofs_commit *c, struct ofs_commit_task *t,
    const struct ofs_entry *e, uint32_t skip, struct optimfs_error *err)
{
	const struct ofs_change *ch = t->change;
	uint32_t n, found = OFS_NONE;
	const uint32_t *tree = ofs_catalog_components(c->cat, e->tree, &n);
	struct ofs_str other = component(c->cat, tree[skip]);
	struct ofs_key *k = keys_of(c, e, &n, err);
	char mine[16], its[16], *id;

	if (k == NULL)
		return -1;
	for (uint32_t i = 0; i < n && found == OFS_NONE; i++)
		if (!k[i].index && ofs_str_equal(k[i].s, other))
			found = i;
	if (found != OFS_NONE) {
		k[found].s = ofs_str_of(ch->key[skip]);
	} else if (id_of(c->cat, e, other, its)) {
		if (!id_of(c->cat, e, old_name(c, ofs_str_of(ch->key[skip])),
			mine))
			return ofs_commit_no_place(t,
			    "the optimizer has numbers for its parameters: "
			    "rename it below model, too",
			    err);
		for (uint32_t i = 0; i < n && found == OFS_NONE; i++)
			if (ofs_str_equal(k[i].s, ofs_str_of(its)))
				found = i;
		id = ofs_arena_strndup(&c->arena, mine, strlen(mine));
		if (id == NULL)
			return ofs_no_memory(err);
		if (found != OFS_NONE)
			k[found].s = ofs_str_of(id);
	}
	if (found == OFS_NONE)
		return place_flat(c, t, e, err);
	t->path = k;
	t->npath = n;
	return 1;
}

/* Without a model: uses its own path, without the components that the tree
 * added. */
static int place_new(struct ofs_commit *c, struct ofs_commit_task *t,
    struct optimfs_error *err)
{
	const struct ofs_change *ch = t->change;
	uint32_t from = strcmp(ch->key[0], "extra") == 0 ? 1 : 0;
	struct ofs_key *k = ofs_arena_alloc(&c->arena, ch->nkeys * sizeof(*k));

	if (k == NULL)
		return ofs_no_memory(err);
	for (uint32_t i = from; i < ch->nkeys; i++)
		k[i - from] = (struct ofs_key){ ofs_str_of(ch->key[i]), false };
	t->path = k;
	t->npath = ch->nkeys - from;
	return t->npath > 0;
}

static int place_added(struct place *p, struct ofs_commit_task *t,
    struct optimfs_error *err)
{
	struct ofs_commit *c = p->c;
	const struct ofs_change *ch = t->change;
	const struct ofs_entry *like = NULL;
	uint32_t at, beside;
	int ret = 0;

	if (find_without(p, ch, ch->nkeys - 1, &beside, err) == -1)
		return -1;
	for (uint32_t i = ch->nkeys - 1; i-- > 1 && like == NULL;) {
		if (find_without(p, ch, i, &at, err) == -1)
			return -1;
		like = at == OFS_NONE ? NULL : &c->cat->entries[at];
	}
	t->like = like;
	t->named_after = t->from;
	if (beside != OFS_NONE)
		ret = place_beside(c, t, &c->cat->entries[beside], err);
	if (ret == 1)
		t->named_after = &c->cat->entries[beside];
	for (uint32_t i = ch->nkeys - 1; ret == 0 && like != NULL && i-- > 0;)
		if (matches(c, like, ch, i)) {
			ret = place_like(c, t, like, i, err);
			t->named_after = like;
		}
	if (ret == 0 && strcmp(ch->key[0], "extra") == 0)
		ret = place_new(c, t, err);
	if (ret == 0)
		return ofs_commit_no_place(t,
		    "there is no similar entry that shows what the source "
		    "would call it",
		    err);
	return ret == -1 ? -1 : 0;
}

/* Parses an added text as the kind of its model; without one, as an element of
 * its own type, or as what it looks like. */
static int value_added(struct ofs_commit *c, struct ofs_commit_task *t,
    struct optimfs_error *err)
{
	const struct ofs_change *ch = t->change;
	struct ofs_value_form form = { .doc = NULL };
	struct ofs_entry_new made;

	if (t->like != NULL) {
		if (ofs_entry_new(c->reader,
			(uint32_t)(t->like - c->cat->entries), ch->text,
			ch->ntext, &made, err) == -1)
			return optimfs_fail_in(err, "%.200s", ch->path);
		t->doc = made.doc;
		if (made.doc != NULL)
			return 0;
		t->dtype = c->cat->tensors[t->like->ref].dtype;
		t->text = true;
		memcpy(t->element, made.element, sizeof(t->element));
		return 0;
	}
	if (ch->dtype != OFS_DTYPE_NONE) {
		t->text = true;
		if (ofs_value_element(ch->dtype, ch->text, ch->ntext,
			t->element, err) == -1)
			return optimfs_fail_in(err, "%.200s", ch->path);
		return 0;
	}
	t->doc = ofs_value_edit(&form, ch->text, ch->ntext, err);
	return t->doc == NULL ? optimfs_fail_in(err, "%.200s", ch->path) : 0;
}

/* Copies the value of a moved entry to a new document. */
static int value_moved(struct ofs_commit *c, struct ofs_commit_task *t,
    struct optimfs_error *err)
{
	const struct ofs_entry *e = t->from;
	const struct ofs_pickle *doc;
	struct ofs_pickle *item = NULL;
	struct ofs_buf b = { 0 };
	struct ofs_pkw w = { .out = &b };
	uint32_t node;
	int ret;

	if (e->kind == OFS_ENTRY_VALUE) {
		doc = c->cat->values[e->ref].doc;
		node = c->cat->values[e->ref].node;
	} else {
		doc = item =
		    ofs_locate_item(c->reader, &c->cat->items[e->ref], err);
		if (item == NULL)
			return -1;
		node = ofs_pickle_root(item);
	}
	ofs_pkw_begin(&w);
	ret = ofs_pkw_node(&w, doc, node, err);
	ofs_pickle_free(item);
	if (ret == -1 || ofs_pkw_end(&w, err) == -1) {
		ofs_buf_fini(&b);
		return optimfs_fail_in(err, "%.200s", t->change->path);
	}
	t->doc = ofs_pickle_parse(b.data, b.len, true, NULL, NULL, err);
	return t->doc == NULL ? -1 : 0;
}

static int resolve_added(struct place *p, const struct ofs_change *ch,
    struct optimfs_error *err)
{
	struct ofs_commit *c = p->c;
	struct ofs_commit_task *t = &c->task[c->ntasks];

	*t = (struct ofs_commit_task){ .op = OFS_TASK_ADD,
		.change = ch,
		.dtype = ch->dtype,
		.ndim = ch->ndim,
		.shape = ch->shape };
	c->ntasks++;
	if (ch->from != OFS_NONE)
		t->from = &c->cat->entries[ch->from];
	if (place_added(p, t, err) == -1)
		return -1;
	if (ch->text != NULL)
		return value_added(c, t, err);
	if (t->from != NULL && t->from->kind != OFS_ENTRY_TENSOR)
		return value_moved(c, t, err);
	if (ch->dtype == OFS_DTYPE_NONE)
		return ofs_commit_no_place(t,
		    "its dtype and shape are not known: set "
		    "user.optimfs.dtype and user.optimfs.shape",
		    err);
	return 0;
}

/* Is this the text of the entry's value? */
static bool is_text_of(const struct ofs_commit *c, const struct ofs_entry *e,
    const void *text, size_t n)
{
	struct ofs_text_form form = { .lines =
					  ofs_render_is_params(c->cat, e) };
	const struct ofs_value *v;
	struct ofs_buf was = { 0 };
	bool same;

	if (e->kind != OFS_ENTRY_VALUE)
		return false;
	v = &c->cat->values[e->ref];
	same = ofs_text_value(v->doc, v->node, &form, &was, NULL) == 0 &&
	    !was.bad && was.len == n &&
	    (n == 0 || memcmp(was.data, text, n) == 0);
	ofs_buf_fini(&was);
	return same;
}

/* Is the document equal to the entry's value? Users copy whole trees over
 * others that differ little. */
static bool is_same_value(const struct ofs_commit *c, const struct ofs_entry *e,
    const struct ofs_pickle *doc)
{
	struct ofs_buf is = { 0 };
	struct ofs_text_form form = { .lines =
					  ofs_render_is_params(c->cat, e) };
	bool same =
	    ofs_text_value(doc, ofs_pickle_root(doc), &form, &is, NULL) == 0 &&
	    !is.bad && is_text_of(c, e, is.data, is.len);

	ofs_buf_fini(&is);
	return same;
}

static int resolve_existing(struct ofs_commit *c, const struct ofs_change *ch,
    struct optimfs_error *err)
{
	const struct ofs_entry *e = &c->cat->entries[ch->entry];
	struct ofs_commit_task *t = &c->task[c->ntasks];
	struct optimfs_error why = { 0 };
	struct ofs_entry_new made;

	*t = (struct ofs_commit_task){
		.op = OFS_TASK_SET, .change = ch, .entry = e
	};
	if (ch->kind == OFS_CHANGE_REMOVE)
		t->op = OFS_TASK_DROP;
	else if (e->kind == OFS_ENTRY_TENSOR)
		return 0; /* only bytes change */
	c->ntasks++;
	t->path = keys_of(c, e, &t->npath, err);
	if (t->path == NULL)
		return -1;
	if (t->op == OFS_TASK_DROP)
		return 0;
	if (ch->text == NULL)
		return ofs_commit_no_place(t, "it is too long for a value",
		    err);
	if (ofs_entry_new(c->reader, ch->entry, ch->text, ch->ntext, &made,
		&why) == -1) {
		/* the text of a value that cannot be made from one */
		if (why.code == EOPNOTSUPP &&
		    is_text_of(c, e, ch->text, ch->ntext)) {
			c->ntasks--;
			return 0;
		}
		optimfs_fail_in(&why, "%.200s", ch->path);
		return optimfs_fail_with(err, &why);
	}
	t->doc = made.doc;
	if (t->doc != NULL && is_same_value(c, e, t->doc)) {
		ofs_pickle_free(t->doc);
		c->ntasks--;
	}
	return 0;
}

static int place_all(struct place *p, struct optimfs_error *err)
{
	struct ofs_commit *c = p->c;

	for (size_t i = 0; i < c->changes->n; i++) {
		const struct ofs_change *ch = &c->changes->v[i];
		size_t n = c->ntasks;
		int ret = ch->kind == OFS_CHANGE_ADD
		    ? resolve_added(p, ch, err)
		    : resolve_existing(c, ch, err);

		if (ret == -1 && !c->lenient)
			return -1;
		if (ret == -1 && c->ntasks > n) {
			ofs_pickle_free(c->task[n].doc);
			c->ntasks = n;
		}
	}
	return 0;
}

static void note_drops(struct ofs_commit *c)
{
	for (uint32_t i = 0; i < c->cat->nentries; i++)
		c->drop[i] = OFS_NONE;
	for (size_t i = 0; i < c->ntasks; i++)
		if (c->task[i].op == OFS_TASK_DROP)
			c->drop[c->task[i].entry - c->cat->entries] =
			    (uint32_t)i;
}

int ofs_commit_place(struct ofs_commit *c, struct optimfs_error *err)
{
	struct place p = { .c = c };
	int ret;

	c->task = calloc(c->changes->n + 1, sizeof(*c->task));
	c->drop = calloc((size_t)c->cat->nentries + 1, sizeof(*c->drop));
	if (c->task == NULL || c->drop == NULL)
		return ofs_no_memory(err);
	ret = place_all(&p, err);
	note_drops(c);
	for (size_t i = 0; i < DEPTH_MAX; i++) {
		ofs_map_fini(&p.without[i].map);
		ofs_buf_fini(&p.without[i].path);
		ofs_buf_fini(&p.without[i].other);
	}
	return ret;
}

/* Does the path of an entry match? Without memory none does: what is not removed
 * then is refused. */
static bool matches_any(const struct ofs_catalog *cat, const uint32_t *v,
    uint32_t n, const char *const *patterns)
{
	struct ofs_buf path = { 0 };
	char name[OFS_NAME_MAX + 1];
	bool yes;

	for (uint32_t i = 0; i < n && patterns != NULL; i++) {
		struct ofs_str s = component(cat, v[i]);

		ofs_name_encode(s.p, s.len, name);
		ofs_buf_printf(&path, "%s%s", i == 0 ? "" : "/", name);
	}
	ofs_buf_putc(&path, '\0');
	yes = !path.bad && ofs_path_matches(patterns, (char *)path.data);
	ofs_buf_fini(&path);
	return yes;
}

bool ofs_commit_drops_optim(const struct ofs_commit *c,
    const char *const *stays)
{
	bool any = false;

	for (uint32_t i = 0; i < c->cat->nentries; i++) {
		const struct ofs_entry *e = &c->cat->entries[i];
		const uint32_t *v;
		uint32_t n;

		if (e->tree == OFS_NONE)
			continue;
		v = ofs_catalog_components(c->cat, e->tree, &n);
		if (n == 0 || !ofs_str_is(component(c->cat, v[0]), "optim"))
			continue;
		if (c->drop[i] != OFS_NONE)
			any = true;
		else if (!matches_any(c->cat, v, n, stays))
			return false;
	}
	return any;
}

void ofs_commit_place_fini(struct ofs_commit *c)
{
	for (size_t i = 0; i < c->ntasks; i++)
		ofs_pickle_free(c->task[i].doc);
	free(c->drop);
	free(c->task);
}
