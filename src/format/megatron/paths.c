/* paths.c - from Megatron-Core keys to paths as other frameworks nest them */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"
#include "base/str.h"
#include "format/megatron/megatron.h"
#include "pickle/pickle.h"

/* The most components of a path that are examined. Longer paths stay as they
 * are. */
#define PATH_MAX_LEN 300

struct path {
	uint32_t c[PATH_MAX_LEN];
	uint32_t n;
};

static int push(struct path *p, uint32_t str, struct optimfs_error *err)
{
	if (str == OFS_NONE)
		return -1;
	if (p->n == PATH_MAX_LEN)
		return optimfs_fail(err, E2BIG,
		    "OFS444 a value nests deeper than %d", PATH_MAX_LEN);
	p->c[p->n++] = str;
	return 0;
}

static int push_text(struct ofs_megatron *m, struct path *p, struct ofs_str s,
    struct optimfs_error *err)
{
	return push(p, ofs_catalog_str(m->cat, s.p, s.len, err), err);
}

static int push_rest(struct path *p, const uint32_t *rest, uint32_t n,
    struct optimfs_error *err)
{
	for (uint32_t i = 0; i < n; i++)
		if (push(p, rest[i], err) == -1)
			return -1;
	return 0;
}

/* Component c as a number below 1000000; false: it is no such number. */
static bool number_of(const struct ofs_megatron *m, uint32_t c, uint32_t *v)
{
	struct ofs_str s = ofs_catalog_string(m->cat, c);

	return s.len <= 6 && ofs_str_digits(s, v);
}

/* Appends "optimizer" and, with several optimizers, which one. */
static int push_optimizer(struct ofs_megatron *m, struct path *p,
    struct ofs_str chained, struct optimfs_error *err)
{
	if (push(p, m->optimizer, err) == -1)
		return -1;
	return chained.len == 0 || m->named ? 0 : push_text(m, p, chained, err);
}

/* Master weights get the name that other frameworks use. */
static struct ofs_str state_name(struct ofs_str s)
{
	static const char *const master[] = { "fp32_param", "param" };

	for (size_t i = 0; i < sizeof(master) / sizeof(*master); i++)
		if (ofs_str_is(s, master[i]))
			return (struct ofs_str){ "fp32", 4 };
	return s;
}

static int state_path(struct ofs_megatron *m,
    const struct ofs_megatron_key *key, struct ofs_str name, struct path *p,
    struct optimfs_error *err)
{
	if (push_optimizer(m, p, key->chained, err) == -1 ||
	    push(p, m->states, err) == -1 || push_text(m, p, name, err) == -1)
		return -1;
	return push_text(m, p, state_name(key->state), err);
}

/* The end of a component: a dot outside the parentheses of
 * "dtype_(torch.bfloat16, torch.float32)". */
static uint32_t component(struct ofs_str s, uint32_t from)
{
	int depth = 0;

	for (; from < s.len; from++) {
		depth += (s.p[from] == '(') - (s.p[from] == ')');
		if (s.p[from] == '.' && depth <= 0)
			break;
	}
	return from;
}

/* Appends the place of values that describe how the state is stored. */
static int push_form(struct ofs_megatron *m, struct path *p,
    struct ofs_str chained, struct optimfs_error *err)
{
	if (chained.len > 0 && push_text(m, p, chained, err) == -1)
		return -1;
	return push_text(m, p, ofs_str_of("distributed"), err);
}

static int bucket_path(struct ofs_megatron *m,
    const struct ofs_megatron_key *key, struct path *p,
    struct optimfs_error *err)
{
	uint32_t from = 0, end;

	/* what describes buckets that are not shown */
	if (m->named) {
		if (push_form(m, p, key->chained, err) == -1)
			return -1;
		from = component(key->name, 0) + 1; /* "distributed" */
	} else if (push_optimizer(m, p, key->chained, err) == -1) {
		return -1;
	}
	do {
		end = component(key->name, from);
		if (push_text(m, p,
			(struct ofs_str){ key->name.p + from, end - from },
			err) == -1)
			return -1;
		from = end + 1;
	} while (from < key->name.len);
	return 0;
}

/* The options of a group; groups are numbered across optimizers that share
 * optim/. */
