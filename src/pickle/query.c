/* query.c - reading the nodes of a parsed pickle */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/memory.h"
#include "base/search.h"
#include "base/str.h"
#include "pickle/pickle_impl.h"

static const struct ofs_str empty = { "", 0 };

/* OFS_NONE, which the queries return, is treated as None. */
static struct pk_node *at(const struct ofs_pickle *doc, uint32_t node)
{
	return pk_at(doc, node < doc->nnodes ? node : PK_NONE_NODE);
}

uint32_t ofs_pickle_root(const struct ofs_pickle *doc)
{
	return doc->root;
}

uint32_t ofs_pickle_nodes(const struct ofs_pickle *doc)
{
	return (uint32_t)doc->nnodes;
}

uint64_t ofs_pickle_memory(const struct ofs_pickle *doc)
{
	return doc->charged;
}

enum ofs_pk_kind ofs_pk_kind(const struct ofs_pickle *doc, uint32_t node)
{
	return (enum ofs_pk_kind)at(doc, node)->kind;
}

/* The global that node is, or that is its class. */
static uint32_t class_of(const struct ofs_pickle *doc, uint32_t node)
{
	struct pk_node *x = at(doc, node);

	if (x->kind == OFS_PK_GLOBAL)
		return x->v[0];
	if (x->kind == OFS_PK_OBJECT)
		return pk_global_of(doc, x->v[0]);
	if ((x->flags & PK_CLASS) != 0)
		return pk_global_of(doc, pk_head(doc, x)[0]);
	return OFS_NONE;
}

bool ofs_pk_is_sequence(const struct ofs_pickle *doc, uint32_t node)
{
	return at(doc, node)->kind == OFS_PK_LIST ||
	    at(doc, node)->kind == OFS_PK_TUPLE;
}

const char *ofs_pk_kind_name(const struct ofs_pickle *doc, uint32_t node)
{
	static const char *const names[] = {
		[OFS_PK_NONE] = "None",
		[OFS_PK_BOOL] = "bool",
		[OFS_PK_INT] = "int",
		[OFS_PK_BIGINT] = "int",
		[OFS_PK_FLOAT] = "float",
		[OFS_PK_STR] = "str",
		[OFS_PK_BYTES] = "bytes",
		[OFS_PK_LIST] = "list",
		[OFS_PK_TUPLE] = "tuple",
		[OFS_PK_DICT] = "dict",
		[OFS_PK_SET] = "set",
		[OFS_PK_GLOBAL] = "global",
		[OFS_PK_OBJECT] = "object",
		[OFS_PK_PERSID] = "persistent id",
	};
	struct pk_node *x = at(doc, node);
	uint32_t class = class_of(doc, node);

	if (ofs_pk_is_cycle(doc, node))
		return "cycle";
	if (class != OFS_NONE)
		return doc->ginfo[class].full;
	if (x->kind == OFS_PK_TUPLE && (x->flags & PK_SIZE) != 0)
		return "torch.Size";
	if (x->kind == OFS_PK_SET && (x->flags & PK_MUTABLE) == 0)
		return "frozenset";
	if (x->kind == OFS_PK_BYTES && (x->flags & PK_MUTABLE) != 0)
		return "bytearray";
	return names[x->kind];
}

int ofs_pk_unexpected(const struct ofs_pickle *doc, uint32_t node,
    struct optimfs_error *err, const char *code, const char *expected,
    const char *fmt, ...)
{
	bool cycle = ofs_pk_is_cycle(doc, node);
	const char *kind = "missing";
	char what[256];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(what, sizeof(what), fmt, ap);
	va_end(ap);
	if (cycle)
		kind = "a cycle";
	else if (node != OFS_NONE)
		kind = ofs_pk_kind_name(doc, node);
	return optimfs_fail_as(err, EUCLEAN, "%s %s is %s%s%s",
	    cycle ? "OFS429" : code, what, kind,
	    expected == NULL ? "" : ", expected ",
	    expected == NULL ? "" : expected);
}

