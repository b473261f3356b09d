/* groups.c - options of parameters, as groups of parameters */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/memory.h"
#include "base/search.h"
#include "format/fsdp_dtensor/fsdp_dtensor.h"
#include "pickle/write.h"

#define MODULE_LEN 7 /* of "module." */

/* ROOT param_to_group_meta NAME OPTION has the option of a parameter. All
 * parameters whose options have equal values, byte for byte, are a group; groups
 * are in the order of their first parameters. A parameter with an option that
 * cannot be read stays as it is stored, because its group is not known. */

struct option {
	uint32_t param, tail; /* tail: the path of the option */
	uint32_t entry, value;
};

/* An optimizer. */
struct root {
	uint32_t ngroups;
	uint32_t nmodules; /* "module." before all names of its parameters */
};

struct group {
	uint32_t root, number;    /* root: a path */
	uint32_t noptions;        /* of each member */
	uint32_t first, nmembers; /* in member */
};

struct fold {
	struct ofs_dtensor *d;
	struct option *option; /* by param, then tail */
	uint32_t noptions, cap;
	uint32_t *at; /* by param: its first option */
	bool *open;   /* by param: it has an option that is not known */
	struct group *group;
	uint32_t ngroups, group_cap;
	uint32_t *member; /* parameters, by group */
	struct root *root;
	uint32_t root_cap;
	struct ofs_keys roots;  /* of each root: its path */
	struct ofs_keys kinds;  /* of each group: root and options */
	struct ofs_keys stored; /* roots that have groups already */
};

OFS_COMPARE_BY2(by_param, struct option, param, tail)

static uint32_t param_of(struct ofs_dtensor *d, uint32_t root, uint32_t name)
{
	uint32_t key[] = { root, name },
		 i = ofs_keys_copy(&d->keys, key, sizeof(key), d->err);
	struct ofs_str s;

	if (i == OFS_NONE || i < d->nparams)
		return i;
	if (ofs_grow(d->param, d->nparams, d->param_cap, d->err) == -1)
		return OFS_NONE;
	d->param[d->nparams++] =
	    (struct ofs_dtensor_param){ root, name, OFS_NONE, OFS_NONE };
	s = ofs_dtensor_clean(ofs_catalog_string(d->cat, name));
	return ofs_keys_copy(&d->fused, s.p, s.len, d->err) == OFS_NONE
	    ? OFS_NONE
	    : i;
}

static int note_option(struct fold *f, uint32_t entry, const uint32_t *c,
    uint32_t at, uint32_t n)
{
	struct ofs_dtensor *d = f->d;
	uint32_t root = ofs_catalog_path(d->cat, c, at, d->err);
	uint32_t tail =
	    ofs_catalog_path(d->cat, c + at + 2, n - at - 2, d->err);
	uint32_t param;

	if (root == OFS_NONE || tail == OFS_NONE)
		return -1;
	if (ofs_keys_find(&f->stored, &root, sizeof(root)) != OFS_NONE)
		return 0;
	param = param_of(d, root, c[at + 1]);
	if (param == OFS_NONE ||
	    ofs_grow(f->option, f->noptions, f->cap, d->err) == -1)
		return -1;
	f->option[f->noptions++] = (struct option){ param, tail, entry, 0 };
	return 0;
}

/* Calls note_option, or with groups notes an optimizer that has groups, too. */
static int look(struct fold *f, uint32_t entry, bool groups)
{
	struct ofs_dtensor *d = f->d;
	uint32_t n, root, word = groups ? d->groups : d->meta, at = 1;
	uint32_t *c = ofs_catalog_copy_components(d->cat,
	    d->cat->entries[entry].path, &n, d->err);
	int ret = 0;

	if (c == NULL)
		return -1;
	while (at + 2 < n && c[at] != word)
		at++;
	if (at + 2 < n && groups) {
		root = ofs_catalog_path(d->cat, c, at, d->err);
		ret = root == OFS_NONE ||
			ofs_keys_copy(&f->stored, &root, sizeof(root),
			    d->err) == OFS_NONE
		    ? -1
		    : 0;
	} else if (at + 2 < n) {
		ret = note_option(f, entry, c, at, n);
	}
	free(c);
	return ret;
}

static int collect(struct fold *f)
{
	struct ofs_dtensor *d = f->d;

	for (int groups = 1; groups >= 0; groups--)
		for (uint32_t i = d->first; i < d->n; i++)
			if (look(f, i, groups == 1) == -1)
				return -1;
	if (f->noptions > 0)
		qsort(f->option, f->noptions, sizeof(*f->option), by_param);
	return 0;
}

