/* low_bit.c - which tensors together are one in few bits */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "derive/low_bit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/step.h"
#include "base/str.h"
#include "derive/low_bit_forms.h"
#include "derive/quant_state.h"
#include "read/fetch.h"
#include "read/reader.h"
#include "store/local.h"

struct finding {
	struct ofs_catalog *cat;
	uint32_t *entry; /* of each tree path; OFS_NONE */
	uint32_t npaths, nentries;
	struct ofs_reader reader; /* once something is read */
	struct optimfs_error *err;
};

/* Finds the entry beside e whose name is base, then suffix. 1; 0: there is none;
 * -1. suffix NULL: none is wanted. */
static int beside(struct finding *f, const struct ofs_entry *e,
    struct ofs_str base, const char *suffix, uint32_t *entry)
{
	struct ofs_catalog *cat = f->cat;
	uint32_t n, *path, at;
	char name[512];

	*entry = OFS_NONE;
	if (suffix == NULL || base.len + strlen(suffix) >= sizeof(name))
		return 0;
	memcpy(name, base.p, base.len);
	strcpy(name + base.len, suffix);
	path = ofs_catalog_copy_components(cat, e->tree, &n, f->err);
	if (path == NULL)
		return -1;
	path[n - 1] = ofs_catalog_str(cat, name, strlen(name), f->err);
	at = ofs_catalog_path(cat, path, n, f->err);
	free(path);
	if (at == OFS_NONE)
		return -1;
	if (at < f->npaths)
		*entry = f->entry[at];
	return *entry != OFS_NONE;
}

static const struct ofs_tensor *tensor_at(const struct ofs_catalog *cat,
    uint32_t entry)
{
	const struct ofs_tensor *t = entry == OFS_NONE
	    ? NULL
	    : ofs_entry_tensor(cat, &cat->entries[entry]);

	return t == NULL || t->error != OFS_NONE ? NULL : t;
}

static uint32_t ref_of(const struct ofs_catalog *cat, uint32_t entry)
{
	return entry == OFS_NONE ? OFS_NONE : cat->entries[entry].ref;
}

/* The derived tensor, and what the entries of its parts are from now on. */
static int add_found(struct finding *f, const struct ofs_low_bit_parts *x,
    uint32_t name, const uint32_t *entry, size_t n)
{
	struct ofs_catalog *cat = f->cat;
	struct ofs_tensor t = *x->codes;
	struct ofs_low_bit l = { .name = name };

	t.dtype = OFS_FLOAT32;
	t.ndim = t.grid_ndim = (uint8_t)x->ndim;
	t.shape = t.grid = ofs_catalog_dims(cat, x->shape, x->ndim, f->err);
	l.tensor = ofs_catalog_tensor(cat, &t, f->err);
	if (l.tensor == OFS_NONE ||
	    ofs_packed_derive(cat, l.tensor, x->p, f->err) == -1)
		return -1;
	for (size_t i = 0; i < n; i++) {
		if (entry[i] == OFS_NONE)
			continue;
		l.entry = entry[i];
		if (ofs_catalog_low_bit(cat, &l, f->err) == OFS_NONE)
			return -1;
		l.tensor = OFS_NONE; /* the others are only parts of it */
	}
	return 0;
}

/* A candidate: the entries of its parts, and the name of the whole. */
struct candidate {
	const struct ofs_low_bit_form *form;
	uint32_t anchor; /* its entry */
	uint32_t part[LOW_BIT_NPARTS];
	struct ofs_str base;
	uint32_t whole; /* the entry that has this name already */
};

/* Does the name of an entry end as that of the anchor? */
static bool split_name(struct candidate *c, struct ofs_str name)
{
	const char *anchor = c->form->part[c->form->anchor];
	size_t n = strlen(anchor);

	c->base = name;
	if (c->form->whole != NULL) {
		c->base.len = 0;
		return ofs_str_is(name, c->form->whole);
	}
	if (name.len <= n || memcmp(name.p + name.len - n, anchor, n) != 0)
		return false;
	c->base.len -= (uint32_t)n;
	return true;
}

/* Finds the other parts: 1; 0: there are no codes or no scale, or the name of the
 * whole is taken; -1. */
