/* update_index.c - what a commit changes in an index, as opcodes */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <string.h>

#include "base/dtype.h"
#include "base/str.h"
#include "format/dcp/dcp.h"
#include "format/dcp/update.h"
#include "pickle/write.h"

/* Each new object is a copy of one in the same index, so that its classes are
 * those of the release that wrote it; the attributes that differ are given by
 * name. */
struct field {
	const char *name;
	enum { INT, STR, NONE, SIZE, DTYPE, PROPERTIES, CHUNKS } kind;
	uint64_t v;
	struct ofs_str s;
	const struct ofs_commit_task *t;
	bool used;
};

struct put {
	struct ofs_dcp_commit *d;
	const struct ofs_pickle *doc;
	struct ofs_pkw w;
	struct optimfs_error *err;
};

/* Begin an edit of a dictionary of the index. p writes its opcodes, until the
 * next edit begins. */
static int begin_edit(struct put *p, struct ofs_dcp_commit *d, uint32_t dict,
    uint32_t pair, enum ofs_pk_splice_op op, struct optimfs_error *err)
{
	struct ofs_pk_splice *e =
	    ofs_pk_edits_add(&d->edits, dict, pair, op, err);

	if (e == NULL)
		return -1;
	*p = (struct put){
		.d = d,
		.doc = d->index.doc,
		.w = { .out = &e->bytes, .plain = true, .modern = d->modern },
		.err = err,
	};
	return 0;
}

/* Begin a new pair. */
static int begin_pair(struct put *p, struct ofs_dcp_commit *d, uint32_t dict,
    struct optimfs_error *err)
{
	return begin_edit(p, d, dict, (uint32_t)d->edits.n, OFS_PK_ADD, err);
}

static int drop_pair(struct ofs_dcp_commit *d, uint32_t dict, uint32_t pair,
    struct optimfs_error *err)
{
	struct put p;

	return begin_edit(&p, d, dict, pair, OFS_PK_DROP, err);
}

static int odd(struct put *p, uint32_t node)
{
	return optimfs_fail(p->err, EOPNOTSUPP,
	    "OFS826 the index has a %s in a form that cannot be written",
	    ofs_pk_kind_name(p->doc, node));
}

static int put_node(struct put *p, uint32_t node)
{
	return ofs_pkw_node(&p->w, p->doc, node, p->err);
}

static int put_like(struct put *p, uint32_t node, struct field *f, size_t n);

/* TensorProperties: its state is a tuple that begins with the dtype, or
 * attributes. */
static int put_properties(struct put *p, uint32_t node,
    const struct ofs_commit_task *t)
{
	struct field f[] = { { .name = "dtype", .kind = DTYPE, .t = t } };
	uint32_t state = ofs_pk_state(p->doc, node);
	uint32_t n = ofs_pk_len(p->doc, state);

	if (ofs_pk_kind(p->doc, state) != OFS_PK_TUPLE || n < 5)
		return put_like(p, node, f, 1);
	if (put_node(p, ofs_pk_callable(p->doc, node)) == -1 ||
	    put_node(p, ofs_pk_args(p->doc, node)) == -1)
		return -1;
	ofs_pkw_op(&p->w, OFS_PKW_NEWOBJ);
	ofs_pkw_tuple_open(&p->w, 4);
	ofs_pkw_global(&p->w, "torch", ofs_dtype_name(t->dtype));
	for (uint32_t i = 1; i < n; i++)
		if (put_node(p, ofs_pk_item(p->doc, state, i)) == -1)
			return -1;
	ofs_pkw_tuple_close(&p->w, 4);
	ofs_pkw_op(&p->w, OFS_PKW_BUILD);
	return 0;
}

