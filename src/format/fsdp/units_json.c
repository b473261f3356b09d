/* units_json.c - the JSON of a units file */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/str.h"
#include "format/fsdp/units_impl.h"

int ofs_units_unexpected(struct ofs_units_reader *r, const char *want)
{
	return optimfs_fail(r->err, EINVAL,
	    "OFS162 byte %" PRIu64 ": expected %s", r->j.at, want);
}

static enum ofs_json_token next(struct ofs_units_reader *r)
{
	return ofs_json_next(&r->j, r->err);
}

static int wrong(struct ofs_units_reader *r, enum ofs_json_token t,
    const char *want)
{
	return t == OFS_JSON_ERROR ? -1 : ofs_units_unexpected(r, want);
}

static int copy_string(struct ofs_units_reader *r, struct ofs_str *out)
{
	char *p = ofs_arena_strndup(&r->u->arena, r->j.str.p, r->j.str.len);

	if (p == NULL)
		return ofs_no_memory(r->err);
	if (memchr(p, '\0', r->j.str.len) != NULL)
		return ofs_units_unexpected(r, "a name without NUL");
	*out = (struct ofs_str){ p, r->j.str.len };
	return 0;
}

static int read_string(struct ofs_units_reader *r, struct ofs_str *out)
{
	enum ofs_json_token t = next(r);

	if (t == OFS_JSON_NULL)
		return 0;
	return t == OFS_JSON_STRING ? copy_string(r, out)
				    : wrong(r, t, "a string");
}

/* Reads a list of strings, or of lists of strings, into one list. */
static int read_strings(struct ofs_units_reader *r, struct ofs_units_strings *s)
{
	unsigned depth = 0;

	do {
		enum ofs_json_token t = next(r);

		if (t == OFS_JSON_ARRAY && depth < 2) {
			depth++;
		} else if (t == OFS_JSON_ARRAY_END) {
			depth--;
		} else if (t == OFS_JSON_STRING && depth > 0) {
			if (ofs_grow(s->v, s->n, s->cap, NULL) == -1)
				return ofs_no_memory(r->err);
			if (copy_string(r, &s->v[s->n]) == -1)
				return -1;
			s->n++;
		} else if (t == OFS_JSON_NULL && depth == 0) {
			return 0;
		} else {
			return wrong(r, t, "a list of names");
		}
	} while (depth > 0);
	return 0;
}

static int add_number(struct ofs_units_reader *r, struct ofs_unit_table *t,
    enum ofs_json_token token)
{
	int64_t v = token == OFS_JSON_TRUE ? 1
	    : token == OFS_JSON_NULL       ? -1
					   : 0;

	if (token == OFS_JSON_NUMBER) {
		if (!r->j.is_int || r->j.integer < 0)
			return ofs_units_unexpected(r, "a whole number");
		v = r->j.integer;
	}
	if (ofs_grow(t->v, t->n, t->cap, NULL) == -1)
		return ofs_no_memory(r->err);
	t->v[t->n++] = v;
	return 0;
}

static int end_row(struct ofs_units_reader *r, struct ofs_unit_table *t)
{
	if (ofs_grow(t->end, t->nrows, t->row_cap, NULL) == -1)
		return ofs_no_memory(r->err);
	t->end[t->nrows++] = t->n;
	return 0;
}

/* Reads a number, a list of numbers, or a list of lists of numbers. */
static int read_table(struct ofs_units_reader *r, struct ofs_unit_table *t)
{
	unsigned depth = 0;
	int ret = 0;

	if (t->given)
		return ofs_units_unexpected(r, "each member once");
	do {
		enum ofs_json_token token = next(r);

		switch (token) {
		case OFS_JSON_ARRAY:
			if (++depth > 2)
				return ofs_units_unexpected(r,
				    "at most lists of lists");
			break;
		case OFS_JSON_ARRAY_END:
			if (depth-- == 2)
				ret = end_row(r, t);
			break;
		case OFS_JSON_NULL:
			if (depth == 0)
				return 0;
			/* fall through */
		case OFS_JSON_NUMBER:
		case OFS_JSON_TRUE:
		case OFS_JSON_FALSE:
			ret = add_number(r, t, token);
			break;
		default:
			return wrong(r, token, "numbers");
		}
	} while (ret == 0 && depth > 0);
	t->given = true;
	return ret;
}

static int read_number(struct ofs_units_reader *r, int64_t *v)
{
	enum ofs_json_token t = next(r);

	switch (t) {
	case OFS_JSON_NULL:
		return 0;
	case OFS_JSON_TRUE:
	case OFS_JSON_FALSE:
		*v = t == OFS_JSON_TRUE;
		return 0;
	case OFS_JSON_NUMBER:
		if (r->j.is_int && r->j.integer >= 0) {
			*v = r->j.integer;
			return 0;
		}
		/* fall through */
	default:
		return wrong(r, t, "a whole number");
	}
}