static int read_options(struct fold *f)
{
	struct ofs_dtensor *d = f->d;
	struct optimfs_error first = { 0 }, why;
	uint32_t lost = 0;

	for (uint32_t i = 0; i < f->noptions; i++) {
		struct option *o = &f->option[i];
		int ret = f->open[o->param]
		    ? 1
		    : ofs_dtensor_value(d, o->entry, &o->value, &why);

		if (ret == -1)
			return -1;
		if (ret == 1)
			continue;
		f->open[o->param] = true;
		if (lost++ == 0)
			first = why;
	}
	return lost == 0
	    ? 0
	    : ofs_catalog_note(d->cat, OFS_NOTE_WARNING, first.code, d->err,
		  "OFS657 options of %" PRIu32
		  " parameters cannot be read, so their groups are not known: "
		  "%.300s",
		  lost, first.text);
}

static struct root *root_of(struct fold *f, uint32_t path)
{
	struct ofs_dtensor *d = f->d;
	uint32_t old = f->roots.n,
		 i = ofs_keys_copy(&f->roots, &path, sizeof(path), d->err);

	if (i == OFS_NONE)
		return NULL;
	if (i == old) {
		if (ofs_grow(f->root, i, f->root_cap, d->err) == -1)
			return NULL;
		f->root[i] = (struct root){ 0, UINT32_MAX };
	}
	return &f->root[i];
}

static int count_modules(struct fold *f)
{
	struct ofs_dtensor *d = f->d;

	for (uint32_t i = 0; i < d->nparams; i++) {
		struct ofs_str s = ofs_catalog_string(d->cat, d->param[i].name);
		uint32_t n = (s.len - ofs_dtensor_clean(s).len) / MODULE_LEN;
		struct root *r = root_of(f, d->param[i].root);

		if (r == NULL)
			return -1;
		if (n < r->nmodules)
			r->nmodules = n;
	}
	return 0;
}

/* Writes what distinguishes the group of n options from others. */
static bool put_kind(const struct fold *f, uint32_t first, uint32_t n,
    struct ofs_buf *kind)
{
	const struct option *o = &f->option[first];
	uint32_t root = f->d->param[o->param].root;

	ofs_buf_put(kind, &root, sizeof(root));
	for (uint32_t k = 0; k < n; k++) {
		ofs_buf_put(kind, &o[k].tail, sizeof(o->tail));
		ofs_buf_put(kind, &o[k].value, sizeof(o->value));
	}
	return !kind->bad;
}

/* The number in f->group of the group with the options of a parameter, which are
 * option[first, first + n); OFS_NONE on failure. */
static uint32_t group_of(struct fold *f, uint32_t first, uint32_t n)
{
	struct ofs_dtensor *d = f->d;
	uint32_t root = d->param[f->option[first].param].root, i = OFS_NONE;
	struct ofs_buf kind = { 0 };
	struct root *r;

	if (put_kind(f, first, n, &kind))
		i = ofs_keys_copy(&f->kinds, kind.data, kind.len, d->err);
	else
		ofs_no_memory(d->err);
	ofs_buf_fini(&kind);
	if (i == OFS_NONE)
		return i;
	if (i == f->ngroups) {
		r = root_of(f, root);
		if (r == NULL ||
		    ofs_grow(f->group, i, f->group_cap, d->err) == -1)
			return OFS_NONE;
		f->group[f->ngroups++] = (struct group){
			.root = root, .number = r->ngroups++, .noptions = n
		};
	}
	f->group[i].nmembers++;
	return i;
}

static int find_groups(struct fold *f)
{
	struct ofs_dtensor *d = f->d;

	for (uint32_t i = 0, n; i < f->noptions; i += n) {
		uint32_t param = f->option[i].param;

		for (n = 1;
		     i + n < f->noptions && f->option[i + n].param == param;
		     n++)
			;
		f->at[param] = i;
		if (f->open[param])
			continue;
		d->param[param].group = group_of(f, i, n);
		if (d->param[param].group == OFS_NONE)
			return -1;
	}
	return 0;
}

/* Sorts the members, which stay in order within their group. */
static void fill_members(struct fold *f)
{
	const struct ofs_dtensor *d = f->d;
	uint32_t sum = 0;

	for (uint32_t i = 0; i < f->ngroups; i++) {
		f->group[i].first = sum;
		sum += f->group[i].nmembers;
		f->group[i].nmembers = 0;
	}
	for (uint32_t i = 0; i < d->nparams; i++) {
		struct group *g;

		if (d->param[i].group == OFS_NONE)
			continue;
		g = &f->group[d->param[i].group];
		f->member[g->first + g->nmembers++] = i;
	}
}

/* The path of an option, or of params, of a group: ROOT param_groups NUMBER
 * followed by c[0..n). */
