/* parse_json.c - JSON as Python containers of the old value's kinds */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <string.h>

#include "base/buf.h"
#include "base/json.h"
#include "text/fields.h"
#include "text/parse_impl.h"

/* What a JSON array or object becomes. */
enum shape { LIST, TUPLE, SIZE, SET, FROZENSET, DICT };

/* An open container. node is the one it replaces; i counts items. */
struct frame {
	enum shape shape;
	uint32_t node, i;
	bool namespace; /* the dict is that of the fields of an object */
};

struct reader {
	struct ofs_pkw *w;
	const struct ofs_pickle *doc;
	struct ofs_json json;
	unsigned depth;
	struct frame frame[OFS_JSON_DEPTH];
	struct optimfs_error *err;
};

static bool is_kind(const struct reader *r, uint32_t node, const char *name)
{
	return strcmp(ofs_pk_kind_name(r->doc, node), name) == 0;
}

static bool plain_class(const struct reader *r, uint32_t node)
{
	struct ofs_str module, name;

	ofs_pk_class(r->doc, node, &module, &name);
	return name.len == 0;
}

static int foreign(struct reader *r, uint32_t node)
{
	return optimfs_fail(r->err, EOPNOTSUPP,
	    "OFS820 a %s cannot be given another value",
	    ofs_pk_kind_name(r->doc, node));
}

/* Open a container of the kind of node, or a list when that is OFS_NONE. */
static int open_array(struct reader *r, uint32_t node)
{
	struct frame *f = &r->frame[r->depth];
	enum ofs_pk_kind kind = ofs_pk_kind(r->doc, node);

	*f = (struct frame){ LIST, node, 0, false };
	if (kind == OFS_PK_TUPLE)
		f->shape = is_kind(r, node, "torch.Size") ? SIZE : TUPLE;
	else if (kind == OFS_PK_SET)
		f->shape = is_kind(r, node, "frozenset") ? FROZENSET : SET;
	else if (kind == OFS_PK_LIST && !plain_class(r, node))
		return foreign(r, node);
	if (f->shape == SIZE)
		ofs_pkw_global(r->w, "torch", "Size");
	if (f->shape == SET || f->shape == FROZENSET)
		ofs_pkw_global(r->w, "__builtin__",
		    f->shape == SET ? "set" : "frozenset");
	if (f->shape != TUPLE && f->shape != SIZE)
		ofs_pkw_op_put(r->w, OFS_PKW_LIST);
	ofs_pkw_op(r->w, OFS_PKW_MARK);
	r->depth++;
	return 0;
}

/* Open the dict of the fields of a namespace. */
static int open_namespace(struct reader *r, uint32_t node, uint32_t fields)
{
	struct ofs_str module, name;

	ofs_pk_class(r->doc, node, &module, &name);
	ofs_pkw_global(r->w, module.p[0] == 'a' ? "argparse" : "types",
	    module.p[0] == 'a' ? "Namespace" : "SimpleNamespace");
	ofs_pkw_op(r->w, OFS_PKW_UNIT);
	ofs_pkw_op_put(r->w, OFS_PKW_REDUCE);
	ofs_pkw_op_put(r->w, OFS_PKW_DICT);
	ofs_pkw_op(r->w, OFS_PKW_MARK);
	r->frame[r->depth++] = (struct frame){ DICT, fields, 0, true };
	return 0;
}

static int open_object(struct reader *r, uint32_t node)
{
	static const char *const classes[] = { "OrderedDict", "defaultdict",
		"Counter" };
	bool made = false;

	if (ofs_pk_kind(r->doc, node) != OFS_PK_DICT)
		node = OFS_NONE;
	for (size_t i = 0; i < sizeof(classes) / sizeof(*classes); i++)
		if (!made &&
		    ofs_pk_is(r->doc, node, "collections", classes[i])) {
			ofs_pkw_global(r->w, "collections", classes[i]);
			ofs_pkw_op(r->w, OFS_PKW_UNIT);
			ofs_pkw_op_put(r->w, OFS_PKW_REDUCE);
			made = true;
		}
	if (!made && node != OFS_NONE && !plain_class(r, node))
		return foreign(r, node);
	if (!made)
		ofs_pkw_op_put(r->w, OFS_PKW_DICT);
	ofs_pkw_op(r->w, OFS_PKW_MARK);
	r->frame[r->depth++] = (struct frame){ DICT, node, 0, false };
	return 0;
}

