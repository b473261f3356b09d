/* family.c - a checkpoint with the names of another program */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/search.h"
#include "base/str.h"
#include "catalog/check.h"
#include "family/family_impl.h"

/* The result is a second catalog over the same files. It begins as a copy, in
 * which the tensors of the source have their indexes and their shards; then the
 * entries are added again, with other paths. A tensor that is only renamed stays
 * the one that it is. One that is cut or joined is added: its shards are boxes of
 * the stored ones (cut.c). So a view, a reshard or a checksum of the result reads
 * what is stored, and nothing is copied.
 *
 * Everything of a parameter follows it: its moments are cut as it is, and its
 * step goes to each part; joined parts must agree on theirs. */

bool ofs_renaming_is_single(const struct ofs_catalog *cat,
    const struct ofs_tensor *t)
{
	return t->ndim == 0 || ofs_tensor_numel(cat, t) == 1;
}

bool ofs_renaming_is_whole(const struct ofs_family_rule *rule)
{
	return rule->nright == 1 && !rule->stacked && !rule->qkv &&
	    !rule->transpose && !rule->alternate && !rule->vocab;
}

/* Puts "PATH: " before an error about an entry of the source; -1. */
static int fail_at(struct ofs_renaming *r, const struct ofs_entry *e)
{
	struct ofs_buf path = { 0 };
	const uint32_t *c;
	uint32_t n;

	c = ofs_catalog_components(r->base, e->tree, &n);
	for (uint32_t i = 0; i < n; i++) {
		struct ofs_str s =
		    ofs_catalog_string(r->base, OFS_PATH_STR(c[i]));

		if (i > 0)
			ofs_buf_putc(&path, '/');
		ofs_buf_shown(&path, s.p, s.len);
	}
	ofs_buf_putc(&path, '\0');
	if (!path.bad)
		optimfs_fail_in(r->err, "%.200s", (char *)path.data);
	ofs_buf_fini(&path);
	return -1;
}

uint32_t ofs_renaming_twin(struct ofs_renaming *r, uint32_t tensor)
{
	struct ofs_tensor t = r->cat->tensors[tensor];
	uint32_t first = r->cat->nshards;

	for (uint32_t i = 0; i < t.nshards; i++) {
		struct ofs_shard s = r->cat->shards[t.shard + i];

		ofs_catalog_shard(r->cat, &s, r->err);
	}
	t.shard = first;
	t.flags &= (uint8_t)~OFS_TENSOR_DOUBT;
	return ofs_catalog_tensor(r->cat, &t, r->err);
}

int ofs_renaming_add(struct ofs_renaming *r, const struct ofs_entry *e,
    uint32_t tree, enum ofs_entry_kind kind, uint32_t ref)
{
	struct ofs_entry new = *e;
	uint32_t i = (uint32_t)(e - r->base->entries), at;

	new.path = new.tree = tree;
	new.kind = (uint8_t)kind;
	new.ref = ref;
	new.nfile = 0;
	at = ofs_catalog_entry(r->cat, &new, r->err);
	if (r->to[i] == OFS_NONE)
		r->to[i] = at;
	return at == OFS_NONE ? -1 : 0;
}

/* An entry as it is. */
static int keep(struct ofs_renaming *r, uint32_t i)
{
	r->to[i] = ofs_catalog_entry(r->cat, &r->base->entries[i], r->err);
	return r->to[i] == OFS_NONE ? -1 : 0;
}

static int keep_list(struct ofs_renaming *r, uint32_t i)
{
	const struct ofs_entry *e = &r->base->entries[i];
	uint32_t value;

	if (ofs_renaming_list(r, e, &value) == -1)
		return -1;
	if (value == OFS_NONE)
		return keep(r, i);
	return ofs_renaming_add(r, e, e->tree, OFS_ENTRY_VALUE, value);
}

static void note_kept(struct ofs_renaming *r, struct ofs_str name)
{
	ofs_buf_put(&r->out->kept, name.p, name.len);
	ofs_buf_putc(&r->out->kept, '\0');
	r->out->nkept++;
}

/* Parameters are noted once: those of the model, and of the optimizer those that
 * the model has not. */
