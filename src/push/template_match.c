/* template_match.c - match the names of a template with those of its source */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/memory.h"
#include "detect/view_name.h"
#include "format/fill.h"
#include "push/template.h"

struct matching {
	struct ofs_snapshot *like, *made;
	uint32_t *twin; /* node of like for each node of made, or OFS_NONE */
	uint8_t *met;   /* by node of like */
	struct ofs_template *s;
	struct optimfs_error *err;
	bool fill_zero;
};

uint64_t ofs_template_hash(const void *text, size_t n)
{
	return XXH64(text, n, 0);
}

static int add_own(struct matching *m, uint32_t node,
    struct ofs_template_own own)
{
	struct ofs_template *s = m->s;
	char path[8192];

	if (ofs_grow(s->own, s->nown, s->own_cap, m->err) == -1)
		return -1;
	if (!ofs_tree_path(&m->made->tree, node, path, sizeof(path)))
		return optimfs_fail(m->err, ENAMETOOLONG,
		    "OFS833 a path of a layout");
	own.path = strdup(path);
	if (own.path == NULL)
		return ofs_no_memory(m->err);
	s->own[s->nown++] = own;
	return 0;
}

static const struct ofs_entry *entry_of(const struct ofs_snapshot *snap,
    uint32_t node)
{
	return ofs_tree_entry(&snap->tree, snap->cat, node);
}

/* A text may belong to the layout, such as the number of ranks. Then writing
 * the source's text changes nothing. A value without text cannot be written. */
static int compare(struct matching *m, uint32_t node, uint32_t twin)
{
	struct ofs_blob *a, *b = NULL;
	int ret = -1;

	if (ofs_entry_is_pickled(m->like->cat, entry_of(m->like, twin), NULL,
		NULL))
		return add_own(m, node,
		    (struct ofs_template_own){ .provided = true });
	if (entry_of(m->made, node)->kind == OFS_ENTRY_TENSOR ||
	    entry_of(m->like, twin)->kind == OFS_ENTRY_TENSOR)
		return 0;
	a = ofs_entry_text_base(m->like, twin, m->err);
	if (a != NULL)
		b = ofs_entry_text_base(m->made, node, m->err);
	if (b != NULL)
		ret = ofs_blob_equal(a, b)
		    ? 0
		    : add_own(m, node,
			  (struct ofs_template_own){
			      .hash = ofs_template_hash(a->bytes, a->len) });
	ofs_blob_unref(a);
	ofs_blob_unref(b);
	return ret;
}

static bool is_called(const struct ofs_tree *tree, uint32_t node,
    const char *name)
{
	return strcmp(tree->node[node].name, name) == 0;
}

static bool widens(const struct ofs_tensor *from, const struct ofs_tensor *to)
{
	return to->dtype == OFS_FLOAT32 &&
	    (from->dtype == OFS_FLOAT32 || from->dtype == OFS_BFLOAT16 ||
		from->dtype == OFS_FLOAT16);
}

uint32_t ofs_template_model(const struct ofs_snapshot *made, uint32_t node)
{
	const struct ofs_tree *tree = &made->tree;
	const struct ofs_catalog *cat = made->cat;
	const struct ofs_tensor *t, *m = NULL;
	uint32_t param = tree->node[node].parent, state, model;

	state = tree->node[param].parent;
	if (state == 0 || !is_called(tree, node, "fp32") ||
	    !is_called(tree, state, "state") || tree->node[state].parent == 0 ||
	    tree->node[tree->node[state].parent].parent != 0 ||
	    !is_called(tree, tree->node[state].parent, "optim"))
		return OFS_NONE;
	model = ofs_tree_lookup(tree, 0, "model");
	if (model != OFS_NONE)
		model = ofs_tree_lookup(tree, model, tree->node[param].name);
	if (model == OFS_NONE || tree->node[model].entry == OFS_NONE)
		return OFS_NONE;
	t = ofs_tree_tensor(tree, cat, node);
	m = ofs_tree_tensor(tree, cat, model);
	if (t == NULL || m == NULL || !widens(m, t) || t->ndim != m->ndim ||
	    memcmp(ofs_tensor_shape(cat, t), ofs_tensor_shape(cat, m),
		t->ndim * sizeof(uint64_t)) != 0)
		return OFS_NONE;
	return model;
}