static int close_container(struct reader *r)
{
	const struct frame *f = &r->frame[--r->depth];
	uint32_t state = ofs_pk_state(r->doc, f->node);

	switch (f->shape) {
	case DICT:
		ofs_pkw_op(r->w, OFS_PKW_SETITEMS);
		if (f->namespace)
			ofs_pkw_op(r->w, OFS_PKW_BUILD);
		if (f->namespace || f->node == OFS_NONE || state == OFS_NONE)
			return 0;
		if (ofs_pkw_node(r->w, r->doc, state, r->err) == -1)
			return -1;
		ofs_pkw_op(r->w, OFS_PKW_BUILD);
		return 0;
	case TUPLE:
	case SIZE:
		ofs_pkw_tuple_close(r->w, 4);
		break;
	default:
		ofs_pkw_op(r->w, OFS_PKW_APPENDS);
	}
	if (f->shape == LIST || f->shape == TUPLE)
		return 0;
	ofs_pkw_tuple_close(r->w, 1);
	ofs_pkw_op_put(r->w, OFS_PKW_REDUCE);
	return 0;
}

/* Pickle a number in a container, of the kind of node unless it is written as
 * the other kind. */
static int put_number(struct reader *r, uint32_t node)
{
	struct ofs_str s = r->json.str;
	bool real = ofs_pk_kind(r->doc, node) == OFS_PK_FLOAT;
	int code = ofs_value_put_number(r->w, s, real);

	if (code == 0)
		return 0;
	return ofs_value_refuse(code, s, "a number that fits", r->err);
}

/* Pickle the characters U+0000 to U+00FF as bytes. */
static int put_bytes(struct reader *r, uint32_t node)
{
	bool array = is_kind(r, node, "bytearray");
	const uint8_t *p = (const uint8_t *)r->json.str.p;
	struct ofs_buf bytes = { 0 };
	uint32_t n = r->json.str.len;
	bool fits = true;

	for (uint32_t i = 0; i < n && fits; i++)
		if (p[i] < 0x80) {
			ofs_buf_putc(&bytes, p[i]);
		} else {
			fits = p[i] <= 0xc3 && i + 1 < n;
			if (fits)
				ofs_buf_putc(&bytes,
				    (p[i] & 3) << 6 | (p[i + 1] & 0x3f));
			i++;
		}
	r->w->out->bad = r->w->out->bad || bytes.bad;
	if (fits)
		ofs_pkw_bytes(r->w, bytes.data, bytes.len, array);
	ofs_buf_fini(&bytes);
	return fits ? 0
		    : ofs_value_refuse(EINVAL, r->json.str,
			  "bytes, which are characters up to U+00FF", r->err);
}

/* node is a value that JSON only describes: accept the same description, or a
 * number. */
static int put_described(struct reader *r, enum ofs_json_token token,
    uint32_t node)
{
	const char *start = (const char *)r->json.start + r->json.at;
	struct ofs_str s;
	int same;

	if (ofs_json_skip(&r->json, token, r->err) == -1)
		return -1;
	s = (struct ofs_str){ start,
		(uint32_t)((const char *)r->json.c.p - start) };
	if (token == OFS_JSON_STRING || token == OFS_JSON_NUMBER)
		s = r->json.str;
	same = ofs_value_prints(r->doc, node, s, r->err);
	if (same == 1)
		return ofs_pkw_node(r->w, r->doc, node, r->err);
	if (same == -1)
		return -1;
	return ofs_value_put_called(r->w, r->doc, node, s, r->err);
}

static int put_value(struct reader *r, enum ofs_json_token token, uint32_t node)
{
	enum ofs_pk_kind kind = ofs_pk_kind(r->doc, node);
	uint32_t fields;

	if (token == OFS_JSON_OBJECT && ofs_is_namespace(r->doc, node, &fields))
		return open_namespace(r, node, fields);
	if (kind == OFS_PK_OBJECT || kind == OFS_PK_GLOBAL ||
	    kind == OFS_PK_PERSID)
		return put_described(r, token, node);
	switch (token) {
	case OFS_JSON_OBJECT:
		return open_object(r, node);
	case OFS_JSON_ARRAY:
		return open_array(r, node);
	case OFS_JSON_NUMBER:
		return put_number(r, node);
	case OFS_JSON_STRING:
		if (kind == OFS_PK_BYTES)
			return put_bytes(r, node);
		ofs_pkw_str(r->w, r->json.str.p, r->json.str.len);
		return 0;
	case OFS_JSON_NULL:
		ofs_pkw_op(r->w, OFS_PKW_NONE);
		return 0;
	case OFS_JSON_ERROR:
		return -1;
	default:
		ofs_pkw_op(r->w,
		    token == OFS_JSON_TRUE ? OFS_PKW_TRUE : OFS_PKW_FALSE);
		return 0;
	}
}

/* Find the pair of node with this key; the search begins at from, its likely
 * place. */
static int find_key(struct reader *r, uint32_t node, uint32_t from,
    struct ofs_str key, uint32_t *pair)
{
	uint32_t n = ofs_pk_len(r->doc, node);

