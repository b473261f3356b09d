/* reduce.c - calls in a pickle, kept as data */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>

#include "pickle/pickle_impl.h"

static int bad(struct pk_parser *p, const char *code, const char *what,
    uint32_t node)
{
	return pk_fail(p, EUCLEAN, code, "%s %s", what,
	    ofs_pk_kind_name(p->doc, node));
}

static int is(const struct pk_parser *p, uint32_t node, enum ofs_pk_kind kind)
{
	return pk_at(p->doc, node)->kind == kind;
}

/* Item i of a tuple of arguments; OFS_NONE beyond its end. */
static uint32_t arg(const struct pk_parser *p, uint32_t args, uint32_t i)
{
	struct pk_node *x = pk_at(p->doc, args);

	return i < pk_count(x) ? pk_run(p->doc, x)[i] : OFS_NONE;
}

static uint32_t nargs(const struct pk_parser *p, uint32_t args)
{
	return pk_count(pk_at(p->doc, args));
}

static bool text_is(const struct pk_parser *p, uint32_t node, const char *s)
{
	return node != OFS_NONE && ofs_pk_str_is(p->doc, node, s);
}

bool pk_is_size(const struct pk_parser *p, uint32_t callable)
{
	return is(p, callable, OFS_PK_GLOBAL) &&
	    p->doc->ginfo[pk_at(p->doc, callable)->v[0]].special ==
	    PK_TORCH_SIZE;
}

bool pk_makes_size(const struct pk_parser *p, uint32_t callable, uint32_t t)
{
	return pk_is_size(p, callable) && is(p, t, OFS_PK_TUPLE);
}

/* torch.Size((...)) is its argument tuple with a flag. The pickler of
 * torch.Size creates that tuple, so there is no other reference to it. */
uint32_t pk_size_of(struct pk_parser *p, uint32_t callable, uint32_t t)
{
	p->doc->global[pk_at(p->doc, callable)->v[0]].called = true;
	if (t == PK_EMPTY_TUPLE)
		return PK_EMPTY_SIZE;
	pk_at(p->doc, t)->flags |= PK_SIZE;
	return t;
}

/* OrderedDict(), defaultdict(factory), Counter({...}) */
static int mapping(struct pk_parser *p, uint32_t class, uint32_t args,
    uint32_t *out)
{
	uint32_t from = arg(p, args, 0);

	if (nargs(p, args) > 1)
		return 0;
	if (from != OFS_NONE && is(p, from, OFS_PK_DICT))
		*out = pk_share(p, OFS_PK_DICT, class, from);
	else if (from == OFS_NONE || is(p, from, OFS_PK_GLOBAL) ||
	    from == PK_NONE_NODE)
		*out = pk_container(p, OFS_PK_DICT, class, args);
	else
		return 0;
	return *out == OFS_NONE ? -1 : 0;
}

static int hashable_items(struct pk_parser *p, uint32_t list)
{
	struct pk_node *x = pk_at(p->doc, list);
	const uint32_t *v = pk_run(p->doc, x);

	for (uint32_t i = 0; i < pk_count(x); i++)
		if ((pk_at(p->doc, v[i])->flags & PK_MUTABLE) != 0)
			return bad(p, "OFS427", "unhashable item", v[i]);
	return 0;
}

static int set(struct pk_parser *p, bool frozen, uint32_t args, uint32_t *out)
{
	uint32_t from = arg(p, args, 0);

	if (from == OFS_NONE)
		*out = pk_container(p, OFS_PK_SET, OFS_NONE, OFS_NONE);
	else if (nargs(p, args) != 1 ||
	    (!is(p, from, OFS_PK_LIST) && !is(p, from, OFS_PK_TUPLE)))
		return 0;
	else if (hashable_items(p, from) == -1)
		return -1;
	else
		*out = pk_share(p, OFS_PK_SET, OFS_NONE, from);
	if (*out == OFS_NONE)
		return -1;
	if (frozen)
		pk_at(p->doc, *out)->flags &= (uint8_t)~PK_MUTABLE;
	return 0;
}

/* Convert UTF-8 to Latin-1 and return the length; SIZE_MAX when a code point is
 * above U+00FF. With to NULL it only counts. */
static size_t latin1(const uint8_t *s, size_t n, uint8_t *to)
{
	size_t k = 0;

	for (size_t i = 0; i < n; i++, k++) {
		uint8_t c = s[i];

		if (c >= 0x80) {
			if ((c != 0xc2 && c != 0xc3) || i + 1 == n ||
			    (s[i + 1] & 0xc0) != 0x80)
				return SIZE_MAX;
			c = (uint8_t)(c << 6 | (s[++i] & 0x3f));
		}
		if (to != NULL)
			to[k] = c;
	}
	return k;
}