static int read_dtype(struct ofs_units_reader *r, uint32_t *dtype)
{
	struct ofs_str s = { "", 0 };

	if (read_string(r, &s) == -1)
		return -1;
	*dtype = ofs_dtype_of_name(s.p, s.len);
	return 0;
}

static bool key_is(const struct ofs_units_reader *r, const char *key)
{
	return ofs_str_is(r->j.str, key);
}

static int skip_value(struct ofs_units_reader *r)
{
	enum ofs_json_token t = next(r);

	if (t == OFS_JSON_ERROR)
		return -1;
	return ofs_json_skip(&r->j, t, r->err);
}

/* Reads the member after its key. Unknown members are comments. */
static int read_member(struct ofs_units_reader *r, struct ofs_units_draft *d)
{
	const struct {
		const char *key;
		struct ofs_unit_table *table;
	} tables[] = {
		{ "shapes", &d->shapes },
		{ "numels", &d->r.numels },
		{ "numels_with_padding", &d->r.padded },
		{ "is_padding_mask", &d->r.mask },
		{ "unpadded_unsharded_size", &d->r.size },
		{ "sharded_size", &d->r.sharded },
		{ "shard_numel_padded", &d->r.right },
		{ "shard_param_infos", &d->r.infos },
		{ "contiguities", &d->r.contiguous },
		{ "requires_grad", &d->grad },
	};

	for (size_t i = 0; i < sizeof(tables) / sizeof(*tables); i++)
		if (key_is(r, tables[i].key))
			return read_table(r, tables[i].table);
	if (key_is(r, "fqns")) {
		if (d->is_unit)
			return ofs_units_unexpected(r, "fqns once");
		d->is_unit = true;
		return read_strings(r, &d->fqns);
	}
	if (key_is(r, "prefix"))
		return read_string(r, &d->prefix);
	if (key_is(r, "shared"))
		return read_strings(r, &d->shared);
	if (key_is(r, "world_size"))
		return read_number(r, &d->r.world);
	if (key_is(r, "rank"))
		return read_number(r, &d->r.rank);
	if (key_is(r, "use_orig_params"))
		return read_number(r, &d->r.orig);
	if (key_is(r, "strategy"))
		return read_string(r, &d->strategy);
	if (key_is(r, "dtype"))
		return read_dtype(r, &d->r.dtype);
	return skip_value(r);
}

static void free_table(struct ofs_unit_table *t)
{
	free(t->v);
	free(t->end);
}

static void free_draft(struct ofs_units_draft *d)
{
	free(d->fqns.v);
	free(d->shared.v);
	free_table(&d->shapes);
	free_table(&d->grad);
	free_table(&d->r.numels);
	free_table(&d->r.padded);
	free_table(&d->r.mask);
	free_table(&d->r.size);
	free_table(&d->r.sharded);
	free_table(&d->r.right);
	free_table(&d->r.infos);
	free_table(&d->r.contiguous);
}

/* After the opening brace. */
static int read_unit(struct ofs_units_reader *r)
{
	struct ofs_units_draft d = { .prefix = { "", 0 },
		.strategy = { "", 0 },
		.r = { .world = -1, .rank = -1, .orig = -1 } };
	enum ofs_json_token t;
	int ret = 0;

	while (ret == 0 && (t = next(r)) == OFS_JSON_KEY)
		ret = read_member(r, &d);
	if (ret == 0)
		ret = t == OFS_JSON_OBJECT_END ? ofs_units_add(r, &d) : -1;
	free_draft(&d);
	return ret;
}

/* After the opening bracket. */
static int read_list(struct ofs_units_reader *r)
{
	enum ofs_json_token t;

	while ((t = next(r)) == OFS_JSON_OBJECT)
		if (read_unit(r) == -1)
			return -1;
	return t == OFS_JSON_ARRAY_END ? 0 : wrong(r, t, "a unit");
}

static int read_document(struct ofs_units_reader *r)
{
	enum ofs_json_token t;
	int ret = 0;

	while (ret == 0 && (t = next(r)) == OFS_JSON_KEY) {
		if (key_is(r, "units")) {
			t = next(r);
			ret = t == OFS_JSON_ARRAY ? read_list(r)
						  : wrong(r, t, "a list");
		} else if (key_is(r, "parameters")) {
			ret = read_strings(r, &r->order);
		} else if (key_is(r, "param_groups")) {
			ret = read_strings(r, &r->ids);
		} else {
			ret = skip_value(r);
		}
	}
	return ret == 0 && t == OFS_JSON_OBJECT_END ? 0 : -1;
}

int ofs_units_document(struct ofs_units_reader *r)
{
	enum ofs_json_token t = next(r);
	int ret;

	if (t == OFS_JSON_ARRAY)
		ret = read_list(r);
	else if (t == OFS_JSON_OBJECT)
		ret = read_document(r);
	else
		return wrong(r, t, "a list of units");
	if (ret == 0)
		ret = next(r) == OFS_JSON_END ? 0 : -1;
	if (ret == 0 && r->u->n == 0)
		ret = ofs_units_unexpected(r, "at least one unit");
	return ret;
}