static int find_parts(struct finding *f, struct candidate *c)
{
	const struct ofs_entry e = f->cat->entries[c->anchor];
	const struct ofs_low_bit_form *form = c->form;

	for (size_t i = 0; i < LOW_BIT_NPARTS; i++) {
		int ret = 1;

		if (i == form->anchor)
			c->part[i] = c->anchor;
		else
			ret =
			    beside(f, &e, c->base, form->part[i], &c->part[i]);
		if (ret == -1 ||
		    (ret == 0 && (i == LOW_BIT_CODES || i == LOW_BIT_SCALE)))
			return ret;
	}
	if (form->whole != NULL ||
	    strcmp(form->suffix, form->part[LOW_BIT_CODES]) == 0)
		return 1;
	return beside(f, &e, c->base, form->suffix, &c->whole) == -1
	    ? -1
	    : c->whole == OFS_NONE;
}

/* The string of the name of the whole. */
static uint32_t name_whole(struct finding *f, const struct candidate *c)
{
	const struct ofs_str base =
	    c->form->whole != NULL ? ofs_str_of(c->form->whole) : c->base;
	char name[512 + 16];
	int n = snprintf(name, sizeof(name), "%.*s%s", OFS_STR_ARGS(base, 512),
	    c->form->suffix);

	return ofs_catalog_str(f->cat, name, (size_t)n, f->err);
}

/* The shard that has all of a tensor. The catalog is not finished: replicas are
 * not told apart. */
static uint32_t whole_shard(const struct ofs_catalog *cat,
    const struct ofs_tensor *t)
{
	uint64_t lo[OFS_MAX_DIMS], size[OFS_MAX_DIMS], numel;

	for (uint32_t i = 0; i < t->nshards; i++) {
		ofs_shard_box(cat, t, &cat->shards[t->shard + i], lo, size);
		if (ofs_numel(size, t->grid_ndim, &numel) &&
		    numel == ofs_tensor_numel(cat, t))
			return t->shard + i;
	}
	return OFS_NONE;
}

static int read_small(struct finding *f, const struct ofs_tensor *t, void *buf,
    struct optimfs_error *err)
{
	struct ofs_tensor one = *t;
	struct ofs_fetch_part part;

	one.shard = whole_shard(f->cat, t);
	one.nshards = 1;
	one.index = OFS_NONE;
	if (one.shard == OFS_NONE)
		return optimfs_fail(err, EIO, "no file has it");
	if (f->reader.transport == NULL &&
	    ofs_reader_init(&f->reader, f->cat,
		ofs_transport_of(f->cat, UINT64_C(1) << 20, err), err) == -1)
		return -1;
	if (ofs_fetch_part_init(&part, f->cat, &one, one.shard, NULL, err) ==
	    -1)
		return -1;
	part.count = part.total;
	return ofs_fetch_part(&f->reader, &part, buf, err);
}

/* Reads the tensor that describes the others. 1; 0: it cannot be; -1. */
static int read_state(struct finding *f, const struct candidate *c, char *buf,
    struct ofs_low_bit_parts *x)
{
	const struct ofs_tensor *t = tensor_at(f->cat, c->part[LOW_BIT_STATE]);
	uint64_t n = t == NULL ? 0 : ofs_tensor_numel(f->cat, t);

	if (t == NULL)
		return 1;
	if (t->dtype != OFS_UINT8 || n > OFS_QUANT_STATE_MAX) {
		optimfs_fail(x->why, EUCLEAN, "not a text of bytes");
		return 0;
	}
	if (n > 0 && read_small(f, t, buf, x->why) == -1)
		return ofs_must_fail(x->why) ? optimfs_fail_with(f->err, x->why)
					     : 0;
	x->state = (struct ofs_str){ buf, (uint32_t)n };
	return 1;
}

/* A weight that says that it is in few bits is not left as it is in silence. */
static int note_odd(struct finding *f, const struct candidate *c,
    struct optimfs_error *why)
{
	uint32_t n,
	    at = c->part[LOW_BIT_STATE] != OFS_NONE ? c->part[LOW_BIT_STATE]
						    : c->anchor;
	const uint32_t *path =
	    ofs_catalog_components(f->cat, f->cat->entries[at].tree, &n);
	struct ofs_str name = ofs_catalog_string(f->cat, path[n - 1]);

	if (why->code == 0)
		return 0;
	optimfs_fail_in(why,
	    "OFS867 %.*s: the weight is shown as it is stored, not as float32",
	    OFS_STR_ARGS(name, 120));
	return ofs_catalog_note_as(f->cat, OFS_NOTE_WARNING, why, f->err);
}