static uint32_t group_path(struct fold *f, const struct group *g,
    const uint32_t *c, uint32_t n)
{
	struct ofs_dtensor *d = f->d;
	uint32_t nroot, path = OFS_NONE,
			*root = ofs_catalog_copy_components(d->cat, g->root,
			    &nroot, d->err);
	uint32_t *p = ofs_alloc(nroot + 2ull + n, sizeof(*p), d->err);
	char number[16];

	if (root != NULL && p != NULL) {
		memcpy(p, root, nroot * sizeof(*p));
		p[nroot] = d->groups;
		p[nroot + 1] = ofs_catalog_str(d->cat, number,
		    (size_t)snprintf(number, sizeof(number), "%" PRIu32,
			g->number),
		    d->err);
		memcpy(p + nroot + 2, c, n * sizeof(*p));
		if (p[nroot + 1] != OFS_NONE) {
			p[nroot + 1] |= OFS_PATH_INDEX;
			path =
			    ofs_catalog_path(d->cat, p, nroot + 2 + n, d->err);
		}
	}
	free(root);
	free(p);
	return path;
}

/* The option with this place among those of each member becomes one of the
 * group. entry has room for the members. */
static int show_option(struct fold *f, const struct group *g, uint32_t place,
    uint32_t *entry)
{
	struct ofs_dtensor *d = f->d;
	uint32_t path, ntail, *tail;
	bool step;

	for (uint32_t i = 0; i < g->nmembers; i++)
		entry[i] =
		    f->option[f->at[f->member[g->first + i]] + place].entry;
	tail = ofs_catalog_copy_components(d->cat,
	    f->option[f->at[f->member[g->first]] + place].tail, &ntail, d->err);
	if (tail == NULL)
		return -1;
	path = group_path(f, g, tail, ntail);
	step = ntail == 1 && tail[0] == d->step;
	free(tail);
	for (uint32_t i = 0; step && i < g->nmembers; i++)
		d->param[f->member[g->first + i]].step = entry[0];
	if (path == OFS_NONE || ofs_dtensor_join(d, entry, g->nmembers) == -1)
		return -1;
	d->cat->entries[entry[0]].path = path;
	d->cat->entries[entry[0]].key = OFS_KEY_FIXED;
	return 0;
}

/* Adds the names of the members. */
static int show_params(struct fold *f, const struct group *g)
{
	struct ofs_dtensor *d = f->d;
	uint32_t skip = MODULE_LEN * root_of(f, g->root)->nmodules, value;
	struct ofs_buf b = { 0 };
	struct ofs_pkw w = { .out = &b };

	ofs_pkw_begin(&w);
	ofs_pkw_lit(&w, "[");
	for (uint32_t i = 0; i < g->nmembers; i++) {
		struct ofs_str s =
		    ofs_str_after(ofs_catalog_string(d->cat,
				      d->param[f->member[g->first + i]].name),
			skip);

		ofs_pkw_str(&w, s.p, s.len);
		ofs_pkw_lit(&w, ",");
	}
	ofs_pkw_lit(&w, "]");
	if (ofs_pkw_end(&w, d->err) == -1) {
		ofs_buf_fini(&b);
		return -1;
	}
	value = ofs_catalog_pickle(d->cat, b.data, b.len, d->err);
	return value == OFS_NONE
	    ? -1
	    : ofs_catalog_add(d->cat, group_path(f, g, &d->params, 1),
		  OFS_ENTRY_VALUE, value, OFS_KEY_FIXED, d->err);
}

static int show_groups(struct fold *f)
{
	struct ofs_dtensor *d = f->d;
	uint32_t *entry = ofs_alloc(d->nparams + 1ull, sizeof(*entry), d->err);
	int ret = entry == NULL ? -1 : 0;

	for (uint32_t i = 0; i < f->ngroups && ret == 0; i++) {
		const struct group *g = &f->group[i];

		for (uint32_t k = 0; k < g->noptions && ret == 0; k++)
			ret = show_option(f, g, k, entry);
		if (ret == 0)
			ret = show_params(f, g);
	}
	free(entry);
	return ret;
}

static int fold(struct fold *f)
{
	struct ofs_dtensor *d = f->d;

	if (collect(f) == -1)
		return -1;
	f->open = ofs_alloc(d->nparams + 1ull, sizeof(*f->open), d->err);
	f->at = ofs_alloc(d->nparams + 1ull, sizeof(*f->at), d->err);
	f->member = ofs_alloc(d->nparams + 1ull, sizeof(*f->member), d->err);
	if (f->open == NULL || f->at == NULL || f->member == NULL ||
	    read_options(f) == -1 || count_modules(f) == -1 ||
	    find_groups(f) == -1)
		return -1;
	fill_members(f);
	return show_groups(f);
}

int ofs_dtensor_groups(struct ofs_dtensor *d)
{
	struct fold f = { .d = d };
	int ret = fold(&f);

	free(f.option);
	free(f.at);
	free(f.open);
	free(f.group);
	free(f.member);
	free(f.root);
	ofs_keys_fini(&f.roots);
	ofs_keys_fini(&f.kinds);
	ofs_keys_fini(&f.stored);
	return ret;
}
