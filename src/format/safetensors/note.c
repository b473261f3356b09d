/* note.c - the notes of optimfs in a safetensors header */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "format/safetensors/safetensors.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/memory.h"
#include "base/str.h"
#include "pickle/write.h"
#include "text/parse.h"

#define COMPONENTS_MAX 64

struct reader {
	struct ofs_safetensors_note *note;
	struct ofs_catalog *cat;
	struct ofs_json j;
	const uint32_t *prefix;
	size_t nprefix;
	bool values; /* read the values, else the paths */
	struct optimfs_error *err;
};

static int bad(struct reader *r, const char *what)
{
	return optimfs_fail(r->err, EUCLEAN, "OFS663 %s", what);
}

static int add_path(struct reader *r, uint32_t key, uint32_t path)
{
	struct ofs_safetensors_note *note = r->note;
	uint32_t known = note->keys.n;
	uint32_t i =
	    ofs_keys_add(&note->keys, ofs_catalog_string(r->cat, key), r->err);

	if (i == OFS_NONE || ofs_grow(note->path, i, note->cap, r->err) == -1)
		return -1;
	if (i < known)
		return bad(r, "a key has two paths");
	note->path[i] = path;
	return 0;
}

static int read_component(struct reader *r, enum ofs_json_token token,
    uint32_t *c)
{
	bool index =
	    token == OFS_JSON_NUMBER && r->j.is_int && r->j.integer >= 0;

	if (token == OFS_JSON_ERROR)
		return -1;
	if (token != OFS_JSON_STRING && !index)
		return bad(r, "a path is not of strings and indexes");
	*c = ofs_catalog_str(r->cat, r->j.str.p, r->j.str.len, r->err);
	if (index)
		*c |= OFS_PATH_INDEX;
	return *c == OFS_NONE ? -1 : 0;
}

/* Read "key": [component, ...]. */
static int read_path(struct reader *r)
{
	uint32_t c[OFS_PART_PREFIX + COMPONENTS_MAX], key, path;
	enum ofs_json_token token;
	size_t n = r->nprefix;

	memcpy(c, r->prefix, n * sizeof(*c));
	key = ofs_catalog_str(r->cat, r->j.str.p, r->j.str.len, r->err);
	if (key == OFS_NONE)
		return -1;
	token = ofs_json_next(&r->j, r->err);
	if (token != OFS_JSON_ARRAY)
		return token == OFS_JSON_ERROR ? -1 : bad(r, "no path");
	while ((token = ofs_json_next(&r->j, r->err)) != OFS_JSON_ARRAY_END) {
		if (n == sizeof(c) / sizeof(*c))
			return bad(r, "a path is too long");
		if (read_component(r, token, &c[n++]) == -1)
			return -1;
	}
	path = ofs_catalog_path(r->cat, c, n, r->err);
	return path == OFS_NONE ? -1 : add_path(r, key, path);
}

/* Write one token of a value; *depth is the number of open containers. */
static int put_token(struct reader *r, struct ofs_pkw *w,
    enum ofs_json_token token, unsigned *depth)
{
	switch (token) {
	case OFS_JSON_OBJECT:
	case OFS_JSON_ARRAY:
		ofs_pkw_op_put(w,
		    token == OFS_JSON_ARRAY ? OFS_PKW_LIST : OFS_PKW_DICT);
		ofs_pkw_op(w, OFS_PKW_MARK);
		++*depth;
		return 0;
	case OFS_JSON_OBJECT_END:
	case OFS_JSON_ARRAY_END:
		ofs_pkw_op(w,
		    token == OFS_JSON_ARRAY_END ? OFS_PKW_APPENDS
						: OFS_PKW_SETITEMS);
		--*depth;
		return 0;
	case OFS_JSON_KEY:
	case OFS_JSON_STRING:
		ofs_pkw_str(w, r->j.str.p, r->j.str.len);
		return 0;
	case OFS_JSON_NUMBER:
		if (ofs_value_put_number(w, r->j.str, false) != 0)
			return bad(r, "a number is out of range");
		return 0;
	case OFS_JSON_TRUE:
		ofs_pkw_op(w, OFS_PKW_TRUE);
		return 0;
	case OFS_JSON_FALSE:
		ofs_pkw_op(w, OFS_PKW_FALSE);
		return 0;
	case OFS_JSON_NULL:
		ofs_pkw_op(w, OFS_PKW_NONE);
		return 0;
	default:
		return -1; /* err is filled */
	}
}