/* Are the parts those of the form? 1; 0; -1. */
static int match_parts(struct finding *f, const struct candidate *c,
    struct ofs_low_bit_parts *x)
{
	char state[OFS_QUANT_STATE_MAX];
	struct optimfs_error why = { 0 };
	int ret;

	x->why = &why;
	x->codes = tensor_at(x->cat, c->part[LOW_BIT_CODES]);
	x->scale = tensor_at(x->cat, c->part[LOW_BIT_SCALE]);
	x->factor = tensor_at(x->cat, c->part[LOW_BIT_FACTOR]);
	x->table = tensor_at(x->cat, c->part[LOW_BIT_TABLE]);
	x->nested_scale = tensor_at(x->cat, c->part[LOW_BIT_NESTED_SCALE]);
	x->nested_table = tensor_at(x->cat, c->part[LOW_BIT_NESTED_TABLE]);
	if (x->codes == NULL || x->scale == NULL || x->codes->ndim == 0)
		return 0;
	ret = read_state(f, c, state, x);
	if (ret == 1 && c->form->match(x))
		return 1;
	return ret == -1 || note_odd(f, c, &why) == -1 ? -1 : 0;
}

/* Does the entry belong to this form? 1; 0; -1. */
static int try_form(struct finding *f, uint32_t i,
    const struct ofs_low_bit_form *form)
{
	struct ofs_catalog *cat = f->cat;
	struct candidate c = { .form = form, .anchor = i, .whole = OFS_NONE };
	struct ofs_packed p = { 0 };
	struct ofs_low_bit_parts x = { .cat = cat, .p = &p };
	uint32_t n, name;
	const uint32_t *path =
	    ofs_catalog_components(cat, cat->entries[i].tree, &n);
	int ret;

	memset(c.part, 0xff, sizeof(c.part));
	if (!split_name(&c, ofs_catalog_string(cat, path[n - 1])))
		return 0;
	ret = find_parts(f, &c);
	if (ret == 1)
		ret = match_parts(f, &c, &x);
	if (ret != 1)
		return ret;
	p.codes = ref_of(cat, c.part[LOW_BIT_CODES]);
	p.scale = ref_of(cat, c.part[LOW_BIT_SCALE]);
	p.factor =
	    x.factor == NULL ? OFS_NONE : ref_of(cat, c.part[LOW_BIT_FACTOR]);
	p.table =
	    x.table == NULL ? OFS_NONE : ref_of(cat, c.part[LOW_BIT_TABLE]);
	if (p.nested_block != 0) {
		p.nested_scale = ref_of(cat, c.part[LOW_BIT_NESTED_SCALE]);
		p.nested_table = ref_of(cat, c.part[LOW_BIT_NESTED_TABLE]);
	}
	name = name_whole(f, &c);
	return name == OFS_NONE ||
		add_found(f, &x, name, c.part, LOW_BIT_NPARTS) == -1
	    ? -1
	    : 1;
}

/* Codes are bytes. */
static bool may_be_codes(const struct ofs_catalog *cat,
    const struct ofs_entry *e)
{
	const struct ofs_tensor *t =
	    e->tree == OFS_NONE ? NULL : ofs_entry_tensor(cat, e);

	return t != NULL && t->error == OFS_NONE && t->ndim > 0 &&
	    (t->dtype == OFS_UINT8 || ofs_is_fp8(t));
}

/* May the entry be the anchor of a form? */
static bool may_be_anchor(const struct ofs_catalog *cat,
    const struct ofs_entry *e, const struct ofs_low_bit_form *form)
{
	const char *suffix = form->part[form->anchor];
	const uint32_t *c;
	uint32_t n;

	if (form->anchor == LOW_BIT_CODES)
		return may_be_codes(cat, e);
	if (e->tree == OFS_NONE || e->kind != OFS_ENTRY_TENSOR)
		return false;
	c = ofs_catalog_components(cat, e->tree, &n);
	return ofs_str_ends(ofs_catalog_string(cat, c[n - 1]), suffix);
}

static bool may_be_some(const struct ofs_catalog *cat,
    const struct ofs_entry *e)
{
	for (size_t k = 0; k < ofs_low_bit_nforms; k++)
		if (may_be_anchor(cat, e, &ofs_low_bit_forms[k]))
			return true;
	return false;
}