static void note_unknown(struct ofs_renaming *r, uint32_t name)
{
	if (r->is_name[name] < 2)
		note_kept(r, ofs_catalog_string(r->base, name));
	r->is_name[name] = 2;
}

static void note_padding(struct ofs_renaming *r, const struct ofs_entry *e,
    const struct ofs_verdict *v)
{
	const struct ofs_tensor *t = ofs_entry_tensor(r->base, e);

	if (v->kind == OFS_NAME_SPLIT && v->rule->vocab &&
	    r->facts.vocab == 0 && t != NULL && t->ndim > 0)
		r->out->padded = *ofs_tensor_shape(r->base, t);
}

/* Is it of the optimizer, which is not wanted? What cannot be done with it then
 * does not matter. */
static bool is_unwanted(const struct ofs_renaming *r, const struct ofs_entry *e)
{
	const uint32_t *c;
	uint32_t n;

	if (!r->bare || e->tree == OFS_NONE)
		return false;
	c = ofs_catalog_components(r->base, e->tree, &n);
	return n > 0 && ofs_catalog_string_is(r->base, c[0], "optim");
}

/* Looks up what becomes of an entry, and adds it if it is split. */
static int rename_entry(struct ofs_renaming *r, uint32_t i)
{
	const struct ofs_entry *e = &r->base->entries[i];
	uint32_t at = ofs_renaming_name_at(r->base, e), n, name;
	struct ofs_verdict v;

	if (is_unwanted(r, e))
		return 0;
	if (at == OFS_NONE)
		return ofs_renaming_is_list(r->base, e) ? keep_list(r, i)
							: keep(r, i);
	name = OFS_PATH_STR(ofs_catalog_components(r->base, e->tree, &n)[at]);
	if (ofs_renaming_look_up(r, ofs_catalog_string(r->base, name), &v) ==
	    -1)
		return -1;
	r->nchanged += v.kind != OFS_NAME_UNKNOWN;
	note_padding(r, e, &v);
	switch (v.kind) {
	case OFS_NAME_SPLIT:
		return ofs_renaming_split(r, e, at, &v);
	case OFS_NAME_JOIN: /* with its group, where its first member is */
		return r->group[r->group_of[i]].first == i
		    ? ofs_renaming_joined(r, &r->group[r->group_of[i]])
		    : 0;
	case OFS_NAME_OUT:
		return r->lean ? 0 : keep(r, i);
	case OFS_NAME_UNKNOWN:
		note_unknown(r, name);
		break;
	case OFS_NAME_SAME:
		break;
	}
	return keep(r, i);
}

/* The way back: finds all that is to be joined. */
static int find_groups(struct ofs_renaming *r)
{
	for (uint32_t i = 0; i < r->base->nentries; i++) {
		const struct ofs_entry *e = &r->base->entries[i];
		uint32_t at = ofs_renaming_name_at(r->base, e), n;
		struct ofs_verdict v;
		struct ofs_str name;

		r->group_of[i] = OFS_NONE;
		if (at == OFS_NONE || is_unwanted(r, e))
			continue;
		name = ofs_catalog_string(r->base,
		    ofs_catalog_components(r->base, e->tree, &n)[at]);
		if (ofs_renaming_look_up(r, name, &v) == -1)
			return -1;
		if (v.kind == OFS_NAME_JOIN &&
		    ofs_renaming_join(r, i, at, &v) == -1)
			return -1;
	}
	return 0;
}

/* Finds the names of parameters, and a tensor that has the shape of each: that
 * of the model, or else the state with the most dimensions. */
static void find_names(struct ofs_renaming *r)
{
	const struct ofs_catalog *base = r->base;

	for (uint32_t i = 0; i < base->nentries; i++) {
		const struct ofs_entry *e = &base->entries[i];
		uint32_t at = ofs_renaming_name_at(base, e), n, name;
		const struct ofs_tensor *t = ofs_entry_tensor(base, e);
		uint32_t *known;

		if (at == OFS_NONE)
			continue;
		name =
		    OFS_PATH_STR(ofs_catalog_components(base, e->tree, &n)[at]);
		r->is_name[name] = 1;
		known = &r->shape_of[name];
		if (t != NULL &&
		    (n == 2 || *known == OFS_NONE ||
			t->ndim > base->tensors[*known].ndim))
			*known = e->ref;
	}
}