	*pair = OFS_NONE;
	for (uint32_t i = 0; i < n; i++) {
		uint32_t at = (from + i) % n;
		int same = ofs_value_prints(r->doc,
		    ofs_pk_key(r->doc, node, at), key, r->err);

		if (same == -1)
			return -1;
		if (same == 1) {
			*pair = at;
			return 0;
		}
	}
	return 0;
}

void ofs_value_put_key(struct ofs_pkw *w, const struct ofs_pickle *doc,
    uint32_t dict, struct ofs_str key)
{
	uint32_t n = ofs_pk_len(doc, dict);
	bool numbers = n > 0;

	for (uint32_t i = 0; i < n && numbers; i++)
		numbers =
		    ofs_pk_kind(doc, ofs_pk_key(doc, dict, i)) == OFS_PK_INT;
	if (!numbers || ofs_value_put_int(w, key) != 0)
		ofs_pkw_str(w, key.p, key.len);
}

/* Pickle a key and its value. */
static int put_pair(struct reader *r, struct frame *f)
{
	struct ofs_str key = r->json.str;
	uint32_t pair = OFS_NONE, value = OFS_NONE;

	if (f->node != OFS_NONE && find_key(r, f->node, f->i, key, &pair) == -1)
		return -1;
	f->i++;
	if (pair == OFS_NONE) {
		ofs_value_put_key(r->w, r->doc, f->node, key);
	} else {
		if (ofs_pkw_node(r->w, r->doc,
			ofs_pk_key(r->doc, f->node, pair), r->err) == -1)
			return -1;
		value = ofs_pk_val(r->doc, f->node, pair);
	}
	return put_value(r, ofs_json_next(&r->json, r->err), value);
}

/* Pickle an item, of the kind of the old item in its place, or of the last
 * one. */
static int put_item(struct reader *r, struct frame *f,
    enum ofs_json_token token)
{
	uint32_t n = ofs_pk_len(r->doc, f->node);
	uint32_t at = f->i < n ? f->i : n - 1;
	uint32_t node = n == 0 ? OFS_NONE : ofs_pk_item(r->doc, f->node, at);
	enum ofs_pk_kind kind = ofs_pk_kind(r->doc, node);

	if (f->i >= n &&
	    (kind == OFS_PK_OBJECT || kind == OFS_PK_GLOBAL ||
		kind == OFS_PK_PERSID))
		node = OFS_NONE;
	f->i++;
	return put_value(r, token, node);
}

static int step(struct reader *r)
{
	enum ofs_json_token token = ofs_json_next(&r->json, r->err);
	struct frame *f = &r->frame[r->depth - 1];

	switch (token) {
	case OFS_JSON_ERROR:
		return -1;
	case OFS_JSON_ARRAY_END:
	case OFS_JSON_OBJECT_END:
		return close_container(r);
	case OFS_JSON_KEY:
		return put_pair(r, f);
	default:
		return put_item(r, f, token);
	}
}

/* s is the text. */
static int put_all(struct reader *r, uint32_t node, struct ofs_str s)
{
	enum ofs_json_token token = ofs_json_next(&r->json, r->err);
	enum ofs_pk_kind kind = ofs_pk_kind(r->doc, node);

	if (token == OFS_JSON_ERROR)
		return -1;
	if (kind == OFS_PK_DICT && token != OFS_JSON_OBJECT)
		return ofs_value_refuse(EINVAL, ofs_value_line(s),
		    "a dict, as in {\"a\": 1}", r->err);
	if ((kind == OFS_PK_LIST || kind == OFS_PK_TUPLE ||
		kind == OFS_PK_SET) &&
	    token != OFS_JSON_ARRAY)
		return ofs_value_refuse(EINVAL, ofs_value_line(s),
		    "a list, as in [1, 2]", r->err);
	if (put_value(r, token, node) == -1)
		return -1;
	while (r->depth > 0 && !r->w->out->bad)
		if (step(r) == -1)
			return -1;
	return ofs_json_next(&r->json, r->err) == OFS_JSON_END ? 0 : -1;
}

int ofs_value_put_json(struct ofs_pkw *w, const struct ofs_pickle *doc,
    uint32_t node, struct ofs_str s, struct optimfs_error *err)
{
	struct optimfs_error why = { 0 };
	struct reader r = { .w = w, .doc = doc, .err = &why };
	int ret;

	ofs_json_init(&r.json, s.p, s.len);
	r.json.floats = true;
	ret = put_all(&r, node, s);
	ofs_json_fini(&r.json);
	if (ret == 0)
		return 0;
	if (why.number == 653)
		return optimfs_fail(err, EINVAL, "OFS806 %s",
		    optimfs_error_words(&why));
	return optimfs_fail_with(err, &why);
}
