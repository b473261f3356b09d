/* changes.c - the differences from the checkpoint, file by file */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "base/memory.h"
#include "naming/file_name.h"
#include "overlay/overlay_impl.h"
#include "text/parse.h"
#include "tree/tree_impl.h"

/* Walks the current tree, then that of the checkpoint. A file at its original
 * path is compared. Any other file is new and replaces the one that had its
 * path. Files of the checkpoint whose path is unused were removed. */
struct walk {
	struct ofs_overlay *o;
	struct ofs_changes *out;
	size_t cap;
	uint8_t *taken; /* by node of the checkpoint: its path is in use */
	struct optimfs_error *err;
};

static struct ofs_change *add_change(struct walk *w, enum ofs_change_kind kind,
    uint32_t node)
{
	struct ofs_changes *out = w->out;
	struct ofs_change *c;

	if (ofs_grow(out->v, out->n, w->cap, w->err) == -1)
		return NULL;
	c = &out->v[out->n++];
	*c = (struct ofs_change){
		.kind = kind,
		.entry = OFS_NONE,
		.from = OFS_NONE,
		.node = node,
	};
	return c;
}

static const char *keep(struct walk *w, const void *p, size_t n)
{
	char *s = ofs_arena_strndup(&w->out->arena, p, n);

	if (s == NULL)
		ofs_no_memory(w->err);
	return s;
}

/* base: where the checkpoint has the node; else where it is now. */
static uint32_t parent_of(const struct walk *w, uint32_t node, bool base)
{
	return base ? w->o->tree->node[node].parent
		    : ofs_overlay_parent(w->o, node);
}

static void put_key(const struct walk *w, struct ofs_change *c, uint32_t node,
    bool base, struct ofs_buf *key)
{
	struct ofs_str s;

	if (base) {
		s = ofs_catalog_string(w->o->cat,
		    ofs_tree_key(w->o->tree, w->o->cat, node));
		ofs_buf_put(key, s.p, s.len);
	} else if (!ofs_overlay_key(w->o, node, key))
		optimfs_fail(&c->problem, EINVAL,
		    "OFS302 '%s' is not the name of a key",
		    ofs_overlay_name(w->o, node));
	else if (c->kind == OFS_CHANGE_ADD && key->len > 0 &&
	    memchr(key->data, '\0', key->len) != NULL)
		optimfs_fail(&c->problem, EINVAL,
		    "OFS302 '%s' is the name of a key with a NUL, which "
		    "cannot be added",
		    ofs_overlay_name(w->o, node));
}

static int put_keys(struct walk *w, struct ofs_change *c, bool base)
{
	struct ofs_buf key = { 0 };
	const char **keys;
	uint32_t n = 0;
	int ret = 0;

	for (uint32_t i = c->node; i != 0; i = parent_of(w, i, base))
		n++;
	keys = ofs_arena_alloc(&w->out->arena, n * sizeof(*keys));
	if (keys == NULL)
		return ofs_no_memory(w->err);
	c->key = keys;
	c->nkeys = n;
	for (uint32_t i = c->node; i != 0 && ret == 0;
	     i = parent_of(w, i, base)) {
		key.len = 0;
		put_key(w, c, i, base, &key);
		keys[--n] =
		    keep(w, key.len == 0 ? "" : (char *)key.data, key.len);
		ret = keys[n] == NULL || key.bad ? ofs_no_memory(w->err) : 0;
	}
	ofs_buf_fini(&key);
	return ret;
}

#define PATH_SIZE 65536

/* The path, malloc'ed; NULL: ENOMEM. */
static char *path_of(const struct walk *w, uint32_t node, bool base)
{
	char *path;

	if (!base)
		return ofs_overlay_path(w->o, node, NULL, w->err);
	path = ofs_alloc(PATH_SIZE, 1, w->err);
	if (path != NULL)
		ofs_tree_path(w->o->tree, node, path, PATH_SIZE);
	return path;
}

/* Sets the keys and the path of a node: the current ones, or those in the
 * checkpoint. */
static int put_path(struct walk *w, struct ofs_change *c, bool base)
{
	char *path;

	if (put_keys(w, c, base) == -1)
		return -1;
	path = path_of(w, c->node, base);
	if (path == NULL)
		return -1;
	c->path = keep(w, path, strlen(path));
	free(path);
	return c->path == NULL ? -1 : 0;
}