bool ofs_pk_is_newobj(const struct ofs_pickle *doc, uint32_t node)
{
	return (at(doc, node)->flags & PK_NEWOBJ) != 0;
}

bool ofs_pk_is_cycle(const struct ofs_pickle *doc, uint32_t node)
{
	const struct pk_node *x = at(doc, node);

	return x->kind == OFS_PK_OBJECT && (x->flags & PK_CYCLE) != 0;
}

bool ofs_pk_bool(const struct ofs_pickle *doc, uint32_t node)
{
	struct pk_node *x = at(doc, node);

	return x->kind == OFS_PK_BOOL && (x->flags & PK_FALSE) == 0;
}

double ofs_pk_float(const struct ofs_pickle *doc, uint32_t node)
{
	struct pk_node *x = at(doc, node);
	double v = 0;

	if (x->kind == OFS_PK_FLOAT)
		memcpy(&v, &x->v[1], sizeof(v));
	return v;
}

bool ofs_pk_int(const struct ofs_pickle *doc, uint32_t node, int64_t *v)
{
	struct pk_node *x = at(doc, node);

	if (x->kind != OFS_PK_INT)
		return false;
	*v = (int64_t)pk_word(x);
	return true;
}

bool ofs_pk_ints(const struct ofs_pickle *doc, uint32_t node, int64_t *v,
    uint32_t max, uint32_t *n)
{
	struct pk_node *x = at(doc, node), *item;
	const uint32_t *run;

	if ((x->kind != OFS_PK_LIST && x->kind != OFS_PK_TUPLE) ||
	    pk_count(x) > max)
		return false;
	*n = pk_count(x);
	run = pk_run(doc, x);
	for (uint32_t i = 0; i < *n; i++) {
		item = pk_at(doc, run[i]);
		if (item->kind != OFS_PK_INT)
			return false;
		v[i] = (int64_t)pk_word(item);
	}
	return true;
}

struct ofs_str ofs_pk_str(const struct ofs_pickle *doc, uint32_t node)
{
	struct pk_node *x = at(doc, node);

	if (x->kind != OFS_PK_STR && x->kind != OFS_PK_BYTES &&
	    x->kind != OFS_PK_BIGINT)
		return empty;
	return (struct ofs_str){ pk_ptr(x), x->v[0] };
}

bool ofs_pk_str_is(const struct ofs_pickle *doc, uint32_t node, const char *s)
{
	struct pk_node *x = at(doc, node);
	size_t n = strlen(s);

	return x->kind == OFS_PK_STR && x->v[0] == n &&
	    memcmp(pk_ptr(x), s, n) == 0;
}

uint32_t ofs_pk_len(const struct ofs_pickle *doc, uint32_t node)
{
	struct pk_node *x = at(doc, node);

	switch ((enum ofs_pk_kind)x->kind) {
	case OFS_PK_LIST:
	case OFS_PK_TUPLE:
	case OFS_PK_SET:
	case OFS_PK_DICT:
		return pk_count(x);
	case OFS_PK_PERSID:
		return 1;
	default:
		return 0;
	}
}

uint32_t ofs_pk_item(const struct ofs_pickle *doc, uint32_t node, uint32_t i)
{
	struct pk_node *x = at(doc, node);

	if (x->kind == OFS_PK_DICT || i >= ofs_pk_len(doc, node))
		return OFS_NONE;
	return x->kind == OFS_PK_PERSID ? x->v[0] : pk_run(doc, x)[i];
}

uint32_t ofs_pk_key(const struct ofs_pickle *doc, uint32_t node, uint32_t i)
{
	struct pk_node *x = at(doc, node);

	if (x->kind != OFS_PK_DICT || i >= x->v[0])
		return OFS_NONE;
	return pk_run(doc, x)[2 * (size_t)i];
}