static int find_all(struct finding *f)
{
	int ret = 0;

	for (uint32_t i = 0; i < f->nentries; i++) {
		if (f->cat->entries[i].tree != OFS_NONE &&
		    f->cat->entries[i].tree < f->npaths)
			f->entry[f->cat->entries[i].tree] = i;
	}
	for (uint32_t i = 0; i < f->nentries; i++)
		for (size_t k = 0; k < ofs_low_bit_nforms; k++) {
			ret = may_be_anchor(f->cat, &f->cat->entries[i],
				  &ofs_low_bit_forms[k])
			    ? try_form(f, i, &ofs_low_bit_forms[k])
			    : 0;
			if (ret == -1)
				return -1;
			if (ret == 1)
				break;
		}
	return 0;
}

int ofs_low_bit_find(struct ofs_catalog *cat, struct optimfs_error *err)
{
	struct finding f = { .cat = cat,
		.npaths = cat->npaths,
		.nentries = cat->nentries,
		.err = OFS_SOME_ERROR(err) };
	bool some = false;
	int ret;

	for (uint32_t i = 0; i < cat->nentries && !some; i++)
		some = may_be_some(cat, &cat->entries[i]);
	if (!some)
		return 0;
	f.entry = ofs_alloc(cat->npaths + 1ul, sizeof(*f.entry), err);
	if (f.entry == NULL)
		return -1;
	memset(f.entry, 0xff, cat->npaths * sizeof(*f.entry));
	ret = find_all(&f);
	if (f.reader.transport != NULL)
		ofs_reader_fini(&f.reader);
	free(f.entry);
	return ret;
}

/* Replaces the last component of a path. */
static uint32_t rename_path(struct ofs_catalog *cat, uint32_t path,
    uint32_t name, struct optimfs_error *err)
{
	uint32_t n, *c = ofs_catalog_copy_components(cat, path, &n, err), at;

	if (c == NULL)
		return OFS_NONE;
	c[n - 1] = name;
	at = ofs_catalog_path(cat, c, n, err);
	free(c);
	return at;
}

/* Adds the entry as it is when unpacked; *to: its new index, or OFS_NONE. */
static int unpack_entry(struct ofs_catalog *cat, const struct ofs_entry *entry,
    const struct ofs_low_bit *l, uint32_t *to, struct optimfs_error *err)
{
	struct ofs_entry e = *entry;

	*to = OFS_NONE;
	if (l != NULL && l->tensor == OFS_NONE)
		return 0;
	if (l != NULL) {
		e.kind = OFS_ENTRY_TENSOR;
		e.ref = l->tensor;
	}
	if (l != NULL && l->name != OFS_NONE) {
		e.path = rename_path(cat, e.path, l->name, err);
		e.tree = rename_path(cat, e.tree, l->name, err);
		if (e.path == OFS_NONE || e.tree == OFS_NONE)
			return -1;
	}
	*to = ofs_catalog_entry(cat, &e, err);
	return *to == OFS_NONE ? -1 : 0;
}

static int unpack_all(struct ofs_catalog *cat, const struct ofs_catalog *base,
    uint32_t *to, struct optimfs_error *err)
{
	for (uint32_t i = 0; i < base->nentries; i++)
		if (unpack_entry(cat, &base->entries[i],
			ofs_low_bit_of(base, i), &to[i], err) == -1)
			return -1;
	for (uint32_t i = 0; i < base->nvariants; i++) {
		struct ofs_variant v = base->variants[i];

		v.entry = to[v.entry];
		if (v.entry != OFS_NONE &&
		    ofs_catalog_variant(cat, &v, err) == OFS_NONE)
			return -1;
	}
	return 0;
}

struct ofs_catalog *ofs_low_bit_unpacked(const struct ofs_catalog *base,
    struct optimfs_error *err)
{
	struct ofs_catalog *cat = ofs_catalog_copy(base, err);
	uint32_t *to = ofs_alloc(base->nentries + 1ul, sizeof(*to), err);
	int ret = -1;

	if (cat != NULL && to != NULL)
		ret = unpack_all(cat, base, to, err);
	free(to);
	if (ret == -1) {
		ofs_catalog_free(cat);
		return NULL;
	}
	cat->nlow_bits = 0;
	ofs_catalog_seal(cat);
	return cat;
}
