/* parts.c - fused parameters, which are stored in parts */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/memory.h"
#include "base/search.h"
#include "base/str.h"
#include "format/fsdp_dtensor/fsdp_dtensor.h"

/* Megatron-FSDP divides a parameter whose rows have several meanings, so that
 * each part can be sharded on its own: NAME is NAME_w and NAME_v in the model
 * and in the state, but not among the options, which show that it is one
 * parameter. Its rows are those of its parts, one after the other. */

static const struct suffix {
	const char *text;
	unsigned int family, number;
} suffixes[] = {
	{ "_w", 0, 0 }, /* gate and value of a gated MLP */
	{ "_v", 0, 1 },
	{ ".query", 1, 0 }, /* projections of a gated delta net */
	{ ".key", 1, 1 },
	{ ".value", 1, 2 },
	{ ".z", 1, 3 },
	{ ".beta", 1, 4 },
	{ ".alpha", 1, 5 },
};
#define MAX_PARTS 6

/* The parts that a parameter may have: bits of their numbers. */
static const struct {
	unsigned int family, parts;
} whole[] = { { 0, 0x3 }, { 1, 0x3f }, { 1, 0x7 } };

struct part {
	uint32_t path; /* of the whole */
	uint32_t number, entry, family;
};

struct parts {
	struct ofs_dtensor *d;
	struct part *part;
	uint32_t n, cap;
	uint32_t *path; /* of all entries, sorted */
};

OFS_COMPARE_BY3(by_path, struct part, path, number, entry)

/* The suffix of name, if the rest is the name of a parameter; NULL. */
static const struct suffix *suffix_of(const struct ofs_dtensor *d,
    struct ofs_str name)
{
	struct ofs_str clean = ofs_dtensor_clean(name);

	for (size_t i = 0; i < sizeof(suffixes) / sizeof(*suffixes); i++) {
		size_t n = strlen(suffixes[i].text);
		struct ofs_str rest = { clean.p, clean.len };

		if (!ofs_str_ends(clean, suffixes[i].text))
			continue;
		rest.len -= (uint32_t)n;
		if (ofs_keys_has(&d->fused, rest))
			return &suffixes[i];
	}
	return NULL;
}

/* Notes entry if a component of its path, c[0..n), names a part. */
static int note_part(struct parts *p, uint32_t entry, uint32_t *c, uint32_t n)
{
	struct ofs_dtensor *d = p->d;
	const struct suffix *x = NULL;
	struct ofs_str name = { NULL, 0 };
	uint32_t i = n;

	while (i > 0 && x == NULL) {
		i--;
		name = ofs_catalog_string(d->cat, c[i]);
		x = (c[i] & OFS_PATH_FLAGS) != 0 ? NULL : suffix_of(d, name);
	}
	if (x == NULL)
		return 0;
	c[i] =
	    ofs_catalog_str(d->cat, name.p, name.len - strlen(x->text), d->err);
	if (ofs_grow(p->part, p->n, p->cap, d->err) == -1)
		return -1;
	p->part[p->n] = (struct part){ ofs_catalog_path(d->cat, c, n, d->err),
		x->number, entry, x->family };
	return p->part[p->n++].path == OFS_NONE ? -1 : 0;
}

static int collect(struct parts *p)
{
	struct ofs_dtensor *d = p->d;
	uint32_t n, *c;
	int ret = 0;

	for (uint32_t i = d->first; i < d->n && ret == 0; i++) {
		p->path[i - d->first] = d->cat->entries[i].path;
		if (d->gone[i - d->first])
			continue;
		c = ofs_catalog_copy_components(d->cat, d->cat->entries[i].path,
		    &n, d->err);
		ret = c == NULL ? -1 : note_part(p, i, c, n);
		free(c);
	}
	if (ret == 0 && p->n > 0)
		qsort(p->part, p->n, sizeof(*p->part), by_path);
	if (ret == 0 && d->n > d->first)
		qsort(p->path, d->n - d->first, sizeof(*p->path),
		    ofs_compare_u32);
	return ret;
}

/* Are these the parts of a whole, each once? */
static bool is_whole(const struct part *v, uint32_t n)
{
	unsigned int parts = 0;

	for (uint32_t i = 0; i < n; i++) {
		if (v[i].family != v[0].family ||
		    (parts >> v[i].number & 1) != 0)
			return false;
		parts |= 1u << v[i].number;
	}
	for (size_t i = 0; i < sizeof(whole) / sizeof(*whole); i++)
		if (whole[i].family == v[0].family && whole[i].parts == parts)
			return true;
	return false;
}

/* Can the rows of b follow those of a? */
static bool rows_follow(const struct ofs_catalog *cat,
    const struct ofs_tensor *a, const struct ofs_tensor *b)
{
	const uint64_t *p = ofs_tensor_shape(cat, a),
		       *q = ofs_tensor_shape(cat, b);

	return a->ndim == b->ndim && a->dtype == b->dtype &&
	    a->grid == a->shape && b->grid == b->shape &&
	    a->error == OFS_NONE && b->error == OFS_NONE &&
	    memcmp(p + 1, q + 1, (a->ndim - 1) * sizeof(*p)) == 0;
}

/* Can all of them be joined? 1; 0; -1. */
static int can_join(struct ofs_dtensor *d, const uint32_t *entry, uint32_t n)
{
	struct ofs_catalog *cat = d->cat;
	const struct ofs_entry *e = cat->entries;
	uint32_t first = 0, value;
	struct optimfs_error why;
	uint64_t rows = 0;
	int ret;

	for (uint32_t i = 0; i < n; i++) {
		const struct ofs_tensor *a = ofs_entry_tensor(cat, &e[*entry]),
					*b =
					    ofs_entry_tensor(cat, &e[entry[i]]);

		if (e[entry[i]].kind != e[*entry].kind)
			return 0;
		if (a != NULL && a->ndim > 0) {
			if (!rows_follow(cat, a, b) ||
			    !ofs_add_u64(rows, cat->dims[b->shape], &rows))
				return 0;
			continue;
		}
		ret = ofs_dtensor_value(d, entry[i], &value, &why);
		if (ret != 1)
			return ret;
		if (i > 0 && value != first)
			return 0;
		first = value;
	}
	return 1;
}

static int join(struct parts *p, const struct part *v, uint32_t n)
{
	struct ofs_dtensor *d = p->d;
	uint32_t entry[MAX_PARTS];
	int ret;

	if (n > MAX_PARTS || !is_whole(v, n) ||
	    ofs_search(&v->path, p->path, d->n - d->first, sizeof(*p->path),
		ofs_compare_u32) != NULL)
		return 0;
	for (uint32_t i = 0; i < n; i++)
		entry[i] = v[i].entry;
	ret = can_join(d, entry, n);
	if (ret != 1)
		return ret;
	d->cat->entries[entry[0]].path = v->path;
	d->cat->entries[entry[0]].key = OFS_KEY_FIXED;
	return ofs_dtensor_join(d, entry, n);
}

int ofs_dtensor_parts(struct ofs_dtensor *d)
{
	struct parts p = {
		.d = d,
		.path =
		    ofs_alloc((size_t)d->n - d->first, sizeof(*p.path), d->err),
	};
	int ret = p.path == NULL ? -1 : collect(&p);

	for (uint32_t i = 0, n; i < p.n && ret == 0; i += n) {
		for (n = 1; i + n < p.n && p.part[i + n].path == p.part[i].path;
		     n++)
			;
		ret = join(&p, &p.part[i], n);
	}
	free(p.part);
	free(p.path);
	return ret;
}