static int refuse(const struct matching *m, const struct ofs_snapshot *snap,
    uint32_t node, const char *where)
{
	char path[150];

	ofs_tree_path(&snap->tree, node, path, sizeof(path));
	return optimfs_fail(m->err, EOPNOTSUPP,
	    "OFS833 %s is %s: copying the files of one does not fill the "
	    "other; optimfs reshard writes that layout",
	    path, where);
}

/* Is it state that a flat parameter stores as zeros for members without it?
 * Members without any state get the step of the others. */
static bool is_zero(const struct matching *m, uint32_t node)
{
	const struct ofs_tree_node *n = &m->made->tree.node[node];

	return ofs_starts_at_zero(n->name) ||
	    (strcmp(n->name, "step") == 0 && m->twin[n->parent] == OFS_NONE);
}

static int match(struct matching *m, uint32_t node)
{
	const struct ofs_tree_node *n = &m->made->tree.node[node];
	uint32_t up = m->twin[n->parent], twin = OFS_NONE;

	if (up != OFS_NONE)
		twin = ofs_tree_lookup(&m->like->tree, up, n->name);
	m->twin[node] = twin;
	if (n->entry == OFS_NONE)
		return 0;
	if (twin != OFS_NONE && m->like->tree.node[twin].entry != OFS_NONE) {
		m->met[twin] = 1;
		return compare(m, node, twin);
	}
	if (ofs_tree_tensor(&m->made->tree, m->made->cat, node) == NULL)
		return add_own(m, node,
		    (struct ofs_template_own){ .provided = true });
	if (m->fill_zero && is_zero(m, node))
		return add_own(m, node,
		    (struct ofs_template_own){ .provided = true });
	if (ofs_template_model(m->made, node) != OFS_NONE)
		return add_own(m, node,
		    (struct ofs_template_own){ .derived = true });
	return refuse(m, m->made, node, "in the layout and not in the source");
}

static int match_all(struct matching *m)
{
	const struct ofs_tree *like = &m->like->tree;
	struct ofs_layout layout;

	if (ofs_layout_parse(m->s->layout, &layout, m->err) == -1)
		return -1;
	m->fill_zero = layout.fill_zero;
	for (uint32_t i = 1; i < m->made->tree.n; i++)
		if (match(m, i) == -1)
			return -1;
	/* with only= the rest is left out, with drop= some values */
	for (uint32_t i = 1; i < like->n && layout.only == OFS_ONLY_ALL; i++)
		if (like->node[i].entry != OFS_NONE && m->met[i] == 0 &&
		    (!layout.drop ||
			entry_of(m->like, i)->kind == OFS_ENTRY_TENSOR))
			return refuse(m, m->like, i,
			    "in the source and not in the layout");
	return 0;
}

int ofs_template_match(struct ofs_snapshot *like, const char *path,
    struct ofs_template *s, struct optimfs_error *err)
{
	static const struct optimfs_options none;
	struct matching m = { .like = like, .s = s, .err = err };
	struct optimfs *made;
	int ret = -1;

	made = ofs_fs_open(path, &none, err);
	if (made == NULL)
		return -1;
	m.made = made->now;
	m.twin = calloc((size_t)m.made->tree.n + 1, sizeof(*m.twin));
	m.met = calloc((size_t)like->tree.n + 1, 1);
	if (m.twin == NULL || m.met == NULL)
		ofs_no_memory(err);
	else
		ret = match_all(&m);
	free(m.twin);
	free(m.met);
	optimfs_close(made);
	return ret;
}