static int put_form(struct walk *w, struct ofs_change *c,
    const struct ofs_overlay_form *form)
{
	size_t n = form->ndim * sizeof(*form->shape);
	uint64_t *shape = ofs_arena_alloc(&w->out->arena, n);

	if (shape == NULL)
		return ofs_no_memory(w->err);
	memcpy(shape, form->shape, n);
	c->dtype = form->dtype;
	c->ndim = form->ndim;
	c->shape = shape;
	return 0;
}

static int put_bytes(struct walk *w, struct ofs_change *c,
    struct ofs_overlay_file *f)
{
	c->size = f->size;
	if (f->lost.n > 0)
		c->problem = f->why;
	if (ofs_ranges_copy(&c->written, &f->written, w->err) == -1)
		return -1;
	c->staged = (struct ofs_staged){ ofs_overlay_file_read, f };
	return 0;
}

static int put_text(struct walk *w, struct ofs_change *c,
    struct ofs_overlay_file *f)
{
	struct ofs_blob *now;

	if (f->size > OFS_TEXT_MAX)
		return 0;
	now = f->accepted != NULL ? ofs_blob_ref(f->accepted)
				  : ofs_overlay_text_now(w->o, f, w->err);
	if (now == NULL)
		return -1;
	c->text = keep(w, now->bytes, now->len);
	c->ntext = now->len;
	ofs_blob_unref(now);
	return c->text == NULL ? -1 : 0;
}

/* Sets the element of a 0-dim tensor from its text. */
static int put_element(struct walk *w, struct ofs_change *c, uint32_t base)
{
	uint8_t element[16] = { 0 };
	struct ofs_overlay_form form;
	const struct ofs_tensor *t =
	    ofs_entry_tensor(w->o->cat, &w->o->cat->entries[c->entry]);

	if (ofs_overlay_text_check(w->o, base, c->text, c->ntext, NULL, element,
		&c->problem) == -1)
		return 0;
	if (t == NULL)
		return 0;
	form = (struct ofs_overlay_form){ .dtype = t->dtype };
	c->size = ofs_dtype_size((enum ofs_dtype)t->dtype);
	return put_form(w, c, &form);
}

/* Tied names have one text: each of those that were written must have been
 * given this one. */
static void check_tied(struct walk *w, struct ofs_change *c,
    const struct ofs_overlay_file *f)
{
	const struct ofs_overlay_node *v = ofs_overlay_node(w->o, c->node);
	char *other;

	if (v == NULL || v->accepted == NULL || f->accepted == NULL ||
	    ofs_blob_equal(v->accepted, f->accepted))
		return;
	other = ofs_overlay_path(w->o, f->by, NULL, NULL);
	optimfs_fail(&c->problem, EINVAL,
	    "OFS828 it is stored once with %.120s, but they would differ: "
	    "write the same to both",
	    other == NULL ? "a name that was removed" : other);
	free(other);
}

/* A copy without attributes (cp, cat) of a tensor of another type has as many
 * elements, of another size. keeps: it cannot change its type. */
static void check_size(struct ofs_change *c,
    const struct ofs_overlay_form *form, bool keeps)
{
	uint64_t want = ofs_overlay_form_bytes(form), numel, item;
	char text[OFS_FORM_TEXT], other[160] = "";

	if (c->problem.code != 0 || form->dtype == OFS_DTYPE_NONE ||
	    form->ndim == 0 || c->size == want)
		return;
	numel = want / ofs_dtype_size(form->dtype);
	item = numel > 0 && c->size % numel == 0 ? c->size / numel : 0;
	if (item == 1 || item == 2 || item == 4 || item == 8)
		snprintf(other, sizeof(other),
		    "; if they are elements of %" PRIu64 " bytes, %s", item,
		    keeps ? "copy them from a view with dtype="
			  : "cp -a changes the type, too");
	optimfs_fail(&c->problem, EINVAL,
	    "OFS301 %" PRIu64 " of %" PRIu64
	    " bytes are written, of %s: write the rest, or optimfs abort%s",
	    c->size, want, ofs_overlay_form_text(form, text), other);
}

/* Is it a path for tensors: in the model, or in the state of a parameter? */
static bool holds_tensors(const struct ofs_change *c)
{
	static const char extra[] = "_extra_state";
	const char *last = c->key[c->nkeys - 1];
	size_t n = strlen(last);

	if (c->nkeys > 1 && strcmp(c->key[0], "model") == 0)
		return n < sizeof(extra) - 1 ||
		    strcmp(last + n - (sizeof(extra) - 1), extra) != 0;
	return c->nkeys > 3 && strcmp(c->key[0], "optim") == 0 &&
	    strcmp(c->key[c->nkeys - 3], "state") == 0;
}