uint32_t ofs_pk_val(const struct ofs_pickle *doc, uint32_t node, uint32_t i)
{
	struct pk_node *x = at(doc, node);

	if (x->kind != OFS_PK_DICT || i >= x->v[0])
		return OFS_NONE;
	return pk_run(doc, x)[2 * (size_t)i + 1];
}

/* The index after that of the last of the pairs v whose key is key; 0. */
static size_t find_pair(const struct ofs_pickle *doc, const uint32_t *v,
    size_t npairs, const char *key, size_t n)
{
	const struct pk_node *k;
	size_t i;

	for (i = npairs; i > 0; i--) {
		k = pk_at(doc, v[2 * i - 2]);
		if (k->kind == OFS_PK_STR && k->v[0] == n &&
		    memcmp(pk_ptr(k), key, n) == 0)
			break;
	}
	return i;
}

static uint32_t get(const struct ofs_pickle *doc, uint32_t node,
    const char *key, size_t n)
{
	struct pk_node *x = at(doc, node);
	const uint32_t *v;
	size_t i;

	if (x->kind != OFS_PK_DICT)
		return OFS_NONE;
	v = pk_run(doc, x);
	i = find_pair(doc, v, x->v[0], key, n);
	return i == 0 ? OFS_NONE : v[2 * i - 1];
}

uint32_t ofs_pk_get(const struct ofs_pickle *doc, uint32_t node,
    const char *key)
{
	return get(doc, node, key, strlen(key));
}

void ofs_pk_class(const struct ofs_pickle *doc, uint32_t node,
    struct ofs_str *module, struct ofs_str *name)
{
	struct pk_node *x = at(doc, node);
	uint32_t class = class_of(doc, node);

	*module = empty;
	*name = empty;
	if (class != OFS_NONE) {
		*module = doc->global[class].module;
		*name = doc->global[class].name;
	} else if (x->kind == OFS_PK_TUPLE && (x->flags & PK_SIZE) != 0) {
		*module = (struct ofs_str){ "torch", 5 };
		*name = (struct ofs_str){ "Size", 4 };
	}
}

bool ofs_pk_is(const struct ofs_pickle *doc, uint32_t node, const char *module,
    const char *name)
{
	struct ofs_str m, n;

	ofs_pk_class(doc, node, &m, &n);
	return n.len != 0 && ofs_str_is(n, name) &&
	    (module == NULL || ofs_str_is(m, module));
}

uint32_t ofs_pk_callable(const struct ofs_pickle *doc, uint32_t node)
{
	struct pk_node *x = at(doc, node);

	return x->kind == OFS_PK_OBJECT ? x->v[0] : OFS_NONE;
}

uint32_t ofs_pk_args(const struct ofs_pickle *doc, uint32_t node)
{
	struct pk_node *x = at(doc, node);

	if (x->kind != OFS_PK_OBJECT)
		return OFS_NONE;
	return (x->flags & PK_KWARGS) != 0 ? pk_at(doc, x->v[1])->v[0]
					   : x->v[1];
}

uint32_t ofs_pk_kwargs(const struct ofs_pickle *doc, uint32_t node)
{
	struct pk_node *x = at(doc, node);

	return x->kind == OFS_PK_OBJECT && (x->flags & PK_KWARGS) != 0
	    ? pk_at(doc, x->v[1])->v[1]
	    : OFS_NONE;
}

uint32_t ofs_pk_state(const struct ofs_pickle *doc, uint32_t node)
{
	struct pk_node *x = at(doc, node);

	if (x->kind == OFS_PK_OBJECT &&
	    (x->flags & (PK_GETATTR | PK_CYCLE)) == 0)
		return x->v[2];
	if (x->kind != OFS_PK_OBJECT && (x->flags & PK_CLASS) != 0)
		return pk_head(doc, x)[2];
	return OFS_NONE;
}