/* A single chunk with the whole tensor. */
static int put_chunks(struct put *p, uint32_t list,
    const struct ofs_commit_task *t)
{
	struct field f[] = {
		{ .name = "offsets", .kind = SIZE },
		{ .name = "sizes", .kind = SIZE, .t = t },
	};

	if (ofs_pk_len(p->doc, list) == 0)
		return odd(p, list);
	f[0].v = t->ndim;
	f[1].v = t->ndim;
	ofs_pkw_op(&p->w, OFS_PKW_LIST);
	if (put_like(p, ofs_pk_item(p->doc, list, 0), f, 2) == -1)
		return -1;
	ofs_pkw_op(&p->w, OFS_PKW_APPEND);
	return 0;
}

static int put_field(struct put *p, const struct field *f, uint32_t was)
{
	static const uint64_t origin[OFS_MAX_DIMS];

	switch (f->kind) {
	case INT:
		ofs_pkw_int(&p->w, (int64_t)f->v);
		return 0;
	case STR:
		ofs_pkw_str(&p->w, f->s.p, f->s.len);
		return 0;
	case NONE:
		ofs_pkw_op(&p->w, OFS_PKW_NONE);
		return 0;
	case SIZE:
		ofs_dcp_put_size(&p->w, f->t == NULL ? origin : f->t->shape,
		    f->v);
		return 0;
	case DTYPE:
		ofs_pkw_global(&p->w, "torch", ofs_dtype_name(f->t->dtype));
		return 0;
	case PROPERTIES:
		return put_properties(p, was, f->t);
	case CHUNKS:
		return put_chunks(p, was, f->t);
	}
	return 0;
}

static struct field *find_field(const struct put *p, uint32_t key,
    struct field *f, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (ofs_pk_str_is(p->doc, key, f[i].name))
			return &f[i];
	return NULL;
}

/* Write an object like node, with other values of some attributes. Attributes
 * that node does not have are added if they have a value. */
static int put_like(struct put *p, uint32_t node, struct field *f, size_t n)
{
	uint32_t state = ofs_pk_state(p->doc, node);

	if (ofs_pk_kind(p->doc, node) != OFS_PK_OBJECT ||
	    ofs_pk_kind(p->doc, state) != OFS_PK_DICT)
		return odd(p, node);
	if (put_node(p, ofs_pk_callable(p->doc, node)) == -1 ||
	    put_node(p, ofs_pk_args(p->doc, node)) == -1)
		return -1;
	ofs_pkw_op(&p->w,
	    ofs_pk_is_newobj(p->doc, node) ? OFS_PKW_NEWOBJ : OFS_PKW_REDUCE);
	ofs_pkw_op(&p->w, OFS_PKW_DICT);
	ofs_pkw_op(&p->w, OFS_PKW_MARK);
	for (uint32_t i = 0; i < ofs_pk_len(p->doc, state); i++) {
		uint32_t key = ofs_pk_key(p->doc, state, i);
		uint32_t val = ofs_pk_val(p->doc, state, i);
		struct field *x = find_field(p, key, f, n);

		if (put_node(p, key) == -1 ||
		    (x == NULL ? put_node(p, val) : put_field(p, x, val)) == -1)
			return -1;
		if (x != NULL)
			x->used = true;
	}
	for (size_t i = 0; i < n; i++) {
		if (f[i].used || f[i].kind == NONE)
			continue;
		ofs_pkw_str(&p->w, f[i].name, strlen(f[i].name));
		if (put_field(p, &f[i], OFS_NONE) == -1)
			return -1;
	}
	ofs_pkw_op(&p->w, OFS_PKW_SETITEMS);
	ofs_pkw_op(&p->w, OFS_PKW_BUILD);
	return 0;
}

static uint32_t place_node(const struct ofs_dcp_commit *d, uint32_t item)
{
	return ofs_pk_val(d->index.doc, d->index.storage, item);
}

/* _StorageInfo like that of an item, which is no longer encoded in a new file of
 * plain items. */