/* There, a new file must be a tensor with dtype and shape, or a number. Any
 * other text would become a str, which is hardly intended. */
static void check_typed(struct ofs_change *c)
{
	struct ofs_value_form nothing = { .doc = NULL };
	struct ofs_pickle *doc;
	bool number = false;

	if (c->problem.code != 0 || c->dtype != OFS_DTYPE_NONE ||
	    c->from != OFS_NONE || !holds_tensors(c))
		return;
	doc = c->text == NULL
	    ? NULL
	    : ofs_value_edit(&nothing, c->text, c->ntext, NULL);
	if (doc != NULL && strcmp(c->key[0], "model") != 0)
		number = ofs_pk_kind(doc, ofs_pickle_root(doc)) != OFS_PK_STR;
	ofs_pickle_free(doc);
	if (!number)
		optimfs_fail(&c->problem, EINVAL,
		    "OFS303 it has neither dtype nor shape: copy it with cp -a, "
		    "or write it as .optimfs/npy/%.120s.npy",
		    c->path);
}

static bool same_form(const struct ofs_overlay_form *a,
    const struct ofs_overlay_form *b)
{
	return a->dtype == b->dtype && ofs_overlay_same_shape(a, b);
}

static void base_form(const struct ofs_overlay *o, uint32_t entry,
    struct ofs_overlay_form *form)
{
	const struct ofs_tensor *t =
	    ofs_entry_tensor(o->cat, &o->cat->entries[entry]);

	*form = (struct ofs_overlay_form){ 0 };
	if (t != NULL)
		ofs_overlay_form_of_tensor(o->cat, t, form);
}

/* New contents of the same kind for an entry; f is locked. */
static int put_edit(struct walk *w, uint32_t node, uint32_t base,
    struct ofs_overlay_file *f)
{
	uint32_t entry = w->o->tree->node[base].entry;
	bool text = ofs_entry_is_text(w->o->cat, entry);
	struct ofs_change *c =
	    add_change(w, text ? OFS_CHANGE_VALUE : OFS_CHANGE_DATA, node);
	struct ofs_overlay_form form;

	if (c == NULL || put_path(w, c, false) == -1)
		return -1;
	c->entry = entry;
	if (text) {
		check_tied(w, c, f);
		return put_text(w, c, f) == -1 ? -1 : put_element(w, c, base);
	}
	base_form(w->o, entry, &form);
	if (put_bytes(w, c, f) == -1)
		return -1;
	check_size(c, &form, ofs_overlay_keeps_form(w->o, base));
	return put_form(w, c, &form);
}

/* A file with a name, shape or dtype that the checkpoint does not have. f (may
 * be NULL) is locked. */
static int put_added(struct walk *w, uint32_t node, struct ofs_overlay_file *f,
    const struct ofs_overlay_form *form)
{
	struct ofs_change *c = add_change(w, OFS_CHANGE_ADD, node);
	const struct ofs_catalog *cat = w->o->cat;

	if (c == NULL || put_path(w, c, false) == -1)
		return -1;
	if (!ofs_overlay_is_made(w->o, node)) {
		c->from = w->o->tree->node[node].entry;
		if (!ofs_entry_is_text(cat, c->from))
			c->size = ofs_tensor_bytes(cat,
			    ofs_entry_tensor(cat, &cat->entries[c->from]));
	}
	if (f != NULL && !f->text && put_bytes(w, c, f) == -1)
		return -1;
	if (f != NULL && (form->dtype == OFS_DTYPE_NONE || form->ndim == 0) &&
	    (f->entry == OFS_NONE || f->accepted != NULL) &&
	    put_text(w, c, f) == -1)
		return -1;
	check_size(c, form, false);
	if (put_form(w, c, form) == -1)
		return -1;
	if (f != NULL && f->entry == OFS_NONE)
		check_typed(c);
	return 0;
}

static int put_removed(struct walk *w, uint32_t base)
{
	struct ofs_change *c = add_change(w, OFS_CHANGE_REMOVE, base);

	if (c == NULL || put_path(w, c, true) == -1)
		return -1;
	c->entry = w->o->tree->node[base].entry;
	return 0;
}