/* The bytes that text encodes in Latin-1, which is how protocol 2 stores bytes.
 * All-ASCII text is used in place. */
static int encode(struct pk_parser *p, uint32_t text, uint32_t *out)
{
	struct ofs_str s = ofs_pk_str(p->doc, text);
	size_t n = latin1((const uint8_t *)s.p, s.len, NULL);
	uint8_t *bytes;

	if (n == SIZE_MAX)
		return 0;
	if (n != s.len) {
		if (pk_charge(p, n) == -1)
			return -1;
		bytes = ofs_arena_alloc(&p->doc->arena, n);
		if (bytes == NULL)
			return pk_no_memory(p);
		latin1((const uint8_t *)s.p, s.len, bytes);
		s.p = (const char *)bytes;
	}
	*out = pk_blob(p, OFS_PK_BYTES, s.p, (uint32_t)n);
	return *out == OFS_NONE ? -1 : 0;
}

/* _codecs.encode(text, 'latin1') */
static int encode_args(struct pk_parser *p, uint32_t args, uint32_t *out)
{
	uint32_t text = arg(p, args, 0), codec = arg(p, args, 1);

	if (nargs(p, args) != 2 || !is(p, text, OFS_PK_STR) ||
	    !(text_is(p, codec, "latin1") || text_is(p, codec, "latin-1")))
		return 0;
	return encode(p, text, out);
}

/* bytes(), bytearray(), bytearray(bytes), bytearray(text, 'latin-1') */
static int to_bytes(struct pk_parser *p, bool array, uint32_t args,
    uint32_t *out)
{
	uint32_t from = arg(p, args, 0);

	if (from == OFS_NONE)
		*out = pk_blob(p, OFS_PK_BYTES, "", 0);
	else if (nargs(p, args) == 1 && is(p, from, OFS_PK_BYTES))
		*out = pk_node(p, *pk_at(p->doc, from));
	else if (encode_args(p, args, out) == -1)
		return -1;
	else if (*out == args)
		return 0;
	if (*out == OFS_NONE)
		return -1;
	if (array)
		pk_at(p->doc, *out)->flags |= PK_MUTABLE;
	return 0;
}

/* getattr(class, 'NAME'), and chains of it, name an attribute, which is a
 * global of its own for the allow-list. Other arguments become a call of a name
 * that the list never has. */
static int attribute(struct pk_parser *p, uint32_t node, uint32_t args)
{
	struct ofs_pickle *doc = p->doc;
	uint32_t of = arg(p, args, 0), g, name;
	struct ofs_str attr = { "unknown", 7 }, module = { "builtins", 8 };
	struct ofs_str base = { "getattr", 7 };
	uint8_t proto = p->proto;
	const char *dotted;

	g = of == OFS_NONE ? OFS_NONE : pk_global_of(doc, of);
	if (nargs(p, args) == 2 && g != OFS_NONE &&
	    is(p, arg(p, args, 1), OFS_PK_STR)) {
		attr = ofs_pk_str(doc, arg(p, args, 1));
		module = doc->global[g].module;
		base = doc->global[g].name;
	}
	if (attr.len > 512)
		return bad(p, "OFS422", "attribute name is too long in", node);
	dotted = pk_dotted(p, base, attr);
	if (dotted == NULL)
		return -1;
	p->proto = 4; /* which allows dots in names */
	name = pk_global(p, module.p, module.len, dotted,
	    (size_t)base.len + attr.len + 1);
	p->proto = proto;
	if (name == OFS_NONE)
		return -1;
	pk_at(doc, node)->flags |= PK_GETATTR;
	pk_at(doc, node)->v[2] = pk_at(doc, name)->v[0];
	return 0;
}

/* Handle the special globals; *out stays args for all others. */
static int special(struct pk_parser *p, enum pk_special what, uint32_t class,
    uint32_t args, uint32_t *out)
{
	switch (what) {
	case PK_TORCH_SIZE:
		if (nargs(p, args) == 1 &&
		    pk_makes_size(p, class, arg(p, args, 0)))
			*out = pk_size_of(p, class, arg(p, args, 0));
		return 0;
	case PK_MAPPING:
		return mapping(p, class, args, out);
	case PK_SET:
	case PK_FROZENSET:
		return set(p, what == PK_FROZENSET, args, out);
	case PK_ENCODE:
		return encode_args(p, args, out);
	case PK_TO_BYTES:
	case PK_TO_BYTEARRAY:
		return to_bytes(p, what == PK_TO_BYTEARRAY, args, out);
	case PK_GETATTR_FN:
	case PK_OPAQUE:
		break;
	}
	return 0;
}