static int put_place(struct put *p, uint32_t like, uint32_t place)
{
	const struct ofs_dcp_new *at = &p->d->place[place];
	const struct ofs_dcp_out *out = &p->d->out[at->out];
	struct field f[] = {
		{ .name = "relative_path",
		    .kind = STR,
		    .s = ofs_str_of(out->path) },
		{ .name = "offset", .kind = INT, .v = at->off },
		{ .name = "length", .kind = INT, .v = at->len },
		{ .name = "transform_descriptors", .kind = NONE },
	};

	return put_like(p, place_node(p->d, like), f,
	    out->file != NULL && !out->coded ? 4 : 3);
}

int ofs_dcp_commit_moved(struct ofs_dcp_commit *d, struct optimfs_error *err)
{
	for (uint32_t i = 0; i < d->index.nitems; i++) {
		struct put p;

		if (d->moved[i] == OFS_NONE || d->dropped[i])
			continue;
		if (begin_edit(&p, d, d->index.storage, i, OFS_PK_REPLACE,
			err) == -1 ||
		    put_place(&p, i, d->moved[i]) == -1)
			return -1;
	}
	return 0;
}

static int find_key(const struct ofs_dcp_commit *d, struct ofs_str name,
    uint32_t *key, struct optimfs_error *err)
{
	*key = ofs_pk_names_pair(&d->keys, name);
	if (*key != OFS_NONE)
		return 0;
	return optimfs_fail(err, EUCLEAN, "OFS829 '%.*s' is not in the index",
	    OFS_STR_ARGS(name, 100));
}

int ofs_dcp_commit_drop(struct ofs_dcp_commit *d, struct ofs_str name,
    struct optimfs_error *err)
{
	uint32_t plan = ofs_pk_names_pair(&d->plans, name), key, first, n;

	if (find_key(d, name, &key, err) == -1 ||
	    drop_pair(d, d->index.keys, key, err) == -1)
		return -1;
	if (plan != OFS_NONE && drop_pair(d, d->index.planner, plan, err) == -1)
		return -1;
	ofs_dcp_commit_named(d, name, &first, &n);
	for (uint32_t i = first; i < first + n; i++) {
		if (drop_pair(d, d->index.storage, d->by_name[i], err) == -1)
			return -1;
		d->gone[d->by_name[i]] = d->dropped[d->by_name[i]] = true;
	}
	return 0;
}

/* Additions. */

/* A key of the same kind: of a tensor or of a value. */
static uint32_t like_key(const struct ofs_dcp_commit *d, bool tensor)
{
	const struct ofs_pickle *doc = d->index.doc;

	for (uint32_t i = 0; i < ofs_pk_len(doc, d->index.keys); i++) {
		uint32_t val = ofs_pk_val(doc, d->index.keys, i);
		uint32_t chunks = ofs_pk_attr(doc, val, "chunks");

		if ((ofs_pk_kind(doc, chunks) == OFS_PK_LIST) == tensor &&
		    (!tensor || ofs_pk_len(doc, chunks) > 0))
			return val;
	}
	return OFS_NONE;
}

/* An item of the same kind. */
static uint32_t like_item(const struct ofs_dcp_commit *d, bool tensor)
{
	for (uint32_t i = 0; i < d->index.nitems; i++)
		if ((d->index.item[i].offset != OFS_NONE) == tensor)
			return i;
	return OFS_NONE;
}

static int none_like(const struct ofs_commit_task *t, struct optimfs_error *err)
{
	return ofs_commit_no_place(t,
	    "the index has no entry of its kind to use as a pattern", err);
}

/* Add the path of the key to planner_data. */
static int add_path(struct ofs_dcp_commit *d, const struct ofs_commit_task *t,
    struct ofs_str name, struct optimfs_error *err)
{
	struct put p;