/* Is a file of the checkpoint still there, perhaps at another path? */
static bool is_there(const struct ofs_overlay *o, uint32_t node)
{
	while (node != 0 && node != OFS_NONE)
		node = ofs_overlay_parent(o, node);
	return node == 0;
}

/* A new file at the path of a file of the checkpoint: the same file with other
 * bytes, unless its form was set, or that file is a tensor that was moved and
 * keeps its bytes. */
static int put_replaced(struct walk *w, uint32_t node, uint32_t base,
    struct ofs_overlay_file *f, const struct ofs_overlay_form *form)
{
	uint32_t entry = w->o->tree->node[base].entry;
	struct ofs_overlay_form had;

	base_form(w->o, entry, &had);
	if (f != NULL && ofs_overlay_is_made(w->o, node) &&
	    same_form(form, &had) &&
	    (had.dtype == OFS_DTYPE_NONE || !is_there(w->o, base)))
		return put_edit(w, node, base, f);
	if (put_removed(w, base) == -1)
		return -1;
	return put_added(w, node, f, form);
}

/* In a new checkpoint all texts are written; few of them say something new. 1, 0,
 * or -1 (failed). */
static int says_nothing(struct walk *w, uint32_t node,
    const struct ofs_overlay_file *f)
{
	const struct ofs_overlay_node *v = ofs_overlay_node(w->o, node);
	struct ofs_blob *base;
	int same;

	if (w->o->hidden == NULL || !f->text)
		return 0;
	if (f->unwritten)
		return 1;
	base = w->o->reader->text(w->o->reader_ctx, node, w->err);
	if (base == NULL)
		return -1;
	same = ofs_blob_equal(base, f->accepted) &&
	    (v->accepted == NULL || ofs_blob_equal(base, v->accepted));
	ofs_blob_unref(base);
	return same;
}

/* A file at its original path. */
static int put_same(struct walk *w, uint32_t node, struct ofs_overlay_file *f,
    const struct ofs_overlay_form *form)
{
	struct ofs_overlay_form had;
	int nothing;

	if (f == NULL || !ofs_overlay_file_differs(f))
		return 0;
	nothing = says_nothing(w, node, f);
	if (nothing != 0)
		return nothing == 1 ? 0 : -1;
	base_form(w->o, w->o->tree->node[node].entry, &had);
	if (f->text || same_form(form, &had))
		return put_edit(w, node, node, f);
	if (put_removed(w, node) == -1)
		return -1;
	return put_added(w, node, f, form);
}

/* The suffixes of backup files made by sed, patch and editors. */
static bool is_backup_suffix(const char *s, bool moved)
{
	return strcmp(s, ".bak") == 0 || strcmp(s, ".orig") == 0 ||
	    strcmp(s, "~") == 0 || (moved && (*s == '.' || *s == '~'));
}

/* Is a new file a backup of the value beside it, such as lr.bak of lr? It must
 * not become an option. */
static bool is_backup(const struct ofs_overlay *o, uint32_t node)
{
	uint32_t parent = ofs_overlay_parent(o, node);
	uint32_t dir = ofs_overlay_base_place(o, parent), base;
	const char *name = ofs_overlay_name(o, node), *end;
	char own[OFS_NAME_MAX + 1];

	for (end = name + 1; dir != OFS_NONE && *name != '\0' && *end != '\0';
	     end++) {
		if (*end != '.' && *end != '~')
			continue;
		memcpy(own, name, (size_t)(end - name));
		own[end - name] = '\0';
		base = ofs_tree_child(o->tree, dir, own);
		if (base != OFS_NONE && is_backup_suffix(end, base == node) &&
		    o->tree->node[base].entry != OFS_NONE &&
		    ofs_entry_is_text(o->cat, o->tree->node[base].entry) &&
		    ofs_overlay_find(o, parent, own) != OFS_NONE)
			return true;
	}
	return false;
}

static int put_file(struct walk *w, uint32_t node)
{
	struct ofs_overlay_file *f = ofs_overlay_file(w->o, node);
	uint32_t base = ofs_overlay_base_place(w->o, node);
	struct ofs_overlay_form form;
	int ret;

	ofs_overlay_form_of(w->o, node, &form);
	if (base != OFS_NONE && w->o->tree->node[base].entry == OFS_NONE)
		base = OFS_NONE; /* it was a directory */
	if (base != OFS_NONE)
		w->taken[base] = 1;
	else if (is_backup(w->o, node))
		return 0;
	if (f != NULL)
		pthread_rwlock_wrlock(&f->lock);
	if (base == node)
		ret = put_same(w, node, f, &form);
	else if (base != OFS_NONE)
		ret = put_replaced(w, node, base, f, &form);
	else
		ret = put_added(w, node, f, &form);
	if (f != NULL)
		pthread_rwlock_unlock(&f->lock);
	return ret;
}