static int group_path(struct ofs_megatron *m, uint32_t chained,
    const uint32_t *c, uint32_t n, struct path *p, struct optimfs_error *err)
{
	char digits[16];
	uint32_t group, str;

	if ((m->prefixed && !m->named) || n < 2 || c[0] != m->groups ||
	    chained >= m->nchained || !number_of(m, c[1], &group))
		return push_rest(p, c, n, err);
	group += m->first_group[chained];
	str = ofs_catalog_str(m->cat, digits,
	    (size_t)snprintf(digits, sizeof(digits), "%u", group), err);
	if (push(p, c[0], err) == -1 ||
	    push(p, str | OFS_PATH_INDEX, err) == -1)
		return -1;
	return push_rest(p, c + 2, n - 2, err);
}

/* The first rank's groups become the optimizer's groups. Those of another rank
 * go next to its buckets, because they do not form another optimizer. */
static int groups_path(struct ofs_megatron *m,
    const struct ofs_megatron_key *key, int rank, const uint32_t *rest,
    uint32_t n, struct path *p, struct optimfs_error *err)
{
	if (rank == 0) {
		if (push_optimizer(m, p, key->chained, err) == -1)
			return -1;
		return group_path(m, ofs_megatron_chained(key), rest, n, p,
		    err);
	}
	if (bucket_path(m, key, p, err) == -1)
		return -1;
	if (n > 0 && rest[0] == m->groups) {
		if (push_text(m, p, (struct ofs_str){ "groups", 6 }, err) == -1)
			return -1;
		rest++;
		n--;
	}
	return push_rest(p, rest, n, err);
}

/* The path of a key whose name is name. */
static int key_path(struct ofs_megatron *m, const struct ofs_megatron_key *key,
    struct ofs_str name, const uint32_t *rest, uint32_t n, uint32_t *path,
    struct optimfs_error *err)
{
	struct path p = { .n = 0 };
	int rank, ret = 0;

	switch (key->kind) {
	case OFS_MEGATRON_MODEL:
		ret = push(&p, m->model, err);
		if (ret == 0)
			ret = push_text(m, &p, name, err);
		break;
	case OFS_MEGATRON_STATE:
		ret = state_path(m, key, name, &p, err);
		break;
	case OFS_MEGATRON_BUCKET:
		rank = ofs_megatron_groups_rank(key);
		ret = rank == -1 ? bucket_path(m, key, &p, err)
				 : groups_path(m, key, rank, rest, n, &p, err);
		if (rank != -1)
			n = 0;
		break;
	case OFS_MEGATRON_COMMONS:
	case OFS_MEGATRON_OTHER:
		ret = push_text(m, &p, name, err);
		break;
	}
	if (ret == 0 && key->object && !key->alone)
		ret = push_text(m, &p, key->offsets, err);
	if (ret == -1 || push_rest(&p, rest, n, err) == -1)
		return -1;
	*path = ofs_catalog_path(m->cat, p.c, p.n, err);
	return *path == OFS_NONE ? -1 : 0;
}

int ofs_megatron_layer_path(struct ofs_megatron *m,
    const struct ofs_megatron_key *key, uint32_t at, uint64_t layer,
    const uint32_t *rest, uint32_t n, uint32_t *path, struct optimfs_error *err)
{
	struct ofs_str name = key->name;
	char *text;
	int ret = asprintf(&text, "%.*s%" PRIu64 ".%.*s", (int)at, name.p,
	    layer, (int)(name.len - at), name.p + at);

	if (ret == -1)
		return ofs_no_memory(err);
	name = (struct ofs_str){ text, (uint32_t)ret };
	ret = key_path(m, key, name, rest, n, path, err);
	free(text);
	return ret;
}

/* Common state. The optimizer's state is nested in its wrapper's, and that one
 * in the list of several optimizers: optimizer [N] [optimizer] param_groups I
 * OPTION. */

static int optimizer_path(struct ofs_megatron *m, const uint32_t *c, uint32_t n,
    struct path *p, struct optimfs_error *err)
{
	char text[32] = "";
	struct ofs_str name = { text, 0 };
	uint32_t chained = OFS_NONE;
	bool own, form;

	c++, n--;
	if (n > 1 && number_of(m, c[0], &chained))
		c++, n--;
	if (n > 1 && OFS_PATH_STR(c[0]) == m->optimizer)
		c++, n--;
	/* where several optimizers share optim/, each has such a value */
	own =
	    OFS_PATH_STR(c[0]) != m->groups && OFS_PATH_STR(c[0]) != m->states;
	if (chained != OFS_NONE &&
	    ((m->prefixed && !m->named) || (own && chained > 0)))
		name.len = (uint32_t)snprintf(text, sizeof(text), "chained_%u",
		    chained);
	/* how the state is stored is not part of it */
	form = n == 1 &&
	    ofs_catalog_string_is(m->cat, c[0], "param_state_sharding_type");
	if (form ? push_form(m, p, name, err) == -1
		 : push_optimizer(m, p, name, err) == -1)
		return -1;
	if (n > 0 && OFS_PATH_STR(c[0]) == m->groups && chained != OFS_NONE)
		return group_path(m, chained, c, n, p, err);
	if (n == 2 && OFS_PATH_STR(c[0]) == m->states &&
	    ofs_catalog_string_is(m->cat, c[1], "common_step"))
		c++, n--;
	return push_rest(p, c, n, err);
}