uint32_t ofs_pk_find_attr(const struct ofs_pickle *doc, uint32_t node,
    const char *name, size_t n)
{
	uint32_t state = ofs_pk_state(doc, node), value;

	if (ofs_pk_kind(doc, state) != OFS_PK_TUPLE ||
	    ofs_pk_len(doc, state) != 2)
		return get(doc, state, name, n);
	value = get(doc, ofs_pk_item(doc, state, 1), name, n);
	if (value != OFS_NONE)
		return value;
	return get(doc, ofs_pk_item(doc, state, 0), name, n);
}

/* Are the keys of the pairs v those that f knows? */
static bool knows(const struct ofs_pk_fields *f, const struct ofs_pickle *doc,
    const uint32_t *v, uint32_t npairs)
{
	if (f->doc != doc || f->npairs != npairs)
		return false;
	for (uint32_t i = 0; i < npairs; i++)
		if (f->key[i] != v[2 * i])
			return false;
	return true;
}

static void learn(struct ofs_pk_fields *f, const struct ofs_pickle *doc,
    const uint32_t *v, uint32_t npairs)
{
	f->doc = doc;
	f->npairs = npairs;
	for (uint32_t i = 0; i < npairs; i++)
		f->key[i] = v[2 * i];
	for (int i = 0; i < OFS_PK_FIELDS && f->name[i] != NULL; i++)
		f->at[i] = (uint8_t)find_pair(doc, v, npairs, f->name[i],
		    strlen(f->name[i]));
}

void ofs_pk_read_fields(const struct ofs_pickle *doc, uint32_t node,
    struct ofs_pk_fields *f, uint32_t value[OFS_PK_FIELDS])
{
	const struct pk_node *x = at(doc, ofs_pk_state(doc, node));
	const uint32_t *v;

	if (x->kind != OFS_PK_DICT || x->v[0] > OFS_PK_FIELD_KEYS) {
		for (int i = 0; i < OFS_PK_FIELDS && f->name[i] != NULL; i++)
			value[i] = ofs_pk_attr(doc, node, f->name[i]);
		return;
	}
	v = doc->item + x->v[1];
	if (!knows(f, doc, v, x->v[0]))
		learn(f, doc, v, x->v[0]);
	for (int i = 0; i < OFS_PK_FIELDS; i++)
		value[i] = f->at[i] == 0 ? OFS_NONE : v[2 * f->at[i] - 1];
}

int ofs_pickle_note_element(struct ofs_pickle *doc, uint32_t node,
    const uint8_t element[OFS_PK_ELEMENT], struct optimfs_error *err)
{
	struct pk_element *e;

	if (ofs_grow(doc->element, doc->nelements, doc->cap_elements, err) ==
	    -1)
		return -1;
	e = &doc->element[doc->nelements++];
	e->node = node;
	memcpy(e->bytes, element, sizeof(e->bytes));
	return 0;
}

OFS_COMPARE_KEY(by_node, uint32_t, struct pk_element, node)

const uint8_t *ofs_pk_element(const struct ofs_pickle *doc, uint32_t node)
{
	const struct pk_element *e = ofs_search(&node, doc->element,
	    doc->nelements, sizeof(*e), by_node);

	return e == NULL ? NULL : e->bytes;
}

bool ofs_pk_attribute(const struct ofs_pickle *doc, uint32_t node,
    struct ofs_str *module, struct ofs_str *name)
{
	uint32_t g = OFS_NONE;

	if (ofs_pk_kind(doc, node) == OFS_PK_OBJECT)
		g = pk_global_of(doc, node);
	if (g == OFS_NONE)
		return false;
	*module = doc->global[g].module;
	*name = doc->global[g].name;
	return true;
}

const struct ofs_pk_global *ofs_pk_globals(const struct ofs_pickle *doc,
    size_t *n)
{
	*n = doc->nglobals;
	return doc->global;
}