static int add_variants(struct ofs_renaming *r)
{
	for (uint32_t i = 0; i < r->base->nvariants; i++) {
		struct ofs_variant v = r->base->variants[i];

		v.entry = r->to[v.entry];
		if (v.entry != OFS_NONE &&
		    ofs_catalog_variant(r->cat, &v, r->err) == OFS_NONE)
			return -1;
	}
	return 0;
}

/* Two entries must not have one path. */
static int check_paths(struct ofs_renaming *r)
{
	const struct ofs_catalog *cat = r->cat;
	uint32_t *v = ofs_alloc(cat->nentries + 1ul, sizeof(*v), r->err), n = 0;
	int ret = 0;

	if (v == NULL)
		return -1;
	for (uint32_t i = 0; i < cat->nentries; i++)
		if (cat->entries[i].tree != OFS_NONE)
			v[n++] = cat->entries[i].tree;
	qsort(v, n, sizeof(*v), ofs_compare_u32);
	for (uint32_t i = 1; i < n && ret == 0; i++) {
		struct ofs_buf path = { 0 };
		const uint32_t *c;
		uint32_t k;

		if (v[i] != v[i - 1])
			continue;
		c = ofs_catalog_components(cat, v[i], &k);
		ofs_catalog_join(cat, c, k, &path);
		ofs_buf_putc(&path, '\0');
		ret = path.bad
		    ? ofs_no_memory(r->err)
		    : optimfs_fail(r->err, EOPNOTSUPP,
			  "OFS894 two tensors would be called %.200s",
			  (char *)path.data);
		ofs_buf_fini(&path);
	}
	free(v);
	return ret;
}

/* What else the catalog says of names is of those of the source. */
static void forget_names(struct ofs_catalog *cat)
{
	cat->naliases = 0;
	cat->id_names = NULL;
	cat->nid_names = 0;
	cat->ids_of_model = false;
	cat->flat = NULL;
	cat->nflat = 0;
	cat->ties = NULL;
	cat->nties = 0;
	cat->units = cat->units_file = NULL;
	cat->nunits = 0;
	cat->nlow_bits = 0;
}

static int rename_all(struct ofs_renaming *r)
{
	uint32_t first = r->cat->ntensors;

	find_names(r);
	if (r->back && find_groups(r) == -1)
		return -1;
	for (uint32_t i = 0; i < r->base->nentries; i++)
		if (rename_entry(r, i) == -1)
			return r->base->entries[i].tree == OFS_NONE
			    ? -1
			    : fail_at(r, &r->base->entries[i]);
	if (r->nchanged == 0)
		return optimfs_fail(r->err, EINVAL,
		    "OFS892 no name of this checkpoint is one of %.*s",
		    OFS_STR_ARGS(r->family->name, 40));
	if (r->out->kept.bad)
		return ofs_no_memory(r->err);
	if (add_variants(r) == -1 || check_paths(r) == -1)
		return -1;
	forget_names(r->cat);
	return ofs_catalog_check_added(r->cat, first, r->err);
}

/* The family that the user names, or on the way back the model. */

static int unknown_family(struct ofs_renaming *r, struct ofs_str name)
{
	struct ofs_buf list = { 0 };

	for (uint32_t i = 0; i < r->families->nfamilies; i++)
		ofs_buf_printf(&list, "%s%.*s", i == 0 ? "" : ", ",
		    OFS_STR_ARGS(r->families->family[i].name, 40));
	ofs_buf_putc(&list, '\0');
	if (name.len == 0)
		optimfs_fail(r->err, EINVAL,
		    "OFS892 names=megatron: of which family is the model? "
		    "There is no config.json that says so: "
		    "names=megatron:FAMILY, one of %.150s",
		    list.bad ? "" : (char *)list.data);
	else
		optimfs_fail(r->err, ENOENT,
		    "OFS892 no family of names is called '%.*s'. There are "
		    "%.150s",
		    OFS_STR_ARGS(name, 40), list.bad ? "" : (char *)list.data);
	ofs_buf_fini(&list);
	return -1;
}