/* Are callable and args of the right kinds for a call? *g gets the global. */
static int check_call(struct pk_parser *p, const char *op, uint32_t callable,
    uint32_t args, uint32_t *g)
{
	if (!is(p, callable, OFS_PK_GLOBAL) && !is(p, callable, OFS_PK_OBJECT))
		return pk_fail(p, EUCLEAN, "OFS423", "%s of %s", op,
		    ofs_pk_kind_name(p->doc, callable));
	if (!is(p, args, OFS_PK_TUPLE))
		return pk_fail(p, EUCLEAN, "OFS423", "arguments of %s are %s",
		    op, ofs_pk_kind_name(p->doc, args));
	*g = pk_global_of(p->doc, callable);
	if (*g != OFS_NONE)
		p->doc->global[*g].called = true;
	return 0;
}

int pk_reduce(struct pk_parser *p, uint32_t callable, uint32_t args,
    uint32_t *out)
{
	enum pk_special what = PK_OPAQUE;
	uint32_t g;

	if (check_call(p, "REDUCE", callable, args, &g) == -1)
		return -1;
	if (g != OFS_NONE)
		what = (enum pk_special)p->doc->ginfo[g].special;
	*out = args;
	if (special(p, what, callable, args, out) == -1)
		return -1;
	if (*out != args)
		return 0;
	*out = pk_object(p, callable, args);
	if (*out == OFS_NONE)
		return -1;
	return what == PK_GETATTR_FN ? attribute(p, *out, args) : 0;
}

int pk_newobj(struct pk_parser *p, uint32_t class, uint32_t args,
    uint32_t kwargs, uint32_t *out)
{
	uint32_t both[2] = { args, kwargs }, g;
	uint8_t flags = PK_NEWOBJ;

	if (check_call(p, "NEWOBJ", class, args, &g) == -1)
		return -1;
	if (kwargs != OFS_NONE) {
		flags |= PK_KWARGS;
		args = pk_tuple(p, both, 2);
		if (args == OFS_NONE)
			return -1;
	}
	*out = pk_object(p, class, args);
	if (*out == OFS_NONE)
		return -1;
	pk_at(p->doc, *out)->flags |= flags;
	return 0;
}

/* __setstate__ of a class accepts any state; the attributes of a container must
 * be a dict or a pair of dicts. */
int pk_build(struct pk_parser *p, uint32_t node, uint32_t state)
{
	struct ofs_pickle *doc = p->doc;
	struct pk_node *x = pk_at(doc, node);
	uint32_t *slot;

	if (x->kind == OFS_PK_OBJECT) {
		slot = &x->v[2];
	} else if ((x->flags & PK_CLASS) != 0) {
		if (!is(p, state, OFS_PK_DICT) && state != PK_NONE_NODE &&
		    !(is(p, state, OFS_PK_TUPLE) && nargs(p, state) == 2))
			return bad(p, "OFS424", "BUILD with", state);
		slot = &pk_head(doc, x)[2];
	} else {
		return bad(p, "OFS424", "BUILD of", node);
	}
	if (*slot != OFS_NONE)
		return bad(p, "OFS424", "second BUILD of", node);
	*slot = state;
	return pk_place(p, node, state);
}

/* ('storage', class, key, location, numel[, view]) */
static bool is_storage(struct pk_parser *p, uint32_t id)
{
	size_t n = nargs(p, id);

	return (n == 5 || n == 6) && text_is(p, arg(p, id, 0), "storage") &&
	    is(p, arg(p, id, 1), OFS_PK_GLOBAL) &&
	    is(p, arg(p, id, 2), OFS_PK_STR) &&
	    is(p, arg(p, id, 3), OFS_PK_STR) &&
	    (is(p, arg(p, id, 4), OFS_PK_INT) ||
		is(p, arg(p, id, 4), OFS_PK_BIGINT));
}

/* torch.save writes an id for a storage, and in a legacy stream for the class of
 * a module, the first time: ('module', class, file, source). This is the
 * class. */
int pk_persid(struct pk_parser *p, uint32_t id, uint32_t *out)
{
	struct pk_node x = { .kind = OFS_PK_PERSID, .height = 1, .v = { id } };

	if (is(p, id, OFS_PK_TUPLE) && nargs(p, id) == 4 &&
	    text_is(p, arg(p, id, 0), "module") &&
	    is(p, arg(p, id, 1), OFS_PK_GLOBAL)) {
		*out = arg(p, id, 1);
		return 0;
	}
	if (!is(p, id, OFS_PK_TUPLE) || !is_storage(p, id))
		return bad(p, "OFS433", "persistent id is not a storage but",
		    id);
	*out = pk_node(p, x);
	if (*out == OFS_NONE)
		return -1;
	return pk_place(p, *out, id);
}