static int common_path(struct ofs_megatron *m, const uint32_t *c, uint32_t n,
    uint32_t *path, struct optimfs_error *err)
{
	struct path p = { .n = 0 };
	int ret;

	ret = n > 1 && OFS_PATH_STR(c[0]) == m->optimizer
	    ? optimizer_path(m, c, n, &p, err)
	    : push_rest(&p, c, n, err);
	if (ret == 0)
		*path = ofs_catalog_path(m->cat, p.c, p.n, err);
	return ret == -1 || *path == OFS_NONE ? -1 : 0;
}

/* An object is stored as a list with one item. */
static int unwrap(struct ofs_megatron *m, uint32_t entry,
    struct optimfs_error *err)
{
	struct ofs_entry *e = &m->cat->entries[entry];
	struct ofs_value v;
	uint32_t ref;

	if (e->kind != OFS_ENTRY_VALUE)
		return 0;
	v = m->cat->values[e->ref];
	if (ofs_pk_kind(v.doc, v.node) != OFS_PK_LIST ||
	    ofs_pk_len(v.doc, v.node) != 1)
		return 0;
	ref = ofs_catalog_value(m->cat, v.doc, ofs_pk_item(v.doc, v.node, 0),
	    err);
	if (ref == OFS_NONE)
		return -1;
	e->ref = ref;
	return 0;
}

static int place_object(struct ofs_megatron *m, uint32_t entry,
    const struct ofs_megatron_key *key, const uint32_t *rest, uint32_t n,
    uint32_t *path, struct optimfs_error *err)
{
	if (n == 0 && unwrap(m, entry, err) == -1)
		return -1;
	if (n > 0 && rest[0] == (m->zero | OFS_PATH_INDEX))
		rest++, n--;
	if (key->kind == OFS_MEGATRON_COMMONS && n > 0)
		return common_path(m, rest, n, path, err);
	if (key->nlayers > 0)
		return ofs_megatron_layer_path(m, key,
		    ofs_megatron_layer_at(key->name), key->layer, rest, n, path,
		    err);
	return key_path(m, key, key->name, rest, n, path, err);
}

static int place_entry(struct ofs_megatron *m, uint32_t entry,
    const uint32_t *c, uint32_t n, struct optimfs_error *err)
{
	struct ofs_str text = ofs_catalog_string(m->cat, c[0]);
	struct ofs_entry *e = &m->cat->entries[entry];
	bool tensor = e->kind == OFS_ENTRY_TENSOR &&
	    (m->cat->tensors[e->ref].flags & OFS_TENSOR_FILE) == 0;
	struct ofs_megatron_key key;
	uint32_t path = e->path;
	int ret = 0;

	if (n > 1 && ofs_catalog_string_is(m->cat, c[0], OFS_MEGATRON_COMMON)) {
		ret = common_path(m, c + 1, n - 1, &path, err);
	} else {
		ofs_megatron_parse(text, &key);
		if (key.object)
			ret = place_object(m, entry, &key, c + 1, n - 1, &path,
			    err);
		else if (n == 1 && tensor)
			ret = ofs_megatron_unstack(m, entry, &key, err);
		if (ret == 0 && !key.object && n == 1 && tensor)
			ret = key_path(m, &key, key.name, NULL, 0, &path, err);
		if (ret == 1)
			return 0;
	}
	if (ret == -1)
		return -1;
	e = &m->cat->entries[entry]; /* entries may have been added */
	if (e->kind == OFS_ENTRY_VALUE && path != e->path)
		m->cat->values[e->ref].source = e->path;
	e->path = path;
	return 0;
}

int ofs_megatron_place(struct ofs_megatron *m, uint32_t entry,
    struct optimfs_error *err)
{
	uint32_t n,
	    *path = ofs_catalog_copy_components(m->cat,
		m->cat->entries[entry].path, &n, err);
	int ret = 0;

	if (path == NULL)
		return -1;
	if (n > 0 && n < PATH_MAX_LEN)
		ret = place_entry(m, entry, path, n, err);
	free(path);
	return ret;
}