static int choose(struct ofs_renaming *r,
    const struct ofs_family_choice *choice)
{
	static const char back[] = "megatron";
	struct ofs_str name = ofs_str_of(choice->name);

	r->facts = (struct ofs_facts){ choice->heads, choice->groups,
		choice->vocab, "" };
	if (ofs_facts_find(&r->facts, r->source, r->err) == -1)
		return -1;
	r->back = ofs_str_begins(name, back) &&
	    (name.len == strlen(back) || name.p[strlen(back)] == ':');
	if (r->back) {
		/* rows are added only if the user says so */
		r->facts.vocab = choice->vocab;
		name = name.len == strlen(back)
		    ? ofs_str_of(r->facts.model)
		    : ofs_str_after(name, strlen(back) + 1);
	}
	r->family = ofs_family_find(r->families, name);
	return r->family == NULL ? unknown_family(r, name) : 0;
}

/* Of the rules and the facts; names and shapes are hashed by others. */
static uint64_t hash_rules(const struct ofs_renaming *r)
{
	XXH64_hash_t h = XXH64(r->families->text.data, r->families->text.len,
	    r->facts.heads);

	h = XXH64(r->family->name.p, r->family->name.len, h);
	h = XXH64(&r->facts.groups, sizeof(r->facts.groups), h);
	return XXH64(&r->facts.vocab, sizeof(r->facts.vocab), h);
}

static int allocate(struct ofs_renaming *r)
{
	const struct ofs_catalog *base = r->base;

	r->shape_of =
	    ofs_alloc(base->nstrs + 1ul, sizeof(*r->shape_of), r->err);
	r->is_name = ofs_alloc(base->nstrs + 1ul, 1, r->err);
	r->to = ofs_alloc(base->nentries + 1ul, sizeof(*r->to), r->err);
	r->group_of =
	    ofs_alloc(base->nentries + 1ul, sizeof(*r->group_of), r->err);
	r->out = ofs_alloc(1, sizeof(*r->out), r->err);
	r->cat = ofs_catalog_copy(base, r->err);
	if (r->shape_of == NULL || r->is_name == NULL || r->to == NULL ||
	    r->group_of == NULL || r->out == NULL || r->cat == NULL)
		return -1;
	memset(r->shape_of, 0xff, base->nstrs * sizeof(*r->shape_of));
	memset(r->to, 0xff, base->nentries * sizeof(*r->to));
	return 0;
}

static void release(struct ofs_renaming *r)
{
	ofs_map_fini(&r->groups);
	free(r->shape_of);
	free(r->is_name);
	free(r->to);
	free(r->group);
	free(r->group_of);
	free(r->member);
}

static int finish(struct ofs_renaming *r)
{
	r->out->hash = hash_rules(r);
	ofs_catalog_seal(r->cat);
	r->out->cat = r->cat;
	return ofs_reader_share(&r->out->reader, r->reader, r->cat, r->err);
}

struct ofs_renamed *ofs_rename(const struct ofs_model_files *source,
    const struct ofs_family_choice *choice, const struct ofs_families *families,
    struct optimfs_error *err)
{
	struct ofs_renaming r = { .base = source->reader->cat,
		.reader = source->reader,
		.source = source,
		.families = families,
		.lean = choice->lean != 0,
		.bare = choice->bare != 0,
		.err = OFS_SOME_ERROR(err) };
	int ret = allocate(&r);

	if (ret == 0)
		ret = choose(&r, choice);
	if (ret == 0)
		ret = rename_all(&r);
	if (ret == 0)
		ret = finish(&r);
	release(&r);
	if (ret == 0)
		return r.out;
	if (r.out == NULL || r.out->cat == NULL)
		ofs_catalog_free(r.cat);
	ofs_renamed_free(r.out);
	return NULL;
}

void ofs_renamed_free(struct ofs_renamed *renamed)
{
	if (renamed == NULL)
		return;
	ofs_reader_unshare(&renamed->reader);
	ofs_catalog_free(renamed->cat);
	ofs_buf_fini(&renamed->kept);
	free(renamed);
}