	if (d->index.planner == OFS_NONE)
		return 0;
	if (begin_pair(&p, d, d->index.planner, err) == -1)
		return -1;
	ofs_pkw_str(&p.w, name.p, name.len);
	ofs_pkw_tuple_open(&p.w, 4);
	for (uint32_t i = d->nprefix; i < t->npath; i++)
		ofs_dcp_put_component(&p.w, t->path[i].s, t->path[i].index);
	ofs_pkw_tuple_close(&p.w, 4);
	return 0;
}

static int add_key(struct ofs_dcp_commit *d, const struct ofs_commit_task *t,
    struct ofs_str name, struct optimfs_error *err)
{
	bool tensor = t->doc == NULL;
	uint32_t like = like_key(d, tensor);
	struct field f[] = {
		{ .name = "properties", .kind = PROPERTIES, .t = t },
		{ .name = "size", .kind = SIZE, .v = t->ndim, .t = t },
		{ .name = "chunks", .kind = CHUNKS, .t = t },
	};
	struct put p;

	if (like == OFS_NONE)
		return none_like(t, err);
	if (begin_pair(&p, d, d->index.keys, err) == -1)
		return -1;
	ofs_pkw_str(&p.w, name.p, name.len);
	return tensor ? put_like(&p, like, f, 3) : put_node(&p, like);
}

/* Add a MetadataIndex with its _StorageInfo. */
static int add_item(struct ofs_dcp_commit *d, const struct ofs_commit_task *t,
    struct ofs_str name, uint32_t place, struct optimfs_error *err)
{
	bool tensor = t->doc == NULL;
	uint32_t like = like_item(d, tensor);
	struct field f[] = {
		{ .name = "fqn", .kind = STR, .s = name },
		{ .name = "index", .kind = INT },
		{ .name = "offset", .kind = SIZE, .v = t->ndim },
	};
	struct put p;

	if (like == OFS_NONE)
		return none_like(t, err);
	if (begin_pair(&p, d, d->index.storage, err) == -1)
		return -1;
	if (put_like(&p, ofs_pk_key(p.doc, d->index.storage, like), f,
		tensor ? 3 : 1) == -1)
		return -1;
	return put_place(&p, like, place);
}

int ofs_dcp_commit_add(struct ofs_dcp_commit *d,
    const struct ofs_commit_task *t, struct ofs_str name, uint32_t place,
    struct optimfs_error *err)
{
	if (add_key(d, t, name, err) == -1 || add_path(d, t, name, err) == -1)
		return -1;
	return add_item(d, t, name, place, err);
}

/* Write the place of an item, which may be new. */
static int put_its_place(struct put *p, uint32_t item)
{
	struct ofs_dcp_commit *d = p->d;

	return d->moved[item] == OFS_NONE ? put_node(p, place_node(d, item))
					  : put_place(p, item, d->moved[item]);
}

int ofs_dcp_commit_rename(struct ofs_dcp_commit *d,
    const struct ofs_commit_task *t, struct ofs_str from, struct ofs_str name,
    struct optimfs_error *err)
{
	struct field f[] = { { .name = "fqn", .kind = STR, .s = name } };
	uint32_t key, first, n;
	struct put p;

	if (find_key(d, from, &key, err) == -1 ||
	    begin_pair(&p, d, d->index.keys, err) == -1)
		return -1;
	ofs_pkw_str(&p.w, name.p, name.len);
	if (put_node(&p, ofs_pk_val(p.doc, d->index.keys, key)) == -1 ||
	    add_path(d, t, name, err) == -1)
		return -1;
	ofs_dcp_commit_named(d, from, &first, &n);
	for (uint32_t i = first; i < first + n; i++) {
		uint32_t item = d->by_name[i];

		f[0].used = false;
		if (begin_pair(&p, d, d->index.storage, err) == -1)
			return -1;
		if (put_like(&p, ofs_pk_key(p.doc, d->index.storage, item), f,
			1) == -1 ||
		    put_its_place(&p, item) == -1)
			return -1;
	}
	return 0;
}