/* Pickle a value, the form of plain values in a catalog. */
static int put_value(struct reader *r, struct ofs_buf *out)
{
	struct ofs_pkw w = { .out = out };
	unsigned depth = 0;

	ofs_pkw_begin(&w);
	do
		if (put_token(r, &w, ofs_json_next(&r->j, r->err), &depth) ==
		    -1)
			return -1;
	while (depth > 0);
	ofs_pkw_op(&w, OFS_PKW_STOP);
	return out->bad ? ofs_no_memory(r->err) : 0;
}

static int add_value(struct reader *r, struct ofs_str key,
    struct ofs_buf *pickle)
{
	uint32_t path = ofs_safetensors_note_path(r->note, r->cat, key,
	    r->prefix, r->nprefix, r->err);
	struct ofs_buf taken = *pickle;

	if (path == OFS_NONE)
		return -1;
	*pickle = (struct ofs_buf){ 0 };
	return ofs_catalog_add(r->cat, path, OFS_ENTRY_VALUE,
	    ofs_catalog_pickle(r->cat, taken.data, taken.len, r->err),
	    OFS_KEY_FREE, r->err);
}

/* Read "key": value. */
static int read_value(struct reader *r)
{
	struct ofs_buf pickle = { 0 };
	uint32_t str =
	    ofs_catalog_str(r->cat, r->j.str.p, r->j.str.len, r->err);
	int ret = str == OFS_NONE ? -1 : put_value(r, &pickle);

	if (ret == 0)
		ret = add_value(r, ofs_catalog_string(r->cat, str), &pickle);
	ofs_buf_fini(&pickle);
	return ret;
}

static int read_members(struct reader *r, int (*one)(struct reader *r))
{
	enum ofs_json_token token = ofs_json_next(&r->j, r->err);

	if (token != OFS_JSON_OBJECT)
		return token == OFS_JSON_ERROR ? -1 : bad(r, "not an object");
	while ((token = ofs_json_next(&r->j, r->err)) == OFS_JSON_KEY)
		if (one(r) == -1)
			return -1;
	return token == OFS_JSON_ERROR ? -1 : 0;
}

static int read_either(struct reader *r)
{
	struct ofs_str key = { (const char *)r->j.str.p,
		(uint32_t)r->j.str.len };

	if (!r->values && ofs_str_is(key, "paths"))
		return read_members(r, read_path);
	if (r->values && ofs_str_is(key, "values"))
		return read_members(r, read_value);
	return ofs_json_skip(&r->j, ofs_json_next(&r->j, r->err), r->err);
}

static int read_note(struct ofs_safetensors_note *note, struct ofs_catalog *cat,
    const struct ofs_safetensors *st, const uint32_t *prefix, size_t nprefix,
    bool values, struct optimfs_error *err)
{
	struct ofs_str text =
	    ofs_safetensors_metadata(st, OFS_SAFETENSORS_NOTE);
	struct reader r = { .note = note,
		.cat = cat,
		.prefix = prefix,
		.nprefix = nprefix,
		.values = values,
		.err = err };
	int ret;

	if (text.p == NULL)
		return 0;
	ofs_json_init(&r.j, text.p, text.len);
	ret = read_members(&r, read_either);
	if (ret == 0 && ofs_json_next(&r.j, err) != OFS_JSON_END)
		ret = -1;
	ofs_json_fini(&r.j);
	return ret;
}

int ofs_safetensors_note_read(struct ofs_safetensors_note *note,
    struct ofs_catalog *cat, const struct ofs_safetensors *st,
    const uint32_t *prefix, size_t nprefix, struct optimfs_error *err)
{
	return read_note(note, cat, st, prefix, nprefix, false, err);
}

int ofs_safetensors_note_values(struct ofs_safetensors_note *note,
    struct ofs_catalog *cat, const struct ofs_safetensors *st,
    const uint32_t *prefix, size_t nprefix, struct optimfs_error *err)
{
	return read_note(note, cat, st, prefix, nprefix, true, err);
}

void ofs_safetensors_note_fini(struct ofs_safetensors_note *note)
{
	free(note->path);
	ofs_keys_fini(&note->keys);
	*note = (struct ofs_safetensors_note){ 0 };
}

uint32_t ofs_safetensors_note_path(const struct ofs_safetensors_note *note,
    struct ofs_catalog *cat, struct ofs_str key, const uint32_t *prefix,
    size_t nprefix, struct optimfs_error *err)
{
	uint32_t i = ofs_keys_find(&note->keys, key.p, key.len);

	if (i != OFS_NONE)
		return note->path[i];
	return ofs_catalog_below(cat, prefix, nprefix, key, err);
}