/* A stack of directories instead of recursion. */
struct stack {
	struct walk *w;
	uint32_t *v;
	size_t n, cap;
	bool moved; /* below a directory that was moved */
};

static int push(struct stack *s, uint32_t dir)
{
	if (ofs_grow(s->v, s->n, s->cap, s->w->err) == -1)
		return -1;
	s->v[s->n++] = dir;
	return 0;
}

static int visit(void *ctx, uint32_t child, const char *name, uint64_t position)
{
	struct stack *s = ctx;
	struct walk *w = s->w;
	const struct ofs_overlay_node *v;

	(void)name, (void)position;
	if (ofs_overlay_is_dir(w->o, child))
		return push(s, child);
	/* most nodes are unchanged */
	v = ofs_overlay_node(w->o, child);
	if (!s->moved && !ofs_overlay_is_made(w->o, child) &&
	    (v == NULL || !v->gone) && ofs_overlay_file(w->o, child) == NULL) {
		w->taken[child] = 1;
		return 0;
	}
	return put_file(w, child);
}

static int walk_now(struct walk *w)
{
	struct stack s = { .w = w };
	int ret = push(&s, 0);

	while (s.n > 0 && ret == 0) {
		uint32_t dir = s.v[--s.n];

		s.moved = !ofs_overlay_in_place(w->o, dir);
		ret = ofs_overlay_children(w->o, dir, 0, visit, &s);
	}
	free(s.v);
	return ret;
}

static int by_path(const void *a, const void *b)
{
	const struct ofs_change *x = a, *y = b;
	int c = strcmp(x->path, y->path);

	/* removals come first */
	return c != 0
	    ? c
	    : (y->kind == OFS_CHANGE_REMOVE) - (x->kind == OFS_CHANGE_REMOVE);
}

static int collect(struct walk *w)
{
	const struct ofs_tree *tree = w->o->tree;

	if (walk_now(w) == -1)
		return -1;
	/* in a new checkpoint they are only not written yet */
	for (uint32_t i = 0; i < tree->n && w->o->hidden == NULL; i++)
		if (tree->node[i].entry != OFS_NONE && !w->taken[i] &&
		    put_removed(w, i) == -1)
			return -1;
	if (w->out->n > 1)
		qsort(w->out->v, w->out->n, sizeof(*w->out->v), by_path);
	return 0;
}

int ofs_overlay_changes(struct ofs_overlay *overlay, struct ofs_changes *out,
    struct optimfs_error *err)
{
	struct walk w = { .o = overlay, .out = out, .err = err };
	int ret;

	*out = (struct ofs_changes){ .overlay = overlay };
	w.taken = calloc((size_t)overlay->tree->n + 1, 1);
	pthread_rwlock_rdlock(&overlay->names);
	ret = w.taken == NULL ? ofs_no_memory(err) : collect(&w);
	pthread_rwlock_unlock(&overlay->names);
	free(w.taken);
	if (ret == -1)
		ofs_changes_free(out);
	return ret;
}

void ofs_changes_free(struct ofs_changes *c)
{
	if (c->overlay == NULL)
		return;
	for (size_t i = 0; i < c->n; i++)
		ofs_ranges_fini(&c->v[i].written);
	free(c->v);
	ofs_arena_fini(&c->arena);
	*c = (struct ofs_changes){ 0 };
}

int ofs_changes_check(const struct ofs_changes *c, struct optimfs_error *err)
{
	const struct ofs_change *first = NULL;
	size_t n = 0;

	for (size_t i = 0; i < c->n; i++)
		if (c->v[i].problem.code != 0) {
			first = first == NULL ? &c->v[i] : first;
			n++;
		}
	if (n == 0)
		return 0;
	optimfs_fail_with(err, &first->problem);
	if (n > 1)
		optimfs_fail_in(err, "%s (and %zu more)", first->path, n - 1);
	else
		optimfs_fail_in(err, "%s", first->path);
	return -1;
}
